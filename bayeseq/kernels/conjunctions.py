"""The polynomial kernel written out: one column for each conjunction of features.

With x̃ = (x, √offset) the kernel (x·x' + offset)^degree is (x̃·x̃')^degree, and its features are the
products of `degree` entries of x̃, repetitions included, each times √(degree! / Π repetitions!).
Rows with m non-zeros have C(m + degree, degree) of them, however many there are in all: sparse rows
stay sparse. Conjunctions are numbered degree by degree: one of j features is the number of its
first j − 1, and the last. So any degree fits into 64 bits, and what begins with a conjunction that
was not seen in training was not seen itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from scipy.special import comb
from sklearn.base import clone

from bayeseq.kernels.elementary import Polynomial
from bayeseq.kernels.maps import (
    FeatureMap,
    require_columns,
    require_plain,
    rows_as_arrays,
    rows_from_arrays,
)
from bayeseq.kernels.products import as_rows, checked_weights, distinct_rows, squared_norms
from bayeseq.kernels.text import kernel_from_text

_BLOCK = 2**22
"""How many conjunctions are held at once while they are made."""

_ROUNDING = 1e-10
"""A residual variance below this part of k(x, x) is rounding error."""


@dataclass(frozen=True, eq=False)
class ConjunctionMap(FeatureMap):
    """A polynomial kernel as sparse columns, exact for the rows `points` and all like them.

    A column is a conjunction of features that occurs in `points`. Conjunctions that occur in the
    same rows, in the same proportions, are one column: most occur in a single row. A new row keeps
    the inner products with all points exactly; what it has of conjunctions never seen is its
    residual variance. As in all maps the kernel's overall variance is left out. `column_weights`
    (D,) weigh the features in the inner products, 1 each if None.

    >>> made = ConjunctionMap(Polynomial(degree=2), [[1.0, 1.0], [1.0, 0.0]])
    >>> phi, residual = made.features([[1.0, 1.0], [0.0, 2.0]])
    >>> (phi @ phi.T).toarray().round(6), residual.round(6)
    (array([[ 9.  ,  9.  ],
           [ 9.  , 13.05]]), array([ 0.  , 11.95]))
    """

    kernel: Polynomial
    points: sp.csr_matrix
    """(n, D)"""
    column_weights: np.ndarray | None = None

    def __post_init__(self) -> None:
        points = as_rows(self.points)
        if points.shape[0] == 0:
            raise ValueError("a feature map needs at least one point")
        if not isinstance(self.kernel, Polynomial):
            raise ValueError(f"{self.kernel} has no conjunctions; give a polynomial kernel")
        self.kernel.check()
        object.__setattr__(self, "points", points[distinct_rows(points)])
        object.__setattr__(self, "kernel", clone(self.kernel))
        if self.column_weights is not None:
            weights = checked_weights(self.column_weights, points.shape[1])
            object.__setattr__(self, "column_weights", weights)

    def features(self, X: Any) -> tuple[sp.csr_matrix, np.ndarray]:
        """Φ (n, M), sparse, and the residual variances (n,)."""
        rows = as_rows(X)
        require_columns(rows, self.n_inputs)
        found = self._raw(rows, self._levels)
        column, share = self._merged
        found.data *= share[found.indices]
        phi = sp.csr_matrix(
            (found.data, column[found.indices], found.indptr), (rows.shape[0], self.n_columns)
        )
        phi.sum_duplicates()
        prior = self._prior(rows)
        residual = prior - np.asarray(phi.multiply(phi).sum(1)).ravel()
        residual[residual < _ROUNDING * prior] = 0.0
        return phi, residual

    @property
    def column_groups(self) -> np.ndarray:
        """Zeros (M,): one prior variance for all."""
        return np.zeros(int(self._merged.column.max(initial=-1)) + 1, dtype=np.int64)

    @property
    def n_inputs(self) -> int:
        """D."""
        return int(self.points.shape[1])

    @property
    def n_conjunctions(self) -> int:
        """How many conjunctions occur in the points, before alike ones are made one column."""
        return len(self._levels[-1])

    # ---- making conjunctions --------------------------------------------------------------------

    def _extended(self, rows: sp.csr_matrix) -> sp.csr_matrix:
        """x̃: the rows, weighed, with √offset as a last feature."""
        if self.column_weights is not None:
            rows = rows @ sp.diags(np.sqrt(self.column_weights))
        if self.kernel.offset > 0:
            constant = np.full((rows.shape[0], 1), np.sqrt(self.kernel.offset))
            rows = sp.hstack([rows, sp.csr_matrix(constant)])
        rows = sp.csr_matrix(rows)
        rows.eliminate_zeros()
        rows.sort_indices()
        return rows

    def _prior(self, rows: sp.csr_matrix) -> np.ndarray:
        """(n,) k(x, x) with overall variance 1."""
        return squared_norms(self._extended(rows)).numpy() ** int(self.kernel.degree)

    @cached_property
    def _levels(self) -> tuple[np.ndarray, ...]:
        """The conjunctions of 1, 2, …, degree features that occur in the points, each as a rising
        row of (number of its beginning) · (D + 1) + its last feature."""
        points = self._extended(self.points)
        levels: list[np.ndarray] = []
        for _ in range(int(self.kernel.degree)):
            seen = [np.unique(part.key) for _, part in _conjunctions(points, levels, open_end=True)]
            levels.append(np.unique(np.concatenate(seen)))
        return tuple(levels)

    def _raw(self, rows: sp.csr_matrix, levels: tuple[np.ndarray, ...]) -> sp.csr_matrix:
        """(n, n_conjunctions) a column for each conjunction."""
        n = rows.shape[0]
        counts, columns, values = [np.zeros(1, np.int64)], [], []
        for block, part in _conjunctions(self._extended(rows), list(levels)):
            counts.append(np.bincount(part.row - block.start, minlength=block.stop - block.start))
            columns.append(part.key.astype(np.int32))
            values.append(part.value)
        indptr = np.cumsum(np.concatenate(counts))
        joined = [
            np.concatenate([*pieces, kind])
            for pieces, kind in ((values, np.zeros(0)), (columns, np.zeros(0, np.int32)))
        ]
        return sp.csr_matrix((*joined, indptr), shape=(n, len(levels[-1])))

    # ---- making alike ones one ------------------------------------------------------------------

    @cached_property
    def _merged(self) -> _Merged:
        """Which conjunctions share a column. Those that are a_j u with a common u (n,) become the
        column ‖a‖ u, of which a row with values z_j has Σ a_j z_j / ‖a‖."""
        raw = self._raw(self.points, self._levels)
        size = _first_values(raw)
        alike = raw.copy()
        alike.data /= size[raw.indices]
        # two random projections, exactly equal for columns with the same entries
        rng = np.random.default_rng(0)
        mark = alike.T @ rng.normal(size=raw.shape[0]) + 1j * (
            alike.T @ rng.normal(size=raw.shape[0])
        )
        _, first, number = np.unique(mark, return_index=True, return_inverse=True)
        order = np.argsort(np.argsort(first))  # by first member, whatever the projections
        column = order[number].astype(np.int32)
        norm = np.sqrt(np.bincount(column, weights=size**2))
        return _Merged(column, size / norm[column])

    # ---- storing --------------------------------------------------------------------------------

    def arrays(self) -> dict[str, np.ndarray]:
        """The points, the weights, and the kernel as the bytes of its text; the conjunctions are
        found again from them."""
        text = np.frombuffer(str(self.kernel).encode(), dtype=np.uint8)
        found = {"conjunctions": text, **rows_as_arrays(self.points)}
        if self.column_weights is not None:
            found["column_weights"] = self.column_weights
        return found

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """The inverse of `arrays`."""
        require_plain(arrays)
        kernel = kernel_from_text(arrays["conjunctions"].tobytes().decode())
        if not isinstance(kernel, Polynomial):
            raise ValueError(f"{kernel} has no conjunctions")
        return cls(kernel, rows_from_arrays(arrays), arrays.get("column_weights"))


class _Merged(NamedTuple):
    column: np.ndarray
    """(n_conjunctions,) the column that each belongs to"""
    share: np.ndarray
    """(n_conjunctions,) what a row's value is multiplied by there"""


def conjunction_count(kernel: Polynomial, X: Any) -> int:
    """How many non-zeros the conjunctions of the rows X (n, D) have.

    >>> conjunction_count(Polynomial(degree=2), [[1.0, 1.0, 0.0]])     # of x₁, x₂ and the constant
    6
    """
    active = np.diff(as_rows(X).indptr) + int(kernel.offset > 0)
    degree = int(kernel.degree)
    return int(comb(active + degree - 1, degree, exact=False).sum())


class _Part(NamedTuple):
    """Conjunctions of some rows."""

    row: np.ndarray
    key: np.ndarray
    """The number of each, or, at an open end, what it will be numbered by"""
    value: np.ndarray
    last: np.ndarray
    """The place of the last feature among the non-zeros"""
    run: np.ndarray
    """How often the last feature stands at the end"""


def _conjunctions(
    rows: sp.csr_matrix, levels: list[np.ndarray], open_end: bool = False
) -> Iterator[tuple[slice, _Part]]:
    """Blocks of rows with their conjunctions of as many features as there are levels; at an open
    end, of one more, not yet numbered."""
    degree = len(levels) + open_end
    active = np.diff(rows.indptr)
    cost = np.cumsum(comb(active + degree - 1, degree))
    start = 0
    while start < rows.shape[0]:
        done = cost[start - 1] if start else 0.0
        stop = max(start + 1, int(np.searchsorted(cost, done + _BLOCK, side="right")))
        yield slice(start, stop), _of_rows(rows, start, stop, levels, degree)
        start = stop


def _of_rows(
    rows: sp.csr_matrix, start: int, stop: int, levels: list[np.ndarray], degree: int
) -> _Part:
    ends = rows.indptr.astype(np.int64)
    places = np.arange(ends[start], ends[stop])
    of_place = np.repeat(np.arange(start, stop), np.diff(ends[start : stop + 1]))
    column, n_columns = rows.indices.astype(np.int64), rows.shape[1]
    part = _Part(of_place, column[places], rows.data[places], places, np.ones_like(places))
    for j in range(1, degree + 1):
        if j > 1:
            part = _longer(part, rows.data, column, ends, n_columns, j)
        if j <= len(levels):
            part = _numbered(part, levels[j - 1])
    return part


def _longer(
    part: _Part, data: np.ndarray, column: np.ndarray, ends: np.ndarray, n_columns: int, j: int
) -> _Part:
    """Each conjunction of j − 1 features with every feature from its last one on: a factor of
    √(j / repetitions of the last) each time makes √(degree! / Π repetitions!) in the end."""
    many = ends[part.row + 1] - part.last
    origin = np.repeat(np.arange(len(many)), many)
    ahead = np.arange(len(origin)) - np.repeat(np.cumsum(many) - many, many)
    last = part.last[origin] + ahead
    run = np.where(ahead == 0, part.run[origin] + 1, 1)
    return _Part(
        part.row[origin],
        part.key[origin] * n_columns + column[last],
        part.value[origin] * data[last] * np.sqrt(j / run),
        last,
        run,
    )


def _numbered(part: _Part, level: np.ndarray) -> _Part:
    """The conjunctions that a level knows, by their number there."""
    at = np.searchsorted(level, part.key)
    at[at == len(level)] = 0
    known = level[at] == part.key if len(level) else np.zeros(len(at), dtype=bool)
    return _Part(part.row[known], at[known], part.value[known], part.last[known], part.run[known])


def _first_values(raw: sp.csr_matrix) -> np.ndarray:
    """(M,) the first value other than zero of each column."""
    first = np.empty(raw.shape[1])
    first[raw.indices[::-1]] = raw.data[::-1]  # the last write wins, and it is the first entry
    return first
