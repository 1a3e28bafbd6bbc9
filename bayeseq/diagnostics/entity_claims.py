"""Predicted entities as claims: each with a probability, and true or not."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bayeseq.data.errors import DataError
from bayeseq.diagnostics.scores import _complete, _entities
from bayeseq.diagnostics.tokens import Bools, Floats, Ints, MaybeLabels, check_true

ScoredEntities = Sequence[Sequence[Sequence[Any]]]


class EntityClaims(NamedTuple):
    """The E predicted entities of all sequences: probability, truth (if known), sequence, (E,)."""

    score: Floats
    right: Bools | None
    sequence: Ints


def entity_claims(
    entities: ScoredEntities, y_true: MaybeLabels | None, label: str | None = None
) -> EntityClaims:
    """Check entities (start, end, type, probability), and look them up in the true tags."""
    found = [
        (number, (start, end, kind), _probability(number, (start, end, kind, score)))
        for number, row in enumerate(entities)
        for start, end, kind, score in row
        if label is None or kind == label
    ]
    if not found:
        raise DataError(
            "nothing to score: no entity was predicted" + (f" of type {label!r}" if label else "")
        )
    right = None
    if y_true is not None:
        check_true(y_true)
        if len(y_true) != len(entities):
            raise DataError(f"entities has {len(entities)} sequences but y_true has {len(y_true)}")
        truth = {(n, tuple(e)) for n, e in _entities("y_true", _complete(y_true), None)}
        right = np.array([(number, entity) in truth for number, entity, _ in found])
    return EntityClaims(
        np.array([score for *_, score in found]),
        right,
        np.array([number for number, *_ in found], dtype=np.int64),
    )


def _probability(number: int, entity: tuple[Any, ...]) -> float:
    score = float(entity[3])
    if not 0 <= score <= 1:
        raise DataError(
            f"entities: sequence {number} (from 0) has {entity!r}, whose score is no probability"
        )
    return score
