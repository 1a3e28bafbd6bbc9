"""Fitted labelers of any kind side by side on the same sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from bayeseq.data.errors import DataError
from bayeseq.data.labels import Labels
from bayeseq.diagnostics.comparison import Comparison, Predictions, compare_predictions
from bayeseq.labelers.base import SequenceLabeler

Models = Mapping[str, SequenceLabeler] | Sequence[SequenceLabeler]


def compare(
    models: Models,
    X: Iterable[Any],
    y: Labels,
    *,
    reference: str | None = None,
    entities: bool | Literal["auto"] = "auto",
    bootstrap: int = 2000,
    level: float = 0.9,
    random_state: int | np.random.Generator | None = 0,
) -> Comparison:
    """Compare fitted labelers on sentences that none of them was fitted to.

    Scores are the token error, the F1 of entities where labels are tags, and, for labelers with
    probabilities, the log loss by token, the mean log p(y | x) of a sentence and the calibration
    error. Differences to the reference come with intervals over sentences, and with the probability
    of being better on other sentences of the kind. Labels that a model does not know are errors of
    it, and count in no score of probabilities.

    Args:
        models: labelers by name, or a list, whose names are those of their classes.
        X, y: test sentences, and their labels (None where missing).
        reference: the name of the model that the others are compared with; the first, if None.
        entities: whether labels are tags with entities to score; "auto" looks.
        bootstrap, level, random_state: the intervals, by the Bayesian bootstrap over sentences.

    >>> from bayeseq import CRF, HMM
    >>> X, y = [[["a"], ["b"]], [["b"], ["a"]]] * 3, [["A", "B"], ["B", "A"]] * 3
    >>> found = compare([HMM().fit(X, y), CRF(progress=False).fit(X, y)], X, y)
    >>> found.reference, found.difference("CRF", "token error").value
    ('HMM', 0.0)
    """
    named, X, y = names_of(models), list(X), list(y)
    known = known_to_all(named)
    predictions = {name: predictions_of(model, X, y, known) for name, model in named.items()}
    return compare_predictions(
        y,
        predictions,
        reference=reference,
        entities=entities,
        bootstrap=bootstrap,
        level=level,
        random_state=random_state,
    )


def names_of(models: Models) -> dict[str, SequenceLabeler]:
    """The models by name: those of a list by their classes, numbered where one recurs."""
    if isinstance(models, SequenceLabeler):
        raise TypeError("models is one labeler; give a list of labelers, or a dict of them by name")
    if isinstance(models, Mapping):
        found = dict(models)
    else:
        found, kinds = {}, [type(model).__name__ for model in models]
        for i, (kind, model) in enumerate(zip(kinds, models, strict=True)):
            number = kinds[: i + 1].count(kind)
            found[kind if kinds.count(kind) == 1 else f"{kind} {number}"] = model
    if not found:
        raise DataError("nothing to compare: models is empty")
    for name, model in found.items():
        if not hasattr(model, "classes_"):
            raise ValueError(f"{name} is not fitted; call fit before comparing")
    return found


def known_to_all(models: Mapping[str, SequenceLabeler]) -> set[str]:
    """The labels that all models with probabilities know."""
    classes = [set(model.classes_) for model in models.values() if model.has_probabilities]
    return set.intersection(*classes) if classes else set()


def predictions_of(
    model: SequenceLabeler, X: Sequence[Any], y: Labels, known: set[str]
) -> Predictions:
    """What a labeler says of sentences; labels that are not `known` are taken for missing in the
    log density."""
    if not model.has_probabilities:
        return Predictions(model.predict(X))
    tagged = model.tag(X)
    classes = model.classes_.tolist()
    density = None
    if hasattr(model, "log_likelihood") and max(map(abs, _offsets(model)), default=0) < 2:
        told = [[label if label in known else None for label in row] for row in y]
        density = model.log_likelihood(X, told)
    return Predictions(
        [labels for labels, _ in tagged], [proba for _, proba in tagged], classes, density
    )


def _offsets(model: Any) -> tuple[int, ...]:
    """The offsets of the labels that a label depends on: farther than one, labellings of a GPSL
    have no density that a chain of single labels gives."""
    return getattr(model, "_offsets", (-1,))
