"""Probabilities that were checked on held-out data, for any labeler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, logsumexp
from sklearn.base import clone
from sklearn.isotonic import IsotonicRegression
from sklearn.utils.validation import check_is_fitted

from bayeseq.data.batch import SequenceBatch
from bayeseq.data.errors import DataError
from bayeseq.data.labels import Labels
from bayeseq.labelers.base import FitResult, SequenceLabeler, TrainingData, _check_weights
from bayeseq.labelers.chain import check_choice


class Calibrated(SequenceLabeler):
    """Another labeler, with token probabilities calibrated on sequences it was not trained on.

    A labeler that has probabilities is recalibrated. One that has scores alone, such as a support
    vector machine, gets probabilities here, and only here: its scores are `decision_scores`. The
    labels of `predict` are those of the labeler inside.

    Parameters
    ----------
    labeler : the labeler.
    method : "temperature", softmax(scores / T), one number T that minimises the held-out log loss;
        or "isotonic", for each label a rising step function of its probability, then the row made
        to sum to one. Isotonic regression can undo any monotone distortion and needs more data.
        It keeps n held-out tokens from proving certainty: no step is below 1/(n + 2).
    cv : folds over sequences. The labeler is fitted without each fold in turn, the map is fitted to
        what these say of their fold, and then the labeler is fitted to everything. None: the
        labeler is fitted already, and `fit` is given other sequences, for the map alone.

    `labeler_` is the fitted labeler, `temperature_` or `steps_` the map. With fewer than two
    labelled sequences nothing can be held out: probabilities stay as they are, and scores alone are
    refused.

    >>> from bayeseq import CRF
    >>> X = [[["a"], ["b"]], [["b"], ["a"]], [["a"], ["a"]]]
    >>> model = Calibrated(CRF(l2=0.1)).fit(X, [["A", "B"], ["B", "A"], ["A", "A"]])
    >>> model.predict([[["a"], ["b"]]])
    [['A', 'B']]
    """

    labeler_: SequenceLabeler
    temperature_: float | None
    steps_: tuple[tuple[np.ndarray, np.ndarray], ...] | None
    """For each label, where the steps are and how high: isotonic maps"""

    def __init__(
        self,
        labeler: SequenceLabeler | None = None,
        method: str = "temperature",
        cv: int | None = 3,
    ) -> None:
        self.labeler = labeler
        self.method = method
        self.cv = cv

    @property
    def min_count(self) -> int:
        """The labeler's: how often a feature must occur."""
        return getattr(self._given_labeler(), "min_count", 1)

    def _given_labeler(self) -> SequenceLabeler:
        if not isinstance(self.labeler, SequenceLabeler):
            raise ValueError(
                f"labeler is {self.labeler!r}; give the labeler to calibrate: Calibrated(CRF())"
            )
        return self.labeler

    # ---- fitting --------------------------------------------------------------------------------

    def _training_data(
        self, X: Iterable[Any], y: Labels, sample_weight: Sequence[float] | None
    ) -> TrainingData:
        labeler = self._given_labeler()
        check_choice("method", self.method, ("temperature", "isotonic"))
        if self.cv is not None:
            if self.cv < 2:
                raise ValueError(f"cv is {self.cv}; it must be at least 2, or None")
            return super()._training_data(X, y, sample_weight)
        check_is_fitted(labeler, "classes_")
        matrix, lengths = labeler.feature_space_.matrix(X)
        allowed = labeler.label_space_.allowed(y, lengths)
        batch = SequenceBatch.of(matrix, lengths, allowed, _check_weights(sample_weight, len(y)))
        return TrainingData(batch, labeler.feature_space_, labeler.label_space_)

    def _learn(self, data: TrainingData) -> FitResult:
        labeler = self._given_labeler()
        if self.cv is None:
            scores = _scores(labeler, data.batch)
            rows = np.arange(len(scores))
        else:
            rows, scores = self._held_out(data)
            labeler = clone(labeler)._fit_on(data)
        assert data.batch.allowed is not None
        allowed = data.batch.allowed.numpy()[rows]
        weights = data.batch.weights[data.batch.layout.sequence].numpy()[rows]
        useful = ~allowed.all(1) & (weights > 0)
        if not useful.any() and len(data.labels.classes) > 1 and not labeler.has_probabilities:
            raise DataError(
                f"no labelled token could be held out, so the scores of {type(labeler).__name__} "
                "cannot become probabilities; give at least two labelled sequences"
            )
        scores, allowed, weights = scores[useful], allowed[useful], weights[useful]
        temperature, steps = None, None
        if self.method == "temperature":
            temperature = fit_temperature(scores, allowed, weights)
        else:
            steps = fit_isotonic(scores, allowed, weights)
        self.labeler_, self.temperature_, self.steps_ = labeler, temperature, steps
        learned = dict(labeler.result_.hyperparameters)
        if temperature is not None:
            learned["scales"] = {**learned.get("scales", {}), "temperature": temperature}
        return replace(labeler.result_, hyperparameters=learned)

    def _held_out(self, data: TrainingData) -> tuple[np.ndarray, np.ndarray]:
        """Packed rows and their scores (n, C), each from a labeler that did not see them."""
        batch = data.batch
        assert batch.allowed is not None
        assert self.cv is not None
        informative = (~batch.allowed.all(-1)).to(torch.float64)
        known = batch.layout.sum_by_sequence(informative) * (batch.weights > 0)
        labelled = known.nonzero().squeeze(-1)
        rows, scores = [np.zeros(0, np.int64)], [np.zeros((0, len(data.labels.classes)))]
        for fold in range(min(self.cv, len(labelled)) if len(labelled) > 1 else 0):
            held = torch.arange(len(labelled)) % self.cv == fold
            _, others = batch.select(labelled[~held])
            labeler = clone(self._given_labeler())._fit_on(replace(data, batch=others))
            some, part = batch.select(labelled[held])
            rows.append(some)
            scores.append(_scores(labeler, part))
        return np.concatenate(rows), np.concatenate(scores)

    # ---- predicting -----------------------------------------------------------------------------

    def _marginals(self, batch: SequenceBatch) -> np.ndarray:
        scores = self.labeler_._token_scores(batch)
        if self.temperature_ is not None:
            return np.exp(log_softmax(scores / self.temperature_, axis=1))
        assert self.steps_ is not None
        return apply_isotonic(scores, self.steps_)

    def _decode(self, batch: SequenceBatch) -> np.ndarray:
        return self.labeler_._decode(batch)

    def _parts(
        self, batch: SequenceBatch, copies: int = 1
    ) -> Iterable[tuple[np.ndarray, SequenceBatch]]:
        return self.labeler_._parts(batch, copies)

    # ---- saving ---------------------------------------------------------------------------------

    def _inner(self) -> dict[str, SequenceLabeler]:
        return {"labeler": self.labeler_}

    def _restore_inner(self, inner: Mapping[str, SequenceLabeler]) -> None:
        labeler = inner["labeler"]
        if labeler.label_space_ != self.label_space_ or (
            labeler.feature_space_.n_features != self.feature_space_.n_features
        ):
            raise ValueError("the model inside has other labels or features")
        self.labeler_ = labeler
        if self.cv is None:  # then the labeler that was given is the fitted one
            self.labeler = labeler

    def _tensors(self) -> dict[str, np.ndarray]:
        if self.temperature_ is not None:
            return {"temperature": np.array([self.temperature_])}
        assert self.steps_ is not None
        return {
            "lengths": np.array([len(at) for at, _ in self.steps_]),
            "at": np.concatenate([at for at, _ in self.steps_]),
            "height": np.concatenate([height for _, height in self.steps_]),
        }

    def _restore(self, tensors: Mapping[str, np.ndarray]) -> None:
        self.temperature_, self.steps_ = None, None
        if "temperature" in tensors:
            (self.temperature_,) = tensors["temperature"].astype(np.float64).tolist()
            if not 0 < self.temperature_ < np.inf:
                raise ValueError(f"the temperature is {self.temperature_}")
            return
        lengths, at, height = (tensors[name] for name in ("lengths", "at", "height"))
        if lengths.dtype != np.int64 or lengths.shape != self.classes_.shape or lengths.min() < 1:
            raise ValueError("the steps are not one row for each label")
        if at.shape != (lengths.sum(),) or height.shape != at.shape:
            raise ValueError("the steps are not as many as they should be")
        ends = np.cumsum(lengths)[:-1]
        steps = tuple(zip(np.split(at, ends), np.split(height, ends), strict=True))
        for x, p in steps:
            if not ((np.diff(x) >= 0).all() and (np.diff(p) >= 0).all()):
                raise ValueError("the steps do not rise")
            if not (((x >= 0) & (x <= 1)).all() and ((p >= 0) & (p <= 1)).all()):
                raise ValueError("the steps are no probabilities")
        self.steps_ = steps


def _scores(labeler: SequenceLabeler, batch: SequenceBatch) -> np.ndarray:
    """(N, C) scores of packed rows, without what is known of their labels."""
    found = np.zeros((batch.layout.n_tokens, len(labeler.classes_)))
    for rows, part in labeler._parts(replace(batch, allowed=None)):
        found[rows] = labeler._token_scores(part)
    return found


def fit_temperature(scores: np.ndarray, allowed: np.ndarray, weights: np.ndarray) -> float:
    """T that minimises −Σ w log Σ_{c allowed} softmax(scores / T)_c; 1 where nothing is known.

    Tokens whose labels all have the score −inf say nothing about T and are left out.
    """
    possible = np.isfinite(np.where(allowed, scores, -np.inf)).any(1)
    if not possible.any():
        return 1.0
    scores, allowed, weights = scores[possible], allowed[possible], weights[possible]

    def loss(log_temperature: float) -> float:
        log_p = log_softmax(scores * np.exp(-log_temperature), axis=1)
        return -float(weights @ logsumexp(np.where(allowed, log_p, -np.inf), axis=1))

    # −Σ log softmax is convex in 1/T, so it has one minimum in log T as well
    found = minimize_scalar(
        loss, bounds=_LOG_TEMPERATURES, method="bounded", options={"xatol": 1e-8}
    )
    return float(np.exp(found.x))


_LOG_TEMPERATURES = (np.log(1e-3), np.log(1e4))
"""Beyond these everything is certain, or nothing is known."""


def fit_isotonic(
    scores: np.ndarray, allowed: np.ndarray, weights: np.ndarray
) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """For each label, the rising steps from its probability to how often it was right."""
    C = scores.shape[1]
    known = allowed.sum(1) == 1
    n = int(known.sum())
    if n == 0:
        return tuple((np.array([0.0, 1.0]), np.array([0.0, 1.0])) for _ in range(C))
    p = np.exp(log_softmax(scores[known], axis=1))
    least = 1 / (n + 2)
    steps = []
    for c in range(C):
        fitted = IsotonicRegression(y_min=least, y_max=1 - least, out_of_bounds="clip").fit(
            p[:, c], allowed[known, c].astype(np.float64), weights[known]
        )
        steps.append((fitted.X_thresholds_.clip(0.0, 1.0), fitted.y_thresholds_))
    return tuple(steps)


def apply_isotonic(
    scores: np.ndarray, steps: Sequence[tuple[np.ndarray, np.ndarray]]
) -> np.ndarray:
    """(N, C) probabilities: each label's by its steps, 0 where its score is −inf, normalised."""
    p = np.exp(log_softmax(scores, axis=1))
    found = np.stack([np.interp(p[:, c], *steps[c]) for c in range(p.shape[1])], axis=1)
    found[np.isneginf(scores)] = 0.0
    return found / found.sum(1, keepdims=True)
