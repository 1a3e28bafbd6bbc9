"""Models side by side on the same sentences, and how sure their differences are.

Every score here is a ratio of sums over sentences (errors over tokens, log loss over tokens, …), so
a reweighting of the sentences gives a new score for every model at once. Differences are taken
within each reweighting: what makes a sentence hard, makes it hard for both. See `bootstrap`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np

from bayeseq.data.errors import DataError
from bayeseq.data.schemes import tags_to_entities
from bayeseq.diagnostics.bootstrap import sequence_weights
from bayeseq.diagnostics.calibration import BINS, Proba, RandomState, ece
from bayeseq.diagnostics.evaluation import _are_tags, _plain
from bayeseq.diagnostics.html import html_paragraphs, html_table
from bayeseq.diagnostics.scores import _complete
from bayeseq.diagnostics.tables import aligned, percent
from bayeseq.diagnostics.tokens import Floats, Labels, MaybeLabels, label_pairs, token_table

HIGHER_IS_BETTER = {
    "token error": False,
    "entity F1": True,
    "log loss": False,
    "log density": True,
}
"""The scores that are compared, in the order of the table: the error and the log loss by token, the
F1 of entities, and the mean log p(y | x) of a sentence."""

SHARES = ("token error", "entity F1", "ECE")


@dataclass(frozen=True, eq=False)
class Predictions:
    """What one model says of the test sentences.

    Attributes:
        labels: lists of str.
        proba: one (T, C) array a sentence, or None for a model without probabilities.
        classes: the C labels in column order; needed with `proba`.
        log_density: (B,), log p(y | x) of each sentence, or None where the model has none.
    """

    labels: Labels
    proba: Proba | None = None
    classes: Sequence[str] | None = None
    log_density: Floats | None = None


@dataclass(frozen=True)
class Difference:
    """How much a model's score differs from the reference's on the same sentences.

    Attributes:
        model, reference, score: what is compared.
        value: the model's score minus the reference's.
        lower, upper: the interval that holds `level` of the bootstrap's differences.
        probability_better: the share of them in which the model is the better one, ties by half.
    """

    model: str
    reference: str
    score: str
    value: float
    lower: float
    upper: float
    probability_better: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """Scores of models on the same sentences, and their differences to one of them.

    Attributes:
        scores: for each model, its scores by name; a model lacks what it has no probabilities for.
        differences: of every other model to the reference.
        reference: the model that the others are compared with.
        sentences: the number of sentences.
        tokens: the number of tokens with a true label.
        unknown: tokens left out of log loss, log density and ECE, since not every model knows
            their label.
        level: the share of the bootstrap in the intervals.
    """

    scores: dict[str, dict[str, float]]
    differences: tuple[Difference, ...]
    reference: str
    sentences: int
    tokens: int
    unknown: int
    level: float

    def difference(self, model: str, score: str) -> Difference:
        """One of the differences."""
        for found in self.differences:
            if (found.model, found.score) == (model, score):
                return found
        raise KeyError(f"there is no difference of {model!r} to {self.reference!r} in {score!r}")

    def as_dict(self) -> dict[str, Any]:
        """The numbers as plain dicts, lists, str, int and float, ready for JSON."""
        numbers = asdict(self) | {"differences": [asdict(found) for found in self.differences]}
        return {name: _plain(value) for name, value in numbers.items()}

    def table(self) -> str:
        """The scores as text, one line a model, and below them the differences."""
        parts = [aligned(self._score_rows())]
        if self.differences:
            parts += [self._heading(), aligned(self._difference_rows())]
        return "\n\n".join([*parts, *self._notes()])

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        parts = [html_table(self._score_rows())]
        if self.differences:
            parts += [html_paragraphs([self._heading()]), html_table(self._difference_rows())]
        return "\n".join([*parts, html_paragraphs(self._notes())])

    def _heading(self) -> str:
        return (
            f"differences to {self.reference}, {self.level:.0%} intervals over "
            f"{self.sentences:,} sentences"
        )

    def _notes(self) -> list[str]:
        if not self.unknown:
            return []
        return [
            f"{self.unknown} tokens have a label that not every model knows: they count as errors, "
            "and are left out of log loss, log density and ECE"
        ]

    def _score_rows(self) -> list[list[str]]:
        used = [name for name in (*HIGHER_IS_BETTER, "ECE") if self._has(name)]
        header = ["model", *(f"{name} %" if name in SHARES else name for name in used)]
        rows = [
            [model, *(_cell(name, found.get(name)) for name in used)]
            for model, found in self.scores.items()
        ]
        return [header, *rows]

    def _has(self, name: str) -> bool:
        return any(name in found for found in self.scores.values())

    def _difference_rows(self) -> list[list[str]]:
        header = ["model", "score", "difference", "interval", "probably better"]
        rows = []
        for found in self.differences:
            low, high = (_cell(found.score, end, sign=True) for end in (found.lower, found.upper))
            value = _cell(found.score, found.value, sign=True)
            share = f"{found.probability_better:.0%}"
            name = f"{found.score} %" if found.score in SHARES else found.score
            rows.append([found.model, name, value, f"{low} to {high}", share])
        return [header, *rows]


def compare_predictions(
    y_true: MaybeLabels,
    predictions: Mapping[str, Predictions],
    *,
    reference: str | None = None,
    entities: bool | Literal["auto"] = "auto",
    bootstrap: int = 2000,
    level: float = 0.9,
    random_state: RandomState = 0,
) -> Comparison:
    """Score predictions of several models for the same sentences, and compare them by sentence.

    Args:
        y_true: lists of str, None where missing.
        predictions: what each model says, by its name.
        reference: the model to compare with; the first, if None.
        entities: whether labels are tags with entities to score; "auto" looks.
        bootstrap: the number of reweightings of the sentences.
        level: the share of them in the intervals.
        random_state: seed or numpy Generator of the reweightings.

    >>> y = [["O", "B"], ["B", "O"], ["O", "O"]]
    >>> found = compare_predictions(y, {"a": Predictions(y), "b": Predictions([["O", "O"]] * 3)})
    >>> found.difference("b", "token error").probability_better < 0.1
    True
    """
    if not predictions:
        raise DataError("nothing to compare: there is no model")
    reference = next(iter(predictions)) if reference is None else reference
    if reference not in predictions:
        raise ValueError(f"reference is {reference!r}, none of {', '.join(predictions)}")
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, not {level!r}; 0.9 keeps 90 %")
    if bootstrap < 1:
        raise ValueError(f"bootstrap must be at least 1, not {bootstrap}")
    labels = [label for row in y_true for label in row if label is not None]
    if not labels:
        raise DataError("nothing to score: y_true has no labelled token")
    if entities == "auto":
        whole = all(label is not None for row in y_true for label in row)
        everything = chain(labels, *(chain.from_iterable(p.labels) for p in predictions.values()))
        entities = whole and _are_tags(everything)
    known = _known_to_all(y_true, predictions)
    sums = {
        name: _sums(name, y_true, known, found, entities) for name, found in predictions.items()
    }
    scores = {name: {k: _ratio(*pair) for k, pair in found.items()} for name, found in sums.items()}
    for name, found in predictions.items():
        if "log loss" in sums[name]:
            assert found.classes is not None
            assert found.proba is not None
            scores[name]["ECE"] = ece(known, found.proba, found.classes, bins=BINS)
    weights = sequence_weights(len(y_true), bootstrap, np.random.default_rng(random_state))
    differences = [
        _difference(name, reference, score, sums, weights, level)
        for name in predictions
        for score in HIGHER_IS_BETTER
        if name != reference and score in sums[name] and score in sums[reference]
    ]
    unknown = len(labels) - sum(label is not None for row in known for label in row)
    return Comparison(
        scores, tuple(differences), reference, len(y_true), len(labels), unknown, level
    )


def _known_to_all(y_true: MaybeLabels, predictions: Mapping[str, Predictions]) -> MaybeLabels:
    """The true labels, None where a model with probabilities does not know one."""
    known: set[str] | None = None
    for found in predictions.values():
        if found.proba is not None:
            if found.classes is None:
                raise ValueError("proba needs classes, the labels of its columns in their order")
            known = set(found.classes) if known is None else known & set(found.classes)
    if known is None:
        return y_true
    return [[label if label in known else None for label in row] for row in y_true]


Sums = dict[str, tuple[Floats, Floats]]
"""For each score, its numerator and denominator by sentence, (B,) each."""


def _sums(
    name: str, y_true: MaybeLabels, known: MaybeLabels, found: Predictions, entities: bool
) -> Sums:
    try:
        pairs = label_pairs(y_true, found.labels)
    except DataError as error:
        raise DataError(f"{name}: {error}") from None
    errors = np.array([sum(true != pred for true, pred in row) for row in pairs], dtype=np.float64)
    sums = {"token error": (errors, np.array([len(row) for row in pairs], dtype=np.float64))}
    if entities:
        sums["entity F1"] = _entity_sums(y_true, found.labels)
    if found.proba is not None and any(label is not None for row in known for label in row):
        sums["log loss"] = _log_loss_sums(known, found)
    if found.log_density is not None:
        density = np.asarray(found.log_density, dtype=np.float64)
        if density.shape != (len(y_true),):
            raise DataError(
                f"{name}: log_density has shape {density.shape}, expected one number for each of "
                f"the {len(y_true)} sentences"
            )
        told = np.array([any(label is not None for label in row) for row in known], dtype=float)
        sums["log density"] = (np.where(told > 0, density, 0.0), told)
    return sums


def _entity_sums(y_true: MaybeLabels, y_pred: Labels) -> tuple[Floats, Floats]:
    """2 · correct, and true plus predicted entities: their ratio is F1."""
    correct, total = np.zeros(len(y_true)), np.zeros(len(y_true))
    for i, (true, pred) in enumerate(zip(_complete(y_true), y_pred, strict=True)):
        a, b = set(tags_to_entities(true)), set(tags_to_entities(pred))
        correct[i], total[i] = 2 * len(a & b), len(a) + len(b)
    return correct, total


def _log_loss_sums(known: MaybeLabels, found: Predictions) -> tuple[Floats, Floats]:
    assert found.proba is not None
    assert found.classes is not None
    table = token_table(known, found.proba, found.classes)
    here = table.target >= 0
    p = table.proba[here, table.target[here]]
    with np.errstate(divide="ignore"):
        loss = np.bincount(table.sequence[here], -np.log(p), minlength=len(known))
    count = np.bincount(table.sequence[here], minlength=len(known))
    return loss.astype(np.float64), count.astype(np.float64)


def _ratio(above: Floats, below: Floats) -> float:
    return float(above.sum() / below.sum()) if below.sum() else 0.0  # as `EntityCounts.f1` has it


def _difference(
    name: str, reference: str, score: str, sums: Mapping[str, Sums], weights: Floats, level: float
) -> Difference:
    mine, theirs = sums[name][score], sums[reference][score]
    value = _ratio(*mine) - _ratio(*theirs)
    if not (np.isfinite(mine[0]).all() and np.isfinite(theirs[0]).all()):
        return _infinite(name, reference, score, _ratio(*mine), _ratio(*theirs))
    draws = _weighted(weights, mine) - _weighted(weights, theirs)
    lower, upper = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    gains = draws if HIGHER_IS_BETTER[score] else -draws
    better = float(np.mean(gains > 0) + 0.5 * np.mean(gains == 0))
    return Difference(name, reference, score, value, float(lower), float(upper), better)


def _weighted(weights: Floats, pair: tuple[Floats, Floats]) -> Floats:
    above, below = weights @ pair[0], weights @ pair[1]
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


def _infinite(name: str, reference: str, score: str, mine: float, theirs: float) -> Difference:
    """Where a model rules out what is true, its loss is infinite whatever the weights are."""
    if np.isinf(mine) and np.isinf(theirs):
        nan = float("nan")
        return Difference(name, reference, score, nan, nan, nan, 0.5)
    value, better = mine - theirs, float(np.isfinite(mine))
    return Difference(name, reference, score, value, value, value, better)


def _cell(score: str, value: float | None, sign: bool = False) -> str:
    if value is None:
        return "-"
    text = percent(value) if score in SHARES else f"{value:.4f}"
    return f"+{text}" if sign and value > 0 else text
