"""Statistics of labels, against loops; checks against replicates whose distribution is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayeseq import DataError
from bayeseq.diagnostics.predictive import check_labels, label_statistics

TAGS = ["B-X", "B-Y", "I-X", "O"]
label = st.sampled_from([*TAGS, None])
corpora = st.lists(st.lists(label, min_size=1, max_size=6), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(corpora)
def test_statistics_are_counts(y):
    known = [a for row in y for a in row if a is not None]
    if not known:
        with pytest.raises(DataError, match="no label to count"):
            label_statistics(y, TAGS)
        return
    found = label_statistics(y, TAGS)
    pairs, whole, entities = [], 0, []
    for row in y:
        for t in range(len(row) - 1):
            if row[t] is not None and row[t + 1] is not None:
                pairs.append((row[t], row[t + 1]))
        if None in row:
            continue
        whole += 1
        t = 0
        while t < len(row):
            if row[t] == "O":
                t += 1
                continue
            kind, end = row[t][2:], t + 1
            while end < len(row) and row[end] == f"I-{kind}":
                end += 1
            entities.append((kind, end - t))
            t = end
    for a in TAGS:
        assert found[f"share of {a}"] == pytest.approx(known.count(a) / len(known))
        for b in TAGS:
            share = pairs.count((a, b)) / max(1, len(pairs))
            assert found[f"{a}, then {b}"] == pytest.approx(share)
    n = max(1, whole)
    for kind in "XY":
        assert found[f"{kind} entities"] == sum(k == kind for k, _ in entities) / n
    lengths = [length for _, length in entities]
    assert found["entities of 1 token"] == lengths.count(1) / n
    assert found["entities of 2 tokens"] == lengths.count(2) / n
    assert found["entities of 4 or more tokens"] == sum(k >= 4 for k in lengths) / n
    assert len(found) == 4 + 16 + 2 + 4


def test_labels_that_are_no_tags():
    assert set(label_statistics([["NOUN", "VERB"]])) == {
        "share of NOUN",
        "share of VERB",
        "NOUN, then NOUN",
        "NOUN, then VERB",
        "VERB, then NOUN",
        "VERB, then VERB",
    }


def test_p_values_of_replicates():
    """Labels drawn from the same distribution are in place, others are not."""
    rng = np.random.default_rng(0)

    def corpus(p):
        return [["AB"[int(k)] for k in rng.random(10) < p] for _ in range(20)]

    replicates = [corpus(0.3) for _ in range(100)]
    p_values = [check_labels(corpus(0.3), replicates).p_values[0] for _ in range(30)]
    assert abs(np.mean(p_values) - 0.5) < 4 * np.sqrt(1 / 12 / 30)
    odd = check_labels(corpus(0.5), replicates)
    assert odd.surprising[0].startswith("share of") or "then" in odd.surprising[0]
    assert odd.p_values[0] == 0.0
    observed, made_up = odd.of("share of A")
    assert made_up.mean() == pytest.approx(0.7, abs=0.01)
    assert odd.lower[0] < made_up.mean() < odd.upper[0] < 1
    assert observed < odd.lower[0]


def test_p_values_by_hand():
    y = [["A", "B"]]
    replicates = [[["A", "A"]], [["A", "B"]], [["B", "B"]], [["B", "B"]]]
    found = check_labels(y, replicates, statistics={"As": lambda y: sum(r.count("A") for r in y)})
    assert found.replicated[:, 0].tolist() == [2, 1, 0, 0]
    assert found.p_values[0] == pytest.approx(2 * (1 / 4 + 1 / 8))
    assert "posterior predictive check" in str(found)
    assert "0 of 1 statistics" in found.table()


def test_missing_labels_are_missing_in_replicates():
    found = check_labels([["A", None, "B"]], [[["A", "A", "A"]], [["B", "B", "B"]]])
    assert found.of("share of A") == (0.5, pytest.approx([1.0, 0.0]))
    assert found.of("A, then A")[1].tolist() == [0.0, 0.0]


def test_mistakes():
    with pytest.raises(DataError, match="no replicate"):
        check_labels([["A"]], [])
    with pytest.raises(DataError, match="replicate 1 "):
        check_labels([["A"]], [[["A"]], [["A", "A"]]])
    with pytest.raises(KeyError, match="none of the statistics"):
        check_labels([["A"]], [[["A"]]]).of("share of Z")
    with pytest.raises(ValueError, match="level"):
        _ = check_labels([["A"]], [[["A"]]], level=2).lower
