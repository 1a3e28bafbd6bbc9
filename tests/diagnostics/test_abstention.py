"""Risk and coverage against every possible order of tiny cases, and against loops."""

import math
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayeseq.data.errors import DataError
from bayeseq.diagnostics import abstention, risk_coverage, token_error

DRAWN = settings(max_examples=40, deadline=None)
CLASSES = ["a", "b"]


def from_cases(cases):
    """One sequence a case: tokens with the given confidence in "a", right or wrong."""
    y_true = [["b" if wrong else "a"] for _, wrong in cases]
    return y_true, [[[0.9, 0.1]]] * len(cases), [[trust] for trust, _ in cases]


def orders(cases):
    """All orders of falling confidence, each with the list of its errors."""
    for order in permutations(cases):
        if all(left[0] >= right[0] for left, right in pairwise(order)):
            yield [wrong for _, wrong in order]


def risks(errors):
    return [sum(errors[:k]) / k for k in range(1, len(errors) + 1)]


# Few distinct confidences, so that ties are common.
tiny = st.lists(st.tuples(st.sampled_from([0.2, 0.5, 0.9]), st.booleans()), min_size=1, max_size=6)


@DRAWN
@given(tiny)
def test_every_number_is_the_mean_over_all_orders_of_ties(cases):
    y_true, proba, confidence = from_cases(cases)
    curve = risk_coverage(y_true, proba, CLASSES, confidence=confidence, bootstrap=0)
    expected = np.mean([risks(errors) for errors in orders(cases)], axis=0)
    n = len(cases)
    for k in range(1, n + 1):
        assert curve.at_coverage(k / n) == pytest.approx(expected[k - 1], abs=1e-12)
    assert curve.aurc == pytest.approx(expected.mean(), abs=1e-12)
    best = min(np.mean(risks(errors)) for errors in permutations([w for _, w in cases]))
    assert curve.aurc_oracle == pytest.approx(best, abs=1e-12)
    assert curve.excess_aurc == curve.aurc - curve.aurc_oracle
    assert curve.error == pytest.approx(expected[-1])
    assert curve.total == n


@DRAWN
@given(tiny)
def test_thresholds_keep_what_they_say(cases):
    y_true, proba, confidence = from_cases(cases)
    curve = risk_coverage(y_true, proba, CLASSES, confidence=confidence, bootstrap=0)
    assert list(curve.threshold) == sorted({trust for trust, _ in cases}, reverse=True)
    for k, threshold in enumerate(curve.threshold):
        kept = [wrong for trust, wrong in cases if trust >= threshold]
        assert curve.coverage[k] == pytest.approx(len(kept) / len(cases))
        assert curve.risk[k] == pytest.approx(sum(kept) / len(kept))
    for risk in (0.0, 0.3, 0.5, 1.0):
        threshold = math.inf
        for candidate in {trust for trust, _ in cases}:
            kept = [wrong for trust, wrong in cases if trust >= candidate]
            if sum(kept) / len(kept) <= risk:
                threshold = min(threshold, candidate)
        assert curve.threshold_for_risk(risk) == threshold


def test_oracle_risk_is_the_best_order():
    cases = [(0.9, True), (0.8, False), (0.7, False), (0.6, True), (0.5, False)]
    y_true, proba, confidence = from_cases(cases)
    curve = risk_coverage(y_true, proba, CLASSES, confidence=confidence, bootstrap=0)
    best = risks([False, False, False, True, True])
    np.testing.assert_allclose(curve.oracle_risk(np.arange(1, 6) / 5), best, atol=1e-15)


def test_perfect_ranking_reaches_the_oracle_and_none_the_error():
    y_true = [["a", "b"], ["a", "a"]]
    proba = [[[0.9, 0.1], [0.6, 0.4]], [[0.8, 0.2], [0.7, 0.3]]]
    curve = risk_coverage(y_true, proba, CLASSES)
    assert curve.aurc == curve.aurc_oracle == pytest.approx(1 / 16)
    flat = risk_coverage(y_true, proba, CLASSES, confidence=[[1, 1], [1, 1]])
    assert flat.aurc == flat.at_coverage(0.3) == pytest.approx(flat.error)


def draw_data(seed, sequences, longest=5, labels=("a", "b", "unknown", None), digits=1):
    """With one digit, many tokens have the same probabilities."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, longest + 1, size=sequences)
    lengths[:2] = longest
    y_true = [[labels[k] for k in rng.integers(len(labels), size=t)] for t in lengths]
    y_true[0][0], y_true[1][0] = "a", "b"
    proba = [np.round(rng.dirichlet([1, 1], size=t), digits) for t in lengths]
    y_pred = [[CLASSES[k] for k in rng.integers(2, size=t)] for t in lengths]
    return y_true, proba, y_pred


@DRAWN
@given(st.integers(0, 10**6), st.integers(2, 8), st.booleans())
def test_token_cases_equal_loop(seed, sequences, given_answers):
    y_true, proba, y_pred = draw_data(seed, sequences)
    if not given_answers:
        y_pred = [[CLASSES[int(row[1] > row[0])] for row in rows] for rows in proba]
    curve = risk_coverage(
        y_true, proba, CLASSES, y_pred=y_pred if given_answers else None, bootstrap=0
    )
    assert curve.unit == "token"
    assert curve.error == pytest.approx(token_error(y_true, y_pred))
    cases = [
        (row[CLASSES.index(pred)], true != pred)
        for truth, guess, rows in zip(y_true, y_pred, proba, strict=True)
        for true, pred, row in zip(truth, guess, rows, strict=True)
        if true is not None
    ]
    again = risk_coverage(
        *from_cases(cases)[:2], CLASSES, confidence=from_cases(cases)[2], bootstrap=0
    )
    np.testing.assert_array_equal(curve.threshold, again.threshold)
    np.testing.assert_array_equal(curve.risk, again.risk)
    np.testing.assert_array_equal(curve.coverage, again.coverage)


@DRAWN
@given(st.integers(0, 10**6), st.integers(2, 8), st.booleans())
def test_sequence_cases_equal_loop(seed, sequences, given_confidence):
    y_true, proba, y_pred = draw_data(seed, sequences, digits=12)
    own = np.random.default_rng(seed).random(sequences)
    curve = risk_coverage(
        y_true,
        proba,
        CLASSES,
        y_pred=y_pred,
        unit="sequence",
        confidence=own if given_confidence else None,
        bootstrap=0,
    )
    cases = []
    for number, (truth, guess, rows) in enumerate(zip(y_true, y_pred, proba, strict=True)):
        if all(label is None for label in truth):
            continue
        wrong = any(t is not None and t != p for t, p in zip(truth, guess, strict=True))
        logs = [math.log(r[CLASSES.index(p)]) for p, r in zip(guess, rows, strict=True)]
        cases.append((own[number] if given_confidence else sum(logs) / len(logs), wrong))
    cases.sort(reverse=True)
    assert curve.unit == "sequence"
    assert curve.total == len(cases)
    assert curve.error == pytest.approx(np.mean([wrong for _, wrong in cases]))
    for threshold, coverage, risk in zip(curve.threshold, curve.coverage, curve.risk, strict=True):
        kept = [wrong for trust, wrong in cases if trust >= threshold - 1e-9]
        assert coverage == pytest.approx(len(kept) / len(cases))
        assert risk == pytest.approx(np.mean(kept))


def test_ruled_out_answer_is_trusted_least():
    proba = [[[1.0, 0.0]], [[0.5, 0.5]]]
    curve = risk_coverage([["a"], ["a"]], proba, CLASSES, y_pred=[["b"], ["a"]], unit="sequence")
    assert curve.threshold[-1] == -math.inf
    assert list(curve.risk) == [0.0, 0.5]


# --- bands ----------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 6))
def test_band_equals_loop_over_weighted_sequences(seed, sequences):
    labels = ("a", "b")
    y_true, proba, _ = draw_data(seed, sequences, longest=3, labels=labels)
    keep = [number for number, truth in enumerate(y_true) if truth]
    y_true, proba = [y_true[n] for n in keep], [proba[n] for n in keep]
    draws = 30
    curve = risk_coverage(y_true, proba, CLASSES, bootstrap=draws, level=0.8, random_state=seed)
    weights = np.random.default_rng(seed).standard_exponential((draws, len(y_true)))
    samples = [
        [weighted_risk(y_true, proba, row, coverage) for coverage in curve.band_coverage]
        for row in weights
    ]
    np.testing.assert_allclose(curve.lower, np.quantile(samples, 0.1, axis=0), atol=1e-12)
    np.testing.assert_allclose(curve.upper, np.quantile(samples, 0.9, axis=0), atol=1e-12)


def weighted_risk(y_true, proba, weights, coverage):
    """Fill the wanted coverage from the surest tokens down; a level of ties is taken in part."""
    tokens = [
        (max(row), CLASSES[int(row[1] > row[0])] != true, weight)
        for truth, rows, weight in zip(y_true, proba, weights, strict=True)
        for true, row in zip(truth, rows, strict=True)
    ]
    left = wanted = coverage * sum(weight for *_, weight in tokens)
    errors = 0.0
    for level in sorted({trust for trust, *_ in tokens}, reverse=True):
        tied = [(wrong, weight) for trust, wrong, weight in tokens if trust == level]
        total = sum(weight for _, weight in tied)
        part = min(1.0, left / total)
        errors += part * sum(weight for wrong, weight in tied if wrong)
        left -= part * total
        if left <= 0:
            break
    return errors / wanted


def draw_many(sequences=300, length=10):
    rng = np.random.default_rng(0)
    top = rng.uniform(0.5, 1, size=(sequences, length))
    proba = list(np.stack([top, 1 - top], axis=2))
    return [
        [CLASSES[int(u > p)] for u, p in zip(rng.random(length), row, strict=True)] for row in top
    ], proba


def test_many_cases_share_steps_with_little_loss(monkeypatch):
    y_true, proba = draw_many()
    rough = risk_coverage(y_true, proba, CLASSES)
    monkeypatch.setattr(abstention, "BAND_STEPS", 10**6)
    exact = risk_coverage(y_true, proba, CLASSES)
    # A step holds three tokens of the 60 and more that are kept.
    np.testing.assert_allclose(rough.lower, exact.lower, atol=2e-3)
    np.testing.assert_allclose(rough.upper, exact.upper, atol=2e-3)
    np.testing.assert_array_equal(rough.risk, exact.risk)


def test_band_holds_the_curve_and_knows_its_limits():
    y_true, proba = draw_many()
    curve = risk_coverage(y_true, proba, CLASSES)
    observed = np.array([curve.at_coverage(coverage) for coverage in curve.band_coverage])
    assert (curve.lower <= observed).all()
    assert (observed <= curve.upper).all()
    for record in (
        risk_coverage(y_true[:1], proba[:1], CLASSES),
        risk_coverage(y_true, proba, CLASSES, bootstrap=0),
    ):
        assert np.isnan(record.lower).all()
        assert np.isnan(record.upper).all()
    wide = risk_coverage(y_true, proba, CLASSES, level=0.99)
    assert (wide.lower <= curve.lower).all()
    assert (wide.upper >= curve.upper).all()


# --- errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unit": "entity"}, "unit must be"),
        ({"confidence": [[1.0]]}, "confidence has 1 sequences but y_true has 2"),
        ({"confidence": [[1.0], [1.0]]}, "confidence: sequence 1 .* has 1 tokens"),
        ({"confidence": [[1.0], [1.0, np.nan]]}, "confidence: sequence 1, token 1 .* is NaN"),
        ({"unit": "sequence", "confidence": [1.0]}, r"shape \(1,\); .* each of the 2 sequences"),
        ({"unit": "sequence", "confidence": [1.0, np.nan]}, "sequence 1 .* NaN"),
        ({"y_pred": [["a"], ["a", "x"]]}, "y_pred: sequence 1, token 1 .* not among the classes"),
        ({"y_pred": [["a"], ["a"]]}, "y_pred: sequence 1 .* has 1 tokens"),
        ({"level": 1.0}, "level must lie between 0 and 1"),
    ],
)
def test_what_does_not_fit_is_named(options, message):
    proba = [[[0.9, 0.1]], [[0.8, 0.2], [0.7, 0.3]]]
    with pytest.raises(ValueError, match=message):
        risk_coverage([["a"], ["b", "a"]], proba, CLASSES, **options)


def test_nothing_to_score_and_coverage_out_of_range():
    for unit in ("token", "sequence"):
        with pytest.raises(DataError, match="nothing to score"):
            risk_coverage([[None]], [[[0.9, 0.1]]], CLASSES, unit=unit)
    curve = risk_coverage([["a"]], [[[0.9, 0.1]]], CLASSES)
    for coverage in (0, -0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="coverage must be above 0"):
            curve.at_coverage(coverage)


def test_precision_and_recall_by_threshold():
    """Counted case by case, as a user with a threshold would."""
    rng = np.random.default_rng(3)
    p = rng.integers(1, 10, size=60) / 10
    proba = [np.stack([p, 1 - p], 1)]
    truth = ["A" if u < q else "B" for u, q in zip(rng.random(60), p, strict=True)]
    curve = risk_coverage([truth], proba, ["A", "B"], bootstrap=0)
    trust = np.maximum(p, 1 - p)
    right = [label == ("A" if q >= 0.5 else "B") for label, q in zip(truth, p, strict=True)]
    for k, threshold in enumerate(curve.threshold):
        kept = [good for good, t in zip(right, trust, strict=True) if t >= threshold]
        assert curve.precision[k] == pytest.approx(sum(kept) / len(kept))
        assert curve.recall[k] == pytest.approx(sum(kept) / sum(right))
        share, error = curve.at_threshold(threshold)
        assert share == pytest.approx(len(kept) / 60)
        assert error == pytest.approx(1 - sum(kept) / len(kept))
    assert curve.at_threshold(1.01) == (0.0, 0.0)
    assert curve.at_threshold(0.0) == pytest.approx((1.0, curve.error))
    none = risk_coverage([["B"]], [[[0.9, 0.1]]], ["A", "B"], bootstrap=0)
    assert none.recall.tolist() == [1.0]
