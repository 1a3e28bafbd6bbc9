"""Review budgets against loops over shuffled cases, and against what labels drawn later say."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayeseq.data.errors import DataError
from bayeseq.diagnostics import entity_review_budget, review_budget, risk_coverage

DRAWN = settings(max_examples=40, deadline=None)
CLASSES = ["a", "b", "c"]
seeds = st.integers(0, 10**6)


def draw(seed, sequences, ties=False):
    """Ragged sequences with labels drawn from the probabilities."""
    rng = np.random.default_rng(seed)
    proba = [rng.dirichlet(np.ones(3), size=rng.integers(1, 7)) for _ in range(sequences)]
    if ties:
        proba = [np.eye(3)[p.argmax(1)] * 0.4 + 0.2 for p in proba]
    y = [[CLASSES[rng.choice(3, p=row)] for row in p] for p in proba]
    return y, proba


def loop_budget(cases, share):
    """Read `share` of (confidence, error) cases, the least confident first; ties by averages."""
    cases = sorted(cases)
    left = share * len(cases)
    found = 0.0
    for confidence in sorted({c for c, _ in cases}):
        tied = [error for c, error in cases if c == confidence]
        taken = min(left, len(tied))
        found += taken * sum(tied) / len(tied)
        left -= taken
    rest = (1 - share) * len(cases)
    return found, (sum(error for _, error in cases) - found) / rest


@DRAWN
@given(seeds, st.integers(1, 6), st.booleans(), st.booleans())
def test_budgets_of_tokens_by_loops(seed, sequences, ties, labelled):
    y, proba = draw(seed, sequences, ties)
    budget = [0.0, 0.1, 0.25, 0.5, 0.99]
    found = review_budget(y if labelled else None, proba, CLASSES, budget=budget, bootstrap=5)
    cases = [
        (row.max(), float(CLASSES[row.argmax()] != label) if labelled else 1 - row.max())
        for labels, p in zip(y, proba, strict=True)
        for label, row in zip(labels, p, strict=True)
    ]
    expected = np.array([loop_budget(cases, share) for share in budget])
    np.testing.assert_allclose(found.errors_found, expected[:, 0], atol=1e-9)
    np.testing.assert_allclose(found.error_left, expected[:, 1], atol=1e-9)
    assert found.error == pytest.approx(np.mean([error for _, error in cases]))
    assert found.total == len(cases)
    assert found.labelled == labelled
    assert np.isnan(found.lower).all() == (not labelled or sequences == 1)


def test_the_rest_is_what_risk_coverage_keeps():
    y, proba = draw(3, 50)
    for unit in ("token", "sequence"):
        found = review_budget(y, proba, CLASSES, unit=unit, budget=[0.1, 0.4])
        curve = risk_coverage(y, proba, CLASSES, unit=unit)
        for share, error in zip(found.share, found.error_left, strict=True):
            assert error == pytest.approx(curve.at_coverage(1 - share))
        at = np.searchsorted(curve.band_coverage, [0.9, 0.6])
        np.testing.assert_allclose(curve.band_coverage[at], [0.9, 0.6])
        np.testing.assert_allclose(found.lower, curve.lower[at], atol=1e-9)
        np.testing.assert_allclose(found.upper, curve.upper[at], atol=1e-9)


def test_a_plan_without_labels_comes_true_where_probabilities_are_perfect():
    y, proba = draw(4, 3000)
    plan, real = (review_budget(labels, proba, CLASSES) for labels in (None, y))
    se = np.sqrt(real.error_left * (1 - real.error_left) / (real.total * (1 - real.share)))
    assert (np.abs(plan.error_left - real.error_left) < 3 * se).all()
    assert (np.diff(plan.error_left) < 0).all()


def test_sequences_need_the_probability_of_the_whole_answer():
    _, proba = draw(5, 4)
    whole = [0.9, 0.5, 0.4, 0.8]
    options = {"unit": "sequence", "sequence_proba": whole, "confidence": whole}
    found = review_budget(None, proba, CLASSES, budget=[0.0, 0.25, 0.5], **options)
    np.testing.assert_allclose(found.errors_found, [0, 0.6, 1.1])
    np.testing.assert_allclose(found.error_left, [1.4 / 4, 0.8 / 3, 0.3 / 2])
    np.testing.assert_allclose(found.threshold, [0.4, 0.5, 0.8])
    with pytest.raises(ValueError, match=r"predict_nbest\(X, 1\)"):
        review_budget(None, proba, CLASSES, unit="sequence")
    with pytest.raises(DataError, match="each of the 4 sequences"):
        review_budget(None, proba, CLASSES, unit="sequence", sequence_proba=[0.5])


def test_entities_are_read_from_the_least_probable_on():
    y = [["B-PER", "O", "B-LOC"], ["O", "B-PER", "I-PER"]]
    entities = [[(0, 1, "PER", 0.9), (2, 3, "PER", 0.4)], [(1, 3, "PER", 0.3)]]
    found = entity_review_budget(y, entities, budget=[0, 1 / 3, 2 / 3])
    np.testing.assert_allclose(found.errors_found, [0, 0, 1], atol=1e-12)
    np.testing.assert_allclose(found.error_left, [1 / 3, 1 / 2, 0], atol=1e-12)
    plan = entity_review_budget(None, entities, budget=[1 / 3])
    np.testing.assert_allclose(plan.error_left, [(0.1 + 0.6) / 2])
    assert (found.unit, plan.labelled) == ("entity", False)


def test_questions_the_other_way_round():
    y, proba = [["a"]] * 9 + [["b"]], [[[0.9, 0.1, 0]]] * 9 + [[[0.6, 0.4, 0]]]
    found = review_budget(y, proba, CLASSES)
    assert found.share_for_error(0.05) == 0.1
    assert found.share_for_error(0.1) == 0
    assert found.share_for_error(-1) == np.inf
    np.testing.assert_allclose(found.found_share, np.minimum(found.share * 10, 1), atol=1e-9)
    perfect = review_budget([["a"]], [[[1.0, 0, 0]]], CLASSES)
    assert (perfect.found_share == 1).all()


def test_the_table_says_where_errors_come_from():
    y, proba = draw(6, 20)
    real = review_budget(y, proba, CLASSES, budget=[0.05])
    lines = str(real).splitlines()
    assert lines[0] == f"errors counted, {real.total} tokens"
    assert lines[1].endswith("90% band")
    assert "own probabilities" in review_budget(None, proba, CLASSES).table()


def test_bad_budgets_are_refused():
    for budget in ([1.0], [-0.1], [np.nan], 0.5):
        with pytest.raises(ValueError, match="at least 0 and below 1"):
            review_budget([["a"]], [[[1.0, 0, 0]]], CLASSES, budget=budget)
    with pytest.raises(ValueError, match="entity_review_budget"):
        review_budget([["a"]], [[[1.0, 0, 0]]], CLASSES, unit="entity")
    with pytest.raises(ValueError, match="leave one of them out"):
        review_budget([["a"]], [[[1.0, 0, 0]]], CLASSES, sequence_proba=[1.0])
