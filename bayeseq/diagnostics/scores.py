"""Scores of predicted labels; each name says its unit: token, sequence or entity.

A token whose true label is `None` is left out of token and sequence scores. Entities cannot be
read around a hole, so `entity_scores` asks for complete true labels.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Literal, cast

import numpy as np

from bayeseq.data.errors import DataError
from bayeseq.data.schemes import Entity, tags_to_entities
from bayeseq.diagnostics.tables import aligned, percent
from bayeseq.diagnostics.tokens import (
    Ints,
    Labels,
    MaybeLabels,
    label_pairs,
    require_tokens,
)

Mode = Literal["conlleval", "strict"]


def token_accuracy(y_true: MaybeLabels, y_pred: Labels) -> float:
    """The share of tokens labelled right. Tokens whose true label is None are left out.

    >>> token_accuracy([["O", "B"], ["I", None]], [["O", "I"], ["I", "O"]])
    0.6666666666666666
    """
    pairs = list(chain.from_iterable(label_pairs(y_true, y_pred)))
    require_tokens(len(pairs), "labelled token")
    return sum(true == pred for true, pred in pairs) / len(pairs)


def token_error(y_true: MaybeLabels, y_pred: Labels) -> float:
    """The share of tokens labelled wrong. Tokens whose true label is None are left out.

    >>> token_error([["O", "B"], ["I", None]], [["O", "O"], ["I", "O"]])
    0.3333333333333333
    """
    pairs = list(chain.from_iterable(label_pairs(y_true, y_pred)))
    require_tokens(len(pairs), "labelled token")
    return sum(true != pred for true, pred in pairs) / len(pairs)


def sequence_accuracy(y_true: MaybeLabels, y_pred: Labels) -> float:
    """The share of sequences without a wrong token.

    Only tokens with a true label are looked at; sequences without any are left out.

    >>> sequence_accuracy([["O", "B"], ["I", None], [None]], [["O", "O"], ["I", "O"], ["O"]])
    0.5
    """
    sequences = [pairs for pairs in label_pairs(y_true, y_pred) if pairs]
    require_tokens(len(sequences), "sequence with a labelled token")
    right = sum(all(true == pred for true, pred in pairs) for pairs in sequences)
    return right / len(sequences)


@dataclass(frozen=True)
class EntityCounts:
    """How many entities are in the truth, were predicted, and are in both.

    A score with nothing to divide by is 0, as in conlleval.

    >>> EntityCounts(support=4, predicted=2, correct=1).recall
    0.25
    """

    support: int
    predicted: int
    correct: int

    @property
    def precision(self) -> float:
        """The share of predicted entities that are right."""
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """The share of true entities that were found."""
        return self.correct / self.support if self.support else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        total = self.predicted + self.support
        return 2 * self.correct / total if total else 0.0


@dataclass(frozen=True)
class EntityScores:
    """Entity scores, with the reading of the tags that they rest on.

    Attributes:
        mode: "conlleval" or "strict".
        scheme: the tag scheme of a strict reading, None for conlleval.
        overall: all entities together (micro average).
        by_label: the same for each entity label, in alphabetical order.
    """

    mode: Mode
    scheme: str | None
    overall: EntityCounts
    by_label: dict[str, EntityCounts]

    @property
    def reading(self) -> str:
        """Mode and scheme in words, to stand beside every printed score."""
        return f"{self.mode} {self.scheme}" if self.scheme else self.mode

    def table(self) -> str:
        """A text table, percentages first and counts after them."""
        header = ["", "precision %", "recall %", "F1 %", "true", "predicted", "correct"]
        rows = [("all", self.overall), *self.by_label.items()]
        return f"entity scores, {self.reading} reading of the tags\n" + aligned(
            [header, *([label or "(untyped)", *_cells(counts)] for label, counts in rows)]
        )

    def __str__(self) -> str:
        return self.table()


def entity_scores(
    y_true: MaybeLabels, y_pred: Labels, *, mode: Mode = "conlleval", scheme: str | None = None
) -> EntityScores:
    """Precision, recall and F1 of entities: right means same start, end and label.

    Args:
        y_true: tags, a list of str for each sequence; a missing one (None) is an error.
        y_pred: predicted tags of the same shape.
        mode: "conlleval" reads malformed tags as the CoNLL scorer does (an I after O starts an
            entity); "strict" takes only entities that are well formed in `scheme`. The two can
            differ much on the same predictions, so the record and its table name the mode.
        scheme: the tag scheme, for example "IOB2"; needed by "strict" and by it only.

    >>> scores = entity_scores([["B-PER", "I-PER", "O"]], [["I-PER", "I-PER", "O"]])
    >>> scores.overall.f1
    1.0
    >>> entity_scores(
    ...     [["B-PER", "I-PER", "O"]], [["I-PER", "I-PER", "O"]], mode="strict", scheme="IOB2"
    ... ).overall.f1
    0.0
    """
    _check_mode(mode, scheme)
    label_pairs(y_true, y_pred)  # checks types and shapes
    truth = _entities("y_true", _complete(y_true), scheme)
    guess = _entities("y_pred", y_pred, scheme)
    return EntityScores(mode, scheme, *_count(truth, guess))


@dataclass(frozen=True, eq=False)
class Confusion:
    """Which labels are taken for which.

    Attributes:
        labels: the C labels that occur, true or predicted, in alphabetical order.
        counts: (C, C) tokens, rows are true labels and columns predicted ones.
    """

    labels: tuple[str, ...]
    counts: Ints


def confusion(y_true: MaybeLabels, y_pred: Labels) -> Confusion:
    """Count tokens by true and predicted label. Tokens whose true label is None are left out.

    >>> confusion([["O", "B", "B"]], [["O", "O", "B"]]).counts
    array([[1, 1],
           [0, 1]])
    """
    pairs = list(chain.from_iterable(label_pairs(y_true, y_pred)))
    require_tokens(len(pairs), "labelled token")
    labels = sorted(set(chain.from_iterable(pairs)))
    code = {label: number for number, label in enumerate(labels)}
    cells = [code[true] * len(labels) + code[pred] for true, pred in pairs]
    counts = np.bincount(cells, minlength=len(labels) ** 2)
    return Confusion(tuple(labels), counts.reshape(len(labels), len(labels)))


def _check_mode(mode: str, scheme: str | None) -> None:
    if mode not in ("conlleval", "strict"):
        raise ValueError(f'mode must be "conlleval" or "strict", not {mode!r}')
    if mode == "strict" and scheme is None:
        raise ValueError('mode="strict" needs the scheme of the tags, for example scheme="IOB2"')
    if mode == "conlleval" and scheme is not None:
        raise ValueError(
            f'scheme={scheme!r} has no effect with mode="conlleval", which reads all schemes '
            'alike; leave it out or pass mode="strict"'
        )


def _complete(y_true: MaybeLabels) -> Labels:
    """The same labels, none of them missing."""
    for number, labels in enumerate(y_true):
        for position, label in enumerate(labels):
            if label is None:
                raise DataError(
                    f"y_true: sequence {number}, token {position} (both from 0) has no label, so "
                    "its entities are unknown; leave the sequence out or score tokens only"
                )
    return cast(Labels, y_true)


Found = tuple[int, Entity]


def _entities(name: str, y: Labels, scheme: str | None) -> set[Found]:
    """All entities, each with the number of its sequence; strictly read when there is a scheme."""
    found: set[Found] = set()
    for number, tags in enumerate(y):
        try:
            entities = tags_to_entities(tags, scheme=scheme, strict=scheme is not None)
        except DataError as error:
            raise DataError(f"{name}: sequence {number} (from 0): {error}") from None
        found.update((number, entity) for entity in entities)
    return found


def _count(truth: set[Found], guess: set[Found]) -> tuple[EntityCounts, dict[str, EntityCounts]]:
    support, predicted, correct = _by_label(truth), _by_label(guess), _by_label(truth & guess)
    by_label = {
        label: EntityCounts(support[label], predicted[label], correct[label])
        for label in sorted(support | predicted)
    }
    return EntityCounts(support.total(), predicted.total(), correct.total()), by_label


def _by_label(found: Iterable[Found]) -> Counter[str]:
    return Counter(entity.label for _, entity in found)


def _cells(counts: EntityCounts) -> list[str]:
    shares = [percent(share) for share in (counts.precision, counts.recall, counts.f1)]
    return shares + [str(number) for number in (counts.support, counts.predicted, counts.correct)]
