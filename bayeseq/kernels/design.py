"""The matrix that turns weights into scores, sparse or dense, and the products that inference
needs."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor


class Design:
    """Ψ (N, D), a row a token: scores are Ψ W for weights W (D, C).

    >>> design = Design(sp.csr_matrix([[1.0, 2.0], [0.0, 3.0]]))
    >>> design.times(torch.eye(2, dtype=torch.float64)).tolist()
    [[1.0, 2.0], [0.0, 3.0]]
    """

    def __init__(self, matrix: sp.csr_matrix | np.ndarray) -> None:
        self.sparse = sp.issparse(matrix)
        self.matrix: Any = sp.csr_matrix(matrix) if self.sparse else np.ascontiguousarray(matrix)
        self._splits: dict[int, tuple[Design, Design]] = {}

    @property
    def shape(self) -> tuple[int, int]:
        """(N, D)."""
        n, d = self.matrix.shape
        return int(n), int(d)

    def dense(self) -> np.ndarray:
        """Ψ as an array."""
        return self.matrix.toarray() if self.sparse else self.matrix

    @cached_property
    def _transposed(self) -> Any:
        return self.matrix.T.tocsr() if self.sparse else self.matrix.T

    @cached_property
    def _squared(self) -> Any:
        return self.matrix.multiply(self.matrix).tocsr() if self.sparse else self.matrix**2

    def times(self, weights: Tensor) -> Tensor:
        """Ψ W."""
        return torch.from_numpy(self.matrix @ weights.numpy())

    def product(self, weights: Tensor) -> Tensor:
        """(…, N, C) Ψ W for weights (…, D, C) with any leading axes, differentiable in them."""
        return _Product.apply(weights, self)

    def transpose_times(self, scores: Tensor) -> Tensor:
        """Ψᵀ R."""
        return torch.from_numpy(self._transposed @ scores.numpy())

    def squared_times(self, variances: Tensor) -> Tensor:
        """(Ψ ∘ Ψ) d: the variances of the scores when the weights are independent."""
        return torch.from_numpy(self._squared @ variances.numpy())

    def squared_transpose_times(self, curvature: Tensor) -> Tensor:
        """(Ψ ∘ Ψ)ᵀ λ: the diagonal of Ψᵀ diag(λ) Ψ."""
        return torch.from_numpy(self._squared.T @ curvature.numpy())

    def columns_gram(self, curvature: Tensor) -> Tensor:
        """(D, D) Ψᵀ diag(λ) Ψ."""
        if not self.sparse:
            dense = torch.from_numpy(self.matrix)
            return dense.T @ (dense * curvature.unsqueeze(-1))
        if self._pairs is None:
            return torch.from_numpy(
                (self._transposed @ sp.diags(curvature.numpy()) @ self.matrix).toarray()
            )
        rows, places, products, _ = self._pairs
        D = self.shape[1]
        filled = _sums(places, products * curvature.numpy()[rows], D * D)
        return torch.from_numpy(filled.reshape(D, D))

    def rows_gram(self, variances: Tensor, other: Design | None = None) -> Tensor:
        """(N, N') Ψ diag(t) Ψ'ᵀ."""
        other = self if other is None else other
        scaled = sp.diags(variances.numpy()) if self.sparse else np.diag(variances.numpy())
        if self.sparse and other.sparse:
            return torch.from_numpy((self.matrix @ scaled @ other.matrix.T).toarray())
        left = self.matrix @ scaled if self.sparse else self.matrix * variances.numpy()
        return torch.from_numpy(np.asarray(left @ other.matrix.T))

    def row_forms(self, matrix: Tensor) -> Tensor:
        """(N,) ψ_nᵀ M ψ_n for a symmetric M (D, D)."""
        if self.sparse and self._pairs is not None:
            _, places, products, starts = self._pairs
            terms = np.append(products * matrix.numpy().ravel()[places], 0.0)
            sums = np.add.reduceat(terms, starts)
            sums[np.diff(np.append(starts, len(terms) - 1)) == 0] = 0.0  # rows without a feature
            return torch.from_numpy(sums)
        return self._sum_rows(torch.from_numpy(np.asarray(self.matrix @ matrix.numpy())))

    def column_forms(self, matrix: Tensor) -> Tensor:
        """(D,) Σ_nm ψ_nk M_nm ψ_mk for a symmetric M (N, N)."""
        turned = self.transposed()
        return turned._sum_rows(torch.from_numpy(np.asarray(turned.matrix @ matrix.numpy())))

    def transposed(self) -> Design:
        """Ψᵀ as a design; the same object each time."""
        return self._turned

    @cached_property
    def _turned(self) -> Design:
        return Design(self._transposed)

    def select(self, rows: np.ndarray) -> Design:
        """Some of the rows."""
        return Design(self.matrix[rows])

    def split(self, column: int) -> tuple[Design, Design]:
        """The columns before, and from, a column on; the same two objects each time."""
        if column not in self._splits:
            self._splits[column] = (
                Design(self.matrix[:, :column]),
                Design(self.matrix[:, column:]),
            )
        return self._splits[column]

    def _sum_rows(self, dense: Tensor) -> Tensor:
        """(N,) Σ_k ψ_nk X_nk for a dense X (N, D)."""
        if not self.sparse:
            return (torch.from_numpy(self.matrix) * dense).sum(-1)
        rows = np.repeat(np.arange(self.shape[0]), np.diff(self.matrix.indptr))
        terms = self.matrix.data * dense.numpy()[rows, self.matrix.indices]
        return torch.from_numpy(_sums(rows, terms, self.shape[0]))

    @cached_property
    def _pairs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
        """For every two non-zeros of a row: the row, the flat place k·D + l, the product of their
        values; and where each row's pairs start. None where a matrix product is the cheaper way."""
        lengths = np.diff(self.matrix.indptr).astype(np.int64)
        n_pairs = int(np.square(lengths).sum())
        if n_pairs > min(_MOST_PAIRS, self.matrix.nnz * self.shape[1] // 8):
            return None
        starts = np.concatenate([[0], np.cumsum(np.square(lengths))])[:-1]
        rows = np.repeat(np.arange(len(lengths)), np.square(lengths))
        within = np.arange(n_pairs) - starts[rows]
        left = self.matrix.indptr[rows] + within // lengths[rows]
        right = self.matrix.indptr[rows] + within % lengths[rows]
        columns, values = self.matrix.indices.astype(np.int64), self.matrix.data
        places = columns[left] * self.shape[1] + columns[right]
        return rows, places, values[left] * values[right], starts


class _Product(torch.autograd.Function):
    """Ψ W with all leading axes of W side by side in one matrix; its derivative is Ψᵀ R."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, design: Design) -> Tensor:
        ctx.design = design
        return _side_by_side(design.matrix, weights)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return _Product.apply(grads[0], ctx.design.transposed()), None


def _side_by_side(matrix: Any, weights: Tensor) -> Tensor:
    """(…, N, C) one product of an (N, D) matrix with all of (…, D, C)."""
    lead, (D, C) = weights.shape[:-2], weights.shape[-2:]
    N, S = matrix.shape[0], lead.numel()
    wide = weights.detach().reshape(S, D, C).transpose(0, 1).reshape(D, S * C)
    found = torch.from_numpy(matrix @ np.ascontiguousarray(wide.numpy())).reshape(N, S, C)
    return found.transpose(0, 1).reshape(*lead, N, C)


def _sums(places: np.ndarray, terms: np.ndarray, n: int) -> np.ndarray:
    """(n,) the sum of the terms at each place; float64 even where there is no term."""
    return np.bincount(places, terms, minlength=n).astype(np.float64, copy=False)


_MOST_PAIRS = 2**24
"""Pairs of non-zeros that are kept (24 bytes each)."""
