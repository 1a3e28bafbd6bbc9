"""What the two maximum-margin labelers share: rounds of visits until the duality gap is small."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
from tqdm import tqdm

from bayeseq.baselines.margin import MarginLabeler
from bayeseq.baselines.optimise import interrupted_message, max_iter_message
from bayeseq.baselines.pieces import Pieces, Rules
from bayeseq.baselines.planes import Block
from bayeseq.baselines.tokens import PrimalScores, token_scores
from bayeseq.baselines.workingset import MarginSolver, State
from bayeseq.kernels import Kernel
from bayeseq.labelers.base import FitResult, TrainingData
from bayeseq.labelers.chain import require_positive, require_scheme

_FIRST_ACCURACY = 0.1
"""Violations that the first rounds leave alone."""
_CALM = 2
"""Visits without a violation after which a block is left alone until the others are calm too."""
_DRIFT = 2.0
"""All blocks are woken where an exact look finds violations so many times those of a round."""
_EASE = 0.1
"""After a round the blocks are visited again with the labellings they have, until the violations
are down to this part of what the round found."""
_CHECK = 5
"""Rounds between two exact looks at the duality gap."""


class MaxMarginLabeler(MarginLabeler):
    """A margin labeler that solves the dual problem of `workingset`."""

    C: float
    max_iter: int
    tol: float
    random_state: int
    progress: bool

    def _solve(
        self,
        data: TrainingData,
        kernel: Kernel,
        dual: bool | None,
        *,
        hamming: bool,
        slack: str | None,
        block_tokens: int,
        flips: int = 0,
        revisits: int = 10,
        until_calm: bool = False,
    ) -> tuple[MarginSolver, FitResult]:
        """Fit, and set what predictions need. For `revisits` and `until_calm` see `_revisit`."""
        require_positive("max_iter", self.max_iter)
        if not self.C > 0 or not np.isfinite(self.C):
            raise ValueError(f"C is {self.C}; it must be positive and finite")
        if not self.tol > 0:
            raise ValueError(f"tol is {self.tol}; it must be positive")
        if self.scheme is not None:
            require_scheme(data, self.scheme)
        pieces = Pieces.of(data.batch)
        solver = MarginSolver.of(
            pieces,
            token_scores(pieces.features, pieces.n_labels, kernel, dual),
            Rules.of(pieces, self.scheme, data.labels.classes),
            hamming=hamming,
            C=self.C,
            slack=slack,
            block_tokens=block_tokens,
            flips=flips,
        )
        result = self._rounds(solver, partial(_revisit, most=revisits, until_calm=until_calm))
        alpha, A = solver.coefficients()
        if isinstance(solver.scores, PrimalScores):
            self._set_weights(solver.scores.weights(alpha), A)
        else:
            self._set_points(pieces, kernel, alpha, A)
        return solver, result

    def _rounds(self, solver: MarginSolver, revisit: Callable[..., None]) -> FitResult:
        name = type(self).__name__
        rng = np.random.default_rng(self.random_state)
        trace: list[float] = []
        elapsed: list[float] = []
        state, message, interrupted = State(np.inf, 0.0, np.inf), "", False
        accuracy = _FIRST_ACCURACY
        began = time.perf_counter()
        off = None if self.progress else True
        with tqdm(total=self.max_iter, desc=name, disable=off, delay=2, leave=False) as bar:
            try:
                while state.gap > self.tol and len(trace) < self.max_iter:
                    worst = _round(solver, rng, accuracy, revisit)
                    trace.append(solver.dual)
                    elapsed.append(time.perf_counter() - began)
                    bar.update()
                    calm = worst <= accuracy
                    if calm or len(trace) % _CHECK == 0 or len(trace) == self.max_iter:
                        state = solver.state()
                        bar.set_postfix_str(f"gap {state.gap:.2g}", refresh=False)
                        # what was left alone may have come to violate more than what was not
                        calm |= state.kkt > _DRIFT * worst
                    if calm:
                        for block in solver.blocks:
                            block.calm = 0
                    accuracy = min(accuracy, 0.3 * max(worst, 0.3 * accuracy))
            except KeyboardInterrupt:
                message, interrupted = interrupted_message(len(trace)), True
        converged = bool(state.gap <= self.tol)
        if not converged and not interrupted:
            message = max_iter_message(name, self.max_iter)
            message += f" with a duality gap of {state.gap:.2g}"
        return FitResult(
            tuple(trace),
            tuple(elapsed),
            converged,
            time.perf_counter() - began,
            message,
            interrupted,
            diagnostics={
                "primal": state.primal,
                "dual": state.dual,
                "duality gap": state.gap,
                "KKT residual": state.kkt,
            },
        )


def _round(
    solver: MarginSolver, rng: np.random.Generator, accuracy: float, revisit: Callable[..., None]
) -> float:
    """Visit the blocks that are not calm, in a random order, then raise the dual further with the
    labellings that they have; the largest violation."""
    awake = [block for block in solver.blocks if block.calm < _CALM]
    worst = 0.0
    for k in rng.permutation(len(awake)).tolist():
        violation = solver.visit(awake[k], accuracy)
        awake[k].calm = 0 if violation > accuracy else awake[k].calm + 1
        worst = max(worst, violation)
    revisit(solver, rng, awake, max(accuracy, _EASE * worst))
    return worst


def _revisit(
    solver: MarginSolver,
    rng: np.random.Generator,
    blocks: list[Block],
    goal: float,
    most: int,
    until_calm: bool,
) -> None:
    """Up to `most` passes over the blocks that violate by more than the goal. A block that is done
    may be disturbed by the others: with `until_calm` all are looked at again in the end."""
    left = blocks
    for _ in range(most):
        every = len(left) == len(blocks)
        order = rng.permutation(len(left)).tolist()
        found = [(left[k], solver.revisit(left[k], goal)) for k in order]
        left = [block for block, violation in found if violation > goal]
        if not left:
            if every or not until_calm:
                return
            left = blocks
