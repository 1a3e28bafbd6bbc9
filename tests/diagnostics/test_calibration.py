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
    brier_decomposition,
    calibration_error,
    ece,
    ece_floor,
    entity_reliability,
    log_loss,
    probability_scores,
    reliability,
    reliability_by_label,
    sharpness,
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


# --- without noise --------------------------------------------------------------------------


@DRAWN
@given(seeds, st.integers(2, 8), st.integers(1, 6), st.booleans())
def test_squared_calibration_error_is_the_mean_over_pairs_of_sequences(seed, sizes, bins, adaptive):
    y_true, proba = draw_data(seed, sizes)
    y_true[1], proba[1] = ["b", "c"], proba[0][:2]
    found = calibration_error(y_true, proba, CLASSES, squared=True, bins=bins, adaptive=adaptive)
    tokens = scored(y_true, proba)
    edges = reliability(y_true, proba, CLASSES, bins=bins, adaptive=adaptive, bootstrap=0).edges
    total, weight = 0.0, 0
    for low, high in pairwise(edges):
        inside = [
            ((CLASSES[int(np.argmax(row))] == label) - max(row), number)
            for label, row, number in tokens
            if (low < max(row) or low == 0) and max(row) <= high
        ]
        products = [d * e for d, i in inside for e, j in inside if i != j]
        if products:
            total += len(inside) * sum(products) / len(products)
            weight += len(inside)
    assert found == pytest.approx(total / weight, abs=1e-12)
    root = calibration_error(y_true, proba, CLASSES, bins=bins, adaptive=adaptive)
    assert root == pytest.approx(math.sqrt(max(total / weight, 0)), abs=1e-9)


def test_perfect_probabilities_have_no_calibration_error_but_an_ece():
    """Means over 300 small samples, dependent within sentences: all tokens of a sentence are right
    or wrong together, which is the worst case for an estimator that counts tokens."""
    rng = np.random.default_rng(5)
    squared, plain, by_tokens = [], [], []
    for _ in range(300):
        p = rng.uniform(0.5, 1, size=30)
        right = rng.random(30) < p
        y_true = [["a" if r else "b"] * 4 for r in right]
        proba = [np.tile([q, 1 - q, 0.0], (4, 1)) for q in p]
        squared.append(calibration_error(y_true, proba, CLASSES, squared=True, bins=5))
        plain.append(ece(y_true, proba, CLASSES, bins=5) ** 2)
        apart = ([[label] for row in y_true for label in row], [r[None] for q in proba for r in q])
        by_tokens.append(calibration_error(*apart, CLASSES, squared=True, bins=5))
    noise = np.std(squared, ddof=1) / math.sqrt(300)
    assert abs(np.mean(squared)) < 3 * noise < 0.004
    assert np.mean(plain) > 0.01
    assert np.mean(by_tokens) > 0.01  # sentences taken for independent tokens: noise remains


def test_a_known_miscalibration_is_found():
    """Confidence 0.9, accuracy 0.7: a squared error of 0.04."""
    rng = np.random.default_rng(6)
    proba = [np.array([[0.9, 0.1, 0.0]])] * 50
    found = [
        calibration_error(
            [["a" if r else "b"] for r in rng.random(50) < 0.7], proba, CLASSES, squared=True
        )
        for _ in range(400)
    ]
    assert np.mean(found) == pytest.approx(0.04, abs=3 * np.std(found) / 20)


def test_one_sequence_alone_has_no_debiased_error():
    assert math.isnan(calibration_error([["a", "b"]], [[[1, 0, 0], [0, 1, 0]]], CLASSES))


def test_calibrated_probabilities_have_the_brier_score_that_their_sharpness_says():
    y_true, proba = draw_calibrated(np.random.default_rng(8), 4000, 3)
    assert brier(y_true, proba, CLASSES) == pytest.approx(1 - sharpness(proba), abs=0.01)
    with pytest.raises(DataError, match="no token"):
        sharpness([])


# --- the Brier score in parts ---------------------------------------------------------------


@DRAWN
@given(seeds, sizes, st.integers(1, 9), st.booleans())
def test_the_parts_of_the_brier_score_by_loops(seed, sequences, bins, adaptive):
    y_true, proba = draw_data(seed, sequences)
    tokens, options = scored(y_true, proba), {"bins": bins, "adaptive": adaptive}
    sums = dict.fromkeys(("reliability", "resolution", "uncertainty"), 0.0)
    for c, label in enumerate(CLASSES):
        base = sum(true == label for true, *_ in tokens) / len(tokens)
        part = brier_decomposition(y_true, proba, CLASSES, label=label, **options)
        curve = reliability(y_true, proba, CLASSES, label=label, bootstrap=0, **options)
        full = curve.counts > 0
        share = curve.counts[full] / len(tokens)
        expected = {
            "reliability": share @ (curve.confidence[full] - curve.accuracy[full]) ** 2,
            "resolution": share @ (curve.accuracy[full] - base) ** 2,
            "uncertainty": base * (1 - base),
        }
        for name, value in expected.items():
            assert getattr(part, name) == pytest.approx(value, abs=1e-12)
            sums[name] += value
        mine = sum((row[c] - (true == label)) ** 2 for true, row, _ in tokens) / len(tokens)
        assert part.score == pytest.approx(mine, abs=1e-12)
        assert identity(part) == pytest.approx(mine, abs=1e-12)
    whole = brier_decomposition(y_true, proba, CLASSES, **options)
    for name, value in sums.items():
        assert getattr(whole, name) == pytest.approx(value, abs=1e-12)
    assert whole.score == pytest.approx(brier(y_true, proba, CLASSES), abs=1e-12)
    assert identity(whole) == pytest.approx(whole.score, abs=1e-12)


def identity(parts):
    within = parts.within_bin_variance - parts.within_bin_covariance
    return parts.reliability - parts.resolution + parts.uncertainty + within


def test_forecasts_that_are_equal_within_bins_have_no_part_within():
    proba = [np.array([[0.3, 0.7, 0], [0.3, 0.7, 0], [0.9, 0.1, 0]])]
    parts = brier_decomposition([["a", "b", "a"]], proba, CLASSES, bins=10)
    assert parts.within_bin_variance == pytest.approx(0, abs=1e-15)
    assert parts.within_bin_covariance == pytest.approx(0, abs=1e-15)


# --- without O, and of entities -------------------------------------------------------------


@DRAWN
@given(seeds, sizes)
def test_excluded_predictions_are_left_out(seed, sequences):
    y_true, proba = draw_data(seed, sequences)
    proba[0][0] = [0.2, 0.5, 0.3]
    kept = [
        [label if np.argmax(row) != 0 else None for label, row in zip(labels, rows, strict=True)]
        for labels, rows in zip(y_true, proba, strict=True)
    ]
    for measure in (ece, ece_floor):
        assert measure(y_true, proba, CLASSES, exclude=("a",)) == measure(kept, proba, CLASSES)
    np.testing.assert_equal(
        calibration_error(y_true, proba, CLASSES, exclude=("a",)),
        calibration_error(kept, proba, CLASSES),
    )
    ours = reliability(y_true, proba, CLASSES, exclude=("a",))
    theirs = reliability(kept, proba, CLASSES)
    for name in ("confidence", "accuracy", "counts", "lower", "upper"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))


def test_leaving_out_by_prediction_keeps_perfect_probabilities_perfect():
    y_true, proba = draw_calibrated(np.random.default_rng(9), 3000, 3)
    assert calibration_error(y_true, proba, CLASSES, exclude=("a",)) < 0.02


def test_exclusions_are_checked():
    with pytest.raises(DataError, match="'O' is not among the classes"):
        ece([["a"]], [[[1, 0, 0]]], CLASSES, exclude=("O",))
    with pytest.raises(ValueError, match=r"\('a',\)"):
        ece([["a"]], [[[1, 0, 0]]], CLASSES, exclude="a")
    with pytest.raises(DataError, match="not excluded"):
        ece([["a"]], [[[1, 0, 0]]], CLASSES, exclude=("a",))


def test_entities_are_right_when_the_truth_has_them():
    y_true = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-PER"]]
    entities = [
        [(0, 2, "PER", 0.95), (3, 4, "PER", 0.6), (0, 1, "PER", 0.05)],
        [(1, 2, "PER", 0.65), (0, 1, "LOC", 0.15)],
    ]
    curve = entity_reliability(y_true, entities, bins=5, bootstrap=20)
    np.testing.assert_allclose(curve.confidence, [0.1, np.nan, 0.6, 0.65, 0.95])
    np.testing.assert_array_equal(curve.accuracy, [0, np.nan, 0, 1, 1])
    np.testing.assert_array_equal(curve.counts, [2, 0, 1, 1, 1])
    assert curve.label == "entities"
    assert (curve.lower <= curve.upper)[curve.counts > 0].all()
    only = entity_reliability(y_true, entities, label="LOC", bins=1, bootstrap=0)
    assert (only.label, only.counts.tolist(), only.accuracy.tolist()) == ("LOC", [1], [0.0])


def test_bad_entities_are_named():
    with pytest.raises(DataError, match="no entity was predicted of type 'ORG'"):
        entity_reliability([["O"]], [[(0, 1, "PER", 0.5)]], label="ORG")
    with pytest.raises(DataError, match=r"sequence 0 .* no probability"):
        entity_reliability([["O"]], [[(0, 1, "PER", -2.0)]])
    with pytest.raises(DataError, match="entities has 1 sequences but y_true has 2"):
        entity_reliability([["O"], ["O"]], [[(0, 1, "PER", 0.5)]])
    with pytest.raises(DataError, match="sequence 0, token 0"):
        entity_reliability([[None]], [[(0, 1, "PER", 0.5)]])
