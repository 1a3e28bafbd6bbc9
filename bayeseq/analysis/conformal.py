"""Label sets and entity candidates of a fitted labeler, with coverage promised over sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import numpy as np

from bayeseq.data.errors import DataError
from bayeseq.data.labels import Labels
from bayeseq.data.schemes import Entity, tags_to_entities
from bayeseq.diagnostics.conformal import (
    ConformalSets,
    CoverageScores,
    Guarantee,
    Nonconformity,
    calibrate_sets,
    check_reached,
    conformal_threshold,
    coverage_band,
    score_sets,
)
from bayeseq.labelers.base import NoProbabilitiesError, SequenceLabeler
from bayeseq.labelers.chain import ChainLabeler, ScoredEntity

EntityGuarantee = Literal["entity", "sentence"]


class Conformal:
    """Sets of labels around a fitted labeler's answers that hold the true one as often as promised.

    The promise needs no assumption on the model: only that calibration sentences and new ones are
    exchangeable, and that the labeler was not trained on the calibration sentences. It holds on
    average over calibration sets and new sentences.

    Parameters
    ----------
    labeler : a fitted labeler that has probabilities.
    alpha : the share of misses allowed.
    guarantee : "token", of a new sentence's tokens an expected share of at most `alpha` has its
        label outside its set; "sentence", with probability at least 1 - `alpha` every token of a
        new sentence has its label in its set.
    score : "lac" for the smallest sets, or "aps", randomised, for sets that grow more where the
        labeler is unsure.
    nonempty : whether a set always holds the most probable label. Without it, a labeler that errs
        less often than `alpha` has empty sets.
    random_state : seed of what "aps" draws.

    After `calibrate`, `sets_` is the `ConformalSets` record with the threshold.

    >>> from bayeseq import CRF, load_dataset, word_features
    >>> news = load_dataset("newswire")
    >>> X = [word_features(words) for words in news["train"].tokens]
    >>> crf = CRF().fit(X[:150], news.labels("train")[:150])
    >>> safe = Conformal(crf, alpha=0.05).calibrate(X[150:], news.labels("train")[150:])
    >>> X_test = [word_features(words) for words in news["test"].tokens]
    >>> sorted(safe.predict_sets(X_test)[0][1])
    ['I-PER']
    >>> 0.9 < safe.evaluate(X_test, news.labels("test")).coverage < 1
    True
    """

    sets_: ConformalSets

    def __init__(
        self,
        labeler: SequenceLabeler,
        alpha: float = 0.1,
        guarantee: Guarantee = "token",
        score: Nonconformity = "lac",
        nonempty: bool = True,
        random_state: int = 0,
    ) -> None:
        self.labeler = labeler
        self.alpha = alpha
        self.guarantee: Guarantee = guarantee
        self.score: Nonconformity = score
        self.nonempty = nonempty
        self.random_state = random_state

    def calibrate(self, X: Iterable[Any], y: Labels) -> Self:
        """Choose the threshold on sentences that the labeler was not trained on."""
        _require_probabilities(self.labeler)
        self.sets_ = calibrate_sets(
            y,
            self.labeler.predict_proba(X),
            self.labeler.classes_.tolist(),
            alpha=self.alpha,
            guarantee=self.guarantee,
            score=self.score,
            random_state=np.random.default_rng([self.random_state, 0]),
        )
        return self

    def predict_sets(self, X: Iterable[Any], given: Labels | None = None) -> list[list[set[str]]]:
        """The set of labels of each token; `given` labels are taken in as by `predict_proba`, and
        nothing is promised then."""
        if not hasattr(self, "sets_"):
            raise ValueError("calibrate(X, y) comes before predict_sets")
        return self.sets_(
            self.labeler.predict_proba(X, given),
            nonempty=self.nonempty,
            random_state=np.random.default_rng([self.random_state, 1]),
        )

    def evaluate(
        self, X: Iterable[Any], y: Labels, *, bootstrap: int = 1000, level: float = 0.9
    ) -> CoverageScores:
        """The coverage of the sets of labelled sentences with its band, and how large they are."""
        return score_sets(
            y,
            self.predict_sets(X),
            guarantee=self.guarantee,
            bootstrap=bootstrap,
            level=level,
            random_state=self.random_state,
        )


@dataclass(frozen=True)
class EntityCoverage:
    """How many true entities are among the candidates, and how many candidates there are.

    Attributes:
        guarantee: what `coverage` counts: "entity" or "sentence".
        coverage: over sentences with an entity, the mean share of their entities that are among the
            candidates, or the share of sentences of which all are.
        lower, upper, level: its band, as in `CoverageScores`.
        pooled: the share of all true entities that are among the candidates.
        precision: the share of candidates that are true entities.
        per_sentence: the mean number of candidates of a sentence, with or without entities.
        sentences, entities: how many sentences have an entity, and how many entities there are.
    """

    guarantee: EntityGuarantee
    coverage: float
    lower: float
    upper: float
    level: float
    pooled: float
    precision: float
    per_sentence: float
    sentences: int
    entities: int


class ConformalEntities:
    """Candidate entities of a fitted chain labeler, so many that few true ones are missed.

    Candidates are all entities of the predicted labels and of `draws` labellings drawn from the
    model; each has the probability of exactly its boundaries and type, and those from a threshold
    on are given. They may overlap: they are what a person should look at. What is promised is
    recall among sentences that have an entity, for sentences exchangeable with the calibration
    ones, on average. A true entity that is in none of the labellings counts as missed; where these
    alone are too many, `calibrate` says so. (The best labellings would do less well: in a long
    sentence they differ in few places.)

    Parameters
    ----------
    labeler : a fitted labeler of tags that scores a chain (CRF, GPSC, GPSL, …).
    alpha : the share of misses allowed.
    guarantee : "entity", of the entities of a new sentence that has any, an expected share of at
        most `alpha` is missed; "sentence", with probability at least 1 - `alpha` none is.
    draws : how many labellings are drawn; an entity of probability p is then a candidate with
        probability 1 - (1 - p)^draws at least.
    random_state : seed of the draws.

    After `calibrate`, `threshold_` is the least probability of a candidate that is given.

    >>> from bayeseq import CRF, load_dataset, word_features
    >>> news = load_dataset("newswire")
    >>> X = [word_features(words) for words in news["train"].tokens]
    >>> crf = CRF().fit(X[:150], news.labels("train")[:150])
    >>> safe = ConformalEntities(crf, alpha=0.2).calibrate(X[150:], news.labels("train")[150:])
    >>> X_test = [word_features(words) for words in news["test"].tokens]
    >>> [tuple(found)[:3] for found in safe.predict_entities(X_test[:1])[0]]
    [(0, 2, 'PER'), (3, 5, 'PER'), (9, 11, 'PER'), (17, 19, 'ORG')]
    >>> 0.7 < safe.evaluate(X_test, news.labels("test")).coverage < 1
    True
    """

    threshold_: float

    def __init__(
        self,
        labeler: ChainLabeler,
        alpha: float = 0.1,
        guarantee: EntityGuarantee = "entity",
        draws: int = 200,
        random_state: int = 0,
    ) -> None:
        self.labeler = labeler
        self.alpha = alpha
        self.guarantee: EntityGuarantee = guarantee
        self.draws = draws
        self.random_state = random_state

    def candidates(self, X: Iterable[Any]) -> list[list[ScoredEntity]]:
        """All candidates of each sentence, most probable first."""
        return self._candidates(X, 1)

    def _candidates(self, X: Iterable[Any], stream: int) -> list[list[ScoredEntity]]:
        """The same; draws of another stream are other ones."""
        _require_probabilities(self.labeler)
        if not isinstance(self.labeler, ChainLabeler):
            raise ValueError(
                f"{type(self.labeler).__name__} gives no probabilities of entities; take a labeler "
                "with entity_proba, such as CRF, GPSC or GPSL"
            )
        X = list(X)
        random = np.random.default_rng([self.random_state, stream])
        drawn = self.labeler.sample_labels(X, self.draws, random_state=random)
        spans = [
            sorted({entity for tags in (best, *row) for entity in tags_to_entities(tags)})
            for best, row in zip(self.labeler.predict(X), drawn, strict=True)
        ]
        proba = self.labeler.entity_proba(X, spans)
        return [
            sorted(
                (ScoredEntity(*entity, p) for entity, p in zip(row, each.tolist(), strict=True)),
                key=lambda found: -found.score,
            )
            for row, each in zip(spans, proba, strict=True)
        ]

    def calibrate(self, X: Iterable[Any], y: Labels) -> Self:
        """Choose the threshold on sentences that the labeler was not trained on."""
        if self.guarantee not in get_args(EntityGuarantee):
            raise ValueError(f'guarantee must be "entity" or "sentence", not {self.guarantee!r}')
        truth, found = _true_entities(y), self._candidates(X, 0)
        _check_as_many(found, truth)
        scores = [
            [-p for p in _proba_of(entities, row)]
            for entities, row in zip(truth, found, strict=True)
        ]
        unit: Guarantee = "sentence" if self.guarantee == "sentence" else "token"
        threshold = conformal_threshold(scores, self.alpha, unit)
        some = sum(bool(entities) for entities in truth)
        check_reached(threshold, self.alpha, some, "calibration sentences with an entity")
        self.threshold_ = -threshold
        return self

    def predict_entities(self, X: Iterable[Any]) -> list[list[ScoredEntity]]:
        """The candidates of each sentence that a person should look at, in the order of text."""
        if not hasattr(self, "threshold_"):
            raise ValueError("calibrate(X, y) comes before predict_entities")
        return [
            sorted(found for found in row if found.score >= self.threshold_)
            for row in self.candidates(X)
        ]

    def evaluate(
        self, X: Iterable[Any], y: Labels, *, bootstrap: int = 1000, level: float = 0.9
    ) -> EntityCoverage:
        """The recall of the candidates of labelled sentences with its band, and their number."""
        truth, found = _true_entities(y), self.predict_entities(X)
        _check_as_many(found, truth)
        hits = [
            [p >= self.threshold_ for p in _proba_of(entities, row)]
            for entities, row in zip(truth, found, strict=True)
        ]
        some = [row for row in hits if row]
        if not some:
            raise DataError("nothing to score: no sentence of y has an entity")
        whole = self.guarantee == "sentence"
        part = np.array([float(min(row)) if whole else float(np.mean(row)) for row in some])
        lower, upper = coverage_band(part, bootstrap, level, 0)
        given = sum(map(len, found))
        return EntityCoverage(
            guarantee=self.guarantee,
            coverage=float(part.mean()),
            lower=lower,
            upper=upper,
            level=level,
            pooled=float(np.mean([hit for row in some for hit in row])),
            precision=sum(sum(row) for row in some) / given if given else 0.0,
            per_sentence=given / len(found),
            sentences=len(some),
            entities=sum(map(len, some)),
        )


def _proba_of(entities: Sequence[Entity], found: Sequence[ScoredEntity]) -> list[float]:
    """The probability of each entity; -infinity where it is not among those found."""
    proba = {tuple(entity[:3]): entity.score for entity in found}
    return [proba.get(tuple(entity), -np.inf) for entity in entities]


def _true_entities(y: Labels) -> list[list[Entity]]:
    found = []
    for number, labels in enumerate(y):
        try:
            found.append(tags_to_entities(labels))
        except DataError as error:
            raise DataError(f"y: sequence {number} (from 0): {error}") from None
    return found


def _check_as_many(found: Sequence[Any], truth: Sequence[Any]) -> None:
    if len(found) != len(truth):
        raise DataError(f"X has {len(found)} sequences, y has {len(truth)}")


def _require_probabilities(labeler: SequenceLabeler) -> None:
    if not labeler.has_probabilities:
        name = type(labeler).__name__
        raise NoProbabilitiesError(
            f"{name} has scores and no probabilities; wrap it: Calibrated({name}(...))"
        )
