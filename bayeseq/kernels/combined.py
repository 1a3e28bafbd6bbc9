"""Sums and products of kernels, which are kernels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import add, mul
from typing import Any, ClassVar, Self

from sklearn.base import clone
from torch import Tensor

from bayeseq.kernels.base import Kernel, Logs


class Combined(Kernel):
    """Several kernels made one; a number of part i is called "i.name", a setting "i__name"."""

    _sign: ClassVar[str]

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self.kernels = kernels

    @classmethod
    def flat(cls, *kernels: Kernel) -> Self:
        """The kernels combined, where those of the same kind give their parts."""
        parts: list[Kernel] = []
        for kernel in kernels:
            parts.extend(kernel.kernels if isinstance(kernel, cls) else [kernel])
        return cls(parts)

    @staticmethod
    @abstractmethod
    def _join(parts: Iterable[Tensor]) -> Tensor:
        """One tensor of those of the parts."""

    def of(
        self, products: Tensor, left: Tensor, right: Tensor, log_params: Logs | None = None
    ) -> Tensor:
        """K (n, m) from inner products and squared norms."""
        self.check()
        return self._join(
            kernel.of(products, left, right, _part(log_params, i))
            for i, kernel in enumerate(self.kernels)
        )

    def diagonal(self, norms: Tensor, log_params: Logs | None = None) -> Tensor:
        """(n,) k(x, x) from squared norms."""
        self.check()
        return self._join(
            kernel.diagonal(norms, _part(log_params, i)) for i, kernel in enumerate(self.kernels)
        )

    def check(self) -> None:
        """Raise ValueError if there is no part, or something is wrong with one."""
        name = type(self).__name__
        if len(self.kernels) == 0:
            raise ValueError(f"{name} of no kernels; give it at least one")
        for kernel in self.kernels:
            if not isinstance(kernel, Kernel):
                raise ValueError(f"{name} holds {kernel!r}, which is not a kernel")
            kernel.check()

    def log_parameters(self) -> dict[str, Tensor]:
        """The learnable numbers of all parts, as logs: "0.log_variance" is one of the first."""
        self.check()
        return _numbered(kernel.log_parameters() for kernel in self.kernels)

    def with_parameters(self, log_params: Logs) -> Self:
        """A copy with these logs in place of its own."""
        self.check()
        if unknown := sorted(log_params.keys() - self.log_parameters()):
            raise ValueError(f"{self} has no learnable {', '.join(unknown)}")
        return type(self)(
            [kernel.with_parameters(_part(log_params, i)) for i, kernel in enumerate(self.kernels)]
        )

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's argument and, if deep, each part and its settings by position."""
        found: dict[str, Any] = {"kernels": self.kernels}
        if deep:
            for i, kernel in enumerate(self.kernels):
                found[str(i)] = kernel
                found |= {f"{i}__{name}": value for name, value in kernel.get_params().items()}
        return found

    def set_params(self, **params: Any) -> Self:
        """Set `kernels`, a part by its position ("0") or a setting of a part ("0__variance")."""
        if "kernels" in params:
            self.kernels = params.pop("kernels")
        for i in range(len(self.kernels)):
            if str(i) in params:
                parts = list(self.kernels)
                parts[i] = params.pop(str(i))
                self.kernels = parts
        super().set_params(**params)
        return self

    def __str__(self) -> str:
        # a product binds tighter than a sum, so only a sum inside a product needs brackets
        texts = (
            f"({kernel})" if isinstance(kernel, Sum) and isinstance(self, Product) else str(kernel)
            for kernel in self.kernels
        )
        return f" {self._sign} ".join(texts)


class Sum(Combined):
    """k = Σ_i k_i: what any of the parts finds alike counts as alike.

    As the kernel of a feature map it keeps the variances of its parts, since their proportions
    matter: one of them is then redundant beside the prior variance, which does no harm.

    >>> from bayeseq.kernels import Linear, RBF
    >>> Sum([Linear(), RBF()])([[1.0, 2.0]])
    array([[6.]])
    """

    _sign = "+"

    @staticmethod
    def _join(parts: Iterable[Tensor]) -> Tensor:
        return reduce(add, parts)

    def unit(self) -> Self:
        """A copy: the variances of the parts stay."""
        return clone(self)

    def shape_parameters(self) -> dict[str, Tensor]:
        """All learnable numbers."""
        return self.log_parameters()


class Product(Combined):
    """k = Π_i k_i: rows are alike when all parts find them alike.

    As the kernel of a feature map its parts are each taken with variance 1.

    >>> from bayeseq.kernels import Linear, RBF
    >>> Product([Linear(), RBF()])([[1.0, 2.0]])
    array([[5.]])
    """

    _sign = "*"

    @staticmethod
    def _join(parts: Iterable[Tensor]) -> Tensor:
        return reduce(mul, parts)

    def unit(self) -> Self:
        """The product of the parts with variance 1."""
        return type(self)([kernel.unit() for kernel in self.kernels])

    def shape_parameters(self) -> dict[str, Tensor]:
        """The learnable numbers of the parts, without their overall variances."""
        self.check()
        return _numbered(kernel.shape_parameters() for kernel in self.kernels)


def _numbered(parts: Iterable[Logs]) -> dict[str, Tensor]:
    """The numbers of all parts, each named after its part's position."""
    return {f"{i}.{name}": log for i, logs in enumerate(parts) for name, log in logs.items()}


def _part(log_params: Logs | None, i: int) -> dict[str, Tensor]:
    """The numbers of part i, under the names that the part knows them by."""
    start = f"{i}."
    return {
        name.removeprefix(start): log
        for name, log in (log_params or {}).items()
        if name.startswith(start)
    }
