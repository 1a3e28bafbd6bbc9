"""Kernels whose features are directed paths: sequences, with gaps or without, and DAGs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve_banded

from bayeseq.kernels.base import Kernel
from bayeseq.kernels.marginalized.base import MarginalizedKernel
from bayeseq.kernels.marginalized.graph import Graph


@dataclass(frozen=True, eq=False)
class Upstream:
    """One side of U(τ, t) = 1 + Σ_{v ∈ Pa(τ)} Σ_{w ∈ Pa(t)} κ(v, w) U(v, w), in bounds.

    With u_τ ≥ ‖φ_U(τ)‖ and p_v = √κ(v, v) u_v: u_τ² = 1 + (Σ_{v ∈ Pa(τ)} p_v)².
    """

    graph: Graph
    log_u: np.ndarray
    """(N,)"""
    step: sp.csr_matrix
    """(N, N) p_v / u_τ in row τ for each parent v"""

    @classmethod
    def of(cls, graph: Graph, log_half: np.ndarray) -> Upstream:
        """The bounds, level by level."""
        log_u = np.zeros(graph.n_positions)
        above = np.full(graph.n_positions, -np.inf)
        order = np.argsort(graph.depth[graph.child], kind="stable")
        parent, child = graph.parent[order], graph.child[order]
        bounds = np.searchsorted(graph.depth[child], np.arange(len(graph.levels) + 1))
        for level, rows in enumerate(graph.levels):
            edges = slice(bounds[level], bounds[level + 1])
            ends = parent[edges]
            np.logaddexp.at(above, child[edges], log_half[ends] + log_u[ends])
            log_u[rows] = 0.5 * np.logaddexp(0.0, 2 * above[rows])
        weight = np.exp(log_half[graph.parent] + log_u[graph.parent] - log_u[graph.child])
        N = graph.n_positions
        return cls(graph, log_u, sp.csr_matrix((weight, (graph.child, graph.parent)), (N, N)))

    @cached_property
    def steps(self) -> list[tuple[np.ndarray, sp.csr_matrix]]:
        """The positions of each level, and their rows of `step`."""
        return [(rows, self.step[rows]) for rows in self.graph.levels]

    @cached_property
    def only_parent(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Where no position has two parents: the parent (or any position) and its weight (or 0)."""
        if len(np.unique(self.graph.child)) < len(self.graph.child):
            return None
        parent, weight = np.zeros(self.graph.n_positions, np.int64), np.zeros(len(self.log_u))
        parent[self.graph.child] = self.graph.parent
        weight[self.graph.child] = self.step.data
        return parent, weight

    def pass_on(self, values: np.ndarray) -> np.ndarray:
        """(n, N) values of positions → the sum over each position's parents, weighed."""
        if self.only_parent is None:
            return np.ascontiguousarray((self.step @ values.T).T)
        parent, weight = self.only_parent
        passed = values.take(parent, axis=1)
        passed *= weight
        return passed


def upstream(cosine: np.ndarray, left: Upstream, right: Upstream) -> np.ndarray:
    """(n, m) U divided by the bounds of both sides, one step a level of the left side."""
    found = np.empty_like(cosine)
    weighed = np.empty_like(cosine)
    alone = np.exp(-right.log_u)
    for level, (rows, step) in enumerate(left.steps):
        U = np.exp(-left.log_u[rows])[:, None] * alone
        if level:
            U += right.pass_on(step @ weighed)
        found[rows] = U
        weighed[rows] = cosine[rows] * U
    return found


@dataclass(frozen=True, eq=False)
class PathScales:
    """One side of a path kernel: upstream along the edges, downstream against them."""

    up: Upstream
    down: Upstream

    @property
    def log_bound(self) -> np.ndarray:
        """(N,)"""
        return self.up.log_u + self.down.log_u


class DAGKernel(MarginalizedKernel[PathScales]):
    """Directed paths through a position of a directed acyclic graph ([mlp] section 4.3).

    K_U sums over pairs of parents, K_D over pairs of children; O(E E') for E and E' edges.
    The parameters are those of `MarginalizedKernel`.

    >>> from bayeseq.kernels.marginalized import Graph, Positions
    >>> diamond = Graph.of([4], [[(0, 1), (0, 2), (1, 3), (2, 3)]])
    >>> DAGKernel("delta", c=1.0, normalize=False).gram(Positions.of([[1.0]] * 4, diamond))[0]
    array([9., 3., 3., 1.])
    """

    structure = "dag"

    def _scales(self, graph: Graph, log_half: np.ndarray) -> PathScales:
        return PathScales(Upstream.of(graph, log_half), Upstream.of(graph.reversed, log_half))

    def _context(self, cosine: np.ndarray, left: PathScales, right: PathScales) -> np.ndarray:
        found = upstream(cosine, left.up, right.up)
        found *= upstream(cosine, left.down, right.down)
        return found


class SequenceKernel(DAGKernel):
    """Substrings of labels and observations around a position ([mlp] section 4.1, eqs. 14 to 16).

    A sequence is the graph in which each position is joined to the next; O(T T').
    The parameters are those of `MarginalizedKernel`.

    >>> from bayeseq.kernels.marginalized import Graph, Positions
    >>> ab = Positions.of([[1.0, 0.0], [0.0, 1.0]], Graph.chains([2]))
    >>> SequenceKernel("delta", c=1.0, normalize=False).gram(ab)
    array([[2., 0.],
           [0., 2.]])
    """

    structure = "sequence"


@dataclass(frozen=True, eq=False)
class GappyUpstream:
    """One side of S(τ, t) = Σ_{i ≤ τ, j ≤ t} λ^{τ−i+t−j} κU(i, j), U = 1 + S before, in bounds.

    With σ_τ ≥ ‖φ_S(τ)‖: u_τ² = 1 + σ_{τ−1}², p_τ = √κ(τ, τ) u_τ, σ_τ = p_τ + λ σ_{τ−1}.
    """

    graph: Graph
    log_u: np.ndarray
    alone: np.ndarray
    """(N,) 1 / u_τ"""
    before: np.ndarray
    """(N,) σ_{τ−1} / u_τ, 0 at the first"""
    new: np.ndarray
    """(N,) p_τ / σ_τ"""
    kept: np.ndarray
    """(N,) λ σ_{τ−1} / σ_τ, 0 at the first"""

    @classmethod
    def of(cls, graph: Graph, log_half: np.ndarray, gap: float) -> GappyUpstream:
        """The bounds, position by position of all sequences at once."""
        N = graph.n_positions
        log_u, log_p = np.zeros(N), np.zeros(N)
        log_s, log_before = np.zeros(N), np.full(N, -np.inf)
        with np.errstate(divide="ignore"):
            log_gap = np.log(gap)
        for level, rows in enumerate(graph.levels):
            if level:
                log_before[rows] = log_s[rows - 1]
            log_u[rows] = 0.5 * np.logaddexp(0.0, 2 * log_before[rows])
            log_p[rows] = log_half[rows] + log_u[rows]
            log_s[rows] = np.logaddexp(log_p[rows], log_gap + log_before[rows])
        nothing = np.isneginf(log_s)
        below = np.where(nothing, 0.0, log_s)
        return cls(
            graph,
            log_u,
            np.exp(-log_u),
            np.exp(log_before - log_u),
            np.exp(log_p - below),
            np.exp(log_gap + log_before - below),
        )

    def spread(self, values: np.ndarray) -> np.ndarray:
        """(n, N) values → R(t) = new(t) value(t) + kept(t) R(t − 1), along all sequences."""
        band = np.ones((2, len(self.kept)))
        band[1, :-1] = -self.kept[1:]
        found = solve_banded((1, 0), band, (values * self.new).T, check_finite=False)
        return np.ascontiguousarray(found.T)


def gappy_upstream(cosine: np.ndarray, left: GappyUpstream, right: GappyUpstream) -> np.ndarray:
    """(n, m) U divided by the bounds of both sides, one step a position of the left side.

    S(τ, ·) = R(τ, ·) + λ S(τ − 1, ·) with R(τ, t) = κ(τ, t) U(τ, t) + λ R(τ, t − 1): the
    inclusion and exclusion S(τ, t) = κU + λS(τ, t−1) + λS(τ−1, t) − λ²S(τ−1, t−1), without its
    subtraction. [mlp]'s footnote prints + λ², which counts what both share twice.
    """
    found = np.empty_like(cosine)
    summed = np.empty_like(cosine)
    for level, rows in enumerate(left.graph.levels):
        U = left.alone[rows, None] * right.alone
        if level:
            U[:, 1:] += left.before[rows, None] * right.before[1:] * summed[rows - 1, :-1]
        found[rows] = U
        S = right.spread(cosine[rows] * U) * left.new[rows, None]
        if level:
            S += left.kept[rows, None] * summed[rows - 1]
        summed[rows] = S
    return found


@dataclass(frozen=True, eq=False)
class GappyScales:
    """One side of the gappy kernel; downstream is upstream of the sequences read backwards."""

    up: GappyUpstream
    backwards: GappyUpstream

    @property
    def log_bound(self) -> np.ndarray:
        """(N,)"""
        return self.up.log_u + self.backwards.log_u[::-1]


class GappySequenceKernel(MarginalizedKernel[GappyScales]):
    """Subsequences around a position, with a gap of g positions counted λ^g ([mlp] footnote 2).

    O(T T'). `gap` is λ, between 0 (no gaps: `SequenceKernel`) and 1 (gaps for nothing); the other
    parameters are those of `MarginalizedKernel`.

    >>> from bayeseq.kernels.marginalized import Graph, Positions
    >>> rows = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    >>> kernel = GappySequenceKernel("delta", c=1.0, gap=0.5, normalize=False)
    >>> kernel.gram(Positions.of(rows, Graph.chains([3])))[0]
    array([3.25, 0.  , 1.  ])
    """

    structure = "sequence"

    def __init__(
        self,
        observation: Kernel | str = "polynomial",
        label: Sequence[Sequence[float]] | None = None,
        c: float = 0.8,
        gap: float = 0.5,
        skip: bool = False,
        unit: bool = True,
        normalize: bool = True,
    ) -> None:
        super().__init__(observation, label, c, skip, unit, normalize)
        self.gap = gap

    def check(self) -> None:
        """Raise ValueError also if the gap penalty is not between 0 and 1."""
        super().check()
        if not self._is_number(self.gap) or not 0 <= self.gap <= 1:
            raise ValueError(f"gap is {self.gap!r}; it must be a number from 0 to 1")

    def _scales(self, graph: Graph, log_half: np.ndarray) -> GappyScales:
        turned = Graph.chains(graph.lengths[::-1])
        return GappyScales(
            GappyUpstream.of(graph, log_half, self.gap),
            GappyUpstream.of(turned, log_half[::-1], self.gap),
        )

    def _context(self, cosine: np.ndarray, left: GappyScales, right: GappyScales) -> np.ndarray:
        found = gappy_upstream(cosine, left.up, right.up)
        turned = np.ascontiguousarray(cosine[::-1, ::-1])
        found *= gappy_upstream(turned, left.backwards, right.backwards)[::-1, ::-1]
        return found
