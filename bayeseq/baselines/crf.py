"""The conditional random field: the point estimate that everything else is measured against."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from bayeseq.baselines.linear import (
    LinearChainLabeler,
    WeightIndex,
    design,
    label_matrix,
    label_pair_matrix,
)
from bayeseq.baselines.optimise import minimise
from bayeseq.chain import Chain, constrain, covariance, forward_backward, in_threads
from bayeseq.chain.marginals import Pairs
from bayeseq.data.batch import SequenceBatch
from bayeseq.labelers.base import FitResult, TrainingData
from bayeseq.labelers.chain import check_choice, obey_scheme, require_scheme
from bayeseq.shapes import Layout


class CRF(LinearChainLabeler):
    """Linear-chain conditional random field.

    Minimises Σ_i −log p(y_i | x_i) + l2 · ‖w‖² by L-BFGS with the exact gradient, expected minus
    observed feature counts. The penalty is CRFsuite's `c2`, and a Gaussian prior of variance
    1 / (2 · l2) on each weight; l2=0 is maximum likelihood. Missing labels and label sets are
    summed over: −log of the probability of all labellings that agree with what is known.

    Parameters
    ----------
    l2 : strength of the Gaussian prior.
    objective : "likelihood" of the whole labelling, or "pointwise": Σ_t log p(y_t | x), the sum of
        the log-marginals of the single labels (Kakade, Teh, Roweis 2002).
    min_count : features that occur fewer times in training are left out.
    transitions : whether label pairs have weights (without, tokens are labelled independently).
    pair_prefix : features whose name begins with this weigh label pairs, not labels (the `B` lines
        of a CRF++ template: pair_prefix="B").
    all_possible_states, all_possible_transitions : give weights also to feature–label pairs and
        label pairs that do not occur in training.
    scheme, decode : see `ChainLabeler`.
    max_iter, tol : stop after so many iterations, or when ten of them lower the objective by less
        than `tol` of itself.
    warm_start : begin at the weights of the last fit (features and labels may have changed).
    progress : show a bar once training has run for two seconds.

    >>> crf = CRF(l2=0.1).fit([[["a"], ["b"]], [["b"], ["a"]]], [["A", "B"], ["B", "A"]])
    >>> crf.predict([[["a"], ["a"], ["b"]]])
    [['A', 'A', 'B']]
    """

    def __init__(
        self,
        l2: float = 1.0,
        objective: str = "likelihood",
        min_count: int = 1,
        transitions: bool = True,
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
        self.objective = objective
        self.min_count = min_count
        self.transitions = transitions
        self.pair_prefix = pair_prefix
        self.all_possible_states = all_possible_states
        self.all_possible_transitions = all_possible_transitions
        self.scheme = scheme
        self.decode = decode
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.progress = progress

    def _learn(self, data: TrainingData) -> FitResult:
        check_choice("objective", self.objective, ("likelihood", "pointwise"))
        if self.l2 < 0:
            raise ValueError(f"l2 is {self.l2}; a penalty cannot be negative")
        if self.scheme is not None:
            require_scheme(data, self.scheme)
        index = WeightIndex.observed(
            data.batch,
            self._pair_features(data),
            all_states=self.all_possible_states,
            all_transitions=self.all_possible_transitions,
            transitions=self.transitions,
        )
        loss = CRFLoss.of(
            data.batch, index, self.l2, self.objective, self.scheme, data.labels.classes
        )
        weights, result = minimise(
            loss,
            self._start(data, index),
            max_iter=self.max_iter,
            tol=self.tol,
            progress=self.progress,
            name="CRF",
        )
        self._set_weights(index, weights)
        return result


@dataclass(frozen=True, eq=False)
class _Part:
    """Some training sequences: consecutive rows of the whole, few enough for the cache."""

    layout: Layout
    rows: slice
    weights: Tensor
    """(B,)"""
    allowed: Tensor | None
    """(N, C), or None where every label is known (then observed counts say all)"""
    common: sp.csr_matrix
    """(N, D') the features that many labels have weights for"""
    pairs: sp.csr_matrix | None
    """(R, M · C²) where the pair-feature weights add"""


@dataclass(frozen=True, eq=False)
class CRFLoss:
    """The CRF's objective and gradient as a function of the weight vector.

    Sequences whose labels are all known enter through their feature counts, once; the others need
    a second, constrained, forward–backward pass. Features that have weights for many labels are
    scored by a sparse product with a dense matrix, the great many that were seen with one or two
    labels through those few weights alone.
    """

    index: WeightIndex
    l2: float
    pointwise: bool
    scheme: str | None
    classes: tuple[str, ...]
    is_common: np.ndarray
    """(P,) whether a state weight belongs to a feature that many labels have weights for"""
    common_places: np.ndarray
    """the places d·C + c of those weights, with only those D' features counted"""
    transposed: sp.csc_matrix
    """(D', N) the features of those weights; by column, as the (D', C) sums fit into the cache"""
    rare: sp.csr_matrix
    """(P', N · C) where the other state weights add"""
    observed: np.ndarray
    """(P + Q + R,) weighted counts of the sequences whose labels are all known"""
    parts: tuple[_Part, ...]

    @classmethod
    def of(
        cls,
        batch: SequenceBatch,
        index: WeightIndex,
        l2: float,
        objective: str = "likelihood",
        scheme: str | None = None,
        classes: tuple[str, ...] = (),
    ) -> CRFLoss:
        """The loss of labelled sequences."""
        pointwise = objective == "pointwise"
        C = index.n_labels
        of_feature = index.states // C
        n_labels_of = np.bincount(of_feature, minlength=index.n_features)
        common = np.flatnonzero(n_labels_of > C // _FEW)
        is_common = n_labels_of[of_feature] > C // _FEW
        few = np.flatnonzero(n_labels_of <= C // _FEW)
        pieces = list(_pieces(batch, index, pointwise))
        features = batch.features[np.concatenate([rows for _, rows, _ in pieces])]
        rare = design(features[:, few], _renumbered(index.states[~is_common], few, C), C)
        features = features[:, common]
        parts, taken = [], 0
        for complete, _, part in pieces:
            rows = slice(taken, taken := taken + part.layout.n_tokens)
            counts_say_all = complete and not pointwise
            allowed = None if counts_say_all else part.allowed
            pair_design = index.pair_design(part)
            parts.append(
                _Part(part.layout, rows, part.weights, allowed, _rows(features, rows), pair_design)
            )
        observed = np.zeros(index.size) if pointwise else _counts(batch, index)
        return cls(
            index,
            l2,
            pointwise,
            scheme,
            classes,
            is_common,
            _renumbered(index.states[is_common], common, C),
            features.T,
            rare,
            observed,
            tuple(parts),
        )

    def __call__(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """The objective and its gradient."""
        index, C = self.index, self.index.n_labels
        state_weights = index.split(weights)[0]
        flat = np.zeros(self.parts[0].common.shape[1] * C)
        flat[self.common_places] = state_weights[self.is_common]
        W = flat.reshape(-1, C)
        # one table (N, C) all along: first the scores, then in their place the gradient by them
        table = (self.rare.T @ state_weights[~self.is_common]).reshape(-1, C)

        def expect(part: _Part) -> tuple[float, np.ndarray, np.ndarray | None]:
            scores = table[part.rows]
            scores += part.common @ W
            loss, by_label, by_pair = self._part(self._chain(scores, weights, part), part)
            scores[:] = by_label
            if part.pairs is None:
                return loss, by_pair.numpy(), None
            return loss, by_pair.sum(0).numpy(), part.pairs @ by_pair.numpy().ravel()

        value = self.l2 * float(weights @ weights) - float(weights @ self.observed)
        transitions, pairs = np.zeros((C, C)), np.zeros(len(index.pairs))
        for loss, by_transition, by_pair in in_threads(expect, self.parts):
            value += loss
            transitions += by_transition
            if by_pair is not None:
                pairs += by_pair
        states = np.empty(len(index.states))
        states[self.is_common] = (self.transposed @ table).ravel()[self.common_places]
        states[~self.is_common] = self.rare @ table.ravel()
        gradient = np.concatenate([states, transitions.ravel()[index.transitions], pairs])
        gradient -= self.observed
        gradient += 2 * self.l2 * weights
        return value, gradient

    def _chain(self, scores: np.ndarray, weights: np.ndarray, part: _Part) -> Chain:
        A = torch.from_numpy(self.index.transition_matrix(weights))
        if part.pairs is not None:
            local = torch.from_numpy(part.pairs.T @ self.index.split(weights)[2])
            A = A + local.reshape(-1, *A.shape)
        return obey_scheme(
            Chain(torch.from_numpy(scores), A, part.layout), self.scheme, self.classes
        )

    def _part(self, chain: Chain, part: _Part) -> tuple[float, Tensor, Tensor]:
        """Loss of one part and its gradient by label (N, C) and label pair (C, C) or (M, C, C)."""
        pairs: Pairs = "each" if chain.varies else "sum"
        if self.pointwise:
            assert part.allowed is not None
            return _pointwise(chain, part.allowed, part.weights)
        free = forward_backward(chain, pairs, part.weights)
        of_row = part.weights[part.layout.sequence].unsqueeze(-1)
        loss = float(part.weights @ free.log_partition)
        assert free.pairs is not None
        if part.allowed is None:
            return loss, free.unary.mul_(of_row), free.pairs
        bound = forward_backward(constrain(chain, allowed=part.allowed), pairs, part.weights)
        assert bound.pairs is not None
        loss -= float(part.weights @ bound.log_partition)
        return loss, (free.unary - bound.unary).mul_(of_row), free.pairs - bound.pairs


def _pointwise(chain: Chain, allowed: Tensor, weights: Tensor) -> tuple[float, Tensor, Tensor]:
    """−Σ_t log p(y_t ∈ allowed_t | x) and its gradient.

    With r_t(c) = [c allowed] / p(allowed_t) and R(y) = Σ_t r_t(y_t), the gradient of the sum is the
    covariance of R with the label and label-pair indicators; a missing label adds a constant.
    """
    layout = chain.layout
    of_row = weights[layout.sequence]
    p = forward_backward(chain).unary
    inside = torch.where(allowed, p, torch.zeros_like(p)).sum(-1)
    known = ~allowed.all(-1)
    log_inside = torch.where(known, inside.log(), torch.zeros_like(inside))
    direction = torch.where(allowed & known.unsqueeze(-1), (of_row / inside).unsqueeze(-1), 0.0)
    moved = covariance(chain, direction, "each" if chain.varies else "sum")
    assert moved.pairs is not None
    return -float(of_row @ log_inside), -moved.unary, -moved.pairs


def _pieces(
    batch: SequenceBatch, index: WeightIndex, pointwise: bool
) -> Iterator[tuple[bool, np.ndarray, SequenceBatch]]:
    """Sequences with all labels known, then the others, in pieces: (complete, rows, batch)."""
    wide = pointwise or len(index.pairs) > 0
    at_once = _WIDE // index.n_labels**2 if wide else _NARROW // index.n_labels
    if len(index.pairs) == 0:  # then the pieces need no features of their own
        batch = replace(batch, features=sp.csr_matrix((batch.layout.n_tokens, 0)))
    whole = _complete(batch)
    for complete in (True, False):
        rows, some = batch.select((whole == complete).nonzero().squeeze(-1))
        for part_rows, part in some.split(max(1, at_once)):
            if part.layout.n_tokens:
                yield complete, rows[part_rows], part


def _renumbered(states: np.ndarray, features: np.ndarray, n_labels: int) -> np.ndarray:
    """Places d·C + c with only some features counted."""
    feature, label = np.divmod(states, n_labels)
    return np.searchsorted(features, feature) * n_labels + label


def _rows(matrix: sp.csr_matrix, rows: slice) -> sp.csr_matrix:
    """Some consecutive rows of a matrix, without a copy of their entries."""
    starts = matrix.indptr[rows.start : rows.stop + 1]
    entries = slice(starts[0], starts[-1])
    return sp.csr_matrix(
        (matrix.data[entries], matrix.indices[entries], starts - starts[0]),
        (len(starts) - 1, matrix.shape[1]),
    )


def _complete(batch: SequenceBatch) -> Tensor:
    """(B,) whether every label of a sequence is known."""
    assert batch.allowed is not None
    unknown = (batch.allowed.sum(-1) != 1).to(torch.float64)
    return batch.layout.sum_by_sequence(unknown) == 0


_NARROW, _WIDE = 2**18, 2**20
"""Numbers held at once by a part: N · C without, N · C² with a matrix for each label pair."""

_FEW = 8
"""A feature is rare when it has weights for at most one in eight of the labels."""


def _counts(batch: SequenceBatch, index: WeightIndex) -> np.ndarray:
    """Weighted counts of states, transitions and pair features in the sequences whose labels are
    all known."""
    of_row = (batch.weights * _complete(batch))[batch.layout.sequence].numpy()
    inner = batch.layout.n_tokens - batch.layout.n_pairs
    Y = label_matrix(batch)
    joint = sp.diags(of_row[inner:]) @ label_pair_matrix(batch, Y)
    states = _at(batch.features.T @ (sp.diags(of_row) @ Y), index.states)
    transitions = np.asarray(joint.sum(0)).ravel()[index.transitions]
    if len(index.pairs) == 0:
        return np.concatenate([states, transitions])
    pairs = _at(batch.features[inner:].T @ joint, index.pairs)
    return np.concatenate([states, transitions, pairs])


def _at(matrix: sp.csr_matrix, places: np.ndarray) -> np.ndarray:
    """The entries of a sparse matrix at flat places (rising), 0 where it has none."""
    out = np.zeros(len(places))
    if len(places) == 0:
        return out
    entries = matrix.tocoo()
    flat = entries.row.astype(np.int64) * matrix.shape[1] + entries.col
    at = np.searchsorted(places, flat).clip(max=len(places) - 1)
    hit = places[at] == flat
    np.add.at(out, at[hit], entries.data[hit])
    return out
