"""Probability scores and reliability curves against loops, scikit-learn and closed forms."""

import math
from itertools import pairwise

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve

from bayeseq.data.errors import DataError
from bayeseq.diagnostics import (
    brier,
    ece,
    ece_floor,
    log_loss,
    probability_scores,
    reliability,
    reliability_by_label,
)

DRAWN = settings(max_examples=40, deadline=None)
CLASSES = ["a", "b", "c"]


def draw_data(seed, sequences, longest=6, labels=(*CLASSES, "unknown", None)):
    """Ragged sequences, some of no token, with rows of probabilities that are true for nobody."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, longest + 1, size=sequences)
    lengths[0] = longest
    y_true = [[labels[k] for k in rng.integers(len(labels), size=t)] for t in lengths]
    y_true[0][0] = "a"  # at least one token to score
    return y_true, [rng.dirichlet([0.5] * 3, size=t) for t in lengths]


def draw_calibrated(rng, sequences, length, concentration=0.7):
    """Labels drawn from the stated probabilities."""
    proba = rng.dirichlet([concentration] * 3, size=(sequences, length))
    drawn = (proba.cumsum(axis=2) < rng.random((sequences, length, 1))).sum(axis=2)
    return [[CLASSES[k] for k in row] for row in drawn], list(proba)


def scored(y_true, proba):
    """The (label, row, number of sequence) of every token that counts."""
    return [
        (label, row, number)
        for number, (labels, rows) in enumerate(zip(y_true, proba, strict=True))
        for label, row in zip(labels, rows, strict=True)
        if label in CLASSES
    ]


def top_events(tokens):
    """Confidence of the most probable label, and whether it is the true one."""
    return [(max(row), CLASSES[list(row).index(max(row))] == label) for label, row, _ in tokens]


def loop_ece(events, edges):
    total = 0.0
    for low, high in pairwise(edges):
        inside = [(p, right) for p, right in events if (low < p or low == 0) and p <= high]
        if inside:
            confidence = sum(p for p, _ in inside) / len(inside)
            accuracy = sum(right for _, right in inside) / len(inside)
            total += len(inside) / len(events) * abs(accuracy - confidence)
    return total


seeds = st.integers(0, 10**6)
sizes = st.integers(1, 8)


# --- scores ---------------------------------------------------------------------------------


@DRAWN
@given(seeds, sizes)
def test_log_loss_and_brier_equal_loops_and_peers(seed, sequences):
    y_true, proba = draw_data(seed, sequences)
    tokens = scored(y_true, proba)
    loss = sum(-math.log(row[CLASSES.index(label)]) for label, row, _ in tokens) / len(tokens)
    squares = sum(
        (p - (name == label)) ** 2
        for label, row, _ in tokens
        for name, p in zip(CLASSES, row, strict=True)
    )
    assert log_loss(y_true, proba, CLASSES) == pytest.approx(loss, rel=1e-12)
    assert brier(y_true, proba, CLASSES) == pytest.approx(squares / len(tokens), rel=1e-12)

    labels, rows, _ = zip(*tokens, strict=True)
    peer = sklearn.metrics.log_loss(labels, np.array(rows), labels=CLASSES)
    assert log_loss(y_true, proba, CLASSES) == pytest.approx(peer, rel=1e-9)
    peer = sklearn.metrics.brier_score_loss(
        labels, np.array(rows), labels=CLASSES, scale_by_half=False
    )
    assert brier(y_true, proba, CLASSES) == pytest.approx(peer, rel=1e-9)


@DRAWN
@given(seeds, sizes, st.integers(1, 20))
def test_ece_equals_loop(seed, sequences, bins):
    y_true, proba = draw_data(seed, sequences)
    events = top_events(scored(y_true, proba))
    expected = loop_ece(events, np.linspace(0, 1, bins + 1))
    assert ece(y_true, proba, CLASSES, bins=bins) == pytest.approx(expected, abs=1e-12)

    inner = np.quantile([p for p, _ in events], np.linspace(0, 1, bins + 1))[1:-1]
    expected = loop_ece(events, [0, *inner, 1])
    adaptive = ece(y_true, proba, CLASSES, bins=bins, adaptive=True)
    assert adaptive == pytest.approx(expected, abs=1e-12)


def test_zero_probability_of_the_truth_is_an_infinite_loss():
    assert log_loss([["a"]], [[[0.0, 1.0, 0.0]]], CLASSES) == math.inf
    assert brier([["a"]], [[[0.0, 1.0, 0.0]]], CLASSES) == 2.0
    assert ece([["a"]], [[[0.0, 1.0, 0.0]]], CLASSES) == 1.0


def test_record_joins_the_functions_and_counts_what_is_left_out():
    y_true, proba = draw_data(3, sequences=30)
    flat = [label for labels in y_true for label in labels]
    scores = probability_scores(y_true, proba, CLASSES, bins=7, draws=5, random_state=4)
    assert scores.log_loss == log_loss(y_true, proba, CLASSES)
    assert scores.brier == brier(y_true, proba, CLASSES)
    assert scores.ece == ece(y_true, proba, CLASSES, bins=7)
    floor = ece_floor(y_true, proba, CLASSES, bins=7, draws=5, random_state=4)
    assert scores.ece_floor == floor
    assert scores.missing == flat.count(None) > 0
    assert scores.unknown == flat.count("unknown") > 0
    assert scores.tokens == len(flat) - scores.missing - scores.unknown


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.97])
def test_ece_floor_has_its_binomial_mean(confidence):
    # In one bin of n tokens with the same confidence the ECE is |Binomial(n, p) / n - p|.
    n, draws = 12, 4000
    row = [confidence, 1 - confidence, 0.0]
    hits = np.arange(n + 1)
    chance = scipy.stats.binom(n, confidence).pmf(hits)
    gap = np.abs(hits / n - confidence)
    mean = chance @ gap
    standard_error = math.sqrt((chance @ gap**2 - mean**2) / draws)
    floor = ece_floor([["a"] * n], [[row] * n], CLASSES, bins=1, draws=draws)
    assert abs(floor - mean) < 4 * standard_error


def test_true_probabilities_have_an_ece_near_the_floor_and_others_do_not():
    y_true, proba = draw_calibrated(np.random.default_rng(0), sequences=400, length=20)
    scores = probability_scores(y_true, proba, CLASSES)
    assert 0.5 < scores.ece / scores.ece_floor < 1.5
    sharp = [rows**3 / (rows**3).sum(axis=1, keepdims=True) for rows in proba]
    scores = probability_scores(y_true, sharp, CLASSES)
    assert scores.ece > 5 * scores.ece_floor


def test_same_seed_same_answer():
    y_true, proba = draw_data(5, sequences=10)
    first = ece_floor(y_true, proba, CLASSES, random_state=np.random.default_rng(7))
    assert first == ece_floor(y_true, proba, CLASSES, random_state=7)
    assert first != ece_floor(y_true, proba, CLASSES, random_state=8)
    one = reliability(y_true, proba, CLASSES, random_state=np.random.default_rng(7))
    two = reliability(y_true, proba, CLASSES, random_state=7)
    np.testing.assert_array_equal(one.lower, two.lower)
    np.testing.assert_array_equal(one.upper, two.upper)


# --- reliability curves ---------------------------------------------------------------------


@DRAWN
@given(seeds, sizes, st.integers(1, 20), st.sampled_from([None, *CLASSES]))
def test_curve_equals_loop(seed, sequences, bins, label):
    y_true, proba = draw_data(seed, sequences)
    tokens = scored(y_true, proba)
    if label is None:
        events = top_events(tokens)
    else:
        events = [(row[CLASSES.index(label)], true == label) for true, row, _ in tokens]
    curve = reliability(y_true, proba, CLASSES, label=label, bins=bins, bootstrap=20)
    assert curve.label == (label or "top label")
    assert curve.ece == pytest.approx(loop_ece(events, curve.edges), abs=1e-12)
    assert curve.counts.sum() == len(tokens)
    np.testing.assert_array_equal(curve.edges, np.linspace(0, 1, bins + 1))
    for k in range(bins):
        low, high = curve.edges[k], curve.edges[k + 1]
        inside = [(p, right) for p, right in events if (low < p or k == 0) and p <= high]
        assert curve.counts[k] == len(inside)
        if not inside:
            values = [curve.confidence, curve.accuracy, curve.lower, curve.upper]
            assert np.isnan([value[k] for value in values]).all()
            continue
        mean, share = np.mean(inside, axis=0)
        assert curve.confidence[k] == pytest.approx(mean, abs=1e-12)
        assert curve.accuracy[k] == pytest.approx(share, abs=1e-12)
        assert 0 <= curve.lower[k] <= curve.accuracy[k] <= curve.upper[k] <= 1


@pytest.mark.parametrize(("adaptive", "strategy"), [(False, "uniform"), (True, "quantile")])
def test_label_curve_equals_scikit_learn(adaptive, strategy):
    y_true, proba = draw_data(11, sequences=200)
    curve = reliability(y_true, proba, CLASSES, label="b", bins=8, adaptive=adaptive)
    labels, rows, _ = zip(*scored(y_true, proba), strict=True)
    peer_accuracy, peer_confidence = calibration_curve(
        [label == "b" for label in labels], np.array(rows)[:, 1], n_bins=8, strategy=strategy
    )
    np.testing.assert_allclose(curve.accuracy, peer_accuracy, rtol=1e-12)
    np.testing.assert_allclose(curve.confidence, peer_confidence, rtol=1e-12)
    if adaptive:
        assert np.ptp(curve.counts) <= 1


def test_adaptive_bins_merge_over_equal_confidences():
    rows = [[1.0, 0.0, 0.0]] * 18 + [[0.6, 0.4, 0.0], [0.7, 0.3, 0.0]]
    curve = reliability([["a"] * 20], [rows], CLASSES, bins=5, adaptive=True)
    assert (np.diff(curve.edges) > 0).all()
    assert curve.counts.sum() == 20
    assert not np.isnan(curve.accuracy).any()


def test_curves_by_label_equal_single_curves():
    y_true, proba = draw_data(12, sequences=30)
    settings = {"bins": 6, "adaptive": True, "bootstrap": 30, "level": 0.8, "random_state": 3}
    curves = reliability_by_label(y_true, proba, CLASSES, **settings)
    assert list(curves) == CLASSES
    for label, curve in curves.items():
        alone = reliability(y_true, proba, CLASSES, label=label, **settings)
        assert curve.label == label
        for name in ("edges", "confidence", "accuracy", "counts", "lower", "upper", "ece"):
            np.testing.assert_array_equal(getattr(curve, name), getattr(alone, name))
    chosen = reliability_by_label(y_true, proba, CLASSES, labels=["c", "a"])
    assert list(chosen) == ["c", "a"]


@pytest.mark.parametrize("right", [0, 1, 30, 39, 40])
def test_band_of_single_tokens_is_jeffreys_interval(right):
    # 40 sequences of one token, all with the same confidence: posterior Beta(k + 1/2, n - k + 1/2).
    n, draws, level = 40, 20_000, 0.9
    y_true = [["a"]] * right + [["b"]] * (n - right)
    curve = reliability(
        y_true, [[[0.7, 0.2, 0.1]]] * n, CLASSES, bins=1, bootstrap=draws, level=level
    )
    posterior = scipy.stats.beta(right + 0.5, n - right + 0.5)
    for found, tail in [(curve.lower[0], 0.05), (curve.upper[0], 0.95)]:
        exact = posterior.ppf(tail)
        # The band always holds the accuracy itself.
        exact = min(exact, right / n) if tail < 0.5 else max(exact, right / n)
        standard_error = math.sqrt(0.05 * 0.95 / draws) / posterior.pdf(posterior.ppf(tail))
        assert abs(found - exact) < 4 * standard_error


def test_band_is_wider_when_tokens_of_a_sequence_agree():
    rng = np.random.default_rng(0)
    outcome = rng.choice(["a", "b"], size=200, p=[0.7, 0.3])
    row = [0.7, 0.3, 0.0]
    alone = reliability(
        [[label] for label in outcome for _ in range(9)], [[row]] * 1800, CLASSES, bins=1
    )
    together = reliability([[label] * 9 for label in outcome], [[row] * 9] * 200, CLASSES, bins=1)
    ratio = (together.upper - together.lower) / (alone.upper - alone.lower)
    # Nine equal tokens are worth one: three times as wide, up to the noise of 200 draws.
    assert 2.4 < ratio[0] < 3.6


def test_bands_cover_the_diagonal_as_often_as_they_say():
    rng = np.random.default_rng(1)
    covered, bins = 0, 0
    for _ in range(100):
        y_true, proba = draw_calibrated(rng, sequences=100, length=8)
        curve = reliability(y_true, proba, CLASSES, bins=10, level=0.9, random_state=rng)
        full = curve.counts > 0
        inside = (curve.lower <= curve.confidence) & (curve.confidence <= curve.upper)
        covered += inside[full].sum()
        bins += full.sum()
    # About 700 nearly independent bins: a standard error of 0.011.
    assert abs(covered / bins - 0.9) < 0.04


def test_no_bootstrap_no_band():
    y_true, proba = draw_data(2, sequences=4)
    curve = reliability(y_true, proba, CLASSES, bootstrap=0)
    assert np.isnan(curve.lower).all()
    assert np.isnan(curve.upper).all()


# --- errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize("score", [log_loss, brier, ece, ece_floor, reliability])
@pytest.mark.parametrize(
    ("y_true", "proba", "classes", "message"),
    [
        ([["a"]], [], "ab", "proba has 0 sequences but y_true has 1"),
        ([["a"], ["a"]], [[[0.5, 0.5]], [[1, 0], [1, 0]]], "ab", "sequence 1 .* has 2 tokens"),
        ([["a"]], [[[0.5, 0.25, 0.25]]], "ab", r"sequence 0 .* shape \(1, 3\), not \(T, 2\)"),
        ([["a"]], [[0.5, 0.5]], "ab", r"sequence 0 .* shape \(2,\), not \(T, 2\)"),
        ([[], ["a", "b"]], [np.ones((0, 2)), [[1, 0], [-1, 2]]], "ab", "sequence 1, token 1"),
        ([["a"], ["b"]], [[[0.5, 0.5]], [[0.5, 0.6]]], "ab", "sequence 1, token 0 .* sum 1.1"),
        ([["a"]], [[[np.nan, 1]]], "ab", "sequence 0, token 0"),
        ([["a"]], [[[0.5, 0.5]]], "aa", "classes has 'a' more than once"),
        ([["x", None]], [[[0.5, 0.5]] * 2], "ab", "nothing to score"),
        ([], [], "ab", "nothing to score"),
        (["a"], [[[0.5, 0.5]]], "ab", "sequence 0 .* is the text 'a'"),
        ([[("a", "b")]], [[[0.5, 0.5]]], "ab", "sequence 0, token 0 .* scores need one label"),
    ],
)
def test_data_that_do_not_fit_are_named(score, y_true, proba, classes, message):
    with pytest.raises(DataError, match=message):
        score(y_true, proba, list(classes))


def test_options_out_of_range_are_named():
    data = [["a"]], [[[0.5, 0.5]]], ["a", "b"]
    with pytest.raises(ValueError, match="bins must be at least 1"):
        ece(*data, bins=0)
    with pytest.raises(ValueError, match="draws must be at least 1"):
        ece_floor(*data, draws=0)
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        reliability(*data, level=90)
    with pytest.raises(ValueError, match="bootstrap must be at least 0"):
        reliability(*data, bootstrap=-1)
    with pytest.raises(DataError, match="label 'x' is not among the classes"):
        reliability(*data, label="x")


def test_single_precision_and_lists_are_taken():
    y_true, proba = draw_data(9, sequences=20)
    single = [rows.astype(np.float32) for rows in proba]
    assert brier(y_true, single, CLASSES) == pytest.approx(brier(y_true, proba, CLASSES), rel=1e-5)
