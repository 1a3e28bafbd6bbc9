"""Conformal sets against loops, crepes, and their promise on simulated dependent tokens."""

import numpy as np
import pytest
from crepes import ConformalClassifier
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, betabinom

from bayeseq.data.errors import DataError
from bayeseq.diagnostics import calibrate_sets, conformal_threshold, score_sets

DRAWN = settings(max_examples=40, deadline=None)
CLASSES = ["a", "b", "c", "d"]


def draw_sentences(rng, sentences, longest=8, shift=0.0):
    """Sentences whose tokens depend on each other: all share a difficulty, and the model's
    probabilities are wrong, too sure by a factor of two."""
    y, proba = [], []
    for _ in range(sentences):
        tokens = int(rng.integers(1, longest + 1))
        hard = rng.normal() + shift
        logits = 2 * rng.normal(size=(tokens, 4))
        true = logits * np.exp(-0.5 * hard) + 0.5 * rng.gumbel(size=(tokens, 4))
        y.append([CLASSES[k] for k in true.argmax(axis=1)])
        unnormalised = np.exp(2 * logits)
        proba.append(unnormalised / unnormalised.sum(axis=1, keepdims=True))
    return y, proba


def loop_threshold(scores, alpha, guarantee):
    """The least candidate threshold whose bound on the risk is at most alpha."""
    rows = [[s for s in row if not np.isnan(s)] for row in scores]
    rows = [row for row in rows if row]
    for candidate in sorted({s for row in rows for s in row}):
        missed = 0.0
        for row in rows:
            wrong = [s > candidate for s in row]
            missed += any(wrong) if guarantee == "sentence" else sum(wrong) / len(wrong)
        if (missed + 1) / (len(rows) + 1) <= alpha + 1e-9:
            return candidate
    return np.inf


@DRAWN
@given(
    st.integers(0, 10**6),
    st.integers(1, 30),
    st.sampled_from([0.05, 0.1, 0.25, 0.5, 0.9]),
    st.sampled_from(["token", "sentence"]),
    st.booleans(),
)
def test_threshold_is_the_least_that_keeps_the_risk(seed, sentences, alpha, guarantee, ties):
    rng = np.random.default_rng(seed)
    scores = [rng.random(rng.integers(0, 6)) for _ in range(sentences)]
    if ties:
        scores = [row.round(1) for row in scores]
    for row in scores:
        row[rng.random(len(row)) < 0.2] = np.nan
        row[rng.random(len(row)) < 0.1] = np.inf
    found = conformal_threshold(scores, alpha, guarantee)
    assert found == loop_threshold(scores, alpha, guarantee)


def test_one_token_sentences_are_split_conformal():
    scores = np.random.default_rng(0).random(99)
    for alpha in (0.01, 0.05, 0.1, 0.37, 0.5):
        rank = int(np.ceil((1 - alpha) * 100 - 1e-9))
        for guarantee in ("token", "sentence"):
            found = conformal_threshold(scores[:, None], alpha, guarantee)
            assert found == np.sort(scores)[rank - 1]
    assert conformal_threshold(scores[:98, None], 0.01) == np.inf


@DRAWN
@given(st.integers(0, 10**6), st.integers(20, 80), st.sampled_from([0.0712, 0.1234, 0.3141]))
def test_independent_tokens_have_the_sets_of_crepes(seed, calibrate, alpha):
    """alpha (n + 1) is no whole number, so it does not matter whether p = alpha counts as in."""
    rng = np.random.default_rng(seed)
    proba = rng.dirichlet(np.ones(4), size=calibrate + 30)
    target = np.array([rng.choice(4, p=row) for row in proba])
    scores = 1 - proba
    peer = ConformalClassifier().fit(scores[np.arange(calibrate), target[:calibrate]])
    theirs = peer.predict_set(scores[calibrate:], confidence=1 - alpha, smoothing=False)
    ours = calibrate_sets(
        [[CLASSES[k]] for k in target[:calibrate]],
        [row[None] for row in proba[:calibrate]],
        CLASSES,
        alpha=alpha,
    )(proba[calibrate:, None], nonempty=False)
    for found, row in zip(ours, np.asarray(theirs), strict=True):
        assert found == [{CLASSES[c] for c in np.flatnonzero(row)}]


def test_aps_scores_add_up_more_probable_labels():
    """Calibrated on one label at a time, the threshold is the score of that label."""
    row = [0.1, 0.5, 0.15, 0.25]
    part = np.random.default_rng(3).random((1, 1))[0, 0]
    before = {"b": 0.0, "d": 0.5, "c": 0.75, "a": 0.9}
    for label, p in zip(CLASSES, row, strict=True):
        found = calibrate_sets([[label]], [[row]], CLASSES, alpha=0.5, score="aps", random_state=3)
        assert found.threshold == pytest.approx(before[label] + part * p, abs=1e-12)


# --- the promise ----------------------------------------------------------------------------


def coverages(guarantee, score, nonempty, alpha=0.1, calibrate=60, judge=40, divisions=200):
    rng = np.random.default_rng(11)
    found = []
    for _ in range(divisions):
        y, proba = draw_sentences(rng, calibrate + judge)
        sets = calibrate_sets(
            y[:calibrate],
            proba[:calibrate],
            CLASSES,
            alpha=alpha,
            guarantee=guarantee,
            score=score,
            random_state=rng,
        )(proba[calibrate:], nonempty=nonempty, random_state=rng)
        scores = score_sets(y[calibrate:], sets, guarantee=guarantee, bootstrap=0)
        found.append(scores.coverage)
    return np.array(found)


@pytest.mark.parametrize("score", ["lac", "aps"])
def test_tokens_of_a_new_sentence_are_covered_as_promised(score):
    found = coverages("token", score, nonempty=False)
    noise = 3 * found.std(ddof=1) / np.sqrt(len(found))
    assert 0.9 - noise <= found.mean() <= 0.9 + 2 / 61 + noise


@pytest.mark.parametrize("score", ["lac", "aps"])
def test_sentences_are_covered_as_promised(score):
    """The number of covered sentences is beta-binomial: check its mean, and the share of divisions
    in the central 95 %."""
    found = coverages("sentence", score, nonempty=False)
    rank = int(np.ceil(0.9 * 61))
    covered = betabinom(40, rank, 61 - rank)
    noise = covered.std() / 40 / np.sqrt(200)
    assert abs(found.mean() - rank / 61) <= 3 * noise
    low, high = covered.interval(0.95)
    inside = ((found * 40 >= low - 1e-9) & (found * 40 <= high + 1e-9)).mean()
    assert inside >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 200)


def test_never_empty_sets_cover_no_less():
    plain, never_empty = (coverages("token", "lac", n, alpha=0.4, divisions=20) for n in (0, 1))
    assert (never_empty >= plain).all()
    assert never_empty.mean() > plain.mean()


def test_sentence_weights_matter():
    """Long sentences that are easy and short ones that are hard: pooled tokens would be covered
    with a threshold too low for a token of a random sentence."""
    scores = [[0.9]] * 30 + [[0.1] * 50] * 70
    assert conformal_threshold(scores, 0.1) == 0.9
    assert np.quantile(np.concatenate(scores), 0.9) == 0.1


# --- records and their scores ---------------------------------------------------------------


def test_missing_labels_are_left_out_and_unknown_ones_are_missed():
    row = [0.7, 0.1, 0.1, 0.1]
    y = [["a", None]] * 8 + [[None]] * 3 + [["new", "a"]]
    proba = [[row] * len(labels) for labels in y]
    found = calibrate_sets(y, proba, CLASSES, alpha=0.2)
    assert (found.sentences, found.tokens) == (9, 10)
    assert found.threshold == pytest.approx(0.3)
    with pytest.raises(DataError, match="cannot be reached"):
        calibrate_sets(y[-1:] * 9, proba[-1:] * 9, CLASSES, alpha=0.2)


def test_empty_sets_are_only_given_when_asked_for():
    sets = calibrate_sets([["a"]] * 9, [[[0.9, 0.1, 0, 0]]] * 9, CLASSES, alpha=0.1)
    unsure = [[[0.4, 0.3, 0.2, 0.1]]]
    assert sets(unsure, nonempty=False) == [[set()]]
    assert sets(unsure) == [[{"a"}]]
    assert sets([]) == []
    assert sets([np.zeros((0, 4))]) == [[]]


@DRAWN
@given(st.integers(0, 10**6), st.integers(1, 8))
def test_scores_of_sets_by_loops(seed, sentences):
    rng = np.random.default_rng(seed)
    y = [
        [["a", "b", None][k] for k in rng.integers(3, size=rng.integers(5))]
        for _ in range(sentences)
    ]
    y[0] = ["a"]
    sets = [[set(np.array(CLASSES)[rng.random(4) < 0.6]) for _ in labels] for labels in y]
    shares, wholes, hits, sizes = [], [], [], []
    for labels, row in zip(y, sets, strict=True):
        mine = [label in s for label, s in zip(labels, row, strict=True) if label]
        sizes += [len(s) for label, s in zip(labels, row, strict=True) if label]
        hits += mine
        if mine:
            shares.append(np.mean(mine))
            wholes.append(all(mine))
    found = score_sets(y, sets)
    whole = score_sets(y, sets, guarantee="sentence")
    assert found.coverage == pytest.approx(np.mean(shares), abs=1e-12)
    assert whole.coverage == pytest.approx(np.mean(wholes), abs=1e-12)
    assert found.pooled == pytest.approx(np.mean(hits), abs=1e-12)
    assert found.mean_size == pytest.approx(np.mean(sizes), abs=1e-12)
    assert found.single == pytest.approx(np.mean(np.array(sizes) == 1), abs=1e-12)
    assert found.empty == pytest.approx(np.mean(np.array(sizes) == 0), abs=1e-12)
    assert (found.sentences, found.tokens) == (len(shares), len(hits))
    assert found.lower <= found.coverage <= found.upper


def test_the_band_of_whole_sentences_is_jeffreys_interval():
    y, sets = [["a"]] * 50, [[{"a"}]] * 44 + [[{"b"}]] * 6
    found = score_sets(y, sets, guarantee="sentence", bootstrap=20_000)
    exact = beta(44.5, 6.5).interval(0.9)
    assert (found.lower, found.upper) == pytest.approx(exact, abs=3e-3)
    assert np.isnan(score_sets(y, sets, bootstrap=0).lower)


def test_bad_parameters_and_data_are_named():
    with pytest.raises(ValueError, match="alpha must lie between"):
        conformal_threshold([[0.1]], 0.0)
    with pytest.raises(ValueError, match='"token" or "sentence"'):
        conformal_threshold([[0.1]], 0.1, "document")
    with pytest.raises(ValueError, match='"lac" or "aps"'):
        calibrate_sets([["a"]], [[[1, 0, 0, 0]]], CLASSES, score="top")
    with pytest.raises(DataError, match="needs at least 9 calibration sentences, and there are 1"):
        calibrate_sets([["a"]], [[[1, 0, 0, 0]]], CLASSES)
    with pytest.raises(DataError, match="no labelled token"):
        calibrate_sets([[None]], [[[1, 0, 0, 0]]], CLASSES)
    with pytest.raises(DataError, match="sets has 0 sequences"):
        score_sets([["a"]], [])
    with pytest.raises(DataError, match=r"sequence 0 \(from 0\) has 2 tokens"):
        score_sets([["a"]], [[{"a"}, {"a"}]])
