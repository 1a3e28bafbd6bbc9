"""What a report tells, computed: answers, scores, and which sentences are worth a look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from bayeseq.data.errors import DataError
from bayeseq.data.schemes import tags_to_entities
from bayeseq.diagnostics import Evaluation, RiskCoverage, evaluate, risk_coverage
from bayeseq.diagnostics.tokens import Floats, check_true
from bayeseq.labelers.base import SequenceLabeler
from bayeseq.labelers.chain import ScoredEntity
from bayeseq.report.tagging import affordable_draws, entity_answers, features_of, has_posterior

TOKENS_AT_ONCE = 5000


@dataclass(frozen=True, eq=False)
class Contents:
    """A model's answers on sentences, and what they are worth."""

    model: SequenceLabeler
    words: list[list[str]]
    X: list[Any]
    truth: list[list[str | None]] | None
    """True labels; None where there is not a single one"""
    labels: list[list[str]]
    proba: list[np.ndarray] | None
    entities: list[list[ScoredEntity]] | None
    """Predicted entities; None where labels spell none or the model gives them no probability"""
    evaluation: Evaluation | None
    sentence_risk: RiskCoverage | None
    """Of whole sentences put aside"""
    uncertainty: tuple[Floats, Floats] | None
    """(B,) total and epistemic uncertainty summed over the tokens of each sentence"""
    draws: int
    """Draws from the posterior, 0 without one"""

    @property
    def classes(self) -> list[str]:
        """The labels, in the order of the probabilities."""
        return [str(label) for label in self.model.classes_]

    @property
    def n_tokens(self) -> int:
        """Tokens of all sentences."""
        return sum(map(len, self.words))

    def confidences(self) -> list[np.ndarray]:
        """(T,) the probability of each predicted label, for each sentence."""
        assert self.proba is not None
        column = {label: c for c, label in enumerate(self.classes)}
        return [
            p[np.arange(len(row)), [column[label] for label in row]] if row else np.zeros(0)
            for p, row in zip(self.proba, self.labels, strict=True)
        ]

    def mistakes(self) -> list[np.ndarray]:
        """(T,) whether each predicted label is wrong, for each sentence."""
        assert self.truth is not None
        return [
            np.array([t is not None and t != p for t, p in zip(true, row, strict=True)], dtype=bool)
            for true, row in zip(self.truth, self.labels, strict=True)
        ]


def gather(
    model: SequenceLabeler,
    words: Sequence[Sequence[str]],
    X: Sequence[Any] | None,
    y: Sequence[Sequence[str | None]] | None,
    *,
    draws: int,
    scheme: str | None,
    random_state: int,
    quiet: bool,
) -> Contents:
    """Ask the model, and score what it answers where there are true labels."""
    texts = [list(sentence) for sentence in words]
    X = features_of(model, texts) if X is None else list(X)
    truth = None if y is None else [list(labels) for labels in y]
    _check(texts, X, truth)
    if truth is not None and not any(label is not None for row in truth for label in row):
        truth = None
    draws = affordable_draws(model, draws) if draws > 0 and has_posterior(model) else 0
    answers = _asked(model, texts, X, draws, random_state, quiet)
    labels, proba = answers.labels, answers.proba
    evaluation, risk = None, None
    classes = [str(label) for label in model.classes_]
    if truth is not None:
        options: dict[str, Any] = {}
        if scheme is not None:
            options = {"mode": "strict", "scheme": scheme, "entities": True}
        elif any(None in row for row in truth):
            options = {"entities": False}
        evaluation = evaluate(truth, labels, proba, classes, random_state=random_state, **options)
        if proba is not None:
            risk = risk_coverage(
                truth, proba, classes, y_pred=labels, unit="sequence", random_state=random_state
            )
    return Contents(
        model=model,
        words=texts,
        X=X,
        truth=truth,
        labels=labels,
        proba=proba,
        entities=answers.entities,
        evaluation=evaluation,
        sentence_risk=risk,
        uncertainty=answers.uncertainty,
        draws=draws,
    )


class _Answers(NamedTuple):
    labels: list[list[str]]
    proba: list[np.ndarray] | None
    entities: list[list[ScoredEntity]] | None
    uncertainty: tuple[Floats, Floats] | None


def _asked(
    model: Any, words: list[list[str]], X: list[Any], draws: int, random_state: int, quiet: bool
) -> _Answers:
    """All answers, a few thousand tokens at a time."""
    labels: list[list[str]] = []
    proba: list[np.ndarray] = []
    entities: list[list[ScoredEntity]] = []
    total, epistemic = np.zeros(len(words)), np.zeros(len(words))
    with tqdm(
        total=sum(map(len, words)),
        desc="predicting",
        unit="token",
        unit_scale=True,
        delay=2,
        leave=False,
        disable=True if quiet else None,
    ) as bar:
        for first, last in _pieces(words):
            part = X[first:last]
            if model.has_probabilities:
                found = model.tag(part)
                proba += [tagging.proba for tagging in found]
                labels += [tagging.labels for tagging in found]
                entities += _scored_entities(model, part, labels[first:last])
            else:
                labels += model.predict(part)
            if draws:
                unsure = model.predict_uncertainty(part, draws, random_state=random_state)
                total[first:last] = [row.sum() for row in unsure.total]
                epistemic[first:last] = [row.sum() for row in unsure.epistemic]
            bar.update(sum(map(len, words[first:last])))
    return _Answers(
        labels,
        proba if model.has_probabilities else None,
        entities or None,
        (total, epistemic) if draws else None,
    )


def _scored_entities(
    model: SequenceLabeler, X: list[Any], labels: list[list[str]]
) -> list[list[ScoredEntity]]:
    """The predicted entities with their probabilities; no list at all where there are none."""
    found = entity_answers(model, X, labels, draws=0, random_state=0).proba
    if found is None:
        return []
    return [
        [
            ScoredEntity(*entity, p)
            for entity, p in zip(tags_to_entities(row), proba.tolist(), strict=True)
        ]
        for row, proba in zip(labels, found, strict=True)
    ]


def _pieces(words: list[list[str]]) -> list[tuple[int, int]]:
    """Where pieces of about as many tokens as are asked for together begin and end."""
    found, first, tokens = [], 0, 0
    for i, sentence in enumerate(words):
        tokens += len(sentence)
        if tokens >= TOKENS_AT_ONCE or i == len(words) - 1:
            found.append((first, i + 1))
            first, tokens = i + 1, 0
    return found


def _check(words: list[list[str]], X: list[Any], truth: list[list[str | None]] | None) -> None:
    if not any(words):
        raise DataError("there is no token to report on")
    for name, values in (("X", X), ("y", truth)):
        if values is not None and len(values) != len(words):
            raise DataError(f"{name} has {len(values)} sequences, but there are {len(words)}")
    if truth is not None:
        check_true(truth)
        for i, (row, sentence) in enumerate(zip(truth, words, strict=True)):
            if len(row) != len(sentence):
                raise DataError(f"sentence {i} has {len(sentence)} words and {len(row)} labels")


# ---- which sentences to show --------------------------------------------------------------------


def most_mistakes(contents: Contents, most: int) -> list[int]:
    """The sentences with most wrong labels, worst first; only those with any."""
    return _largest([float(wrong.sum()) for wrong in contents.mistakes()], most)


def surest_mistakes(contents: Contents, most: int) -> list[int]:
    """The sentences with the mistakes that the model was surest of, worst first."""
    pairs = zip(contents.confidences(), contents.mistakes(), strict=True)
    return _largest([float(p[wrong].max(initial=0.0)) for p, wrong in pairs], most)


def expected_mistakes(contents: Contents) -> list[float]:
    """How many wrong labels the model itself expects in each sentence: Σ (1 − confidence)."""
    return [float((1 - p).sum()) for p in contents.confidences()]


def least_sure(contents: Contents, most: int) -> list[int]:
    """The sentences in which the model expects most wrong labels."""
    return _largest(expected_mistakes(contents), most)


def least_known(contents: Contents, most: int) -> list[int]:
    """The sentences with most epistemic uncertainty: where labels would teach the model most."""
    assert contents.uncertainty is not None
    return _largest(contents.uncertainty[1].tolist(), most)


def _largest(values: list[float], most: int) -> list[int]:
    """The places of the largest values above 0, largest first, the first of equals first."""
    order = np.argsort(-np.asarray(values), kind="stable")[:most]
    return [int(i) for i in order if values[i] > 0]
