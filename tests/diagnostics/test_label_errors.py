"""Label errors against loops and cleanlab."""

import numpy as np
import pytest
from cleanlab.count import compute_confident_joint
from cleanlab.token_classification.rank import get_label_quality_scores
from hypothesis import given, settings
from hypothesis import strategies as st

from bayeseq.data.errors import DataError
from bayeseq.diagnostics import find_label_errors

DRAWN = settings(max_examples=30, deadline=None)
CLASSES = ["a", "b", "c"]


def draw(seed, sequences, missing=False):
    """Labels of which a tenth is wrong, and probabilities that mostly know better."""
    rng = np.random.default_rng(seed)
    y, proba = [], []
    for _ in range(sequences):
        tokens = int(rng.integers(1, 8))
        true = rng.integers(3, size=tokens)
        given_labels = np.where(rng.random(tokens) < 0.1, rng.integers(3, size=tokens), true)
        rows = rng.dirichlet(np.ones(3), size=tokens) + 1.5 * np.eye(3)[true]
        proba.append(rows / rows.sum(axis=1, keepdims=True))
        y.append([CLASSES[k] for k in given_labels])
        if missing:
            y[-1] = [None if rng.random() < 0.2 else label for label in y[-1]]
    y[0][0] = "a"
    return y, proba


@DRAWN
@given(st.integers(0, 10**6), st.integers(1, 10), st.sampled_from(["self_confidence", "margin"]))
def test_ranking_by_loops(seed, sequences, method):
    y, proba = draw(seed, sequences, missing=True)
    found = find_label_errors(y, proba, CLASSES, method=method)
    expected = []
    for b, (labels, rows) in enumerate(zip(y, proba, strict=True)):
        for t, (label, row) in enumerate(zip(labels, rows, strict=True)):
            if label is not None:
                own = row[CLASSES.index(label)]
                other = max(p for c, p in zip(CLASSES, row, strict=True) if c != label)
                quality = own if method == "self_confidence" else (own - other + 1) / 2
                expected.append((quality, b, t, label, CLASSES[int(row.argmax())]))
    expected.sort()
    names = (found.quality, found.sequence, found.token, found.given, found.suggested)
    assert list(zip(*names, strict=True)) == expected
    for b, worst in enumerate(found.sequence_quality):
        mine = [quality for quality, sequence, *_ in expected if sequence == b]
        assert np.isnan(worst) if not mine else worst == min(mine)
    ranked = [b for _, b in sorted((w, b) for b, w in enumerate(found.sequence_quality) if w == w)]
    assert found.worst_sequences.tolist() == ranked


@DRAWN
@given(st.integers(0, 10**6), st.integers(2, 10), st.sampled_from(["self_confidence", "margin"]))
def test_qualities_are_those_of_cleanlab(seed, sequences, method):
    y, proba = draw(seed, sequences)
    codes = [[CLASSES.index(label) for label in labels] for labels in y]
    theirs = {"self_confidence": "self_confidence", "margin": "normalized_margin"}[method]
    of_sentences, of_tokens = get_label_quality_scores(codes, proba, token_score_method=theirs)
    found = find_label_errors(y, proba, CLASSES, method=method)
    np.testing.assert_allclose(found.sequence_quality, of_sentences, atol=1e-12)
    for b, t, quality in zip(found.sequence, found.token, found.quality, strict=True):
        assert quality == pytest.approx(of_tokens[b].iloc[t], abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_flags_are_the_off_diagonal_of_cleanlab(seed):
    y, proba = draw(seed, 150)
    target = np.array([CLASSES.index(label) for labels in y for label in labels])
    table = np.concatenate(proba)
    thresholds = np.array([table[target == c, c].mean() for c in range(3)])
    # where the most probable label is not confident but two others are, cleanlab takes the former
    confident = table >= thresholds
    assert confident[np.arange(len(table)), table.argmax(1)][confident.sum(1) > 1].all()
    _, off_diagonal = compute_confident_joint(
        target, table, return_indices_of_off_diagonals=True, calibrate=False
    )
    found = find_label_errors(y, proba, CLASSES)
    starts = np.concatenate([[0], np.cumsum([len(labels) for labels in y])])
    rows = starts[found.sequence] + found.token
    assert sorted(rows[found.flagged].tolist()) == sorted(np.asarray(off_diagonal).tolist())
    assert found.count == len(off_diagonal) > 5


def test_equal_probabilities_reach_their_own_mean():
    found = find_label_errors([["a"]] * 7, [[[0.7, 0.2, 0.1]]] * 7, CLASSES)
    assert found.count == 0


def test_the_table_shows_words():
    y, proba = [["a", "b"]], [[[0.9, 0.1, 0.0], [0.95, 0.05, 0.0]]]
    found = find_label_errors(y, proba, CLASSES)
    assert found.table([["New", "York"]], top=1).splitlines()[1].split() == [
        *("0", "1", "b", "a", "0.0500", "yes", "York"),
    ]
    assert len(str(found).splitlines()) == 3


def test_bad_input_is_named():
    with pytest.raises(DataError, match=r"sequence 0, token 1 .*not among the classes"):
        find_label_errors([["a", "x"]], [[[1, 0, 0], [1, 0, 0]]], CLASSES)
    with pytest.raises(ValueError, match="method must be"):
        find_label_errors([["a"]], [[[1, 0, 0]]], CLASSES, method="entropy")
    with pytest.raises(DataError, match="no labelled token"):
        find_label_errors([[None]], [[[1, 0, 0]]], CLASSES)
