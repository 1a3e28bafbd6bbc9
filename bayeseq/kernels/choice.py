"""Which exact feature map is the cheapest for a kernel and rows; reading maps from a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bayeseq.kernels.base import Kernel
from bayeseq.kernels.conjunctions import ConjunctionMap, conjunction_count
from bayeseq.kernels.elementary import Linear, Polynomial
from bayeseq.kernels.groups import checked_groups
from bayeseq.kernels.inducing import JITTER
from bayeseq.kernels.maps import FeatureMap, InducingMap, LinearMap, exact_map
from bayeseq.kernels.products import as_rows, distinct_rows


def cheapest_map(
    kernel: Kernel,
    X: Any,
    column_groups: np.ndarray | None = None,
    column_weights: np.ndarray | None = None,
    jitter: float = JITTER,
) -> FeatureMap:
    """The map that reproduces the kernel on X (N, D) with the fewest numbers.

    The linear kernel is X itself, with a prior variance for each of the `column_groups` (one for
    all if None; weights belong to these variances then, and `column_weights` are not used). A
    polynomial kernel is written out as conjunctions where these have fewer non-zeros than a kernel
    matrix of the distinct rows; every other kernel takes that matrix's Cholesky factor.

    >>> type(cheapest_map(Polynomial(degree=2), [[1.0, 0.0], [0.0, 1.0]])).__name__
    'InducingMap'
    >>> type(cheapest_map(Polynomial(degree=2), np.eye(9))).__name__
    'ConjunctionMap'
    """
    rows = as_rows(X)
    kernel.check()
    if isinstance(kernel, Linear):
        groups = np.zeros(rows.shape[1], np.int64) if column_groups is None else column_groups
        return LinearMap(checked_groups(groups, rows.shape[1]))
    if prefers_conjunctions(kernel, rows):
        assert isinstance(kernel, Polynomial)
        return ConjunctionMap(kernel, rows, column_weights)
    return exact_map(kernel, rows, column_weights, jitter)


def prefers_conjunctions(kernel: Kernel, X: Any) -> bool:
    """Whether `cheapest_map` writes this kernel out as conjunctions of the rows X (N, D)."""
    if not isinstance(kernel, Polynomial):
        return False
    rows = as_rows(X)
    return conjunction_count(kernel, rows) < len(distinct_rows(rows)) ** 2


def map_from_arrays(arrays: Mapping[str, np.ndarray]) -> FeatureMap:
    """The map whose `arrays` these are. Raises KeyError or ValueError if they are those of none."""
    if "conjunctions" in arrays:
        return ConjunctionMap.from_arrays(arrays)
    return (InducingMap if "kernel" in arrays else LinearMap).from_arrays(arrays)
