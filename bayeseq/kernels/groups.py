"""Inner products with one learnable weight for each group of columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bayeseq.kernels.products import InnerProducts, as_rows, dense_products

BUDGET = 2**27
"""How many numbers of per-group products are kept (1 GiB); beyond, they are made when needed."""

_BLOCK = 2**22
"""How many numbers the backward pass holds at once where they are not kept."""


@dataclass(frozen=True, eq=False)
class GroupedProducts:
    """Between n and m rows, Σ_g exp(log_weight_g) x_g·x'_g with x_g the columns of group g.

    With a linear kernel the weights are prior variances, one a group: Σ_g σ_g² Φ_g Φ_gᵀ. With an
    RBF kernel they are one inverse squared length-scale a group (ARD).

    >>> made = GroupedProducts.between([[1.0, 2.0]], None, np.array([0, 1]))
    >>> made.weighted(torch.zeros(2)).products
    tensor([[5.]], dtype=torch.float64)
    """

    X: sp.csr_matrix
    """(n, D)"""
    X2: sp.csr_matrix
    """(m, D)"""
    column_groups: np.ndarray
    """(D,) the group of each column"""
    left: Tensor
    """(n, G) squared norms within each group"""
    right: Tensor
    """(m, G)"""
    stack: Tensor | None
    """(G, n, m) the products within each group, or None where they are too many to keep"""

    @classmethod
    def between(
        cls, X: Any, X2: Any, column_groups: np.ndarray, budget: int = BUDGET
    ) -> GroupedProducts:
        """The products between the rows of X (n, D) and X2 (m, D), or X and X where X2 is None.

        They are kept by group, as G · n · m float64, if these are at most `budget` numbers.
        """
        rows = as_rows(X)
        others = rows if X2 is None else as_rows(X2)
        groups = checked_groups(column_groups, rows.shape[1])
        if others.shape[1] != rows.shape[1]:
            raise ValueError(
                f"rows have {rows.shape[1]} columns on one side, {others.shape[1]} on the other"
            )
        G = n_groups(groups)
        left = _group_norms(rows, groups)
        right = left if others is rows else _group_norms(others, groups)
        few = G * rows.shape[0] * others.shape[0] <= budget
        stack = _stack(rows, others, groups) if few else None
        return cls(rows, others, groups, left, right, stack)

    def weighted(self, log_weights: Tensor) -> InnerProducts:
        """The weighted products (n, m) and squared norms, differentiable in log_weights (G,)."""
        weights = log_weights.to(torch.float64).exp()
        if weights.shape != self.left.shape[1:]:
            raise ValueError(
                f"log_weights have shape {tuple(log_weights.shape)} beside "
                f"{self.left.shape[1]} groups of columns"
            )
        if self.stack is not None:
            products = torch.tensordot(weights, self.stack, 1)
        else:
            products = _WeightedProducts.apply(weights, self.X, self.X2, self.column_groups)
        return InnerProducts(products, self.left @ weights, self.right @ weights)


class _WeightedProducts(torch.autograd.Function):
    """Σ_g ω_g X_g X2_gᵀ without the G matrices; for a gradient E (n, m) of the result, that of ω_g
    is Σ_{d in g} Σ_i X[i, d] (E X2)[i, d], summed over the entries of X."""

    @staticmethod
    def forward(
        ctx: Any, weights: Tensor, X: sp.csr_matrix, X2: sp.csr_matrix, groups: np.ndarray
    ) -> Tensor:
        ctx.rows = (X, X2, groups, len(weights))
        root = sp.diags(np.sqrt(weights.detach().numpy())[groups])
        left = X @ root
        return dense_products(left, left if X2 is X else X2 @ root)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        X, X2, groups, G = ctx.rows
        E = grads[0].numpy()
        total = np.zeros(G)
        at_once = max(1, _BLOCK // max(1, X.shape[1]))
        for a in range(0, X.shape[0], at_once):
            part = X[a : a + at_once].tocoo()
            pulled = X2.T @ E[a : a + at_once].T  # (D, rows)
            entries = part.data * pulled[part.col, part.row]
            total += np.bincount(groups[part.col], weights=entries, minlength=G)
        return torch.from_numpy(total), None, None, None


def checked_groups(column_groups: np.ndarray, n_columns: int) -> np.ndarray:
    """Groups (D,) of the columns as int64: 0, 1, … in any order."""
    groups = np.asarray(column_groups)
    if groups.shape != (n_columns,):
        raise ValueError(f"column_groups have shape {groups.shape}, expected ({n_columns},)")
    if groups.size and (groups.dtype.kind not in "iu" or groups.min() < 0):
        raise ValueError("column_groups must be whole numbers, 0 or more")
    return groups.astype(np.int64)


def n_groups(column_groups: np.ndarray) -> int:
    """G: one more than the largest group."""
    return int(column_groups.max()) + 1 if len(column_groups) else 0


def _stack(X: sp.csr_matrix, X2: sp.csr_matrix, groups: np.ndarray) -> Tensor:
    """(G, n, m) the products within each group."""
    stack = torch.empty((n_groups(groups), X.shape[0], X2.shape[0]), dtype=torch.float64)
    left, right = X.tocsc(), X2.tocsc()
    for g in range(len(stack)):
        columns = np.flatnonzero(groups == g)
        some = left[:, columns].tocsr()
        stack[g] = dense_products(some, some if X2 is X else right[:, columns].tocsr())
    return stack


def _group_norms(X: sp.csr_matrix, groups: np.ndarray) -> Tensor:
    """(n, G) squared norms of the rows within each group."""
    D = len(groups)
    member = sp.csr_matrix((np.ones(D), (np.arange(D), groups)), shape=(D, n_groups(groups)))
    return torch.from_numpy((X.multiply(X) @ member).toarray())
