"""What a kernel is: a function of inner products with a few learnable positive numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from torch import Tensor

from bayeseq.kernels.products import inner_products

Logs = Mapping[str, Tensor]
"""Learnable numbers of a kernel as logs: name → float64 scalar."""


class Kernel(BaseEstimator, ABC):
    """A kernel k(x, x') that depends on x·x', x·x and x'·x' alone.

    A kernel holds its numbers on their natural scale and never changes them itself. `of` and
    `diagonal` take their logs from outside, so that they can be differentiated; a log that is not
    given is that of the kernel's own number, and a name the kernel does not know is ignored.
    `str` of a kernel is a text that `kernel_from_text` reads back.
    """

    @abstractmethod
    def check(self) -> None:
        """Raise ValueError if a number of the kernel is out of its range."""

    @abstractmethod
    def log_parameters(self) -> dict[str, Tensor]:
        """The learnable numbers as logs, float64 scalars, e.g. {"log_variance": tensor(0.)}."""

    @abstractmethod
    def with_parameters(self, log_params: Logs) -> Self:
        """A copy of the kernel with these logs in place of its own; the others stay."""

    @abstractmethod
    def of(
        self, products: Tensor, left: Tensor, right: Tensor, log_params: Logs | None = None
    ) -> Tensor:
        """K (n, m) from inner products (n, m) and squared norms (n,) and (m,)."""

    @abstractmethod
    def diagonal(self, norms: Tensor, log_params: Logs | None = None) -> Tensor:
        """(n,) k(x, x) from squared norms (n,)."""

    @abstractmethod
    def unit(self) -> Self:
        """A copy whose overall variance is 1, for those who keep that variance elsewhere."""

    @abstractmethod
    def shape_parameters(self) -> dict[str, Tensor]:
        """The learnable numbers of `unit()`: `log_parameters` without the overall variance."""

    def __call__(self, X: Any, X2: Any = None) -> np.ndarray:
        """K (n, m) between the rows of X (n, D) and X2 (m, D), sparse or dense; X2 is X if None."""
        return self.of(*inner_products(X, X2)).numpy()

    def __add__(self, other: Kernel) -> Kernel:
        from bayeseq.kernels.combined import Sum

        return Sum.flat(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Kernel) -> Kernel:
        from bayeseq.kernels.combined import Product

        return Product.flat(self, other) if isinstance(other, Kernel) else NotImplemented

    @abstractmethod
    def __str__(self) -> str:
        """A text that `kernel_from_text` reads back."""

    def __repr__(self) -> str:
        return str(self)
