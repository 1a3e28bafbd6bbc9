"""Which points a kernel is represented at, when there are too many rows to use all."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.cluster import MiniBatchKMeans

from bayeseq.kernels.base import Kernel
from bayeseq.kernels.products import as_rows, checked_weights, distinct_rows, squared_norms

Method = Literal["pivoted", "kmeans"]

NEGLIGIBLE = 1e-10
"""Points are no longer added when they leave out less than this part of the prior variance."""


def choose_points(
    kernel: Kernel,
    X: Any,
    m: int,
    method: Method = "pivoted",
    seed: int = 0,
    column_weights: np.ndarray | None = None,
) -> sp.csr_matrix:
    """At most m points (M, D) that represent the rows of X (N, D) well under a kernel.

    "pivoted": rows of X, each the one that the rows before it leave most of the prior variance of
    (`pivoted_rows`). It covers the whole range, outliers first, and needs no seed.
    "kmeans": centres of the rows, found as a dense matrix (M, D). It covers the bulk; the kernel
    plays no part in it.

    >>> from bayeseq.kernels import RBF
    >>> choose_points(RBF(), [[0.0], [0.1], [5.0]], 2).toarray()
    array([[0.],
           [5.]])
    """
    rows = as_rows(X)
    if m < 1:
        raise ValueError(f"m is {m}; there must be at least one point")
    if rows.shape[0] == 0:
        raise ValueError("there are no rows to choose points from")
    if method == "pivoted":
        return rows[pivoted_rows(kernel, rows, m, column_weights)]
    if method == "kmeans":
        return _centres(rows, m, seed, column_weights)
    raise ValueError(f"method is {method!r}; it must be 'pivoted' or 'kmeans'")


def pivoted_rows(
    kernel: Kernel,
    X: Any,
    m: int,
    column_weights: np.ndarray | None = None,
    negligible: float = NEGLIGIBLE,
) -> np.ndarray:
    """The first m pivots of the Cholesky factor of K (N, N), by row number; the first of equals.

    Greedy: each pivot is the row with the largest k(x, x) − φ·φ given the pivots before it. Stops
    early when the sum of these is a negligible part of that of k(x, x). Holds (m, N), never (N, N).
    """
    rows = as_rows(X)
    N = rows.shape[0]
    rows = rows @ sp.diags(np.sqrt(checked_weights(column_weights, rows.shape[1])))
    norms = squared_norms(rows)
    unit = kernel.unit()
    left_over = unit.diagonal(norms).numpy().copy()
    enough = negligible * left_over.sum()
    factor = np.empty((min(m, N), N))
    pivots: list[int] = []
    for j in range(min(m, N)):
        p = int(left_over.argmax())
        if j and (left_over.sum() <= enough or left_over[p] <= 0):
            break
        pivots.append(p)
        products = torch.from_numpy((rows @ rows[p].T).toarray())
        column = unit.of(products, norms, norms[p : p + 1]).numpy()[:, 0]
        column = column - factor[:j].T @ factor[:j, p]
        if left_over[p] > 0:
            column = column / np.sqrt(left_over[p])
        factor[j] = column
        left_over = np.maximum(left_over - column**2, 0)
        left_over[p] = 0
    return np.array(pivots, dtype=np.int64)


def _centres(
    rows: sp.csr_matrix, m: int, seed: int, column_weights: np.ndarray | None
) -> sp.csr_matrix:
    """k-means in the space where the inner product is the weighted one."""
    distinct = rows[distinct_rows(rows)]
    if distinct.shape[0] <= m:
        return distinct
    scale = np.sqrt(checked_weights(column_weights, rows.shape[1]))
    means = MiniBatchKMeans(m, random_state=seed, n_init=3, batch_size=max(1024, 4 * m))
    centres = means.fit(rows @ sp.diags(scale)).cluster_centers_
    back = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    found = sp.csr_matrix(centres * back)
    return found[distinct_rows(found)]
