"""Inner products of sparse rows, which are all that a kernel needs to know of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

_DENSE = 0.1
"""Rows with more than this part of their values other than zero are multiplied as dense ones."""


class InnerProducts(NamedTuple):
    """Inner products of n rows with m rows, and all squared norms; float64."""

    products: Tensor
    """(n, m)"""
    left: Tensor
    """(n,) squared norms of the n rows"""
    right: Tensor
    """(m,) squared norms of the m rows"""


def inner_products(
    X: Any, X2: Any = None, column_weights: np.ndarray | None = None
) -> InnerProducts:
    """Σ_d ω_d x_d x'_d between the rows of X (n, D) and of X2 (m, D), or of X and X.

    `column_weights` (D,) are the ω, 1 each by default.

    >>> inner_products([[1.0, 2.0]], [[0.0, 6.0]], np.array([1.0, 0.25])).products
    tensor([[3.]], dtype=torch.float64)
    """
    left = as_rows(X)
    right = left if X2 is None else as_rows(X2)
    if left.shape[1] != right.shape[1]:
        raise ValueError(
            f"rows have {left.shape[1]} columns on one side, {right.shape[1]} on the other"
        )
    if column_weights is not None:
        # a root on either side, so that X with X stays symmetric to the last digit
        root = sp.diags(np.sqrt(checked_weights(column_weights, left.shape[1])))
        same, left = right is left, left @ root
        right = left if same else right @ root
    norms = squared_norms(left)
    return InnerProducts(
        dense_products(left, right), norms, norms if right is left else squared_norms(right)
    )


def as_rows(X: Any) -> sp.csr_matrix:
    """A sparse or dense matrix of rows as CSR float64 with finite values, each entry once."""
    if not sp.issparse(X):
        X = np.asarray(X, dtype=np.float64)
        if X.ndim != 2:
            raise ValueError(f"rows have {X.ndim} axes; give a matrix (n, D), one row a token")
    rows = sp.csr_matrix(X, dtype=np.float64)
    if not np.isfinite(rows.data).all():
        raise ValueError("rows hold NaN or infinite values; a kernel needs finite features")
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def checked_weights(column_weights: np.ndarray | None, n_columns: int) -> np.ndarray:
    """Weights (D,) of the columns: ones where none are given."""
    if column_weights is None:
        return np.ones(n_columns)
    weights = np.asarray(column_weights, dtype=np.float64)
    if weights.shape != (n_columns,):
        raise ValueError(f"column_weights have shape {weights.shape}, expected ({n_columns},)")
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueError("column_weights must be finite and not negative")
    return weights


def dense_products(X: sp.csr_matrix, X2: sp.csr_matrix) -> Tensor:
    """X X2ᵀ (n, m), the result dense whatever the rows are; X Xᵀ is exactly symmetric."""
    if X.nnz + X2.nnz > _DENSE * (X.shape[0] + X2.shape[0]) * X.shape[1]:
        left = X.toarray()
        return torch.from_numpy(left @ (left if X2 is X else X2.toarray()).T)
    return torch.from_numpy((X @ X2.T).toarray())


def squared_norms(X: sp.csr_matrix) -> Tensor:
    """(n,) x·x of each row."""
    return torch.from_numpy(np.asarray(X.multiply(X).sum(1)).reshape(-1))


def distinct_rows(X: Any) -> np.ndarray:
    """The numbers of the rows that equal no row before them, rising.

    >>> distinct_rows([[1.0, 0.0], [0.0, 2.0], [1.0, 0.0]])
    array([0, 1])
    """
    rows = as_rows(X).copy()
    rows.eliminate_zeros()
    seen: dict[tuple[bytes, bytes], int] = {}
    for n, (a, b) in enumerate(zip(rows.indptr[:-1], rows.indptr[1:], strict=True)):
        seen.setdefault((rows.indices[a:b].tobytes(), rows.data[a:b].tobytes()), n)
    return np.fromiter(seen.values(), dtype=np.int64, count=len(seen))
