"""Labellings in working sets ("planes"), the blocks of sequences that hold them, what moves α."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from bayeseq.baselines.pieces import Pieces
from bayeseq.baselines.tokens import TokenScores
from bayeseq.shapes import Layout


@dataclass(eq=False)
class Planes:
    """The planes of a block, by piece."""

    piece: np.ndarray
    """(P,) the piece of each, rising"""
    loss: np.ndarray
    """(P,) ℓ"""
    tokens: sp.csr_matrix
    """(P, n · C) d over tokens and their labels"""
    pairs: sp.csr_matrix
    """(P, C²) d over label pairs"""
    alpha: np.ndarray
    """(P,) α"""

    def __len__(self) -> int:
        return len(self.piece)

    def margins(self, unary: np.ndarray, A: np.ndarray) -> np.ndarray:
        """(P,) w·d from scores (n, C) and (C, C)."""
        return self.tokens @ unary.ravel() + self.pairs @ A.ravel()

    def take(self, which: np.ndarray) -> Planes:
        """Some of them, by number, in that order."""
        return Planes(
            self.piece[which],
            self.loss[which],
            self.tokens[which],
            self.pairs[which],
            self.alpha[which],
        )

    def joined(self, other: Planes) -> Planes:
        """These, then the others."""
        return Planes(
            np.r_[self.piece, other.piece],
            np.r_[self.loss, other.loss],
            sp.vstack([self.tokens, other.tokens], "csr"),
            sp.vstack([self.pairs, other.pairs], "csr"),
            np.r_[self.alpha, other.alpha],
        )


@dataclass(frozen=True, eq=False)
class _Entries:
    """The entries of planes over tokens, sorted by label."""

    plane: np.ndarray
    row: np.ndarray
    label: np.ndarray
    value: np.ndarray

    @classmethod
    def of(cls, tokens: sp.csr_matrix, C: int) -> _Entries:
        """From a matrix (P, n · C)."""
        row, label = np.divmod(tokens.indices, C)
        plane = np.repeat(np.arange(tokens.shape[0]), np.diff(tokens.indptr))
        order = np.argsort(label, kind="stable")
        return cls(plane[order], row[order], label[order], tokens.data[order])

    def of_label(self, c: int) -> slice:
        """The entries with one label."""
        return slice(*np.searchsorted(self.label, (c, c + 1)).tolist())

    def summed(self, some: slice) -> tuple[np.ndarray, sp.csr_matrix]:
        """The planes that have some entries, and the matrix that sums entries into them."""
        planes, place = np.unique(self.plane[some], return_inverse=True)
        n = len(place)
        return planes, sp.csr_matrix((self.value[some], (place, np.arange(n))), (len(planes), n))


@dataclass(eq=False)
class Block:
    """Some pieces, visited together."""

    pieces: np.ndarray
    """(b,) their numbers"""
    rows: np.ndarray
    """(n,) their tokens, end to end"""
    of_row: np.ndarray
    """(n,) the piece of each, counted within the block"""
    truth: np.ndarray
    """(n,)"""
    layout: Layout
    cap: np.ndarray
    """(b,) the most that Σ α may be; inf where there is no end"""
    ridge: np.ndarray
    """(b,) r"""
    planes: Planes
    H: np.ndarray
    """(P, P) d·d' between planes, plus r where they are of one piece"""
    calm: int = 0
    """Visits in a row that found nothing to do"""
    _touched: tuple[np.ndarray, Callable[[], np.ndarray]] | None = None

    @classmethod
    def of(cls, pieces: Pieces, numbers: np.ndarray, cap: np.ndarray, ridge: np.ndarray) -> Block:
        """A block without planes."""
        lengths, C = pieces.lengths[numbers], pieces.n_labels
        rows = pieces.rows(numbers)
        n, empty = len(rows), np.zeros(0)
        planes = Planes(
            np.zeros(0, dtype=np.int64),
            empty,
            sp.csr_matrix((0, n * C)),
            sp.csr_matrix((0, C * C)),
            empty,
        )
        return cls(
            numbers,
            rows,
            np.repeat(np.arange(len(numbers)), lengths),
            pieces.labels[rows],
            Layout.of(lengths),
            cap[numbers],
            ridge[numbers],
            planes,
            np.zeros((0, 0)),
        )

    def differences(self, labels: np.ndarray, C: int, hamming: bool) -> Planes:
        """One plane for each piece, from a labelling (n,) of all tokens."""
        n, b = len(self.rows), len(self.pieces)
        wrong = np.flatnonzero(labels != self.truth)
        of = self.of_row[wrong]
        ones = np.ones(len(wrong))
        tokens = sp.csr_matrix(
            (
                np.r_[ones, -ones],
                (np.r_[of, of], np.r_[wrong * C + self.truth[wrong], wrong * C + labels[wrong]]),
            ),
            (b, n * C),
        )
        inner = np.flatnonzero(self.of_row[1:] == self.of_row[:-1])
        right = self.truth[inner] * C + self.truth[inner + 1]
        given = labels[inner] * C + labels[inner + 1]
        other = right != given
        of = self.of_row[inner][other]
        ones = np.ones(len(of))
        pairs = sp.csr_matrix(
            (np.r_[ones, -ones], (np.r_[of, of], np.r_[right[other], given[other]])), (b, C * C)
        )
        errors = np.bincount(self.of_row[wrong], minlength=b).astype(np.float64)
        loss = errors if hamming else (errors > 0).astype(np.float64)
        return Planes(np.arange(b), loss, tokens, pairs, np.zeros(b))

    def single(self, token: np.ndarray, label: np.ndarray, C: int) -> Planes:
        """One plane for each token, from the right labelling with another label there."""
        P, true = len(token), self.truth[token]
        plane, ones = np.arange(P), np.ones(P)
        tokens = sp.csr_matrix(
            (
                np.r_[ones, -ones],
                (np.r_[plane, plane], np.r_[token * C + true, token * C + label]),
            ),
            (P, len(self.rows) * C),
        )
        has_left = np.r_[False, self.of_row[1:] == self.of_row[:-1]][token]
        has_right = np.r_[self.of_row[1:] == self.of_row[:-1], False][token]
        left, right = (
            self.truth[token - 1][has_left],
            self.truth[np.minimum(token + 1, len(self.truth) - 1)][has_right],
        )
        ones_left, ones_right = ones[has_left], ones[has_right]
        pairs = sp.csr_matrix(
            (
                np.r_[ones_left, -ones_left, ones_right, -ones_right],
                (
                    np.r_[plane[has_left], plane[has_left], plane[has_right], plane[has_right]],
                    np.r_[
                        left * C + true[has_left],
                        left * C + label[has_left],
                        true[has_right] * C + right,
                        label[has_right] * C + right,
                    ],
                ),
            ),
            (P, C * C),
        )
        return Planes(self.of_row[token], ones, tokens, pairs, np.zeros(P))

    def products(self, new: Planes, old: Planes, scores: TokenScores, C: int) -> np.ndarray:
        """(P', P) d·d' + r between planes: tokens meet where their labels are equal."""
        found = (new.pairs @ old.pairs.T).toarray()
        left, right = _Entries.of(new.tokens, C), _Entries.of(old.tokens, C)
        used, place = np.unique(np.r_[left.row, right.row], return_inverse=True)
        gram = scores.gram(self.rows[used])
        at_left, at_right = place[: len(left.row)], place[len(left.row) :]
        for c in range(C):
            a, b = left.of_label(c), right.of_label(c)
            if a.stop > a.start and b.stop > b.start:
                some, L = left.summed(a)
                others, R = right.summed(b)
                met = gram[np.ix_(at_left[a], at_right[b])]
                found[np.ix_(some, others)] += (R @ (L @ met).T).T
        same_piece = new.piece[:, None] == old.piece
        return found + np.where(same_piece, self.ridge[new.piece][:, None], 0.0)

    def touched_scores(self, scores: TokenScores, C: int) -> np.ndarray:
        """(n, C) the scores of the tokens that planes have an entry for; 0 for the others."""
        if self._touched is None:
            used = np.unique(self.planes.tokens.indices // C)
            self._touched = used, scores.reader(self.rows[used])
        used, read = self._touched
        unary = np.zeros((len(self.rows), C))
        unary[used] = read()
        return unary

    def admit(self, new: Planes, scores: TokenScores, C: int) -> None:
        """Add planes, in the order of the pieces."""
        joined = self.planes.joined(new)
        H = np.empty((len(joined), len(joined)))
        old = len(self.planes)
        H[:old, :old] = self.H
        H[old:] = self.products(new, joined, scores, C)
        H[:old, old:] = H[old:, :old].T
        order = np.argsort(joined.piece, kind="stable")
        self.planes, self.H = joined.take(order), H[np.ix_(order, order)]
        self._touched = None

    def prune(self, gradient: np.ndarray) -> None:
        """Drop the planes whose α is zero and should stay zero ([hmsvm] Algorithm 2, line 10)."""
        keep = np.flatnonzero((self.planes.alpha > 0) | (gradient > 0))
        if len(keep) < len(self.planes):
            self.planes, self.H = self.planes.take(keep), self.H[np.ix_(keep, keep)]
            self._touched = None


def by_piece(
    what: np.ufunc, values: np.ndarray, piece: np.ndarray, n: int, fill: float
) -> np.ndarray:
    """(n,) values reduced over the planes of each piece."""
    found = np.full(n, fill)
    if len(values):
        starts = np.flatnonzero(np.r_[True, np.diff(piece) > 0])
        found[piece[starts]] = what.reduceat(values, starts)
    return found


def _room(used: np.ndarray, cap: np.ndarray) -> np.ndarray:
    """What is left to the cap, with 0 where that is a rounding error."""
    left = cap - used
    return np.where(left > 1e-12 * np.minimum(cap, 1e300), left, 0.0)


def violations(
    planes: Planes, gradient: np.ndarray, cap: np.ndarray, up: np.ndarray | None = None
) -> np.ndarray:
    """(b,) the most that a piece could gain by moving α from one plane to another, to first order.
    What is left to the cap counts as a plane with gradient 0."""
    b = len(cap)
    top = np.maximum(by_piece(np.maximum, gradient, planes.piece, b, 0.0), 0.0)
    if up is not None:
        top = np.maximum(top, up)
    held = np.where(planes.alpha > 0, gradient, np.inf)
    low = by_piece(np.minimum, held, planes.piece, b, np.inf)
    left = _room(np.bincount(planes.piece, planes.alpha, b), cap)
    low = np.where(left > 0, np.minimum(low, 0.0), low)
    return np.where(np.isfinite(low), top - low, 0.0)


def ascend(
    planes: Planes,
    H: np.ndarray,
    gradient: np.ndarray,
    cap: np.ndarray,
    tol: float,
    ease: float = 0.1,
) -> tuple[float, float]:
    """Raise the dual over the planes of a block; α and the gradient change in place.

    Each step takes the piece with the largest violation and moves α from its worst plane to its
    best, as far as is best ([hmsvm] step 8). Stops when the violations have come down to `tol`, or
    to the part `ease` of what they were: other blocks will disturb them again. Returns the gain of
    the dual and the violation at the beginning.
    """
    if len(planes) == 0:
        return 0.0, 0.0
    alpha, curvature = planes.alpha, np.diag(H)
    starts = np.flatnonzero(np.r_[True, np.diff(planes.piece) > 0])
    ends = np.r_[starts[1:], len(planes)]
    room = _room(np.add.reduceat(alpha, starts), cap[planes.piece[starts]])
    gain, first, goal = 0.0, 0.0, 0.0
    for step in range(_STEPS * len(planes)):
        top = np.maximum.reduceat(gradient, starts)
        low = np.minimum.reduceat(np.where(alpha > 0, gradient, np.inf), starts)
        violation = np.maximum(top, 0.0) - np.where(room > 0, np.minimum(low, 0.0), low)
        k = int(violation.argmax())
        worst = float(violation[k])
        if step == 0:
            first, goal = worst, max(tol, ease * worst)
        if worst <= goal:
            break
        a, b = int(starts[k]), int(ends[k])
        p = a + int(gradient[a:b].argmax()) if top[k] > 0 else -1
        from_room = room[k] > 0 and low[k] >= 0
        q = -1 if from_room else a + int(np.where(alpha[a:b] > 0, gradient[a:b], np.inf).argmin())
        bend = (curvature[p] if p >= 0 else 0.0) + (curvature[q] if q >= 0 else 0.0)
        if p >= 0 and q >= 0:
            bend -= 2 * H[p, q]
        most = float(room[k]) if q < 0 else float(alpha[q])
        size = most if bend <= 0 else min(worst / bend, most)
        if p >= 0:
            alpha[p] += size
            gradient -= size * H[p]
        else:
            room[k] += size
        if q >= 0:
            alpha[q] = 0.0 if size == most else alpha[q] - size
            gradient += size * H[q]
        else:
            room[k] = 0.0 if size == most else room[k] - size
        gain += size * worst - 0.5 * bend * size**2
    return gain, first


_STEPS = 20
"""Steps a plane that a visit makes at most."""
