"""The elementary kernels: linear, polynomial, RBF, delta."""

from __future__ import annotations

import math
from abc import abstractmethod
from numbers import Integral, Real
from typing import ClassVar, Self

import torch
from torch import Tensor

from bayeseq.kernels.base import Kernel, Logs


class Elementary(Kernel):
    """σ² times a function of inner products; a subclass names its numbers and the function."""

    _positive: ClassVar[tuple[str, ...]] = ("variance",)
    """The constructor's numbers that must be positive, all learnable"""
    variance: float

    @abstractmethod
    def _shape(self, products: Tensor, left: Tensor, right: Tensor, logs: Logs) -> Tensor:
        """K (n, m) without its variance."""

    @abstractmethod
    def _shape_diagonal(self, norms: Tensor, logs: Logs) -> Tensor:
        """(n,) the diagonal without its variance."""

    def of(
        self, products: Tensor, left: Tensor, right: Tensor, log_params: Logs | None = None
    ) -> Tensor:
        """K (n, m) from inner products and squared norms."""
        self.check()
        logs = log_params or {}
        return self._number("variance", logs) * self._shape(products, left, right, logs)

    def diagonal(self, norms: Tensor, log_params: Logs | None = None) -> Tensor:
        """(n,) k(x, x) from squared norms."""
        self.check()
        logs = log_params or {}
        return self._number("variance", logs) * self._shape_diagonal(norms, logs)

    def check(self) -> None:
        """Raise ValueError if a number is not finite or not positive."""
        for name in self._positive:
            value = self._finite(name)
            if value <= 0:
                raise ValueError(f"{name} of {type(self).__name__} is {value}; it must be positive")

    def log_parameters(self) -> dict[str, Tensor]:
        """The learnable numbers as logs."""
        self.check()
        return {
            f"log_{name}": torch.tensor(math.log(getattr(self, name)), dtype=torch.float64)
            for name in self._learnable()
        }

    def with_parameters(self, log_params: Logs) -> Self:
        """A copy with these logs in place of its own."""
        known = {f"log_{name}": name for name in self._learnable()}
        if unknown := sorted(log_params.keys() - known):
            raise ValueError(
                f"{self} has no learnable {', '.join(unknown)}; it has {', '.join(known)}"
            )
        changed = {known[name]: float(log.detach().exp()) for name, log in log_params.items()}
        copy = type(self)(**(self.get_params() | changed))
        copy.check()
        return copy

    def unit(self) -> Self:
        """A copy with variance 1."""
        return type(self)(**(self.get_params() | {"variance": 1.0}))

    def shape_parameters(self) -> dict[str, Tensor]:
        """The learnable numbers but the variance."""
        found = self.log_parameters()
        del found["log_variance"]
        return found

    def _learnable(self) -> tuple[str, ...]:
        return self._positive

    def _number(self, name: str, logs: Logs) -> Tensor:
        """A number on its natural scale: from its log if that is given and learnable."""
        if name in self._learnable() and f"log_{name}" in logs:
            return logs[f"log_{name}"].exp()
        return torch.tensor(float(getattr(self, name)), dtype=torch.float64)

    def _finite(self, name: str) -> float:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
            raise ValueError(f"{name} of {type(self).__name__} is {value!r}, not a finite number")
        return float(value)

    def __str__(self) -> str:
        numbers = (f"{name}={_plain(value)!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({', '.join(numbers)})"


def _plain(value: object) -> object:
    """A number of any library as Python's own, which prints as digits alone."""
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else value


class Linear(Elementary):
    """k(x, x') = σ² x·x'.

    >>> Linear(variance=2.0)([[1.0, 3.0]])
    array([[20.]])
    """

    def __init__(self, variance: float = 1.0) -> None:
        self.variance = variance

    def _shape(self, products: Tensor, left: Tensor, right: Tensor, logs: Logs) -> Tensor:
        return products

    def _shape_diagonal(self, norms: Tensor, logs: Logs) -> Tensor:
        return norms


class Polynomial(Elementary):
    """k(x, x') = σ² (x·x' + offset)^degree: weights on conjunctions of up to `degree` features.

    An offset of 0 is legal (conjunctions of exactly `degree` features), and is then not learned.

    >>> Polynomial(degree=2, offset=1.0)([[1.0, 1.0]])
    array([[9.]])
    """

    def __init__(self, degree: int = 2, offset: float = 1.0, variance: float = 1.0) -> None:
        self.degree = degree
        self.offset = offset
        self.variance = variance

    def check(self) -> None:
        """Raise ValueError also if the degree is not 1, 2, … or the offset is negative."""
        super().check()
        if isinstance(self.degree, bool) or not isinstance(self.degree, Integral):
            raise ValueError(f"degree of Polynomial is {self.degree!r}, not a whole number")
        if self.degree < 1:
            raise ValueError(f"degree of Polynomial is {self.degree}; it must be at least 1")
        if self._finite("offset") < 0:
            raise ValueError(f"offset of Polynomial is {self.offset}; it cannot be negative")

    def _shape(self, products: Tensor, left: Tensor, right: Tensor, logs: Logs) -> Tensor:
        return (products + self._number("offset", logs)) ** int(self.degree)

    def _shape_diagonal(self, norms: Tensor, logs: Logs) -> Tensor:
        return (norms + self._number("offset", logs)) ** int(self.degree)

    def _learnable(self) -> tuple[str, ...]:
        return ("variance", "offset") if self.offset > 0 else ("variance",)


class RBF(Elementary):
    """k(x, x') = σ² exp(−scale/2 ‖x − x'‖²): near rows get near labels. [gpsl] eq. 1.

    >>> RBF(scale=2.0)([[0.0]], [[0.0], [1.0]]).round(4)
    array([[1.    , 0.3679]])
    """

    _positive = ("scale", "variance")

    def __init__(self, scale: float = 1.0, variance: float = 1.0) -> None:
        self.scale = scale
        self.variance = variance

    def _shape(self, products: Tensor, left: Tensor, right: Tensor, logs: Logs) -> Tensor:
        # of two equal rows the difference may come out a rounding error below zero
        squared = (left.unsqueeze(-1) + right - 2 * products).clamp(min=0)
        return torch.exp(-self._number("scale", logs) / 2 * squared)

    def _shape_diagonal(self, norms: Tensor, logs: Logs) -> Tensor:
        return torch.ones_like(norms)


class Delta(Elementary):
    """k(x, x') = σ² [x = x']: rows are alike only when they are the same, to 6 digits.

    >>> Delta()([[1.0, 0.0]], [[1.0, 0.0], [1.0, 1.0]])
    array([[1., 0.]])
    """

    def __init__(self, variance: float = 1.0) -> None:
        self.variance = variance

    def _shape(self, products: Tensor, left: Tensor, right: Tensor, logs: Logs) -> Tensor:
        both = left.unsqueeze(-1) + right
        return (both - 2 * products <= _SAME * both).to(products.dtype)

    def _shape_diagonal(self, norms: Tensor, logs: Logs) -> Tensor:
        return torch.ones_like(norms)


_SAME = 1e-12
"""The squared distance of two equal rows, over their squared norms, may be a rounding error."""
