"""The hidden Markov perceptron: Viterbi, and a step where it was wrong."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
from tqdm import tqdm

from bayeseq.baselines.margin import MarginLabeler
from bayeseq.baselines.optimise import interrupted_message, max_iter_message
from bayeseq.baselines.pieces import Pieces, Rules
from bayeseq.baselines.tokens import PrimalScores, TokenScores, as_kernel, token_scores
from bayeseq.chain import one_thread, viterbi
from bayeseq.kernels import Kernel
from bayeseq.labelers.base import FitResult, TrainingData
from bayeseq.labelers.chain import require_positive, require_scheme
from bayeseq.shapes import Layout


class HMPerceptron(MarginLabeler):
    """The perceptron for label sequences (Collins 2002; [hmsvm] section 4).

    It labels each training sequence by Viterbi. Where the answer ŷ differs from the right labelling
    y, it adds the features of y and takes away those of ŷ. In the dual it is enough to count how
    often each label of each token, α(i, t, σ), and each label pair, α(σ, τ), was missed or wrongly
    given: f = Kα for any kernel K between tokens. With a linear kernel the weights W = Φᵀα are kept
    instead, which is the same perceptron. On separable data it makes at most R²/γ² mistakes.

    Parameters
    ----------
    kernel : a kernel between tokens, or its text: "linear", "polynomial(degree=2)", "rbf(…)", ….
    average : predict with the mean of the weights over all visits, which varies less with the order
        (Collins 2002), not with the last ones.
    dual : keep the kernel matrix also for a linear kernel (None and False: the weights).
    min_count : features that occur fewer times in training are left out.
    scheme : see `ChainLabeler`.
    max_iter : stop after so many passes over the data, at the latest.
    patience : stop when the wrong tokens of a pass have not become fewer for so many passes; None
        goes on to the end.
    shuffle : visit the sequences in a new random order in each pass.
    random_state : decides the orders.
    progress : show a bar once training has run for two seconds.

    Sequences are cut where labels are missing, and weights multiply the steps. `result_.objective`
    holds the wrong tokens by pass; `result_.diagnostics` the number of updates in all and the
    sequences that were wrong in the last pass: 0 means that the data was separated.

    >>> model = HMPerceptron().fit([[["a"], ["b"]], [["b"], ["a"]]], [["A", "B"], ["B", "A"]])
    >>> model.predict([[["b"], ["a"]]])
    [['B', 'A']]
    """

    def __init__(
        self,
        kernel: Kernel | str = "linear",
        average: bool = True,
        dual: bool | None = None,
        min_count: int = 1,
        scheme: str | None = None,
        max_iter: int = 50,
        patience: int | None = 5,
        shuffle: bool = True,
        random_state: int = 0,
        progress: bool = True,
    ) -> None:
        self.kernel = kernel
        self.average = average
        self.dual = dual
        self.min_count = min_count
        self.scheme = scheme
        self.max_iter = max_iter
        self.patience = patience
        self.shuffle = shuffle
        self.random_state = random_state
        self.progress = progress

    @one_thread()
    def _learn(self, data: TrainingData) -> FitResult:
        require_positive("max_iter", self.max_iter)
        if self.scheme is not None:
            require_scheme(data, self.scheme)
        kernel = as_kernel(self.kernel)
        pieces = Pieces.of(data.batch)
        rules = Rules.of(pieces, self.scheme, data.labels.classes)
        tokens = token_scores(pieces.features, pieces.n_labels, kernel, self.dual)
        learner = Perceptron(pieces, tokens, rules)
        result = self._passes(learner)
        alpha, A = learner.averaged() if self.average else (learner.alpha, learner.A)
        if isinstance(tokens, PrimalScores):
            # W is linear in α, so the mean weights are those of the mean α
            self._set_weights(tokens.weights(alpha), A)
        else:
            self._set_points(pieces, kernel, alpha, A)
        return result

    def _passes(self, learner: Perceptron) -> FitResult:
        """Passes over the data until nothing is wrong, or nothing gets better."""
        rng = np.random.default_rng(self.random_state)
        order = np.arange(len(learner.pieces.weights))
        wrong: list[float] = []
        elapsed: list[float] = []
        missed, converged, interrupted, message = 0, False, False, ""
        began = time.perf_counter()
        off = None if self.progress else True
        try:
            for _ in tqdm(range(self.max_iter), "HMPerceptron", disable=off, delay=2, leave=False):
                if self.shuffle:
                    order = rng.permutation(len(order))
                errors = [learner.visit(i) for i in order.tolist()]
                missed = int(np.count_nonzero(errors))
                wrong.append(float(sum(errors)))
                elapsed.append(time.perf_counter() - began)
                if converged := missed == 0 or self._stalled(wrong):
                    message = "" if missed == 0 else "the errors of a pass fall no further"
                    break
        except KeyboardInterrupt:
            message, interrupted = interrupted_message(len(wrong)), True
        if not converged and not interrupted:
            message = max_iter_message("HMPerceptron", self.max_iter)
        seconds = time.perf_counter() - began
        found = {"updates": float(learner.updates), "wrong sequences": float(missed)}
        return FitResult(
            tuple(wrong), tuple(elapsed), converged, seconds, message, interrupted, {}, found
        )

    def _stalled(self, wrong: list[float]) -> bool:
        if self.patience is None or len(wrong) <= self.patience:
            return False
        return min(wrong[-self.patience :]) >= min(wrong[: -self.patience])


@dataclass(eq=False)
class Perceptron:
    """The state of a perceptron: coefficients, and the scores that follow from them."""

    pieces: Pieces
    tokens: TokenScores
    rules: Rules
    alpha: np.ndarray = field(init=False)
    """(N, C) α(i, t, σ)"""
    A: np.ndarray = field(init=False)
    """(C, C) α(σ, τ)"""
    updates: int = 0
    visits: int = 0

    def __post_init__(self) -> None:
        N, C = len(self.pieces.labels), self.pieces.n_labels
        self.alpha, self.A = np.zeros((N, C)), np.zeros((C, C))
        # Σ over updates of (visits before it) · change: what the mean lacks of the end
        self._alpha_late, self._A_late = np.zeros((N, C)), np.zeros((C, C))
        self._layouts = {n: Layout.of([n]) for n in set(self.pieces.lengths.tolist())}

    def visit(self, i: int) -> int:
        """Label a piece, learn from what is wrong, and return the number of wrong tokens."""
        rows = np.arange(self.pieces.bounds[i], self.pieces.bounds[i + 1])
        truth = self.pieces.labels[rows]
        chain = self.rules.chain(self.tokens.of(rows), self.A, rows, self._layouts[len(rows)])
        found = viterbi(chain).labels.numpy()
        wrong = np.flatnonzero(found != truth)
        if len(wrong):
            self._update(rows, truth, found, wrong, self.pieces.weights[i])
        self.visits += 1
        return len(wrong)

    def _update(
        self,
        rows: np.ndarray,
        truth: np.ndarray,
        found: np.ndarray,
        wrong: np.ndarray,
        weight: float,
    ) -> None:
        change = np.zeros((len(wrong), self.pieces.n_labels))
        change[np.arange(len(wrong)), truth[wrong]] = weight
        change[np.arange(len(wrong)), found[wrong]] = -weight
        pairs = np.zeros_like(self.A)
        np.add.at(pairs, (truth[:-1], truth[1:]), weight)
        np.add.at(pairs, (found[:-1], found[1:]), -weight)
        self.alpha[rows[wrong]] += change
        self.A += pairs
        self._alpha_late[rows[wrong]] += self.visits * change
        self._A_late += self.visits * pairs
        self.tokens.add(rows[wrong], change)
        self.updates += 1

    def averaged(self) -> tuple[np.ndarray, np.ndarray]:
        """The means of α and A after each visit."""
        visits = max(self.visits, 1)
        return self.alpha - self._alpha_late / visits, self.A - self._A_late / visits
