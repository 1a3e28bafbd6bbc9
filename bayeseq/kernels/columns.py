"""Some columns of the kernel matrix of training rows; the matrix itself is never made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from bayeseq.kernels.base import Kernel
from bayeseq.kernels.choice import cheapest_map, prefers_conjunctions
from bayeseq.kernels.elementary import Linear
from bayeseq.kernels.products import as_rows


class Columns(ABC):
    """K[:, rows] (N, m), with overall variance 1, by the products that sparse methods need."""

    @abstractmethod
    def times(self, weights: np.ndarray) -> np.ndarray:
        """(N, C) K[:, rows] W for weights W (m, C)."""

    @abstractmethod
    def transpose_times(self, values: np.ndarray) -> np.ndarray:
        """(m, C) K[rows] R for values R (N, C)."""

    @abstractmethod
    def block(self) -> np.ndarray:
        """(m, m) K[rows, rows]."""


class ColumnsOf(ABC):
    """The kernel matrix of training rows, to take columns from."""

    @abstractmethod
    def __call__(self, rows: np.ndarray) -> Columns:
        """The columns of the rows with these numbers."""

    @property
    @abstractmethod
    def every(self) -> Columns | None:
        """All columns, where products with them cost about as much as with a few; else None."""


def kernel_columns(kernel: Kernel, X: Any) -> ColumnsOf:
    """The columns of the kernel matrix of the rows X (N, D), in the cheapest exact form: linear and
    polynomial kernels on sparse rows through their features, others as they are.

    >>> from bayeseq.kernels import RBF
    >>> kernel_columns(RBF(), [[0.0], [0.0]])(np.array([1])).times(np.array([[3.0]]))
    array([[3.],
           [3.]])
    """
    rows = as_rows(X)
    if isinstance(kernel, Linear) or prefers_conjunctions(kernel, rows):
        features = sp.csr_matrix(cheapest_map(kernel, rows).features(rows)[0])
        return _Features(features)
    return _Rows(kernel.unit(), rows)


class _Features(ColumnsOf):
    def __init__(self, features: sp.csr_matrix) -> None:
        self._features, self._transposed = features, features.T.tocsr()

    def __call__(self, rows: np.ndarray) -> Columns:
        return _FeatureColumns(self._features, self._transposed, rows)

    @cached_property
    def every(self) -> Columns:
        return self(np.arange(self._features.shape[0]))


class _FeatureColumns(Columns):
    """K = Φ Φᵀ with a sparse Φ (N, M): nothing but Φ is ever held."""

    def __init__(
        self, features: sp.csr_matrix, transposed: sp.csr_matrix, rows: np.ndarray
    ) -> None:
        self._features, self._transposed = features, transposed
        self._some = features[rows]
        self._some_transposed = self._some.T.tocsr()

    def times(self, weights: np.ndarray) -> np.ndarray:
        return self._features @ (self._some_transposed @ weights)

    def transpose_times(self, values: np.ndarray) -> np.ndarray:
        return self._some @ (self._transposed @ values)

    def block(self) -> np.ndarray:
        return (self._some @ self._some_transposed).toarray()


class _Rows(ColumnsOf):
    every = None

    def __init__(self, kernel: Kernel, X: sp.csr_matrix) -> None:
        self._kernel, self._X = kernel, X

    def __call__(self, rows: np.ndarray) -> Columns:
        return _DenseColumns(self._kernel, self._X, rows)


class _DenseColumns(Columns):
    """Any kernel, m · N numbers."""

    def __init__(self, kernel: Kernel, X: sp.csr_matrix, rows: np.ndarray) -> None:
        self._rows = rows
        self._columns = kernel(X[rows], X)

    def times(self, weights: np.ndarray) -> np.ndarray:
        return self._columns.T @ weights

    def transpose_times(self, values: np.ndarray) -> np.ndarray:
        return self._columns @ values

    def block(self) -> np.ndarray:
        return self._columns[:, self._rows]
