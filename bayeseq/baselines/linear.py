"""The weights that CRF and MEMM share: which exist, how they make scores, how they are kept.

A label c at a token with features x scores Σ_d x_d W[d, c], a label pair (a, b) scores A[a, b], and
where pair features are asked for (`pair_prefix`) also Σ_d x_d V[d, a, b]. Only pairs of a feature
and a label that occur together in training have a weight, unless all are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch

from bayeseq.chain import Chain
from bayeseq.data.batch import SequenceBatch
from bayeseq.labelers.base import TrainingData
from bayeseq.labelers.chain import ChainLabeler


@dataclass(frozen=True, eq=False)
class WeightIndex:
    """The places of the weights: feature–label pairs, label pairs, feature–label-pair triples."""

    n_features: int
    n_labels: int
    states: np.ndarray
    """(P,) d·C + c, rising"""
    transitions: np.ndarray
    """(Q,) a·C + b, rising"""
    pairs: np.ndarray
    """(R,) (d·C + a)·C + b, rising"""

    @classmethod
    def observed(
        cls,
        batch: SequenceBatch,
        pair_features: np.ndarray,
        *,
        all_states: bool = False,
        all_transitions: bool = False,
        transitions: bool = True,
    ) -> WeightIndex:
        """The weights that training sequences ask for. `pair_features` (D,) marks the columns
        that weigh label pairs. A missing label asks for nothing; a label set for all its labels."""
        D, C = batch.features.shape[1], _allowed(batch).shape[1]
        Y = label_matrix(batch)
        state_columns = np.flatnonzero(~pair_features)
        if all_states:
            states = (state_columns[:, None] * C + np.arange(C)).ravel()
        else:
            together = (abs(batch.features).T @ Y).tocoo()  # values must not cancel
            keep = ~pair_features[together.row]
            states = together.row[keep].astype(np.int64) * C + together.col[keep]
        joint = label_pair_matrix(batch, Y)
        seen = np.asarray(joint.sum(0)).ravel()
        places = np.arange(C * C) if all_transitions else np.flatnonzero(seen)
        pairs = np.zeros(0, dtype=np.int64)
        if pair_features.any():
            triples = (abs(batch.features[_inner(batch)]).T @ joint).tocoo()
            keep = pair_features[triples.row]
            pairs = triples.row[keep].astype(np.int64) * C * C + triples.col[keep]
        none = np.zeros(0, dtype=np.int64)
        return cls(D, C, np.sort(states), places if transitions else none, np.sort(pairs))

    @property
    def size(self) -> int:
        """How many weights there are."""
        return len(self.states) + len(self.transitions) + len(self.pairs)

    def split(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The weights of states, transitions and pair features."""
        P, Q = len(self.states), len(self.transitions)
        return weights[:P], weights[P : P + Q], weights[P + Q :]

    def state_matrix(self, weights: np.ndarray) -> np.ndarray:
        """W (D, C)."""
        return self._filled(self.n_features * self.n_labels, self.states, self.split(weights)[0])

    def transition_matrix(self, weights: np.ndarray) -> np.ndarray:
        """A (C, C), [from, to]."""
        return self._filled(self.n_labels**2, self.transitions, self.split(weights)[1])

    def _filled(self, size: int, places: np.ndarray, weights: np.ndarray) -> np.ndarray:
        matrix = np.zeros(size)
        matrix[places] = weights
        return matrix.reshape(-1, self.n_labels)

    def pair_design(self, batch: SequenceBatch) -> sp.csr_matrix | None:
        """(R, M · C²) where the pair-feature weights add to the scores of the label pairs at each
        packed row with a left neighbour; None where there are no such weights."""
        if len(self.pairs) == 0:
            return None
        return design(batch.features[_inner(batch)], self.pairs, self.n_labels**2)

    def moved(
        self, weights: np.ndarray, other: WeightIndex, names: tuple, labels: tuple
    ) -> np.ndarray:
        """Weights of this index at the places of another one, 0 where this one has none.

        `names` and `labels` say where each feature and each label of this index is found in the
        other one (−1: nowhere)."""
        C, C2 = self.n_labels, other.n_labels
        to_feature, to_label = np.asarray(names), np.asarray(labels)
        found = []
        for places, values, target, depth in zip(
            (self.states, self.transitions, self.pairs),
            self.split(weights),
            (other.states, other.transitions, other.pairs),
            (1, 2, 2),
            strict=True,
        ):
            rest, moved, known = places, np.zeros_like(places), np.ones(len(places), dtype=bool)
            for power in range(depth):
                rest, label = np.divmod(rest, C)
                known &= to_label[label] >= 0
                moved += to_label[label] * C2**power
            if places is not self.transitions:
                known &= to_feature[rest] >= 0
                moved += to_feature[rest] * C2**depth
            out = np.zeros(len(target))
            if len(target):
                at = np.searchsorted(target, moved[known]).clip(max=len(target) - 1)
                hit = target[at] == moved[known]
                out[at[hit]] = values[known][hit]
            found.append(out)
        return np.concatenate(found)


def design(features: sp.csr_matrix, places: np.ndarray, width: int) -> sp.csr_matrix:
    """(R, N · width) where weights add to scores: weight r, at place d·width + k, adds its value
    times feature d of row n to score n·width + k."""
    feature, score = np.divmod(places, width)
    R = len(places)
    to_weights = sp.csr_matrix((np.ones(R), (feature, np.arange(R))), (features.shape[1], R))
    active = (features @ to_weights).tocoo()
    column = active.row.astype(np.int64) * width + score[active.col]
    return sp.csr_matrix((active.data, (active.col, column)), (R, features.shape[0] * width))


def _allowed(batch: SequenceBatch) -> np.ndarray:
    assert batch.allowed is not None
    return batch.allowed.numpy()


def _inner(batch: SequenceBatch) -> slice:
    """The packed rows that have a left neighbour."""
    return slice(batch.layout.n_tokens - batch.layout.n_pairs, batch.layout.n_tokens)


def label_matrix(batch: SequenceBatch) -> sp.csr_matrix:
    """(N, C) 1 for each label that a token may have, nothing where its label is missing."""
    allowed = _allowed(batch)
    missing = allowed.all(1) & (allowed.shape[1] > 1)
    return sp.csr_matrix((allowed & ~missing[:, None]).astype(np.float64))


def label_pair_matrix(batch: SequenceBatch, Y: sp.csr_matrix) -> sp.csr_matrix:
    """(M, C²) 1 for each label pair that two neighbours may have."""
    left, right = Y[batch.layout.previous.numpy()], Y[_inner(batch)]
    left_row = np.repeat(np.arange(left.shape[0]), np.diff(left.indptr))
    repeats = np.diff(right.indptr)[left_row]  # each label on the left meets all on the right
    row = np.repeat(left_row, repeats)
    which = np.arange(len(row)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    a = np.repeat(left.indices, repeats).astype(np.int64)
    b = right.indices[right.indptr[row] + which]
    C = Y.shape[1]
    return sp.csr_matrix((np.ones(len(row)), (row, a * C + b)), (left.shape[0], C * C))


class LinearChainLabeler(ChainLabeler):
    """A chain labeler with linear scores; `weight_index_` and `weights_` are what it learned."""

    pair_prefix: str | None
    weight_index_: WeightIndex
    weights_: np.ndarray

    def _pair_features(self, data: TrainingData) -> np.ndarray:
        """(D,) the columns that weigh label pairs."""
        marks = np.zeros(data.features.n_features, dtype=bool)
        if self.pair_prefix is not None:
            if data.features.names is None:
                raise ValueError("pair_prefix needs feature names; X holds numbers")
            marks[:] = [name.startswith(self.pair_prefix) for name in data.features.names]
        return marks

    def _start(self, data: TrainingData, index: WeightIndex) -> np.ndarray:
        """Where the search begins: at zero, or with `warm_start` at what was learned before."""
        if not getattr(self, "warm_start", False) or not hasattr(self, "weights_"):
            return np.zeros(index.size)
        if self.feature_space_.names is None or data.features.names is None:
            if self.feature_space_.n_features != data.features.n_features:
                raise ValueError(
                    f"warm_start: X has {data.features.n_features} columns, the fitted model "
                    f"{self.feature_space_.n_features}"
                )
            features = tuple(range(data.features.n_features))
        else:
            column = {name: d for d, name in enumerate(data.features.names)}
            features = tuple(column.get(name, -1) for name in self.feature_space_.names)
        number = {label: c for c, label in enumerate(data.labels.classes)}
        labels = tuple(number.get(label, -1) for label in self.label_space_.classes)
        return self.weight_index_.moved(self.weights_, index, features, labels)

    def _set_weights(self, index: WeightIndex, weights: np.ndarray) -> None:
        self.weight_index_, self.weights_ = index, weights
        self.__dict__.pop("_state_matrix", None)

    @cached_property
    def _state_matrix(self) -> np.ndarray:
        return self.weight_index_.state_matrix(self.weights_)

    def _scores(self, batch: SequenceBatch) -> Chain:
        unary = torch.from_numpy(batch.features @ self._state_matrix)
        A = torch.from_numpy(self.weight_index_.transition_matrix(self.weights_))
        pair_design = self.weight_index_.pair_design(batch)
        if pair_design is None:
            return Chain(unary, A, batch.layout)
        scores = torch.from_numpy(pair_design.T @ self.weight_index_.split(self.weights_)[2])
        return Chain(unary, A + scores.reshape(-1, *A.shape), batch.layout)

    @property
    def state_features_(self) -> dict[tuple[str, str], float]:
        """The weight of each feature for each label."""
        C = self.weight_index_.n_labels
        names = self.feature_space_.names or tuple(map(str, range(self.weight_index_.n_features)))
        classes = self.label_space_.classes
        weights = self.weight_index_.split(self.weights_)[0]
        return {
            (names[place // C], classes[place % C]): weight
            for place, weight in zip(
                self.weight_index_.states.tolist(), weights.tolist(), strict=True
            )
        }

    @property
    def transition_features_(self) -> dict[tuple[str, str], float]:
        """The weight of each label pair, (from, to)."""
        C, classes = self.weight_index_.n_labels, self.label_space_.classes
        weights = self.weight_index_.split(self.weights_)[1]
        return {
            (classes[place // C], classes[place % C]): weight
            for place, weight in zip(
                self.weight_index_.transitions.tolist(), weights.tolist(), strict=True
            )
        }

    def _tensors(self) -> dict[str, np.ndarray]:
        index = self.weight_index_
        return {
            "states": index.states,
            "transitions": index.transitions,
            "pairs": index.pairs,
            "weights": self.weights_,
        }

    def _restore(self, tensors: Mapping[str, np.ndarray]) -> None:
        D, C = self.feature_space_.n_features, len(self.classes_)
        index = WeightIndex(D, C, tensors["states"], tensors["transitions"], tensors["pairs"])
        bounds = ((index.states, D * C), (index.transitions, C * C), (index.pairs, D * C * C))
        for places, end in bounds:
            if places.dtype != np.int64 or places.ndim != 1:
                raise ValueError("the places of the weights are not whole numbers")
            if len(places) and (places.min() < 0 or places.max() >= end):
                raise ValueError("a weight belongs to a feature or label that does not exist")
            if (np.diff(places) <= 0).any():
                raise ValueError("a weight stands twice, or out of order")
        weights = tensors["weights"]
        if weights.shape != (index.size,) or not np.isfinite(weights).all():
            raise ValueError(f"expected {index.size} finite weights, found {weights.shape}")
        self._set_weights(index, weights.astype(np.float64))
