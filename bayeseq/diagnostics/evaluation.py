"""One record with every score of a model on a test set, and tables to set models side by side."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Literal

from bayeseq.data.errors import DataError
from bayeseq.data.schemes import entity_types
from bayeseq.diagnostics.abstention import RiskCoverage, risk_coverage
from bayeseq.diagnostics.binning import BINS, Proba, RandomState
from bayeseq.diagnostics.calibration import ProbabilityScores, probability_scores
from bayeseq.diagnostics.entity_claims import ScoredEntities
from bayeseq.diagnostics.reliability import (
    ReliabilityCurve,
    entity_reliability,
    reliability,
)
from bayeseq.diagnostics.scores import (
    EntityCounts,
    EntityScores,
    Mode,
    entity_scores,
    sequence_accuracy,
    token_error,
)
from bayeseq.diagnostics.tables import aligned, percent
from bayeseq.diagnostics.tokens import Labels, MaybeLabels

_ABSENT = "-"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Every score of one model on one test set.

    Attributes:
        sequences: the number of sequences.
        tokens: the number of tokens with a true label.
        token_error: the share of those labelled wrong.
        sequence_accuracy: the share of sequences without a wrong token.
        entities: entity scores; None when they were not asked for or the labels are no tags.
        probabilities: log loss, Brier score, ECE; None for a model without probabilities.
        risk_coverage: over tokens; None alike.
        reliability: of the most probable label; None alike.
        entity_reliability: of predicted entities; None without their probabilities, or where none
            was predicted.
    """

    sequences: int
    tokens: int
    token_error: float
    sequence_accuracy: float
    entities: EntityScores | None
    probabilities: ProbabilityScores | None
    risk_coverage: RiskCoverage | None
    reliability: ReliabilityCurve | None
    entity_reliability: ReliabilityCurve | None = None

    def as_dict(self) -> dict[str, Any]:
        """The numbers as plain dicts, lists, str, int and float, ready for JSON.

        JSON has no NaN and no infinity: NaN (an empty bin) becomes None, infinity (the log loss of
        a model that ruled out a true label) the text "Infinity".
        """
        numbers = {
            "sequences": self.sequences,
            "tokens": self.tokens,
            "token_error": self.token_error,
            "sequence_accuracy": self.sequence_accuracy,
            "entities": self.entities and _entities_dict(self.entities),
            "probabilities": self.probabilities and asdict(self.probabilities),
            "risk_coverage": self.risk_coverage and _risk_dict(self.risk_coverage),
            "reliability": self.reliability and _reliability_dict(self.reliability),
            "entity_reliability": (
                self.entity_reliability and _reliability_dict(self.entity_reliability)
            ),
        }
        return {name: _plain(value) for name, value in numbers.items()}

    def table(self) -> str:
        """The scores as text, one a line, with the entity table below."""
        rows = [
            ["sequences", str(self.sequences)],
            ["tokens scored", str(self.tokens)],
            ["token error %", percent(self.token_error)],
            ["sequence accuracy %", percent(self.sequence_accuracy)],
        ]
        if self.probabilities is not None:
            rows += _probability_rows(self.probabilities)
        if self.entity_reliability is not None:
            rows.append(["ECE % of entities", percent(self.entity_reliability.ece)])
        if self.risk_coverage is not None:
            rows += _risk_rows(self.risk_coverage)
        text = aligned(rows)
        return text if self.entities is None else f"{text}\n\n{self.entities.table()}"

    def __str__(self) -> str:
        return self.table()


def evaluate(
    y_true: MaybeLabels,
    y_pred: Labels,
    proba: Proba | None = None,
    classes: Sequence[str] | None = None,
    *,
    entities: bool | Literal["auto"] = "auto",
    mode: Mode = "conlleval",
    scheme: str | None = None,
    scored_entities: ScoredEntities | None = None,
    bins: int = BINS,
    bootstrap: int = 200,
    level: float = 0.9,
    random_state: RandomState = 0,
) -> Evaluation:
    """Score predictions, and their probabilities when there are any.

    Args:
        y_true: lists of str, None where missing.
        y_pred: predicted labels of the same shape.
        proba: one (T, C) array a sequence, or None for a model without probabilities.
        classes: the C labels in column order; needed with `proba`.
        entities: whether the labels are tags with entities to score. "auto" looks: they are when
            every label is O, or a letter of a tag scheme alone or with a type ("B", "B-PER").
        mode, scheme: how `entity_scores` reads the tags.
        scored_entities: for each sequence (start, end, type, probability), as `predict_entities`
            gives, to judge these probabilities too.
        bins: the number of confidence bins of ECE and reliability curve.
        bootstrap, level, random_state: the bands of the curves.

    >>> result = evaluate([["B-PER", "O"]], [["B-PER", "B-PER"]])
    >>> result.token_error, round(result.entities.overall.f1, 4)
    (0.5, 0.6667)
    """
    if entities not in (True, False, "auto"):
        raise ValueError(f'entities must be True, False or "auto", not {entities!r}')
    error = token_error(y_true, y_pred)  # first, for it checks types and shapes
    if entities == "auto":
        entities = _are_tags(chain.from_iterable(chain(y_true, y_pred)))

    bands: dict[str, Any] = {"bootstrap": bootstrap, "level": level, "random_state": random_state}
    probabilities, risk, curve, of_entities = None, None, None, None
    if scored_entities is not None and any(scored_entities):
        of_entities = entity_reliability(y_true, scored_entities, bins=bins, **bands)
    if proba is not None:
        if classes is None:
            raise ValueError("proba needs classes, the labels of its columns in their order")
        probabilities = probability_scores(
            y_true, proba, classes, bins=bins, random_state=random_state
        )
        risk = risk_coverage(y_true, proba, classes, y_pred=y_pred, **bands)
        curve = reliability(y_true, proba, classes, bins=bins, **bands)
    return Evaluation(
        sequences=len(y_true),
        tokens=sum(label is not None for labels in y_true for label in labels),
        token_error=error,
        sequence_accuracy=sequence_accuracy(y_true, y_pred),
        entities=_entity_scores(y_true, y_pred, mode, scheme) if entities else None,
        probabilities=probabilities,
        risk_coverage=risk,
        reliability=curve,
        entity_reliability=of_entities,
    )


def comparison_table(
    rows: Mapping[str, Evaluation], seconds: Mapping[str, float] | None = None
) -> str:
    """One line a model, one column a score; a column that no model has is left out.

    Args:
        rows: the evaluations by model name, in the order to print.
        seconds: how long each model took.

    >>> result = evaluate([["B-PER", "O"]], [["B-PER", "B-PER"]])
    >>> print(comparison_table({"crf": result}, seconds={"crf": 1.5}))
    model  token error %  entity F1 %  seconds
    crf            50.00        66.67      1.5
    entity F1: conlleval reading of the tags
    """
    if not rows:
        raise DataError("nothing to compare: rows is empty")
    readings = {row.entities.reading for row in rows.values() if row.entities}
    if len(readings) > 1:
        raise DataError(
            f"entity scores of different readings cannot be compared: {', '.join(sorted(readings))}"
        )
    columns = [[name, *(cell(row) for row in rows.values())] for name, cell in _COLUMNS.items()]
    if seconds is not None:
        columns.append(["seconds", *(_seconds(seconds.get(name)) for name in rows)])
    columns = [column for column in columns if set(column[1:]) != {_ABSENT}]
    text = aligned(list(zip(["model", *rows], *columns, strict=True)))
    return "\n".join([text, *(f"entity F1: {reading} reading of the tags" for reading in readings)])


_COLUMNS: dict[str, Callable[[Evaluation], str]] = {
    "token error %": lambda row: percent(row.token_error),
    "entity F1 %": lambda row: percent(row.entities.overall.f1) if row.entities else _ABSENT,
    "log loss": lambda row: f"{row.probabilities.log_loss:.4f}" if row.probabilities else _ABSENT,
    "ECE %": lambda row: percent(row.probabilities.ece) if row.probabilities else _ABSENT,
    "AURC": lambda row: f"{row.risk_coverage.aurc:.4f}" if row.risk_coverage else _ABSENT,
}


def _seconds(seconds: float | None) -> str:
    return _ABSENT if seconds is None else f"{seconds:.1f}"


def _are_tags(labels: Iterable[str | None]) -> bool:
    try:
        entity_types([label for label in set(labels) if label is not None])
    except DataError:
        return False
    return True


def _entity_scores(
    y_true: MaybeLabels, y_pred: Labels, mode: Mode, scheme: str | None
) -> EntityScores:
    try:
        return entity_scores(y_true, y_pred, mode=mode, scheme=scheme)
    except DataError as error:
        raise DataError(f"{error}; entities=False leaves entity scores out") from None


def _probability_rows(scores: ProbabilityScores) -> list[list[str]]:
    rows = [
        ["log loss", f"{scores.log_loss:.4f}"],
        ["Brier score", f"{scores.brier:.4f}"],
        ["ECE %", percent(scores.ece)],
        ["ECE % from noise alone", percent(scores.ece_floor)],
        ["calibration error %, debiased", _percent_or_absent(scores.calibration_error)],
        ["sharpness", f"{scores.sharpness:.4f}"],
    ]
    if scores.unknown:
        rows.append(["tokens with a label unknown to the model", str(scores.unknown)])
    return rows


def _percent_or_absent(share: float) -> str:
    return _ABSENT if math.isnan(share) else percent(share)


def _risk_rows(curve: RiskCoverage) -> list[list[str]]:
    return [
        ["AURC", f"{curve.aurc:.4f}"],
        ["AURC of a perfect ranking", f"{curve.aurc_oracle:.4f}"],
        ["token error % of the surest 90 %", percent(curve.at_coverage(0.9))],
    ]


def _entities_dict(scores: EntityScores) -> dict[str, Any]:
    return {
        "mode": scores.mode,
        "scheme": scores.scheme,
        "overall": _counts_dict(scores.overall),
        "by_label": {label: _counts_dict(counts) for label, counts in scores.by_label.items()},
    }


def _counts_dict(counts: EntityCounts) -> dict[str, float]:
    shares = {"precision": counts.precision, "recall": counts.recall, "f1": counts.f1}
    return shares | asdict(counts)


def _risk_dict(curve: RiskCoverage) -> dict[str, Any]:
    """The curve at the coverages of its band: the full one has a point for every token."""
    return {
        "unit": curve.unit,
        "total": curve.total,
        "error": curve.error,
        "aurc": curve.aurc,
        "aurc_oracle": curve.aurc_oracle,
        "level": curve.level,
        "coverage": curve.band_coverage.tolist(),
        "risk": [curve.at_coverage(coverage) for coverage in curve.band_coverage],
        "lower": curve.lower.tolist(),
        "upper": curve.upper.tolist(),
    }


def _reliability_dict(curve: ReliabilityCurve) -> dict[str, Any]:
    return {
        "label": curve.label,
        "ece": curve.ece,
        "level": curve.level,
        "edges": curve.edges.tolist(),
        "confidence": curve.confidence.tolist(),
        "accuracy": curve.accuracy.tolist(),
        "counts": curve.counts.tolist(),
        "lower": curve.lower.tolist(),
        "upper": curve.upper.tolist(),
    }


def _plain(value: Any) -> Any:
    """Replace the numbers that JSON cannot write."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "Infinity"
    return value
