"""What marginalized kernels share: observations, label priors, scaling, blocks. [mlp] section 4."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from bayeseq.kernels.base import Kernel
from bayeseq.kernels.marginalized.graph import Graph
from bayeseq.kernels.products import as_rows, inner_products, squared_norms
from bayeseq.kernels.text import kernel_from_text

ROWS_AT_ONCE = 1024
"""Positions of one side that are worked on together: what lies between is never N × N."""
_SELF_ROWS = 256
"""The same where only the positions of one structure among themselves are wanted."""
_LARGEST_LOG = 709.0


@dataclass(frozen=True, eq=False)
class Positions:
    """The positions of some structures: what is seen there, how they are joined, and P(y | x)."""

    rows: sp.csr_matrix
    """(N, D) features"""
    graph: Graph
    prior: np.ndarray
    """(N, C) label probabilities, before any label is known"""

    @classmethod
    def of(cls, rows: Any, graph: Graph, prior: np.ndarray | int = 1) -> Positions:
        """Checked; a whole number C stands for the uniform prior over C labels.

        >>> Positions.of([[1.0], [2.0]], Graph.chains([2]), 2).prior
        array([[0.5, 0.5],
               [0.5, 0.5]])
        """
        rows = as_rows(rows)
        N = graph.n_positions
        if rows.shape[0] != N:
            raise ValueError(f"there are {rows.shape[0]} rows of features for {N} positions")
        if isinstance(prior, int):
            prior = np.full((N, prior), 1.0 / prior)
        if prior.ndim != 2 or len(prior) != N:
            raise ValueError(f"the label prior has shape {prior.shape}, expected ({N}, labels)")
        if not (np.isfinite(prior).all() and (prior >= 0).all()):
            raise ValueError("the label prior must hold probabilities")
        return cls(rows, graph, prior)

    def select(self, structures: slice) -> Positions:
        """The positions of a run of the structures."""
        graph = self.graph.select(structures)
        start = int(self.graph.lengths[: structures.start].sum())
        some = slice(start, start + graph.n_positions)
        return Positions(self.rows[some], graph, self.prior[some])


class Scales(Protocol):
    """What a kernel needs to know of one side, everything divided by bounds on its norm."""

    @property
    def log_bound(self) -> np.ndarray:
        """(N,) the log of the bound on the norm of all that surrounds a position."""


S = TypeVar("S", bound=Scales)


@dataclass(frozen=True, eq=False)
class Side(Generic[S]):
    """The positions of one side, ready for the recursions."""

    positions: Positions
    weight: np.ndarray
    """(N,) what k_x is multiplied by: 1 / √k_x(x, x) with `unit`, otherwise 1"""
    root: np.ndarray
    """(N,) √k_x(x, x) after that, and with the 1 of `skip`; divided out in the recursions"""
    size: np.ndarray
    """(N,) what of it is multiplied back: all, or nothing with `unit`"""
    labels: np.ndarray
    """(N, R) the prior in the feature space of k_y, each row of norm 1 (or 0)"""
    log_half: np.ndarray
    """(N,) ½ log κ(τ, τ)"""
    scales: S
    norms: np.ndarray | None = None
    """(N,) the norms that are left when the bounds are divided out; None if nobody asked"""

    @property
    def log_bound(self) -> np.ndarray:
        """(N,) the log of the bound on the norm of a position's features, without c."""
        with np.errstate(divide="ignore"):
            return np.log(self.size) + self.scales.log_bound


class MarginalizedKernel(BaseEstimator, ABC, Generic[S]):
    """A kernel between positions of structures, marginalized over their hidden labels.

    With κ(τ, t) = c² k_x(x_τ, x_t) Σ_{a,b} P(a | x_τ) P(b | x_t) k_y(a, b), the kernel between
    position τ with label a and position t with label b is

        K(τ, t, a, b) = P(a | x_τ) P(b | x_t) k_y(a, b) · G(τ, t),   G = c² k_x · U · D,

    where U sums over all that can lie upstream of both positions and D over all downstream: a
    product, so that nothing is divided by κ as in [mlp] eq. 16. `gram` computes G.

    U and D grow exponentially with the structures. Each is an inner product ⟨φ(τ), φ(t)⟩, so the
    recursions run on what is left when both sides are divided by a bound on ‖φ‖, found for each
    position by itself: every number then lies in [−1, 1], whatever the structures' sizes.

    Parameters
    ----------
    observation : k_x, a kernel between the features of two positions, or its text.
    label : k_y as a symmetric matrix (C, C) without negative eigenvalues, rows as tuples; None for
        [a = b].
    c : weight of each position that a feature spans: c^d for d positions ([mlp] 4.1).
    skip : k_x + 1 in place of k_x: a feature may leave out its observations ([mlp-slides]).
    unit : divide k_x (with the 1 of `skip`) and, within κ, the label term by their norms, so that
        κ(τ, τ) = c²: c² is what a neighbour that matches in every way counts, whatever the features
        and the number of labels; [mlp] does not.
    normalize : divide G by its norms, so that G(τ, τ) = 1; [mlp] does not.
    """

    structure: ClassVar[str]
    """What the kernel follows: "sequence", "tree" or "dag" """

    def __init__(
        self,
        observation: Kernel | str = "polynomial",
        label: Sequence[Sequence[float]] | None = None,
        c: float = 0.8,
        skip: bool = False,
        unit: bool = True,
        normalize: bool = True,
    ) -> None:
        self.observation = observation
        self.label = label
        self.c = c
        self.skip = skip
        self.unit = unit
        self.normalize = normalize

    # ---- what a subclass writes -----------------------------------------------------------------

    @abstractmethod
    def _scales(self, graph: Graph, log_half: np.ndarray) -> S:
        """The bounds on norms at each position; `log_half` is ½ log κ(τ, τ)."""

    @abstractmethod
    def _context(self, cosine: np.ndarray, left: S, right: S) -> np.ndarray:
        """(n, m) U · D divided by the bounds of both sides; `cosine` is κ divided by its norms."""

    # ---- what they share ------------------------------------------------------------------------

    def check(self) -> None:
        """Raise ValueError if a setting makes no sense."""
        self._observation().check()
        for name in ("skip", "unit", "normalize"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} is {getattr(self, name)!r}; it must be True or False")
        if not self._is_number(self.c) or not 0 < self.c < np.inf:
            raise ValueError(f"c is {self.c!r}; it must be a number above 0")

    @staticmethod
    def _is_number(value: Any) -> bool:
        return isinstance(value, Real) and not isinstance(value, bool)

    def label_kernel(self, n_labels: int) -> np.ndarray:
        """k_y (C, C), checked."""
        if self.label is None:
            return np.eye(n_labels)
        k_y = np.asarray(self.label, dtype=np.float64)
        if k_y.shape != (n_labels, n_labels):
            raise ValueError(
                f"label has shape {k_y.shape}; there are {n_labels} labels, so it must be "
                f"({n_labels}, {n_labels})"
            )
        if not np.isfinite(k_y).all() or not np.array_equal(k_y, k_y.T):
            raise ValueError("label must be a symmetric matrix of finite numbers")
        smallest = np.linalg.eigvalsh(k_y)[0] if n_labels else 0.0
        if smallest < -1e-9 * max(1.0, np.abs(k_y).max()):
            raise ValueError(f"label has the eigenvalue {smallest:.3g}; a kernel has none below 0")
        return k_y

    def gram(self, left: Positions, right: Positions | Side[S] | None = None) -> np.ndarray:
        """(N, M) G between all positions of two sides, or of one side with itself; `right` may be
        prepared, where it is used again and again."""
        self.check()
        if right is None:
            return self._gram_of_one(left)
        other = self.prepare(right) if isinstance(right, Positions) else right
        found = np.empty((left.graph.n_positions, other.positions.graph.n_positions))
        for structures, rows in _blocks(left.graph, ROWS_AT_ONCE):
            block = self._side(left.select(structures))
            found[rows] = self._inner(block, other)
            if not self.normalize:
                _unscale(found[rows], self._log_bounds(block), self._log_bounds(other))
        if self.normalize:
            assert other.norms is not None
            found *= _inverse(self._norms(left))[:, None]
            found *= _inverse(other.norms)
        return found

    def prepare(self, positions: Positions) -> Side[S]:
        """What `gram` needs to know of one side, whatever the other."""
        self.check()
        side = self._side(positions)
        return replace(side, norms=self._norms(positions)) if self.normalize else side

    def _gram_of_one(self, positions: Positions) -> np.ndarray:
        """Half of the blocks: the others are the same turned round."""
        graph = positions.graph
        found = np.empty((graph.n_positions, graph.n_positions))
        for structures, rows in _blocks(graph, ROWS_AT_ONCE):
            block = self._side(positions.select(structures))
            later = self._side(positions.select(slice(structures.start, len(graph.lengths))))
            part = self._inner(block, later)
            if not self.normalize:
                _unscale(part, self._log_bounds(block), self._log_bounds(later))
            found[rows, rows.start :] = part
            found[rows.stop :, rows] = part[:, rows.stop - rows.start :].T
        if self.normalize:
            inverse = _inverse(np.sqrt(np.diagonal(found)))
            found *= inverse[:, None]
            found *= inverse
        return found

    def log_norms(self, positions: Positions) -> np.ndarray:
        """(N,) ½ log G(τ, τ), without overflow; −inf where k_x(x, x) is 0."""
        self.check()
        found = np.empty(positions.graph.n_positions)
        for structures, rows in _blocks(positions.graph, _SELF_ROWS):
            side = self._side(positions.select(structures))
            with np.errstate(divide="ignore"):
                inner = 0.5 * np.log(self._self(side))
            found[rows] = self._log_bounds(side) + inner
        return found

    def _norms(self, positions: Positions) -> np.ndarray:
        """(N,) the norms that are left when those of the bounds are divided out."""
        found = np.empty(positions.graph.n_positions)
        for structures, rows in _blocks(positions.graph, _SELF_ROWS):
            found[rows] = np.sqrt(self._self(self._side(positions.select(structures))))
        return found

    def _log_bounds(self, side: Side[S]) -> np.ndarray:
        return np.log(self.c) + side.log_bound

    def _self(self, side: Side[S]) -> np.ndarray:
        """(N,) the kernel of each position with itself, in terms of the bounds."""
        return np.diagonal(self._inner(side, side))

    def _side(self, positions: Positions) -> Side[S]:
        norms = squared_norms(positions.rows)
        own = self._observation().diagonal(norms).numpy()
        weight = _inverse(np.sqrt(own)) if self.unit else np.ones_like(own)
        root = np.sqrt(own * weight**2 + self.skip)
        values, vectors = np.linalg.eigh(self.label_kernel(positions.prior.shape[1]))
        labels = positions.prior @ (vectors * np.sqrt(np.maximum(values, 0)))
        length = np.linalg.norm(labels, axis=1)
        labels *= _inverse(length)[:, None]
        size = (root > 0).astype(np.float64) if self.unit else root
        with np.errstate(divide="ignore"):
            log_half = np.log(self.c) + np.log(size) + np.log(length > 0 if self.unit else length)
        scales = self._scales(positions.graph, log_half)
        return Side(positions, weight, root, size, labels, log_half, scales)

    def _inner(self, left: Side[S], right: Side[S]) -> np.ndarray:
        """(n, m) G of two sides divided by the bounds of both."""
        products = inner_products(left.positions.rows, right.positions.rows)
        seen = self._observation().of(*products).numpy() * left.weight[:, None] * right.weight
        if self.skip:
            seen += 1
        seen *= _inverse(left.root)[:, None]
        seen *= _inverse(right.root)
        if len(left.labels) and len(right.labels) and _all_equal(left.labels, right.labels):
            return seen * self._context(seen, left.scales, right.scales)  # the uniform prior
        return seen * self._context(
            seen * (left.labels @ right.labels.T), left.scales, right.scales
        )

    def _observation(self) -> Kernel:
        if isinstance(self.observation, str):
            return kernel_from_text(self.observation)
        if not isinstance(self.observation, Kernel):
            raise ValueError(
                f"observation is {self.observation!r}; give a kernel or its text, such as 'linear'"
            )
        return self.observation


def _blocks(graph: Graph, max_rows: int) -> Iterator[tuple[slice, slice]]:
    """Runs of structures of at most so many positions (or one structure), and their positions."""
    bounds, rows = [0], 0
    for i, n in enumerate(graph.lengths.tolist()):
        if rows and rows + n > max_rows:
            bounds.append(i)
            rows = 0
        rows += n
    for first, last in itertools.pairwise([*bounds, len(graph.lengths)]):
        yield slice(first, last), slice(int(graph.starts[first]), int(graph.starts[last]))


def _inverse(values: np.ndarray) -> np.ndarray:
    """1 / values, and 0 where they are 0."""
    return np.divide(1, values, out=np.zeros_like(values), where=values > 0)


def _all_equal(left: np.ndarray, right: np.ndarray) -> bool:
    return bool((left == left[0]).all() and (right == left[0]).all())


def _unscale(found: np.ndarray, log_rows: np.ndarray, log_columns: np.ndarray) -> None:
    """Multiply by exp(log_rows + log_columns) in place; refused where that is too large."""
    if found.size == 0:
        return
    if max(log_rows.max(), 0) + max(log_columns.max(), 0) < _LARGEST_LOG:
        found *= np.exp(log_rows)[:, None]
        found *= np.exp(log_columns)
        return
    with np.errstate(divide="ignore"):
        logs = np.log(np.abs(found)) + log_rows[:, None] + log_columns
    if logs.max() > _LARGEST_LOG:
        raise ValueError(
            f"the kernel reaches e^{logs.max():.0f}, which is too large a number: structures are "
            "long and alike; use normalize=True, or a smaller c"
        )
    found[:] = np.copysign(np.exp(logs), found)
