"""The maximum-entropy Markov model: each label given the one before, normalised locally."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from bayeseq.baselines.linear import LinearChainLabeler, WeightIndex
from bayeseq.baselines.optimise import minimise
from bayeseq.chain import Chain, constrain, forward_backward, one_thread
from bayeseq.data.batch import SequenceBatch
from bayeseq.labelers.base import FitResult, TrainingData
from bayeseq.labelers.chain import obey_scheme, require_scheme


class MEMM(LinearChainLabeler):
    """Maximum-entropy Markov model (McCallum, Freitag, Pereira 2000).

    p(y | x) = Π_t softmax_c(x_t · W[:, c] + A[y_{t−1}, c]) at c = y_t, with a Gaussian prior:
    minimises −log p + l2 · ‖w‖². Missing labels and label sets are summed over. The parameters are
    those of `CRF`; only the normalisation differs.

    >>> memm = MEMM(l2=0.1).fit([[["a"], ["b"]], [["b"], ["a"]]], [["A", "B"], ["B", "A"]])
    >>> memm.predict([[["a"], ["a"], ["b"]]])
    [['A', 'A', 'B']]
    """

    def __init__(
        self,
        l2: float = 1.0,
        min_count: int = 1,
        pair_prefix: str | None = None,
        all_possible_states: bool = False,
        all_possible_transitions: bool = False,
        scheme: str | None = None,
        decode: str = "viterbi",
        max_iter: int = 1000,
        tol: float = 1e-5,
        warm_start: bool = False,
        progress: bool = True,
    ) -> None:
        self.l2 = l2
        self.min_count = min_count
        self.pair_prefix = pair_prefix
        self.all_possible_states = all_possible_states
        self.all_possible_transitions = all_possible_transitions
        self.scheme = scheme
        self.decode = decode
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.progress = progress

    @one_thread()
    def _learn(self, data: TrainingData) -> FitResult:
        if self.l2 < 0:
            raise ValueError(f"l2 is {self.l2}; a penalty cannot be negative")
        if self.scheme is not None:
            require_scheme(data, self.scheme)
        index = WeightIndex.observed(
            data.batch,
            self._pair_features(data),
            all_states=self.all_possible_states,
            all_transitions=self.all_possible_transitions,
        )
        weights, result = minimise(
            MEMMLoss(data.batch, index, self.l2, self.scheme, data.labels.classes),
            self._start(data, index),
            max_iter=self.max_iter,
            tol=self.tol,
            progress=self.progress,
            name="MEMM",
        )
        self._set_weights(index, weights)
        return result

    def _scores(self, batch: SequenceBatch) -> Chain:
        return locally_normalised(super()._scores(batch))


def locally_normalised(scores: Chain) -> Chain:
    """The chain of log p(y_t | y_{t−1}, x): first labels in unary, the others in transitions."""
    layout = scores.layout
    first = layout.n_tokens - layout.n_pairs
    into = scores.transitions + scores.unary[first:].unsqueeze(-2)
    unary = torch.zeros_like(scores.unary)
    unary[:first] = torch.log_softmax(scores.unary[:first], -1)
    return Chain(unary, torch.log_softmax(into, -1), layout)


class MEMMLoss:
    """The MEMM's objective and gradient as a function of the weight vector.

    The gradient by the score of label b after label a is p(b | a, x) q(a) − q(a, b), where q is
    the distribution of the label pair given what is known: one place where both labels are known,
    a constrained forward–backward pass where they are not.
    """

    def __init__(
        self,
        batch: SequenceBatch,
        index: WeightIndex,
        l2: float,
        scheme: str | None = None,
        classes: tuple[str, ...] = (),
    ) -> None:
        assert batch.allowed is not None
        self.index, self.l2, self.scheme, self.classes = index, l2, scheme, classes
        self.features, self.transposed = batch.features, batch.features.T.tocsr()
        unknown = (batch.allowed.sum(-1) != 1).to(torch.float64)
        partial = batch.layout.sum_by_sequence(unknown) > 0
        self.rows_of: list[np.ndarray] = []
        self.parts: list[tuple[bool, SequenceBatch]] = []
        for complete in (True, False):
            rows, some = batch.select((partial != complete).nonzero().squeeze(-1))
            for part_rows, part in some.split(max(1, 2**22 // index.n_labels**2)):
                if part.layout.n_tokens:
                    self.parts.append((complete, part))
                    self.rows_of.append(rows[part_rows])
        self.designs = [index.pair_design(part) for _, part in self.parts]

    def __call__(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """The objective and its gradient."""
        index = self.index
        scores = self.features @ index.state_matrix(weights)
        A = torch.from_numpy(index.transition_matrix(weights))
        value = self.l2 * float(weights @ weights)
        by_pair = torch.zeros_like(A)
        by_triple = np.zeros(len(index.pairs))
        for (complete, part), rows, design in zip(
            self.parts, self.rows_of, self.designs, strict=True
        ):
            transitions = A
            if design is not None:
                local = torch.from_numpy(design.T @ index.split(weights)[2])
                transitions = A + local.reshape(-1, *A.shape)
            chain = Chain(torch.from_numpy(scores[rows]), transitions, part.layout)
            if complete:
                loss, first, into = _complete(chain, part)
            else:
                loss, first, into = _partial(chain, part, self.scheme, self.classes)
            value += loss
            scores[rows] = torch.cat([first, into.sum(-2)]).numpy()
            by_pair += into.sum(0)
            if design is not None:
                by_triple += design @ into.numpy().ravel()
        gradient = np.concatenate(
            [
                (self.transposed @ scores).ravel()[index.states],
                by_pair.numpy().ravel()[index.transitions],
                by_triple,
            ]
        )
        return value, gradient + 2 * self.l2 * weights


def _complete(scores: Chain, part: SequenceBatch) -> tuple[float, Tensor, Tensor]:
    """Loss of fully labelled sequences, its gradient at first tokens (B, C) and label pairs."""
    layout, labels = scores.layout, part.labels
    first = layout.n_tokens - layout.n_pairs
    rows = torch.arange(layout.n_pairs)
    left = labels[layout.previous]
    into = scores.transitions[rows, left] if scores.varies else scores.transitions[left]
    local = scores.unary.clone()
    local[first:] += into
    log_p = torch.log_softmax(local, -1)
    weights = part.weights[layout.sequence]
    loss = -float(weights @ log_p.gather(-1, labels.unsqueeze(-1)).squeeze(-1))
    gradient = log_p.exp_()
    gradient[torch.arange(len(labels)), labels] -= 1
    gradient *= weights.unsqueeze(-1)
    C = scores.n_labels
    by_pair = gradient.new_zeros(layout.n_pairs, C, C)
    by_pair[rows, left] = gradient[first:]
    return loss, gradient[:first], by_pair


def _partial(
    scores: Chain, part: SequenceBatch, scheme: str | None, classes: tuple[str, ...]
) -> tuple[float, Tensor, Tensor]:
    """The same where some labels are missing or sets: the labellings that agree with what is
    known, and with the scheme, are summed over."""
    layout = scores.layout
    first = layout.n_tokens - layout.n_pairs
    model = locally_normalised(scores)
    known = obey_scheme(constrain(model, allowed=part.allowed), scheme, classes)
    found = forward_backward(known, "each")
    assert found.pairs is not None
    weights = part.weights[layout.sequence]
    p_first, p_into = model.unary[:first].exp(), model.transitions.exp()
    at_first = (p_first - found.unary[:first]) * weights[:first, None]
    left = found.pairs.sum(-1, keepdim=True)
    into = (p_into * left - found.pairs) * weights[first:, None, None]
    return -float(part.weights @ found.log_partition), at_first, into
