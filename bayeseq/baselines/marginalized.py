"""Labelling by marginalized kernels: what the perceptron and the SVM share, and the perceptron."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NoReturn

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted
from tqdm import tqdm

from bayeseq.baselines.crf import CRF
from bayeseq.baselines.hmm import HMM
from bayeseq.baselines.memm import MEMM
from bayeseq.baselines.optimise import interrupted_message
from bayeseq.chain import one_thread
from bayeseq.data.batch import SequenceBatch
from bayeseq.data.errors import DataError
from bayeseq.data.labels import Labels
from bayeseq.kernels.marginalized import MARGINALIZED, Graph, MarginalizedKernel, Positions
from bayeseq.labelers.base import FitResult, NoProbabilitiesError, SequenceLabeler, TrainingData
from bayeseq.labelers.chain import require_positive

UNIFORM = "uniform"
PRIORS = {"hmm": HMM, "memm": MEMM, "crf": CRF}
"""The labelers that a prior may be given by name."""
_KERNEL_VALUES_AT_ONCE = 2**23


@dataclass(frozen=True, eq=False)
class Problem:
    """What a solver sees: one kernel matrix, label priors, and what is known of the labels.

    The kernel between token i with label a and token j with label b is
    ρ[i, a] ρ[j, b] k_y[a, b] G[i, j].
    """

    G: np.ndarray
    """(N, N)"""
    rho: np.ndarray
    """(N, C) P(a | x_i) over the uniform 1 / C, so that a uniform prior is 1"""
    k_y: np.ndarray
    """(C, C)"""
    allowed: np.ndarray
    """(N, C)"""
    weights: np.ndarray
    """(N,)"""


class MarginalizedLabeler(SequenceLabeler):
    """A labeler on a marginalized kernel: each token by itself, with all that surrounds it.

    X holds sequences as all labelers take them, or `Tree`s and `DAG`s where the kernel follows
    edges. It has scores (`decision_scores`) and no probabilities; `Calibrated` makes some.
    """

    has_probabilities: ClassVar[bool] = False
    kernel: MarginalizedKernel | str
    prior: SequenceLabeler | str
    prior_folds: int
    max_memory: float

    support_: Positions
    """The training structures that hold a token with a coefficient"""
    support_rows_: np.ndarray
    """(S,) those tokens' places among them"""
    alpha_: np.ndarray
    """(S, C) their coefficients"""
    prior_: SequenceLabeler | None
    """The fitted prior; None if it is uniform"""
    _ready: Any
    """`support_`, prepared for the kernel"""

    @abstractmethod
    def _solve(self, problem: Problem) -> tuple[np.ndarray, FitResult]:
        """The coefficients α (N, C), and how it went."""

    # ---- fitting --------------------------------------------------------------------------------

    @one_thread()
    def _learn(self, data: TrainingData) -> FitResult:
        kernel, N = self._kernel(), data.batch.layout.n_tokens
        gigabytes = 8e-9 * N**2
        if gigabytes > self.max_memory:
            raise DataError(
                f"the kernel between {N} tokens takes {gigabytes:.1f} GB, and max_memory is "
                f"{self.max_memory}; train on fewer sequences, or raise it"
            )
        prior, proba = self._fit_prior(data)
        flat = data.batch.layout.unpacked_rows
        positions = _positions(kernel, data.batch, proba)
        problem = Problem(
            kernel.gram(positions),
            positions.prior * proba.shape[1],
            kernel.label_kernel(proba.shape[1]),
            _known(data.batch)[flat].numpy(),
            data.batch.weights[data.batch.layout.sequence][flat].numpy(),
        )
        alpha, result = self._solve(problem)
        self._keep(positions, alpha)
        self.prior_ = prior
        return result

    def _keep(self, positions: Positions, alpha: np.ndarray) -> None:
        """Keep the tokens with a coefficient, and the structures around them."""
        graph = positions.graph
        counts = np.diff(np.r_[0, np.cumsum(alpha.any(1))][graph.starts])
        kept = np.flatnonzero(counts)
        tokens = np.repeat(counts > 0, graph.lengths)
        number = np.cumsum(tokens) - 1
        inside = tokens[graph.child]
        edges = np.stack([number[graph.parent[inside]], number[graph.child[inside]]], 1)
        self.support_ = Positions(
            positions.rows[tokens],
            Graph.joined(graph.lengths[kept], edges),
            positions.prior[tokens],
        )
        self.support_rows_ = np.flatnonzero(alpha[tokens].any(1))
        self.alpha_ = alpha[tokens][self.support_rows_]
        self._ready = self._kernel().prepare(self.support_)

    def _kernel(self) -> MarginalizedKernel:
        kernel = self.kernel
        if isinstance(kernel, str):
            if kernel not in MARGINALIZED:
                raise ValueError(
                    f"kernel is {kernel!r}; expected one of {', '.join(map(repr, MARGINALIZED))}"
                )
            kernel = MARGINALIZED[kernel]()
        if not isinstance(kernel, MarginalizedKernel):
            raise ValueError(f"kernel is {kernel!r}; expected one such as SequenceKernel()")
        kernel.check()
        return kernel

    # ---- the label prior ------------------------------------------------------------------------

    def _new_prior(self) -> SequenceLabeler | None:
        prior = self.prior
        if isinstance(prior, SequenceLabeler) and prior.has_probabilities:
            return clone(prior)
        if prior == UNIFORM:
            return None
        if isinstance(prior, str) and prior in PRIORS:
            quiet = {} if prior == "hmm" else {"progress": False}
            return PRIORS[prior](**quiet)
        raise ValueError(
            f"prior is {prior!r}; expected 'uniform', {', '.join(map(repr, PRIORS))}, or a labeler "
            "that has probabilities"
        )

    def _fit_prior(self, data: TrainingData) -> tuple[SequenceLabeler | None, np.ndarray]:
        """The prior of new tokens, and P (N, C) of the training tokens in packed order.

        A labeler is surer of the tokens it was trained on than of others. So the training tokens
        get their probabilities from labelers that were trained without their sequence.
        """
        batch = data.batch
        N, C, B = batch.layout.n_tokens, len(data.labels.classes), batch.layout.n_sequences
        if self._new_prior() is None:
            return None, np.full((N, C), 1.0 / C)
        require_positive("prior_folds", self.prior_folds)
        proba = np.empty((N, C))
        folds = min(self.prior_folds, B)
        for fold in range(folds):
            others = np.arange(B) % folds != fold
            if folds == 1:  # nothing can be held out
                others[:] = True
            _, training = batch.select(torch.from_numpy(np.flatnonzero(others)))
            labeler = self._trained_prior(replace(data, batch=training))
            held_out = torch.arange(fold, B, folds)
            rows, part = batch.select(held_out)
            proba[rows] = _marginals(labeler, replace(part, allowed=None))
        return self._trained_prior(data), proba

    def _trained_prior(self, data: TrainingData) -> SequenceLabeler:
        labeler = self._new_prior()
        assert labeler is not None
        if bool(_known(data.batch).all()) and len(data.labels.classes) > 1:
            raise DataError(
                "no label is known without one fold of the sequences, so the prior cannot be "
                "fitted; use fewer prior_folds, or prior='uniform'"
            )
        return labeler._fit_on(data)

    def _prior_proba(self, batch: SequenceBatch) -> np.ndarray:
        """P (N, C) of new tokens in packed order; what is given is certain."""
        N, C = batch.layout.n_tokens, len(self.classes_)
        proba = np.full((N, C), 1.0 / C)
        if self.prior_ is not None:
            proba = _marginals(self.prior_, batch)
        if batch.allowed is not None:
            allowed = batch.allowed.numpy()
            proba = np.where(allowed, proba, 0.0)
            total = proba.sum(1, keepdims=True)
            even = allowed / np.maximum(allowed.sum(1, keepdims=True), 1)
            proba = np.where(total > 0, proba / np.where(total > 0, total, 1.0), even)
        return proba

    # ---- predicting -----------------------------------------------------------------------------

    def decision_scores(self, X: Iterable[Any], given: Labels | None = None) -> list[np.ndarray]:
        """(T, C) scores of each sequence, the largest where `predict` points; −inf for labels that
        `given` rules out. Only their order means anything: they are no probabilities."""
        batch = self._batch(X, given)
        scores = np.zeros((batch.layout.n_tokens, len(self.classes_)))
        for rows, part in self._parts(batch):
            scores[rows] = self._token_scores(part)
        return self._ragged(batch, scores)

    @one_thread()
    def _token_scores(self, batch: SequenceBatch) -> np.ndarray:
        """(N, C) scores of packed rows."""
        proba = self._prior_proba(batch)
        C = proba.shape[1]
        kernel = self._kernel()
        beta = np.zeros((len(self.support_.prior), C))
        beta[self.support_rows_] = self.alpha_ * self.support_.prior[self.support_rows_] * C
        gram = kernel.gram(_positions(kernel, batch, proba), self._ready)
        sums = gram @ (beta @ kernel.label_kernel(C))
        scores = (proba * C) * sums[batch.layout.rows.numpy()]
        return scores if batch.allowed is None else np.where(batch.allowed, scores, -np.inf)

    def _decode(self, batch: SequenceBatch) -> np.ndarray:
        return self._token_scores(batch).argmax(-1)

    def _parts(
        self, batch: SequenceBatch, copies: int = 1
    ) -> Iterable[tuple[np.ndarray, SequenceBatch]]:
        return batch.split(max(1, _KERNEL_VALUES_AT_ONCE // max(1, len(self.support_.prior))))

    def _marginals(self, batch: SequenceBatch) -> np.ndarray:
        self._refuse("probabilities")

    def predict_proba(self, X: Iterable[Any], given: Labels | None = None) -> NoReturn:
        """Raises NoProbabilitiesError: this labeler has scores alone."""
        self._refuse("predict_proba")

    def predict_marginals(self, X: Iterable[Any], given: Labels | None = None) -> NoReturn:
        """Raises NoProbabilitiesError: this labeler has scores alone."""
        self._refuse("predict_marginals")

    def tag(self, X: Iterable[Any], given: Labels | None = None) -> NoReturn:
        """Raises NoProbabilitiesError: this labeler has scores alone."""
        self._refuse("tag")

    def _refuse(self, name: str) -> NoReturn:
        check_is_fitted(self, "classes_")
        kind = type(self).__name__
        raise NoProbabilitiesError(
            f"{kind} has margins, not probabilities, so it has no {name}; wrap it, as in "
            f"Calibrated({kind}(…)), or use decision_scores"
        )

    # ---- structures -----------------------------------------------------------------------------

    def _training_data(
        self, X: Iterable[Any], y: Labels, sample_weight: Sequence[float] | None
    ) -> TrainingData:
        return super()._training_data(list(X), y, sample_weight)  # edges are read from a list

    def _batch(self, X: Iterable[Any], given: Labels | None) -> SequenceBatch:
        return super()._batch(list(X), given)

    # ---- saving ---------------------------------------------------------------------------------

    def _tensors(self) -> dict[str, np.ndarray]:
        rows, graph = self.support_.rows, self.support_.graph
        found = {
            "alpha": self.alpha_,
            "support": self.support_rows_,
            "lengths": graph.lengths,
            "rows.data": rows.data,
            "rows.indices": rows.indices.astype(np.int64),
            "rows.indptr": rows.indptr.astype(np.int64),
        }
        if self._kernel().structure != "sequence":
            found["edges"] = np.stack([graph.parent, graph.child], 1)
        if self.prior_ is not None:
            found["proba"] = self.support_.prior
        return found

    def _inner(self) -> dict[str, SequenceLabeler]:
        return {} if self.prior_ is None else {"prior": self.prior_}

    def _restore_inner(self, inner: Mapping[str, SequenceLabeler]) -> None:
        expected = self._new_prior()
        prior = inner.get("prior")
        if len(inner) != (expected is not None) or not isinstance(prior, type(expected)):
            raise ValueError(f"it should hold a prior of the kind {self.prior!r}, and none other")
        if prior is not None and prior.classes_.tolist() != self.classes_.tolist():
            raise ValueError("the prior has other labels")
        self.prior_ = prior

    def _restore(self, tensors: Mapping[str, np.ndarray]) -> None:
        C, D = len(self.classes_), self.feature_space_.n_features
        rows = _checked_rows(tensors, D)
        N = rows.shape[0]
        lengths = _whole_numbers(tensors, "lengths", 1)
        if ((lengths < 1) | (lengths > N)).any() or lengths.sum() != N:
            raise ValueError("the lengths of the structures do not add up")
        if self._kernel().structure == "sequence":
            graph = Graph.chains(lengths)
        else:
            graph = Graph.joined(lengths, _whole_numbers(tensors, "edges", 2))
            if self._kernel().structure == "tree" and len(graph.child) != N - len(lengths):
                raise ValueError("the edges form no trees")
        support = _whole_numbers(tensors, "support", 1)
        if len(support) and (support[0] < 0 or support[-1] >= N or (np.diff(support) <= 0).any()):
            raise ValueError("the tokens with a coefficient are not rising numbers of tokens")
        proba = np.full((N, C), 1.0 / C)
        if self.prior_ is not None:
            proba = _table(tensors, "proba", (N, C))
            if (proba < 0).any() or not np.allclose(proba.sum(1), 1):
                raise ValueError("proba does not hold probabilities")
        self.alpha_ = _table(tensors, "alpha", (len(support), C))
        self.support_, self.support_rows_ = Positions.of(rows, graph, proba), support
        self._ready = self._kernel().prepare(self.support_)


def _known(batch: SequenceBatch) -> torch.Tensor:
    assert batch.allowed is not None
    return batch.allowed


def _positions(kernel: MarginalizedKernel, batch: SequenceBatch, proba: np.ndarray) -> Positions:
    """The tokens of a batch laid end to end, from packed rows."""
    flat = batch.layout.unpacked_rows.numpy()
    return Positions.of(batch.features[flat], _graph(kernel, batch), proba[flat])


def _graph(kernel: MarginalizedKernel, batch: SequenceBatch) -> Graph:
    """The graph that the kernel follows."""
    lengths = batch.layout.lengths.numpy()
    if kernel.structure == "sequence" or not len(lengths):
        return Graph.chains(lengths)
    if batch.edges is None:
        raise DataError(
            f"X holds plain sequences, and {type(kernel).__name__} follows the edges of a "
            "Tree or DAG; make these of them, or use SequenceKernel"
        )
    if kernel.structure == "tree":
        for number, n, edges in zip(batch.numbers, lengths.tolist(), batch.edges, strict=True):
            heads = len(np.unique(edges[:, 1]))
            if heads < len(edges) or heads < n - 1:
                what = "a node has two heads" if heads < len(edges) else f"it has {n - heads} roots"
                raise DataError(f"sequence {number}: {what}, so it is no tree; use DAGKernel")
    return Graph.of(lengths, batch.edges)


def _marginals(labeler: SequenceLabeler, batch: SequenceBatch) -> np.ndarray:
    """(N, C) probabilities of packed rows."""
    proba = np.zeros((batch.layout.n_tokens, len(labeler.classes_)))
    for rows, part in labeler._parts(batch):
        proba[rows] = labeler._marginals(part)
    return proba


def _table(tensors: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...]) -> np.ndarray:
    table = tensors[name]
    if table.dtype != np.float64 or table.shape != shape or not np.isfinite(table).all():
        raise ValueError(f"{name} is not a finite table of shape {shape}")
    return table


def _whole_numbers(tensors: Mapping[str, np.ndarray], name: str, axes: int) -> np.ndarray:
    found = tensors[name]
    if found.dtype != np.int64 or found.ndim != axes or (axes == 2 and found.shape[1] != 2):
        raise ValueError(f"{name} does not hold whole numbers of the right shape")
    return found


def _checked_rows(tensors: Mapping[str, np.ndarray], n_columns: int) -> sp.csr_matrix:
    indices = _whole_numbers(tensors, "rows.indices", 1)
    indptr = _whole_numbers(tensors, "rows.indptr", 1)
    data = _table(tensors, "rows.data", indices.shape)
    rows = sp.csr_matrix((data, indices, indptr), shape=(len(indptr) - 1, n_columns))
    rows.check_format(full_check=True)
    if indptr[-1] != len(indices) or not rows.has_canonical_format:
        raise ValueError("the features of a token are not in order, or repeat")
    return rows


class MarginalizedPerceptron(MarginalizedLabeler):
    """The marginalized labeling perceptron ([mlp] section 3): pointwise, fully kernelised.

    Each token is labelled by itself, ŷ_t = argmax_c Σ α_{jτ}(a) K(x_j, x, τ, t, a, c), with a
    kernel in which features of any size around τ and t count and all other labels are summed over
    under a prior P(y | x). Where ŷ_t is wrong, α_{it}(y_t) += 1 and α_{it}(ŷ_t) −= 1.

    Parameters
    ----------
    kernel : a marginalized kernel, or its name: "sequence", "gappy", "tree" or "dag". With "tree"
        X holds `Tree`s, with "dag" `DAG`s or `Tree`s.
    prior : P(y | x): "uniform" as in [mlp], or a labeler that is fitted on the training data, or
        its name: "hmm", "memm", "crf". Training tokens get probabilities from labelers fitted
        without their sequence, by `prior_folds` folds (with one sequence alone nothing can be held
        out). The labeler shares the features of this one; its own `min_count` has no effect.
    average : predict with the mean of α over all visits, not with the last α ([mlp] does that).
    max_iter : stop after so many passes over the data, at the latest.
    patience : stop when the mistakes of a pass have not become fewer for so many passes; None goes
        on to the end.
    shuffle : visit the tokens in a new random order in each pass, not in the order of X as [mlp].
    min_count : features that occur fewer times in training are left out.
    max_memory : refuse kernel matrices that need more gigabytes than this.
    random_state : decides the orders.
    progress : show a bar once training has run for two seconds.

    Tokens without a label teach nothing but surround others; of a label set, the member with the
    largest score counts as right. Weights multiply the steps. `result_.objective` holds the
    mistakes by pass; a pass without any has separated the data.

    >>> model = MarginalizedPerceptron().fit([[["a"], ["b"]], [["b"]]], [["A", "B"], ["C"]])
    >>> model.predict([[["a"], ["b"]], [["b"]]])
    [['A', 'B'], ['C']]
    """

    def __init__(
        self,
        kernel: MarginalizedKernel | str = "sequence",
        prior: SequenceLabeler | str = "uniform",
        prior_folds: int = 5,
        average: bool = True,
        max_iter: int = 50,
        patience: int | None = 5,
        shuffle: bool = True,
        min_count: int = 1,
        max_memory: float = 4.0,
        random_state: int = 0,
        progress: bool = True,
    ) -> None:
        self.kernel = kernel
        self.prior = prior
        self.prior_folds = prior_folds
        self.average = average
        self.max_iter = max_iter
        self.patience = patience
        self.shuffle = shuffle
        self.min_count = min_count
        self.max_memory = max_memory
        self.random_state = random_state
        self.progress = progress

    def _solve(self, problem: Problem) -> tuple[np.ndarray, FitResult]:
        require_positive("max_iter", self.max_iter)
        learner = Perceptron(problem)
        rng = np.random.default_rng(self.random_state)
        order = np.flatnonzero(~problem.allowed.all(1) & (problem.weights > 0))
        mistakes: list[float] = []
        elapsed: list[float] = []
        converged, interrupted, message = not len(order), False, ""
        began = time.perf_counter()
        off = None if self.progress else True
        try:
            for _ in tqdm(range(self.max_iter), "perceptron", disable=off, delay=2, leave=False):
                visited = rng.permutation(order) if self.shuffle else order
                mistakes.append(float(learner.visit(visited)))
                elapsed.append(time.perf_counter() - began)
                if converged := mistakes[-1] == 0 or self._stalled(mistakes):
                    message = "" if mistakes[-1] == 0 else "the mistakes fall no further"
                    break
        except KeyboardInterrupt:
            message, interrupted = interrupted_message(len(mistakes)), True
        if not converged and not interrupted:  # not a fault: [mlp] stops after a number of passes
            message = f"stopped after max_iter={self.max_iter} passes"
        seconds = time.perf_counter() - began
        result = FitResult(
            tuple(mistakes), tuple(elapsed), converged, seconds, message, interrupted
        )
        return (learner.averaged() if self.average else learner.alpha), result

    def _stalled(self, mistakes: list[float]) -> bool:
        if self.patience is None or len(mistakes) <= self.patience:
            return False
        return min(mistakes[-self.patience :]) >= min(mistakes[: -self.patience])


def first_mistake(scores: np.ndarray, allowed: np.ndarray) -> tuple[int, int, int] | None:
    """The first row whose largest score (n, C) is at a label that is not allowed (n, C): the row,
    the allowed label with the largest score, and the label that was found.

    >>> first_mistake(np.array([[1.0, 0.0], [2.0, 1.0]]), np.array([[True, True], [False, True]]))
    (1, 1, 0)
    """
    found = scores.argmax(1)
    wrong = np.flatnonzero(~allowed[np.arange(len(found)), found])
    if not len(wrong):
        return None
    row = wrong[0]
    right = np.where(allowed[row], scores[row], -np.inf).argmax()
    return int(row), int(right), int(found[row])


class Perceptron:
    """A multi-class kernel perceptron on one kernel matrix, its scores kept up to date."""

    AT_ONCE = 256
    """Tokens that are looked at together for the next mistake."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.alpha = np.zeros_like(problem.rho)
        self._late = np.zeros_like(problem.rho)  # Σ over updates of (visits before it) · change
        self._sums = np.zeros(problem.rho.T.shape)  # (C, N) Σ_j G[i, j] (αρ)[j] k_y
        self._visits = 0

    def visit(self, tokens: np.ndarray) -> int:
        """Label tokens one after another, learn from each mistake, and return how many there were.

        Scores change at a mistake only, so the next one is looked for in many tokens at once.
        """
        mistakes, at = 0, 0
        while at < len(tokens):
            some = tokens[at : at + self.AT_ONCE]
            scores = self.problem.rho[some] * self._sums[:, some].T
            mistake = first_mistake(scores, self.problem.allowed[some])
            if mistake is None:
                self._visits += len(some)
                at += len(some)
                continue
            first, right, found = mistake
            self._visits += first
            self._update(int(some[first]), right, found)
            self._visits += 1
            mistakes += 1
            at += first + 1
        return mistakes

    def _update(self, i: int, right: int, found: int) -> None:
        p = self.problem
        for label, step in ((right, p.weights[i]), (found, -p.weights[i])):
            self.alpha[i, label] += step
            self._late[i, label] += self._visits * step
            change = step * p.rho[i, label] * p.k_y[label]
            for b in np.flatnonzero(change):
                self._sums[b] += change[b] * p.G[i]

    def averaged(self) -> np.ndarray:
        """The mean of α after each visit."""
        return self.alpha - self._late / max(self._visits, 1)
