"""The contract of a labeler: scikit-learn's estimator, over sequences."""

from __future__ import annotations

import itertools
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from bayeseq.data.batch import SequenceBatch
from bayeseq.data.errors import DataError
from bayeseq.data.features import FeatureSpace
from bayeseq.data.labels import Labels, LabelSpace, check_lengths, label_members
from bayeseq.data.structures import edges_of
from bayeseq.diagnostics.uncertainty import Uncertainty
from bayeseq.labelers.guards import NoPosteriorError
from bayeseq.labelers.persistence import SavedModel, params_from_json, params_to_json, write_model


class NoProbabilitiesError(TypeError):
    """A labeler that has scores but no probabilities was asked for probabilities."""


@dataclass(frozen=True, eq=False)
class TrainingData:
    """What a labeler learns from: one batch, and what its columns and labels mean."""

    batch: SequenceBatch
    features: FeatureSpace
    labels: LabelSpace


@dataclass(frozen=True)
class FitResult:
    """How the fitting went."""

    objective: tuple[float, ...]
    """The objective after each iteration (what is minimised or maximised: the labeler says)."""
    elapsed: tuple[float, ...]
    """Seconds from the start of the search to the end of each iteration."""
    converged: bool
    seconds: float
    """Seconds of the whole fit, reading of features included."""
    message: str = ""
    interrupted: bool = False
    """Whether an interrupt (Ctrl-C) ended it; what was learned until then is kept."""
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    """What was learned besides the weights, by name; empty where there is nothing of the kind."""
    diagnostics: dict[str, float] = field(default_factory=dict)
    """How near the end is to the optimum, by name (duality gap, …); empty where nobody measured."""

    @property
    def iterations(self) -> int:
        """How many iterations were made."""
        return len(self.objective)


class Tagging(NamedTuple):
    """One sequence with its answer."""

    labels: list[str]
    proba: np.ndarray
    """(T, C) columns in the order of `classes_`"""


class SequenceLabeler(BaseEstimator, ABC):
    """A model that gives each token of a sequence a label and says how sure it is.

    `X` is a list of sequences. A sequence is a list of tokens and a token a list or set of feature
    strings, or a dict feature → number, string or truth value; or a sequence is a 2-D array or
    scipy sparse matrix with a row a token. `y` is a list of lists of labels: a string, None where
    the label is missing, or a set of strings where it is one of several.

    A subclass writes `__init__` (which only stores), `_learn`, `_marginals`, `_decode`, `_tensors`
    and `_restore`. After `fit`, `classes_` holds the labels in the order of all probabilities,
    `feature_space_` the features, `result_` how the fitting went, and `metadata_` (a dict, free for
    the user, kept by `save`) whatever should be remembered with the model.
    """

    has_probabilities: ClassVar[bool] = True
    classes_: np.ndarray
    feature_space_: FeatureSpace
    label_space_: LabelSpace
    result_: FitResult
    metadata_: dict[str, Any]

    # ---- what a subclass writes -----------------------------------------------------------------

    @abstractmethod
    def _learn(self, data: TrainingData) -> FitResult:
        """Learn from labelled sequences and set the learned attributes, all at the end."""

    @abstractmethod
    def _marginals(self, batch: SequenceBatch) -> np.ndarray:
        """(N, C) label probabilities of packed rows; `batch.allowed`, if any, holds."""

    @abstractmethod
    def _decode(self, batch: SequenceBatch) -> np.ndarray:
        """(N,) label numbers of packed rows; `batch.allowed`, if any, holds."""

    def _answers(self, batch: SequenceBatch) -> tuple[np.ndarray, np.ndarray]:
        """`_decode` and `_marginals` together, for a subclass in which they share work."""
        return self._decode(batch), self._marginals(batch)

    def _token_scores(self, batch: SequenceBatch) -> np.ndarray:
        """(N, C) scores of packed rows on a log scale: log-probabilities, unless a subclass that
        has none writes another."""
        with np.errstate(divide="ignore"):
            return np.log(self._marginals(batch))

    @abstractmethod
    def _tensors(self) -> dict[str, np.ndarray]:
        """The learned numbers, as they are saved."""

    @abstractmethod
    def _restore(self, tensors: Mapping[str, np.ndarray]) -> None:
        """Take the learned numbers back; `classes_` and `feature_space_` are already there."""

    def _inner(self) -> dict[str, SequenceLabeler]:
        """The fitted labelers that this one holds, by a name; they are saved with it."""
        return {}

    def _restore_inner(self, inner: Mapping[str, SequenceLabeler]) -> None:
        """Take them back; called before `_restore`."""
        if inner:
            raise ValueError(f"a {type(self).__name__} holds no other model")

    # ---- fitting --------------------------------------------------------------------------------

    def fit(
        self, X: Iterable[Any], y: Labels, sample_weight: Sequence[float] | None = None
    ) -> Self:
        """Learn from sequences X and their labels y; `sample_weight` weighs whole sequences."""
        began = time.perf_counter()
        self._fit_on(self._training_data(X, list(y), sample_weight))
        self.result_ = replace(self.result_, seconds=time.perf_counter() - began)
        return self

    def _fit_on(self, data: TrainingData) -> Self:
        """Learn from sequences that are already packed, such as a part of another labeler's."""
        self.result_ = self._learn(data)
        self._set_spaces(data.features, data.labels)
        self.metadata_ = {}
        return self

    def _training_data(
        self, X: Iterable[Any], y: Labels, sample_weight: Sequence[float] | None
    ) -> TrainingData:
        edges = edges_of(X)
        features, matrix, lengths = FeatureSpace.learn(X, getattr(self, "min_count", 1))
        if matrix.shape[0] == 0:
            raise DataError("X holds no token; there is nothing to learn from")
        check_lengths(y, lengths)
        labels = LabelSpace.learn(y)
        weights = _check_weights(sample_weight, len(lengths))
        allowed = labels.allowed(y, lengths)
        batch = SequenceBatch.of(matrix, lengths, allowed, weights, edges=edges)
        return TrainingData(batch, features, labels)

    def _set_spaces(self, features: FeatureSpace, labels: LabelSpace) -> None:
        self.feature_space_ = features
        self.label_space_ = labels
        self.classes_ = np.array(labels.classes, dtype=object)

    # ---- predicting -----------------------------------------------------------------------------

    def predict(self, X: Iterable[Any], given: Labels | None = None) -> list[list[str]]:
        """The labels of each sequence.

        `given` holds what is already known, in the shape of y: a label, None, or a set of allowed
        labels for each token. The answer agrees with it, and the other tokens take it in.
        """
        batch = self._batch(X, given)
        numbers = np.zeros(batch.layout.n_tokens, dtype=np.int64)
        for rows, part in self._parts(batch):
            numbers[rows] = self._decode(part)
        return [self.classes_[row].tolist() for row in self._ragged(batch, numbers)]

    def predict_proba(self, X: Iterable[Any], given: Labels | None = None) -> list[np.ndarray]:
        """(T, C) label probabilities of each sequence, columns in the order of `classes_`."""
        batch = self._batch(X, given)
        proba = np.zeros((batch.layout.n_tokens, len(self.classes_)))
        for rows, part in self._parts(batch):
            proba[rows] = self._marginals(part)
        return self._ragged(batch, proba)

    def tag(self, X: Iterable[Any], given: Labels | None = None) -> list[Tagging]:
        """The labels of each sequence and all label probabilities, in one pass over X."""
        batch = self._batch(X, given)
        numbers = np.zeros(batch.layout.n_tokens, dtype=np.int64)
        proba = np.zeros((batch.layout.n_tokens, len(self.classes_)))
        for rows, part in self._parts(batch):
            numbers[rows], proba[rows] = self._answers(part)
        return [
            Tagging(self.classes_[row].tolist(), p)
            for row, p in zip(self._ragged(batch, numbers), self._ragged(batch, proba), strict=True)
        ]

    def predict_marginals(
        self, X: Iterable[Any], given: Labels | None = None
    ) -> list[list[dict[str, float]]]:
        """A dict label → probability for each token of each sequence."""
        names = self.label_space_.classes if hasattr(self, "label_space_") else ()
        return [
            [dict(zip(names, row, strict=True)) for row in proba.tolist()]
            for proba in self.predict_proba(X, given)
        ]

    def predict_uncertainty(
        self,
        X: Iterable[Any],
        draws: int | None = None,
        given: Labels | None = None,
        random_state: int | np.random.Generator | None = None,
        unseen: bool = True,
    ) -> Uncertainty:
        """How unsure each token's label is, and of what kind, from draws of a posterior; a labeler
        without one raises `NoPosteriorError`."""
        self._require_posterior()
        raise NotImplementedError

    def _require_posterior(self) -> None:
        """Refuse where there is no posterior over weights; a subclass that has one passes."""
        instead = "; predict_proba has the whole of it" if self.has_probabilities else ""
        raise NoPosteriorError(
            f"{type(self).__name__} has no posterior over its weights, so it cannot tell what it "
            "does not know from what is ambiguous; use GPSL, GPSC(inference='vg') or GPStruct"
            f"{instead}"
        )

    def predict_single(self, x: Any) -> list[str]:
        """The labels of one sequence."""
        return self.predict([x])[0]

    def predict_marginals_single(self, x: Any) -> list[dict[str, float]]:
        """A dict label → probability for each token of one sequence."""
        return self.predict_marginals([x])[0]

    def score(
        self, X: Iterable[Any], y: Labels, sample_weight: Sequence[float] | None = None
    ) -> float:
        """Token accuracy. Tokens whose label is missing do not count; a label set holds any of
        its members to be right; a label never seen in training is always missed."""
        predicted = self.predict(X)
        y = list(y)
        check_lengths(y, [len(labels) for labels in predicted])
        weights = _check_weights(sample_weight, len(y))
        right, total = 0.0, 0.0
        for i, (labels, found) in enumerate(zip(y, predicted, strict=True)):
            for t, (true, label) in enumerate(zip(labels, found, strict=True)):
                if true is not None:
                    right += weights[i] * (label in label_members(true, f"sequence {i}, token {t}"))
                    total += weights[i]
        if total == 0:
            raise DataError("no token of y has a label; there is nothing to score")
        return right / total

    def _batch(self, X: Iterable[Any], given: Labels | None) -> SequenceBatch:
        check_is_fitted(self, "classes_")
        edges = edges_of(X)
        matrix, lengths = self.feature_space_.matrix(X)
        allowed = None if given is None else self.label_space_.allowed(given, lengths)
        return SequenceBatch.of(matrix, lengths, allowed, edges=edges)

    def _parts(
        self, batch: SequenceBatch, copies: int = 1
    ) -> Iterable[tuple[np.ndarray, SequenceBatch]]:
        """The batch in pieces of which so many copies fit into memory, each with its packed rows
        in the whole."""
        return batch.split(max(1, _SCORES_AT_ONCE // (copies * len(self.classes_) ** 2)))

    @staticmethod
    def _ragged(batch: SequenceBatch, packed: np.ndarray) -> list[np.ndarray]:
        flat = packed[batch.layout.unpacked_rows.numpy()]
        bounds = [0, *np.cumsum(batch.layout.lengths.numpy()).tolist()]
        return [flat[first:last] for first, last in itertools.pairwise(bounds)]

    # ---- saving ---------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model into a folder of JSON and safetensors files, whole or not at all."""
        write_model(path, self._saved())

    def _saved(self) -> SavedModel:
        check_is_fitted(self, "classes_")
        return SavedModel(
            kind=type(self).__name__,
            params=params_to_json(self.get_params(deep=False)),
            classes=self.label_space_.classes,
            features=self.feature_space_.names,
            n_features=self.feature_space_.n_features,
            result=self.result_.__dict__,
            metadata=self.metadata_,
            tensors=self._tensors(),
            parts={name: part._saved() for name, part in self._inner().items()},
        )

    @classmethod
    def _from_saved(
        cls, saved: SavedModel, known: Mapping[str, type[SequenceLabeler]] | None = None
    ) -> Self:
        """The labeler that was saved; `known` are the classes that it may hold, by name."""
        known = known or {}
        try:
            model = cls(**params_from_json(saved.params, known))
            model._set_spaces(
                FeatureSpace(saved.features, saved.n_features), LabelSpace(saved.classes)
            )
            model._restore_inner(
                {
                    name: known[part.kind]._from_saved(part, known)
                    for name, part in saved.parts.items()
                }
            )
            model._restore(saved.tensors)
            lists = {k: tuple(v) for k, v in saved.result.items() if isinstance(v, list)}
            model.result_ = FitResult(**{**saved.result, **lists})
        except (TypeError, KeyError, ValueError, IndexError, RecursionError) as error:
            raise DataError(
                f"the saved {cls.__name__} does not fit together: {error}; save the model again"
            ) from error
        model.metadata_ = saved.metadata
        return model


_SCORES_AT_ONCE = 2**24
"""Label-pair scores that a prediction holds in memory at once (128 MB)."""


def _check_weights(weights: Sequence[float] | None, n_sequences: int) -> np.ndarray:
    if weights is None:
        return np.ones(n_sequences)
    array = np.asarray(weights, dtype=np.float64)
    if array.shape != (n_sequences,):
        raise DataError(
            f"sample_weight has shape {array.shape}, expected one number for each of the "
            f"{n_sequences} sequences"
        )
    if not np.isfinite(array).all() or (array < 0).any():
        raise DataError("sample_weight must hold finite numbers that are not negative")
    return array
