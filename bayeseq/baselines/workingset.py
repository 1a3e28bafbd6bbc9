"""The dual of a maximum-margin problem over labellings, solved with a working set a sequence.

Primal: ½‖w‖² + Σ_i penalty_i(ξ_i) subject to w·d_i(y) ≥ ℓ_i(y) − ξ_i for all labellings y ≠ y_i,
where d_i(y) = ψ(x_i, y_i) − ψ(x_i, y), ψ holds the features of tokens with their labels and the
label pairs, and ℓ is the loss of a labelling: 1 ([hmsvm]), or its wrong tokens (Hamming; the SSVM
of [gpsl]). Dual: Σ α_i(y) ℓ_i(y) − ½‖w‖² − ½ Σ_i r_i (Σ_y α_i(y))² with w = Σ α_i(y) d_i(y) and

    no slack        α ≥ 0                                    (r = 0)
    C Σ ξ           α ≥ 0, Σ_y α_i(y) ≤ C                    (r = 0)
    C/2 Σ ξ²        α ≥ 0                                    (r = 1/C)

A labelling that entered the working set is called a plane. Sequences are visited in blocks: the
most violated labelling of each joins its set, then the dual is raised within the block's planes by
steps of sequential minimal optimisation, and w follows. Planes whose α is zero leave again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.optimize import brentq
from torch import Tensor

from bayeseq.baselines.pieces import Pieces, Rules
from bayeseq.baselines.planes import Block, Planes, ascend, by_piece, violations
from bayeseq.baselines.tokens import TokenScores
from bayeseq.chain import Chain, kbest, loss_augmented
from bayeseq.data.errors import DataError

Decoder = Callable[[Chain, Tensor], tuple[Tensor, Tensor]]
"""A chain and the right labels (N,) → the most violated labelling (N,), and which pieces (B,) have
one."""


def second_best(chain: Chain, truth: Tensor) -> tuple[Tensor, Tensor]:
    """The best labelling of each sequence that is not the right one, by two-best Viterbi."""
    best = kbest(chain, 2)
    layout = chain.layout
    wrong = layout.sum_by_sequence((best.labels[0] != truth).to(torch.float64)) > 0
    labels = torch.where(wrong[layout.sequence], best.labels[0], best.labels[1])
    return labels, wrong | torch.isfinite(best.score[1])


def hamming_best(chain: Chain, truth: Tensor) -> tuple[Tensor, Tensor]:
    """The labelling of each sequence with the highest score plus wrong tokens."""
    labels = loss_augmented(chain, truth).labels
    wrong = chain.layout.sum_by_sequence((labels != truth).to(torch.float64)) > 0
    return labels, wrong


def along_ray(squared_norm: float, price: np.ndarray, margin: np.ndarray, power: int) -> float:
    """The least of s²‖w‖²/2 + Σ price · max(1 − s · margin, 0)^power / power over s ≥ 0.

    >>> least = along_ray(4.0, np.array([10.0]), np.array([2.0]), 1)
    >>> round(least, 9)  # s = 1/2 has margin 1 and no slack
    0.5
    """

    def slack(s: float) -> np.ndarray:
        return np.maximum(1 - s * margin, 0.0)

    def slope(s: float) -> float:
        left = slack(s)
        active = left if power == 2 else (left > 0).astype(np.float64)
        return s * squared_norm - float((price * active) @ margin)

    best = 0.0
    if slope(0.0) < 0 and squared_norm > 0:
        most = (1 + 1e-9) * float(price @ np.maximum(margin, 0.0)) / squared_norm
        best = brentq(slope, 0.0, most, xtol=1e-14, rtol=1e-14)
    return float(best**2 * squared_norm / 2 + price @ slack(best) ** power / power)


@dataclass(frozen=True)
class State:
    """Where the search stands, with w held still: exact, from one pass over all sequences."""

    primal: float
    dual: float
    kkt: float
    """The largest violation: by how much a step within one sequence could still be too short"""

    @property
    def gap(self) -> float:
        """Primal − dual, as a part of the primal; 1 where the primal has no finite value yet."""
        return 1 - self.dual / self.primal if self.primal > 0 else 0.0


@dataclass(eq=False)
class MarginSolver:
    """Visits blocks and keeps the dual, w (through `scores` and A) and the planes in step."""

    pieces: Pieces
    scores: TokenScores
    rules: Rules
    decode: Decoder
    hamming: bool
    slack: str | None
    blocks: list[Block]
    flips: int
    A: np.ndarray = field(init=False)
    dual: float = 0.0

    def __post_init__(self) -> None:
        self.A = np.zeros((self.pieces.n_labels, self.pieces.n_labels))

    @classmethod
    def of(
        cls,
        pieces: Pieces,
        scores: TokenScores,
        rules: Rules,
        *,
        hamming: bool,
        C: float,
        slack: str | None,
        block_tokens: int,
        flips: int = 0,
    ) -> MarginSolver:
        """A solver at w = 0, with blocks of pieces of like length."""
        penalty = C * pieces.weights
        none = np.full(len(penalty), np.inf)
        cap = penalty if slack == "l1" else none
        ridge = 1 / penalty if slack == "l2" else 0 * penalty
        order = np.argsort(-pieces.lengths, kind="stable")
        group = np.cumsum(pieces.lengths[order]) // block_tokens
        parts = np.split(order, np.flatnonzero(np.diff(group)) + 1)
        blocks = [Block.of(pieces, part, cap, ridge) for part in parts]
        decoder = hamming_best if hamming else second_best
        return cls(pieces, scores, rules, decoder, hamming, slack, blocks, flips)

    def visit(self, block: Block, tol: float) -> float:
        """Look for violated labellings, raise the dual within the block, and return the largest
        violation that was found."""
        unary, found, has_one = self._most_violated(block)
        planes = block.planes
        known = self._gradient(block, planes, unary)
        best = by_piece(np.maximum, known, planes.piece, len(block.pieces), 0.0)
        least = np.maximum(best, 0.0) + tol / 2
        enter = has_one & (self._gradient(block, found, unary) > least)
        new = found.take(np.flatnonzero(enter))
        if self.flips:
            new = new.joined(self._flipped(block, unary, least))
        if len(new):
            block.admit(new, self.scores, self.pieces.n_labels)
            self._require_bounded(block)
        return self._ascend(block, unary, tol, prune=True)

    def revisit(self, block: Block, tol: float) -> float:
        """Raise the dual within the planes that a block has, and return the largest violation."""
        unary = block.touched_scores(self.scores, self.pieces.n_labels)
        return self._ascend(block, unary, tol, prune=False)

    def _ascend(self, block: Block, unary: np.ndarray, tol: float, prune: bool) -> float:
        planes = block.planes
        gradient = self._gradient(block, planes, unary)
        before = planes.alpha.copy()
        gain, violation = ascend(planes, block.H, gradient, block.cap, tol)
        self.dual += gain
        self._move(block, planes.alpha - before)
        if prune:
            block.prune(gradient)
        return violation

    def _flipped(self, block: Block, unary: np.ndarray, least: np.ndarray) -> Planes:
        """The labellings with one wrong token that violate their margin by more than the least of
        their piece (b,): for each token the worst label, of each piece the worst few.

        The working set would find them one by one; most support sequences are of this kind."""
        C, truth = self.pieces.n_labels, block.truth
        n = len(truth)
        A = (
            np.where(self.rules.pairs.numpy(), self.A, -np.inf)
            if self.rules.pairs is not None
            else self.A
        )
        gain = unary - unary[np.arange(n), truth][:, None]
        inner = np.flatnonzero(block.of_row[1:] == block.of_row[:-1])
        left, right = truth[inner], truth[inner + 1]
        gain[inner + 1] += A[left] - A[left, right][:, None]
        gain[inner] += A[:, right].T - A[left, right][:, None]
        gain[np.arange(n), truth] = -np.inf
        if self.rules.labels is not None:
            gain[~self.rules.labels[block.rows]] = -np.inf
        label = gain.argmax(1)
        violation = 1 + gain[np.arange(n), label] - self._used(block)[block.of_row]
        order = np.lexsort((-violation, block.of_row))
        rank = np.arange(n) - np.searchsorted(block.of_row, block.of_row)
        token = order[(rank < self.flips) & (violation > least[block.of_row])[order]]
        return block.single(token, label[token], C)

    def _most_violated(self, block: Block) -> tuple[np.ndarray, Planes, np.ndarray]:
        """The scores (n, C) of a block, a plane for each piece, and which pieces have one."""
        unary = self.scores.of(block.rows)
        chain = self.rules.chain(unary, self.A, block.rows, block.layout)
        packed, has_one = self.decode(chain, block.layout.pack(torch.from_numpy(block.truth)))
        labels = block.layout.unpack(packed).numpy()
        found = block.differences(labels, self.pieces.n_labels, self.hamming)
        return unary, found, has_one.numpy()

    def _used(self, block: Block) -> np.ndarray:
        """(b,) r Σ α of each piece."""
        planes = block.planes
        return block.ridge * np.bincount(planes.piece, planes.alpha, len(block.pieces))

    def _gradient(self, block: Block, planes: Planes, unary: np.ndarray) -> np.ndarray:
        """(P,) of the dual, by α."""
        return planes.loss - planes.margins(unary, self.A) - self._used(block)[planes.piece]

    def _require_bounded(self, block: Block) -> None:
        stuck = (np.diag(block.H) <= 0) & np.isinf(block.cap[block.planes.piece])
        if stuck.any():
            number = self.pieces.sequence[block.pieces[block.planes.piece[stuck][0]]]
            raise DataError(
                f"sequence {number}: another labelling has the very features of the right one, so "
                "no margin separates them; use slack='l1' or slack='l2'"
            )

    def _move(self, block: Block, change: np.ndarray) -> None:
        """w += Σ change · d."""
        moved = np.flatnonzero(change)
        if len(moved) == 0:
            return
        C = self.pieces.n_labels
        coefficients = (block.planes.tokens[moved].T @ change[moved]).reshape(-1, C)
        rows = np.flatnonzero(coefficients.any(1))
        self.scores.add(block.rows[rows], coefficients[rows])
        self.A += (block.planes.pairs[moved].T @ change[moved]).reshape(C, C)

    def state(self) -> State:
        """Primal, dual and the largest violation at the present w; nothing moves."""
        linear = squared_norm = ridge = worst = 0.0
        shortfalls = []
        for block in self.blocks:
            unary, found, has_one = self._most_violated(block)
            planes, used = block.planes, self._used(block)
            margins = planes.margins(unary, self.A)
            linear += float(planes.alpha @ planes.loss)
            squared_norm += float(planes.alpha @ margins)
            ridge += float(used @ np.bincount(planes.piece, planes.alpha, len(used)))
            of_new = found.loss - found.margins(unary, self.A)
            price = 1 / block.ridge if self.slack == "l2" else block.cap
            shortfalls.append(np.stack([price, of_new])[:, has_one])
            gradient = planes.loss - margins - used[planes.piece]
            up = np.where(has_one, of_new - used, -np.inf)
            worst = max(worst, float(violations(planes, gradient, block.cap, up).max()))
        dual = linear - squared_norm / 2 - ridge / 2
        primal = self._primal(squared_norm, *np.concatenate(shortfalls, 1))
        return State(primal, float(dual), worst)

    def _primal(self, squared_norm: float, price: np.ndarray, shortfall: np.ndarray) -> float:
        """The objective from ‖w‖² and, by piece, the price of slack and what w lacks of the margin.

        Any multiple of w labels as w does. Where the margin is 1, whichever the rival is, the best
        rival is the same for all multiples too, and the least objective of them all is given."""
        if self.hamming:
            return squared_norm / 2 + float(price @ np.maximum(shortfall, 0.0))
        margin = 1 - shortfall
        if len(margin) == 0:  # no sequence has another labelling
            return 0.0
        if self.slack is None:
            least = margin.min()
            return float(squared_norm / 2 / least**2) if least > 0 else np.inf
        return along_ray(squared_norm, price, margin, 1 if self.slack == "l1" else 2)

    def coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        """α(i, t, σ) (N, C) and α(σ, τ) (C, C): w by tokens and label pairs, from the planes."""
        C = self.pieces.n_labels
        tokens, pairs = np.zeros((len(self.pieces.labels), C)), np.zeros(C * C)
        for block in self.blocks:
            alpha = block.planes.alpha
            tokens[block.rows] = (block.planes.tokens.T @ alpha).reshape(-1, C)
            pairs += block.planes.pairs.T @ alpha
        return tokens, pairs.reshape(C, C)
