"""Which positions of a structure are joined: chains, ordered trees, directed acyclic graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True, eq=False)
class Graph:
    """B structures laid end to end, their N positions joined by directed edges.

    >>> graph = Graph.of([2, 3], [[(0, 1)], [(1, 0), (1, 2)]])
    >>> graph.parent.tolist(), graph.child.tolist()
    ([0, 3, 3], [1, 2, 4])
    >>> [level.tolist() for level in graph.levels]
    [[0, 3], [1, 2, 4]]
    """

    lengths: np.ndarray
    """(B,) positions of each structure"""
    parent: np.ndarray
    """(E,) where each edge comes from, a number among all N positions"""
    child: np.ndarray
    """(E,) where each edge goes to; edges are sorted by it, then by parent"""

    @classmethod
    def of(
        cls,
        lengths: Sequence[int] | np.ndarray,
        edges: Sequence[Sequence[tuple[int, int]] | np.ndarray],
    ) -> Graph:
        """From the edges (parent, child) of each structure, counted from its own first position."""
        counts = np.asarray(lengths, dtype=np.int64).reshape(-1)
        starts = np.cumsum(counts) - counts
        parts = [
            np.asarray(part, dtype=np.int64).reshape(-1, 2) + start
            for part, start in zip(edges, starts, strict=True)
        ]
        return cls.joined(counts, np.concatenate([np.zeros((0, 2), dtype=np.int64), *parts]))

    @classmethod
    def joined(cls, lengths: np.ndarray, edges: np.ndarray) -> Graph:
        """From edges (E, 2) between positions counted through all structures; all is checked."""
        counts = np.asarray(lengths, dtype=np.int64).reshape(-1)
        structure = np.repeat(np.arange(len(counts)), counts)
        if edges.size and not (edges.min() >= 0 and edges.max() < len(structure)):
            raise ValueError("an edge leads to a position that does not exist")
        edges = edges[np.lexsort((edges[:, 0], edges[:, 1]))]
        crossing = structure[edges[:, 0]] != structure[edges[:, 1]]
        if crossing.any():
            raise ValueError(
                f"an edge leads from structure {structure[edges[crossing][0, 0]]} to another"
            )
        if (np.diff(edges, axis=0) == 0).all(1).any():
            raise ValueError("an edge is given twice")
        graph = cls(counts, edges[:, 0], edges[:, 1])
        graph.levels  # noqa: B018 (refuses a circle)
        return graph

    @classmethod
    def chains(cls, lengths: Sequence[int] | np.ndarray) -> Graph:
        """Sequences: each position is joined to the next.

        >>> Graph.chains([3]).child.tolist()
        [1, 2]
        """
        counts = np.asarray(lengths, dtype=np.int64).reshape(-1)
        first = np.zeros(counts.sum() + 1, dtype=bool)
        first[np.cumsum(counts) - counts] = True
        child = np.flatnonzero(~first[:-1])
        return cls(counts, child - 1, child)

    @property
    def n_positions(self) -> int:
        """N."""
        return int(self.lengths.sum())

    @cached_property
    def starts(self) -> np.ndarray:
        """(B + 1,) the first position of each structure, and N."""
        return np.concatenate([[0], np.cumsum(self.lengths)])

    @cached_property
    def depth(self) -> np.ndarray:
        """(N,) edges on the longest way from a position without parents to each position."""
        depth = np.full(self.n_positions, -1, dtype=np.int64)
        waiting = np.bincount(self.child, minlength=self.n_positions)
        out = self.reversed
        first = np.searchsorted(out.child, np.arange(self.n_positions + 1))
        ready = np.flatnonzero(waiting == 0)
        level = 0
        while len(ready):
            depth[ready] = level
            edges = _ranges(first[ready], first[ready + 1])
            children, count = np.unique(out.parent[edges], return_counts=True)
            waiting[children] -= count
            ready = children[waiting[children] == 0]
            level += 1
        if (depth < 0).any():
            where = int(np.searchsorted(self.starts, np.argmax(depth < 0), side="right")) - 1
            raise ValueError(f"structure {where}: its edges run in a circle")
        return depth

    @cached_property
    def levels(self) -> list[np.ndarray]:
        """The positions by depth: all parents of a level lie in earlier levels."""
        if not self.n_positions:
            return []
        order = np.argsort(self.depth, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.depth))[:-1])

    @cached_property
    def reversed(self) -> Graph:
        """The same positions with every edge turned round."""
        order = np.lexsort((self.child, self.parent))
        return Graph(self.lengths, self.child[order], self.parent[order])

    def select(self, structures: slice) -> Graph:
        """A run of the structures."""
        lengths = self.lengths[structures]
        start = int(self.lengths[: structures.start].sum())
        inside = (self.child >= start) & (self.child < start + lengths.sum())
        return Graph(lengths, self.parent[inside] - start, self.child[inside] - start)


def _ranges(first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """first[0] … last[0] − 1, first[1] … last[1] − 1, and so on."""
    counts = last - first
    before = np.cumsum(counts) - counts
    return np.arange(counts.sum()) + np.repeat(first - before, counts)
