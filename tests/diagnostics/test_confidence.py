"""Confidence by cell of the confusion matrix, against a loop over tokens."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayeseq import DataError
from bayeseq.diagnostics import confusion, confusion_confidence

CLASSES = ["B", "I", "O"]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.booleans(), st.integers(0, 999))
def test_cells_are_means_over_tokens(lengths, with_answers, seed):
    rng = np.random.default_rng(seed)
    proba = [rng.dirichlet([0.5] * 3, size=T) for T in lengths]
    # None is missing, and "X" was never seen in training.
    y_true = [[[*CLASSES, "X", None][k] for k in rng.integers(0, 5, T)] for T in lengths]
    answers = [[CLASSES[k] for k in rng.integers(0, 3, T)] for T in lengths]
    top = [[CLASSES[k] for k in p.argmax(1)] for p in proba]
    given_answers = answers if with_answers else None
    cells, right, wrong = {}, [], []
    for truth, guess, rows in zip(y_true, answers if with_answers else top, proba, strict=True):
        for true, label, row in zip(truth, guess, rows, strict=True):
            if true is not None:
                trust = row[CLASSES.index(label)]
                cells.setdefault((true, label), []).append(trust)
                (right if true == label else wrong).append(trust)
    if not cells:
        with pytest.raises(DataError, match="nothing to score"):
            confusion_confidence(y_true, proba, CLASSES, y_pred=given_answers)
        return
    found = confusion_confidence(y_true, proba, CLASSES, y_pred=given_answers)
    counted = confusion(y_true, answers if with_answers else top)
    assert found.labels == counted.labels
    np.testing.assert_array_equal(found.counts, counted.counts)
    for a, true in enumerate(found.labels):
        for b, label in enumerate(found.labels):
            values = cells.get((true, label), [])
            assert found.counts[a, b] == len(values)
            expected = sum(values) / len(values) if values else math.nan
            assert found.confidence[a, b] == pytest.approx(expected, nan_ok=True, abs=1e-12)
    for value, values in ((found.right, right), (found.wrong, wrong)):
        expected = sum(values) / len(values) if values else math.nan
        assert value == pytest.approx(expected, nan_ok=True, abs=1e-12)


def test_an_answer_outside_the_classes_is_named():
    with pytest.raises(DataError, match="sequence 0, token 1"):
        confusion_confidence([["O", "O"]], [np.full((2, 3), 1 / 3)], CLASSES, y_pred=[["O", "X"]])
