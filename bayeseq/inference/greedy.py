"""Sparse greedy MAP of a Gaussian-process chain: Algorithm 2 of [gpsc], SGPS.

By the representer theorem the MAP scores are sums over coordinates γ_s, s = (n, a, b) with n a
training token, a its label and b the label after it:

    f = v K γ¹,  γ¹[n, a] = Σ_b γ(n, a, b);    A = u γ²,  γ²[a, b] = Σ_n γ(n, a, b),

with prior variances v of f (beside the kernel) and u of A. The last token of a sequence has no
label after it; its coordinates (n, a) move f alone. The objective is

    R(γ) = −log p(y | f, A) + ½ γᵀK'γ,   γᵀK'γ = ⟨γ¹, f⟩ + ⟨γ², A⟩.

[gpsc] (eqs. 6, 8, 12) writes the penalty without the ½, which is a prior variance of ½; here
variances are what they say. Its eq. 11b keeps γ² apart for each sequence, and eq. 17a sums them: a
label pair has one score wherever it stands, so the sum is what enters the penalty too. With
E the expected and O the observed counts of labels and of label pairs, eq. 15 is

    ∂R/∂γ(n, a, b) = (v K(E¹ − O¹) + f)[n, a] + (u (E² − O²) + A)[a, b].

The algorithm takes the coordinates of a few sequences in which this is steepest, moves along them,
and goes on until there are as many as wanted. f, A and the penalty are kept; a move adds to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from bayeseq.inference.chain_loss import ChainLoss, Loss
from bayeseq.kernels.columns import Columns, ColumnsOf
from bayeseq.linalg import cholesky
from bayeseq.shapes import Layout

NO_LABEL = -1
"""The label after the last token."""

JITTER = 1e-6
"""Part of its mean added to the diagonal of K', which only scales the search."""

_INNER_TOL = 1e-9
"""A move after a visit ends when a step lowers R by less than this part of it."""

_GROWTH = 0.05
"""How much the coordinates grow at a visit where that decides how many sequences it looks at."""

_WIDEST = 20
"""How many sequences it looks at then at most."""

_POOL = 1500
"""Of so many tokens, the steepest, a visit of all sequences makes the kernel matrix."""

_TABLE = 2**20
"""So many coordinates they may have to choose from."""

_MOST_TOKENS = 4096
"""How many tokens a visit looks at, at most; it makes the square of that many kernel values."""

_MEMORY = 20
"""Pairs of moves and gradients that L-BFGS remembers."""


class Coordinates(NamedTuple):
    """Coordinates of γ, p of them."""

    token: np.ndarray
    label: np.ndarray
    following: np.ndarray
    """The label after it, or NO_LABEL"""

    def joined(self, other: Coordinates) -> Coordinates:
        """These, then others."""
        return Coordinates(*map(np.concatenate, zip(self, other, strict=True)))


@dataclass(frozen=True, eq=False)
class SparseScores:
    """What a search has found so far."""

    coordinates: Coordinates
    gamma: np.ndarray
    """(p,)"""
    f: np.ndarray
    """(N, C) scores of the training tokens"""
    A: np.ndarray
    """(C, C)"""
    penalty: float
    """½ γᵀK'γ"""
    loss: Loss

    @property
    def objective(self) -> float:
        """R."""
        return self.loss.value + self.penalty

    def by_token(self) -> tuple[np.ndarray, np.ndarray]:
        """The tokens with a coordinate (m,), rising, and their γ¹ (m, C)."""
        tokens, place = np.unique(self.coordinates.token, return_inverse=True)
        flat = place * self.f.shape[1] + self.coordinates.label
        sums = np.bincount(flat, self.gamma, len(tokens) * self.f.shape[1])
        return tokens, sums.reshape(len(tokens), self.f.shape[1])


class Visit(NamedTuple):
    """What a visit of some sequences led to."""

    found: SparseScores
    steepest: float
    """The largest |∂R/∂γ| among the new coordinates that these sequences had to offer"""


@dataclass(frozen=True, eq=False)
class Greedy:
    """A search for the coordinates of γ that lower R most.

    `kernel` gives columns of K for training tokens, `variance` and `transition_variance` are v and
    u. A visit looks at `at_once` sequences, and adds `directions` coordinates for each, the
    steepest of all of them; with `at_once` None it looks at one at first, then at as many as make
    the coordinates grow by a twentieth, up to twenty, or where that costs no more, at all
    sequences to add as many. `update` says what then moves, by at most `inner` steps: the "new"
    coordinates or "all". Where all move, a coordinate that is a sum of chosen ones could lower
    nothing, and is not taken.
    """

    loss: ChainLoss
    kernel: ColumnsOf
    variance: float
    transition_variance: float
    directions: int
    at_once: int | None = None
    update: str = "all"
    inner: int = 10

    def start(self) -> SparseScores:
        """Nothing selected."""
        N, C = self.loss.allowed.shape
        f, A = np.zeros((N, C)), np.zeros((C, C))
        none = np.zeros(0, dtype=np.int64)
        return SparseScores(Coordinates(none, none, none), np.zeros(0), f, A, 0.0, self.loss(f, A))

    def search(
        self,
        visits: np.ndarray,
        most: int,
        threshold: float = 0.0,
        found: SparseScores | None = None,
    ) -> Iterator[Visit]:
        """Visit the sequences in this order, again and again, until there are `most` coordinates or
        in a whole round none is steeper than `threshold`; from nothing, or what was `found`."""
        found = self.start() if found is None else found
        flat = 0  # sequences visited since a coordinate was last added
        rows = _rows_by_sequence(self.loss.layout)
        at = 0
        while len(found.gamma) < most and flat < len(visits):
            tokens, looked_at, width = self._next(found, rows, np.roll(visits, -at))
            at += looked_at
            room = min(most - len(found.gamma), self.directions * width)
            new, steepest = self._steepest(found, tokens, room, threshold)
            flat = flat + looked_at if len(new.token) == 0 else 0
            if len(new.token):
                found = self._grown(found, new)
            yield Visit(found, steepest)

    def _next(
        self, found: SparseScores, rows: list[np.ndarray], visits: np.ndarray
    ) -> tuple[np.ndarray, int, int]:
        """The tokens to look at next, of how many sequences they are, and for how many sequences
        coordinates are added: one at least, and not too many tokens."""
        grown = round(_GROWTH * len(found.gamma) / self.directions)
        width = min(_WIDEST, max(1, grown)) if self.at_once is None else self.at_once
        if self.at_once is None and self.kernel.every is not None:
            return self._pool(found, self.kernel.every), len(visits), width
        group = [rows[i] for i in visits[:width].tolist()]
        size = np.cumsum([len(tokens) for tokens in group])
        group = group[: max(1, int(np.searchsorted(size, _MOST_TOKENS, side="right")))]
        return np.concatenate(group), len(group), len(group)

    def _pool(self, found: SparseScores, every: Columns) -> np.ndarray:
        """The tokens with the steepest coordinates, whatever label may follow, of labels that they
        have no coordinate for."""
        by_label, by_pair = self._slopes(found, np.arange(len(found.f)), every)
        steep = np.abs(by_label[None] + np.stack([by_pair.min(1), by_pair.max(1)])[:, None]).max(0)
        steep[found.coordinates.token, found.coordinates.label] = 0.0
        N, C = steep.shape
        n = min(_POOL, max(1, _TABLE // (C * (C + 1))), N)
        return np.sort(np.argpartition(-steep.max(1), n - 1)[:n])

    def gradient(self, found: SparseScores, tokens: np.ndarray) -> np.ndarray:
        """(n, C, C + 1) ∂R/∂γ of the coordinates of some tokens, [label, label after]; the last
        column stands for no label after, and NaN where a coordinate does not exist. Eq. 15."""
        return self._gradient(found, tokens, self.kernel(tokens))

    def _slopes(
        self, found: SparseScores, tokens: np.ndarray, columns: Columns
    ) -> tuple[np.ndarray, np.ndarray]:
        """The two terms of eq. 15: (n, C) for the labels of some tokens, (C, C) for label pairs."""
        by_label = self.variance * columns.transpose_times(found.loss.by_label) + found.f[tokens]
        return by_label, self.transition_variance * found.loss.by_pair + found.A

    def _gradient(self, found: SparseScores, tokens: np.ndarray, columns: Columns) -> np.ndarray:
        by_label, by_pair = self._slopes(found, tokens, columns)
        C = by_label.shape[1]
        table = np.full((len(tokens), C, C + 1), np.nan)
        ends = np.isin(tokens, self.loss.layout.last.numpy())
        table[~ends, :, :C] = by_label[~ends, :, None] + by_pair
        table[ends, :, C] = by_label[ends]
        return table

    def _steepest(
        self, found: SparseScores, tokens: np.ndarray, most: int, threshold: float
    ) -> tuple[Coordinates, float]:
        """The steepest new coordinates of some tokens, and how steep the first is.

        Each is the steepest after a step along those before it, to the minimum of the penalty's
        curvature: of coordinates that would do the same, one is taken. With one at a time this is
        [gpsc]'s rule.
        """
        columns = self.kernel(tokens)
        slope = self._gradient(found, tokens, columns)
        K = self.variance * columns.block()
        slope[self._taken(found, tokens)] = np.nan
        left = np.isfinite(slope)
        span = _Span(found, tokens) if self.update == "all" else None
        C, u = slope.shape[1], self.transition_variance
        chosen: list[tuple[int, int, int]] = []
        first = 0.0
        for _ in range(min(most, int(left.sum()))):
            steep = np.where(left if span is None else left & span.lacks, np.abs(slope), -1.0)
            n, a, b = np.unravel_index(int(steep.argmax()), slope.shape)
            first = first if chosen else max(0.0, float(steep[n, a, b]))
            if steep[n, a, b] <= threshold:
                break
            chosen.append((int(tokens[n]), int(a), NO_LABEL if b == C else int(b)))
            left[n, a, b] = False
            step = slope[n, a, b] / (K[n, n] + u * (b < C))
            slope[:, a] -= step * K[:, n, None]
            slope[:, a, b] -= step * u * (b < C)
            if span is not None and b < C:
                span.add(int(n), int(a), int(b))
        parts = np.array(chosen, dtype=np.int64).reshape(-1, 3).T
        return Coordinates(*parts), first

    def _taken(self, found: SparseScores, tokens: np.ndarray) -> tuple[np.ndarray, ...]:
        """Where the coordinates that are already chosen stand in the table of some tokens."""
        own = found.coordinates
        place = np.full(len(found.f), -1)
        place[tokens] = np.arange(len(tokens))
        here = place[own.token] >= 0
        return place[own.token[here]], own.label[here], own.following[here]

    def _grown(self, found: SparseScores, new: Coordinates) -> SparseScores:
        """With new coordinates, moved along them or along all."""
        gamma = np.concatenate([found.gamma, np.zeros(len(new.token))])
        grown = SparseScores(
            found.coordinates.joined(new), gamma, found.f, found.A, found.penalty, found.loss
        )
        first = 0 if self.update == "all" else len(found.gamma)
        return self.moved(grown, np.arange(first, len(gamma)), self.inner, _INNER_TOL)[0]

    def at(self, coordinates: Coordinates, gamma: np.ndarray) -> SparseScores:
        """What there is to know of these coordinates with these values γ (p,)."""
        f, A, penalty = _Move(self, self.start(), coordinates).scores(gamma)
        return SparseScores(coordinates, gamma, f, A, penalty, self.loss(f, A))

    def curvature(self, along: Coordinates) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For each label its coordinates (p_a,) and their K' (p_a, p_a): coordinates with different
        labels have nothing in common."""
        tokens, place = np.unique(along.token, return_inverse=True)
        K = self.variance * self.kernel(tokens).block()
        for label in np.unique(along.label):
            own = np.flatnonzero(along.label == label)
            after = along.following[own]
            both = np.equal.outer(after, after) & (after != NO_LABEL)
            yield own, K[np.ix_(place[own], place[own])] + self.transition_variance * both

    def moved(
        self, found: SparseScores, active: np.ndarray, max_iter: int, tol: float
    ) -> tuple[SparseScores, bool]:
        """R lowered along some coordinates by L-BFGS in whitened moves, and whether that came to an
        end: a step lowered R by less than `tol` of it before there were `max_iter` steps."""
        move = _Move(self, found, Coordinates(*(part[active] for part in found.coordinates)))
        result = minimize(
            move,
            np.zeros(len(active)),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": max_iter, "ftol": tol, "gtol": 1e-10, "maxcor": _MEMORY},
        )
        after = move.at(result.x, active)
        return after if after.objective <= found.objective else found, result.nit < max_iter


class _Span:
    """Which coordinates are not sums of chosen ones, and of those added since, whatever the kernel.

    A coordinate joins (n, a), where it moves f, with (a, b), where it moves A. Along a path of
    coordinates, added and subtracted in turn, all but its two ends cancel: a coordinate whose ends
    are already connected is such a sum.
    """

    def __init__(self, found: SparseScores, tokens: np.ndarray) -> None:
        N, C = found.f.shape
        own = Coordinates(*(p[found.coordinates.following != NO_LABEL] for p in found.coordinates))
        ends = own.token * C + own.label, N * C + own.label * C + own.following
        graph = coo_matrix((np.ones(len(own.token)), ends), shape=((N + C) * C, (N + C) * C))
        part = connected_components(graph, directed=False)[1]
        self._of_label, self._of_pair = part[: N * C].reshape(N, C)[tokens], part[N * C :]
        self._of_pair = self._of_pair.reshape(C, C)
        self.lacks = np.ones((len(tokens), C, C + 1), dtype=bool)
        """[token, label, label after], the last for none after, which is never a sum of others"""
        self.lacks[:, :, :C] = self._of_label[:, :, None] != self._of_pair

    def add(self, n: int, a: int, b: int) -> None:
        """Choose a coordinate, of the n-th of the tokens."""
        before, after = self._of_label[n, a], self._of_pair[a, b]
        for part in (self._of_label[:, a], self._of_pair[a]):
            part[part == before] = after
        self.lacks[:, a, :-1] = self._of_label[:, a, None] != self._of_pair[a]


class _Move:
    """R as a function of a whitened move along some coordinates, from where a search stands."""

    def __init__(self, search: Greedy, found: SparseScores, along: Coordinates) -> None:
        self.search, self.found, self.along = search, found, along
        self.tokens, self.place = np.unique(along.token, return_inverse=True)
        self.columns = search.kernel(self.tokens)
        self.has_pair = along.following != NO_LABEL

    @cached_property
    def factors(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each label its coordinates and the Cholesky factor of their K'."""
        return [
            (own, cholesky(torch.from_numpy(block), "K' of the coordinates", JITTER).numpy())
            for own, block in self.search.curvature(self.along)
        ]

    def gamma(self, whitened: np.ndarray) -> np.ndarray:
        """The move in the coordinates: L⁻ᵀ times it, label by label."""
        move = np.empty_like(whitened)
        for own, L in self.factors:
            move[own] = solve_triangular(L, whitened[own], lower=True, trans="T")
        return move

    def scores(self, move: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """f, A and the penalty after a move: γᵀK'γ grows by ⟨move, K'γ before + K'γ after⟩."""
        found, along = self.found, self.along
        C = found.f.shape[1]
        by_token = np.bincount(self.place * C + along.label, move, len(self.tokens) * C)
        by_token = by_token.reshape(-1, C)
        pairs = (along.label * C + along.following)[self.has_pair]
        by_pair = np.bincount(pairs, move[self.has_pair], C * C).reshape(C, C)
        f = found.f + self.search.variance * self.columns.times(by_token)
        A = found.A + self.search.transition_variance * by_pair
        grown = np.vdot(by_token, (found.f + f)[self.tokens]) + np.vdot(by_pair, found.A + A)
        return f, A, found.penalty + 0.5 * float(grown)

    def __call__(self, whitened: np.ndarray) -> tuple[float, np.ndarray]:
        f, A, penalty = self.scores(self.gamma(whitened))
        loss = self.search.loss(f, A)
        return loss.value + penalty, self.slopes(f, A, loss)

    def slopes(self, f: np.ndarray, A: np.ndarray, loss: Loss) -> np.ndarray:
        """The gradient of R in the whitened move, from eq. 15."""
        along = self.along
        v, u = self.search.variance, self.search.transition_variance
        by_label = v * self.columns.transpose_times(loss.by_label) + f[self.tokens]
        slope = by_label[self.place, along.label]
        slope += np.where(self.has_pair, (u * loss.by_pair + A)[along.label, along.following], 0.0)
        whitened = np.empty_like(slope)
        for own, L in self.factors:
            whitened[own] = solve_triangular(L, slope[own], lower=True)
        return whitened

    def at(self, whitened: np.ndarray, active: np.ndarray) -> SparseScores:
        """What the search knows after this move."""
        move = self.gamma(whitened)
        f, A, penalty = self.scores(move)
        gamma = self.found.gamma.copy()
        gamma[active] += move
        return SparseScores(self.found.coordinates, gamma, f, A, penalty, self.search.loss(f, A))


def _rows_by_sequence(layout: Layout) -> list[np.ndarray]:
    """The packed rows of each sequence, in order."""
    return [rows.numpy() for rows in layout.split(torch.arange(layout.n_tokens))]
