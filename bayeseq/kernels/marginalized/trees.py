"""The kernel whose features are connected subtrees of ordered trees. [mlp] section 4.2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from bayeseq.kernels.base import Kernel
from bayeseq.kernels.marginalized.base import MarginalizedKernel
from bayeseq.kernels.marginalized.graph import Graph


@dataclass(frozen=True, eq=False)
class Siblings:
    """The children of all positions, in their order or against it, and the bounds on what they add.

    With p_u ≥ ‖φ_{κD}(u)‖, the forests made of the children before u have norm at most
    f_u = Π (1 + p) over those children.
    """

    family: list[tuple[np.ndarray, np.ndarray]]
    """For v = 0, 1, …: the parents that have a child v, and that child"""
    previous: np.ndarray
    """(N,) the sibling before each position, −1 if none"""
    last: np.ndarray
    """(N,) the last child of each position, −1 if none"""
    log_f: np.ndarray
    """(N,)"""
    log_p: np.ndarray
    """(N,)"""
    up_to: sp.csr_matrix
    """(N, N) p_w f_w / (f_u (1 + p_u)) in row u for each sibling w up to u"""

    @classmethod
    def of(cls, parent: np.ndarray, order: np.ndarray, log_p: np.ndarray) -> Siblings:
        """`order` holds the positions that have a parent, siblings one after another."""
        N = len(parent)
        first = np.ones(len(order), dtype=bool)
        first[1:] = parent[order[1:]] != parent[order[:-1]]
        start = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
        rank = np.arange(len(order)) - start
        previous, last = np.full(N, -1), np.full(N, -1)
        previous[order[1:]] = np.where(first[1:], -1, order[:-1])
        last[parent[order]] = order  # of several, the last one stays
        family = []
        for v in range(rank.max(initial=-1) + 1):
            child = order[rank == v]
            family.append((parent[child], child))
        # rows of `up_to`: for the child of rank r, the r + 1 siblings up to it
        counts = rank + 1
        row = np.repeat(np.arange(len(order)), counts)
        column = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        column += start[row]
        row, column = order[row], order[column]
        step = np.logaddexp(0.0, log_p)
        before = row != column
        log_f = np.bincount(row[before], weights=step[column[before]], minlength=N)
        weight = np.exp(log_p[column] + log_f[column] - log_f[row] - step[row])
        return cls(
            family, previous, last, log_f, log_p, sp.csr_matrix((weight, (row, column)), (N, N))
        )

    @property
    def nothing_yet(self) -> np.ndarray:
        """(N,) 1 / (f_u (1 + p_u)): the empty forest, in terms of the bound up to u."""
        return np.exp(-self.log_f - np.logaddexp(0.0, self.log_p))


def match(
    parents: np.ndarray | None,
    gain: np.ndarray,
    left: Siblings,
    right: Siblings,
    before: np.ndarray,
) -> np.ndarray:
    """Match the children of some positions with those of all others, in order. [mlp]'s S_F.

    F(v, u) sums over the ways of matching some of the first v children of one position with some
    of the first u of another: F(v, u) = F(v − 1, u) + W(v, u), W(v, u) = W(v, u − 1) +
    κD(v, u) F(v − 1, u − 1), which is S_F without its subtraction. `gain` (n, m) is κD; all is
    divided by bounds. Writes F(v − 1, u − 1) into `before` (n, m) at the pairs of children, and
    gives F(all, all) for the positions `parents` (all of them if None).
    """
    n = len(gain)
    place = np.zeros(n, np.int64)
    parents = np.arange(n) if parents is None else parents
    place[parents] = np.arange(len(parents))
    among = np.zeros(n, dtype=bool)
    among[parents] = True
    F = np.tile(right.nothing_yet, (len(parents), 1))
    is_first = right.previous < 0
    for owner, child in left.family:
        chosen = among[owner]
        owner, child = place[owner[chosen]], child[chosen]
        if not len(owner):
            break
        earlier = F[owner]
        shifted = earlier.take(right.previous, axis=1)
        shifted[:, is_first] = np.exp(-left.log_f[child])[:, None]
        before[child] = shifted
        shifted *= gain[child]
        found = np.ascontiguousarray((right.up_to @ shifted.T).T)
        log_step = np.logaddexp(0.0, left.log_p[child])
        earlier *= np.exp(-log_step)[:, None]
        found *= np.exp(left.log_p[child] - log_step)[:, None]
        earlier += found
        F[owner] = earlier
    return F


@dataclass(frozen=True, eq=False)
class TreeScales:
    """One side of the tree kernel.

    D(τ, t) = F(all children, all children); U(τ, t) = 1 + κ(pa, pa) U(pa, pa) F(before) F(after).
    Bounds: d_τ = Π_{children} (1 + p), p = √κ d, u_τ² = 1 + (√κ u)²_{pa} f² b².
    """

    graph: Graph
    parent: np.ndarray
    """(N,) −1 at a root"""
    forward: Siblings
    backward: Siblings
    log_d: np.ndarray
    log_u: np.ndarray
    through: np.ndarray
    """(N,) √κ(pa, pa) u_pa f b / u, 0 at a root"""

    @property
    def log_bound(self) -> np.ndarray:
        """(N,)"""
        return self.log_d + self.log_u

    @classmethod
    def of(cls, graph: Graph, log_half: np.ndarray) -> TreeScales:
        """The bounds: downstream from the leaves, then upstream from the roots."""
        N = graph.n_positions
        if len(np.unique(graph.child)) < len(graph.child):
            twice = graph.child[np.flatnonzero(np.diff(graph.child) == 0)[0]]
            where = int(np.searchsorted(graph.starts, twice, side="right")) - 1
            raise ValueError(
                f"structure {where}: position {twice - graph.starts[where]} has two parents, so "
                "it is no tree; use DAGKernel"
            )
        parent = np.full(N, -1)
        parent[graph.child] = graph.parent
        log_d = np.zeros(N)
        for rows in graph.reversed.levels:
            inner = rows[parent[rows] >= 0]
            np.add.at(log_d, parent[inner], np.logaddexp(0.0, log_half[inner] + log_d[inner]))
        log_p = log_half + log_d
        order = graph.child[np.argsort(graph.parent, kind="stable")]
        forward = Siblings.of(parent, order, log_p)
        backward = Siblings.of(parent, order[::-1], log_p)
        around = forward.log_f + backward.log_f
        log_u, above = np.zeros(N), np.full(N, -np.inf)
        for level, rows in enumerate(graph.levels):
            if level:
                ends = parent[rows]
                above[rows] = log_half[ends] + log_u[ends] + around[rows]
                log_u[rows] = 0.5 * np.logaddexp(0.0, 2 * above[rows])
        through = np.exp(above - log_u)
        return cls(graph, parent, forward, backward, log_d, log_u, through)

    @cached_property
    def heights(self) -> list[np.ndarray]:
        """The positions by height: all children of a level lie in earlier levels."""
        return self.graph.reversed.levels


class TreeKernel(MarginalizedKernel[TreeScales]):
    """Connected subtrees around a position of an ordered tree ([mlp] section 4.2).

    A feature is a connected part of the tree; its children match in order, and any may be left
    out between them. Children are in the order of their numbers. O(T T') for trees whose positions
    have a bounded number of children. The parameters are those of `MarginalizedKernel`; there are
    more subtrees than paths through a position, so c is smaller by default.

    >>> from bayeseq.kernels.marginalized import Graph, Positions
    >>> cherry = Graph.of([3], [[(0, 1), (0, 2)]])
    >>> TreeKernel("delta", c=1.0, normalize=False).gram(Positions.of([[1.0]] * 3, cherry))
    array([[6., 1., 1.],
           [1., 3., 2.],
           [1., 2., 3.]])
    """

    structure = "tree"

    def __init__(
        self,
        observation: Kernel | str = "polynomial",
        label: Sequence[Sequence[float]] | None = None,
        c: float = 0.5,
        skip: bool = False,
        unit: bool = True,
        normalize: bool = True,
    ) -> None:
        super().__init__(observation, label, c, skip, unit, normalize)

    def _scales(self, graph: Graph, log_half: np.ndarray) -> TreeScales:
        return TreeScales.of(graph, log_half)

    def _context(self, cosine: np.ndarray, left: TreeScales, right: TreeScales) -> np.ndarray:
        shape = cosine.shape
        down, gain, around = np.empty(shape), np.empty(shape), np.zeros(shape)
        is_leaf = right.forward.last < 0
        for rows in left.heights:
            F = match(rows, gain, left.forward, right.forward, around)
            down[rows] = F.take(right.forward.last, axis=1)
            down[np.ix_(rows, is_leaf)] = np.exp(-left.log_d[rows])[:, None]
            gain[rows] = cosine[rows] * down[rows]
        after = np.zeros(shape)
        match(None, gain, left.backward, right.backward, after)
        around *= after
        down *= self._upstream(cosine, around, left, right)
        return down

    @staticmethod
    def _upstream(
        cosine: np.ndarray, around: np.ndarray, left: TreeScales, right: TreeScales
    ) -> np.ndarray:
        found, weighed = np.empty_like(cosine), np.empty_like(cosine)
        alone = np.exp(-right.log_u)
        for level, rows in enumerate(left.graph.levels):
            U = np.exp(-left.log_u[rows])[:, None] * alone
            if level:
                above = weighed[left.parent[rows]].take(right.parent, axis=1)
                above *= around[rows]
                above *= right.through
                above *= left.through[rows, None]
                above[:, right.parent < 0] = 0.0
                U += above
            found[rows] = U
            weighed[rows] = cosine[rows] * U
        return found
