"""Feature maps: a kernel as columns Φ with k(x, x') ≈ φ(x)·φ(x'), and what they leave out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import clone
from torch import Tensor

from bayeseq.kernels.base import Kernel
from bayeseq.kernels.groups import checked_groups
from bayeseq.kernels.inducing import JITTER, features_from_factor, inducing_factor
from bayeseq.kernels.products import as_rows, checked_weights, distinct_rows, inner_products
from bayeseq.kernels.text import kernel_from_text


class FeatureMap(ABC):
    """Turns rows into the columns that weights multiply.

    The kernel's overall variance is not in the columns: it is the prior variance of the weights,
    one for each group of columns, and multiplies the residual variance too.
    """

    @abstractmethod
    def features(self, X: Any) -> tuple[sp.csr_matrix | np.ndarray, np.ndarray]:
        """Φ (n, M) and the residual variances k(x, x) − φ·φ ≥ 0 (n,) of rows X (n, D)."""

    @property
    @abstractmethod
    def column_groups(self) -> np.ndarray:
        """(M,) which prior variance belongs to each column."""

    @property
    def n_columns(self) -> int:
        """M."""
        return len(self.column_groups)

    @property
    @abstractmethod
    def n_inputs(self) -> int:
        """D, the columns of the rows that it takes."""

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """The map as plain arrays, for a file; `map_from_arrays` reads them back."""

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """The inverse of `arrays`. Checks what it reads: KeyError or ValueError if it is wrong."""


class LinearMap(FeatureMap):
    """The linear kernel: Φ is X itself, and nothing is left out.

    >>> phi, residual = LinearMap(np.array([0, 0, 1])).features([[1.0, 0.0, 2.0]])
    >>> phi.toarray(), residual
    (array([[1., 0., 2.]]), array([0.]))
    """

    def __init__(self, column_groups: np.ndarray) -> None:
        groups = np.asarray(column_groups)
        self._groups = checked_groups(groups, groups.size)

    @property
    def column_groups(self) -> np.ndarray:
        """(D,) the group of each column of X."""
        return self._groups

    def features(self, X: Any) -> tuple[sp.csr_matrix, np.ndarray]:
        """Φ = X (n, D), sparse, and zeros (n,)."""
        rows = as_rows(X)
        require_columns(rows, self.n_columns)
        return rows, np.zeros(rows.shape[0])

    @property
    def n_inputs(self) -> int:
        """D."""
        return len(self._groups)

    def arrays(self) -> dict[str, np.ndarray]:
        """The groups."""
        return {"column_groups": self._groups}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """The inverse of `arrays`."""
        groups = arrays["column_groups"]
        if groups.dtype != np.int64 or groups.ndim != 1:
            raise ValueError("column_groups is not a row of int64")
        return cls(groups)


@dataclass(frozen=True, eq=False)
class InducingMap(FeatureMap):
    """Any kernel at M points Z: φ(x) = L⁻¹ k(Z, x) with k(Z, Z) + jitter = L Lᵀ.

    The kernel is taken with overall variance 1 (`Kernel.unit`): the variance of an elementary
    kernel and those of the factors of a product are left out, those of a sum stay.
    `column_weights` (D,) weigh the columns in the inner products, 1 each if None.

    >>> from bayeseq.kernels import RBF
    >>> phi, residual = InducingMap(RBF(variance=5.0), [[0.0]]).features([[0.0], [9.0]])
    >>> phi.round(3), residual.round(3)
    (array([[1.],
           [0.]]), array([0., 1.]))
    """

    kernel: Kernel
    points: sp.csr_matrix
    """(M, D)"""
    column_weights: np.ndarray | None = None
    jitter: float = JITTER

    def __post_init__(self) -> None:
        points = as_rows(self.points)
        if points.shape[0] == 0:
            raise ValueError("a feature map needs at least one point")
        if not 0 <= self.jitter < np.inf:
            raise ValueError(f"jitter is {self.jitter}; it must be finite and not negative")
        object.__setattr__(self, "points", points)
        object.__setattr__(self, "kernel", clone(self.kernel))
        if self.column_weights is not None:
            weights = checked_weights(self.column_weights, points.shape[1])
            object.__setattr__(self, "column_weights", weights)

    def features(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Φ (n, M), dense, and the residual variances (n,)."""
        rows = as_rows(X)
        require_columns(rows, self.points.shape[1])
        cross = inner_products(self.points, rows, self.column_weights)
        phi, residual = features_from_factor(self.kernel, self._factor, cross)
        return np.ascontiguousarray(phi.numpy()), residual.numpy()

    @property
    def column_groups(self) -> np.ndarray:
        """Zeros (M,): one prior variance for all."""
        return np.zeros(self.points.shape[0], dtype=np.int64)

    @property
    def n_inputs(self) -> int:
        """D."""
        return int(self.points.shape[1])

    @cached_property
    def _factor(self) -> Tensor:
        with torch.no_grad():
            points = inner_products(self.points, None, self.column_weights)
            return inducing_factor(self.kernel, points, jitter=self.jitter)

    def arrays(self) -> dict[str, np.ndarray]:
        """The points, the weights, the jitter, and the kernel as the bytes of its text."""
        found = {
            "kernel": np.frombuffer(str(self.kernel).encode(), dtype=np.uint8),
            "jitter": np.array([self.jitter]),
            **rows_as_arrays(self.points),
        }
        if self.column_weights is not None:
            found["column_weights"] = self.column_weights
        return found

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """The inverse of `arrays`."""
        require_plain(arrays)
        (jitter,) = arrays["jitter"].tolist()
        return cls(
            kernel_from_text(arrays["kernel"].tobytes().decode()),
            rows_from_arrays(arrays),
            arrays.get("column_weights"),
            jitter,
        )


def exact_map(
    kernel: Kernel, X: Any, column_weights: np.ndarray | None = None, jitter: float = JITTER
) -> InducingMap:
    """The map that reproduces the kernel on X (N, D): its points are the distinct rows of X.

    >>> from bayeseq.kernels import RBF
    >>> exact_map(RBF(), [[1.0], [2.0], [1.0]]).n_columns
    2
    """
    rows = as_rows(X)
    return InducingMap(kernel, rows[distinct_rows(rows)], column_weights, jitter)


def rows_as_arrays(points: sp.csr_matrix) -> dict[str, np.ndarray]:
    """Sparse rows as plain arrays, for a file."""
    return {
        "points.data": points.data,
        "points.indices": points.indices.astype(np.int64),
        "points.indptr": points.indptr.astype(np.int64),
        "points.shape": np.array(points.shape, dtype=np.int64),
    }


def rows_from_arrays(arrays: Mapping[str, np.ndarray]) -> sp.csr_matrix:
    """The inverse of `rows_as_arrays`; refuses what is no matrix."""
    require_plain({name: array for name, array in arrays.items() if name.startswith("points.")})
    n_points, n_columns = (int(size) for size in arrays["points.shape"])
    points = sp.csr_matrix(
        (arrays["points.data"], arrays["points.indices"], arrays["points.indptr"]),
        shape=(n_points, n_columns),
    )
    points.check_format(full_check=True)
    if not points.has_canonical_format or points.nnz != len(arrays["points.data"]):
        raise ValueError("a place in the points stands twice")
    return points


def require_columns(rows: sp.csr_matrix, n_columns: int) -> None:
    """Refuse rows with another number of columns."""
    if rows.shape[1] != n_columns:
        raise ValueError(f"rows have {rows.shape[1]} columns, the feature map has {n_columns}")


def require_plain(arrays: Mapping[str, np.ndarray]) -> None:
    """Refuse arrays of a map with points that have another type or number of axes than theirs."""
    bytes_, floats = ("kernel", "conjunctions"), ("points.data", "jitter", "column_weights")
    for name, array in arrays.items():
        kind = np.uint8 if name in bytes_ else np.float64 if name in floats else np.int64
        if array.ndim != 1 or array.dtype != kind:
            raise ValueError(f"{name} is not a row of {np.dtype(kind).name}")
