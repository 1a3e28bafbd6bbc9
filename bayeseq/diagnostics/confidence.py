"""How sure a model is of its right answers and of each kind of mistake."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bayeseq.diagnostics.abstention import answer_columns
from bayeseq.diagnostics.calibration import Proba
from bayeseq.diagnostics.scores import confusion
from bayeseq.diagnostics.tokens import MISSING, Floats, Ints, Labels, MaybeLabels, token_table


@dataclass(frozen=True, eq=False)
class ConfusionConfidence:
    """Which labels are taken for which, and how surely.

    Attributes:
        labels: the C labels that occur, true or predicted, in alphabetical order.
        counts: (C, C) tokens, rows are true labels and columns predicted ones.
        confidence: (C, C), the mean probability that the answers of a cell were given; NaN where
            there is none.
        right, wrong: the mean confidence of all right and of all wrong answers; NaN where there is
            none.
    """

    labels: tuple[str, ...]
    counts: Ints
    confidence: Floats
    right: float
    wrong: float


def confusion_confidence(
    y_true: MaybeLabels, proba: Proba, classes: Sequence[str], *, y_pred: Labels | None = None
) -> ConfusionConfidence:
    """Count tokens by true and predicted label, with the mean confidence of the answers.

    Tokens whose true label is None are left out; a true label that is not among the classes has a
    row of its own, since the answer given there is wrong.

    Args:
        y_true: lists of str, None where missing.
        proba: one (T, C) array a sequence, in `classes` order.
        classes: the C labels.
        y_pred: the answers to judge, when they are not the most probable label of each token.

    >>> found = confusion_confidence([["O", "B"]], [[[0.2, 0.8], [0.4, 0.6]]], ["B", "O"])
    >>> found.counts, found.confidence
    (array([[0, 1],
           [0, 1]]), array([[nan, 0.6],
           [nan, 0.8]]))
    >>> found.right, found.wrong
    (0.8, 0.6)
    """
    table = token_table(y_true, proba, classes)
    answer = answer_columns(table, y_pred, [len(labels) for labels in y_true], classes)
    known = table.target != MISSING
    truth = [label for labels in y_true for label in labels if label is not None]
    guess = [classes[column] for column in answer[known]]
    counted = confusion([truth], [guess])
    trust = table.proba[np.arange(len(answer)), answer][known]
    rows, columns = (np.searchsorted(counted.labels, texts) for texts in (truth, guess))
    sums = np.zeros(counted.counts.shape)
    np.add.at(sums, (rows, columns), trust)
    with np.errstate(invalid="ignore"):  # 0 / 0 in empty cells is the NaN we want
        mean = sums / counted.counts
    right = rows == columns
    return ConfusionConfidence(
        counted.labels, counted.counts, mean, _mean(trust[right]), _mean(trust[~right])
    )


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else float("nan")
