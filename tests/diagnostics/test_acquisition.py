"""Scores of doubt and the choice by them, against loops."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from bayeseq import DataError
from bayeseq.diagnostics.acquisition import (
    choose,
    contenders,
    cosine_to,
    least_confidence,
    mnlp,
    token_doubt,
    unit_rows,
)
from bayeseq.diagnostics.learning import learning_curve


def test_scores_of_the_best_labelling():
    p, lengths = [1.0, 0.5, 1e-300], [3, 4, 1000]
    log_p = [math.log(x) for x in p]
    np.testing.assert_allclose(least_confidence(log_p), [0.0, 0.5, 1.0], atol=1e-15)
    by_hand = [-l / t for l, t in zip(log_p, lengths, strict=True)]  # noqa: E741
    np.testing.assert_allclose(mnlp(log_p, lengths), by_hand, rtol=1e-12)
    assert mnlp([0.0], [0]).tolist() == [0.0]
    # what 1 − p would lose
    assert least_confidence([-1e-20])[0] == 1e-20
    with pytest.raises(DataError, match="sequence 1"):
        mnlp([-1.0, 0.5], [1, 1])
    with pytest.raises(DataError, match="sequence 0"):
        least_confidence([math.nan])


@given(st.integers(0, 4), st.integers(1, 4), st.integers(0, 1000))
def test_doubt_of_tokens(T, C, seed):
    proba = np.random.default_rng(seed).dirichlet(np.full(C, 0.3), size=T)
    for t, row in enumerate(proba.tolist()):
        assert token_doubt(proba, "least_confidence")[t] == pytest.approx(1 - max(row), abs=1e-12)
        assert token_doubt(proba, "mnlp")[t] == pytest.approx(-math.log(max(row)), abs=1e-12)
        entropy = -sum(p * math.log(p) for p in row if p > 0)
        assert token_doubt(proba, "entropy")[t] == pytest.approx(entropy, abs=1e-12)
    assert token_doubt(proba.reshape(T, C), "entropy").shape == (T,)


def test_doubt_has_no_other_names():
    with pytest.raises(ValueError, match="'bald'"):
        token_doubt([[1.0]], "bald")


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 1000))
def test_unit_rows_against_loops(B, D, seed):
    rng = np.random.default_rng(seed)
    counts = rng.integers(-2, 4, size=(B, D)).astype(float)
    wanted = np.zeros((B, D))
    for d in range(D):
        held = sum(counts[b, d] != 0 for b in range(B))
        for b in range(B):
            v = counts[b, d]
            idf = math.log((1 + B) / (1 + held)) + 1
            wanted[b, d] = math.copysign(math.log(1 + abs(v)), v) * idf
    for b in range(B):
        length = math.sqrt(sum(v * v for v in wanted[b]))
        if length > 0:
            wanted[b] /= length
    found = unit_rows(sp.csr_matrix(counts))
    np.testing.assert_allclose(found.toarray(), wanted, atol=1e-12)
    for j in range(B):
        np.testing.assert_allclose(cosine_to(found)(j), wanted @ wanted[j], atol=1e-12)


def chosen_by_loops(scores, costs, n, budget, similarity, diversity):
    """Every gain worked out anew at every step."""
    found, left = [], math.inf if budget is None else budget
    while n is None or len(found) < n:
        best, best_gain = None, -1.0
        for i in range(len(scores)):
            if i in found or costs[i] > left:
                continue
            near = max([min(max(similarity[i][j], 0.0), 1.0) for j in found], default=0.0)
            gain = scores[i] * (1 - diversity * near)
            if gain > best_gain:
                best, best_gain = i, gain
        if best is None:
            return found
        found.append(best)
        left -= costs[best]
    return found


@settings(max_examples=150)
@given(
    st.integers(0, 8),
    st.one_of(st.none(), st.integers(1, 9)),
    st.one_of(st.none(), st.integers(1, 20)),
    st.sampled_from([0.0, 0.3, 0.5, 1.0]),
    st.booleans(),
    st.integers(0, 10_000),
)
def test_choice_against_loops(U, n, budget, diversity, alike, seed):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 6, size=U).astype(float)  # small numbers, so that there are ties
    costs = np.full(U, 2) if alike else rng.integers(1, 6, size=U)
    similarity = rng.integers(-1, 5, size=(U, U)) / 4
    similarity = np.maximum(similarity, similarity.T)
    wanted = chosen_by_loops(scores, costs, n, budget, similarity, diversity)
    found = choose(scores, costs, n, budget, similarity.__getitem__, diversity)
    assert [c.number for c in found] == wanted
    for k, pick in enumerate(found):
        near = [min(max(similarity[pick.number][j], 0.0), 1.0) for j in wanted[:k]]
        if diversity > 0:
            assert pick.similarity == max(near, default=0.0)
            if pick.nearest >= 0:
                assert similarity[pick.number][pick.nearest] == pick.similarity
        assert pick.gain == scores[pick.number] * (1 - diversity * pick.similarity)
    # those left out beforehand would not have been chosen
    few = contenders(scores, costs, n, budget, diversity)
    part = similarity[np.ix_(few, few)]
    again = choose(scores[few], costs[few], n, budget, part.__getitem__, diversity)
    assert [few[c.number] for c in again] == wanted


def test_copies_come_last():
    rows = unit_rows(sp.csr_matrix([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
    found = choose([4, 4, 4, 1], [1] * 4, None, None, cosine_to(rows), 1.0)
    assert [c.number for c in found] == [0, 3, 1, 2]
    assert [c.nearest for c in found] == [-1, -1, 0, 0]


def test_what_cannot_be_chosen_from():
    with pytest.raises(DataError, match="scores: number 1"):
        choose([1.0, math.nan], [1, 1])
    with pytest.raises(DataError, match="costs: number 0"):
        choose([1.0], [-1])
    with pytest.raises(DataError, match="2 scores"):
        choose([1.0, 2.0], [1])
    with pytest.raises(ValueError, match="diversity is 2"):
        choose([1.0], [1], diversity=2)


def test_learning_curves():
    errors = np.array([[0.5, 0.2, 0.4, 0.1], [0.3, 0.2, 0.2, 0.1]])
    curve = learning_curve([1, 2, 3, 5], errors)
    np.testing.assert_allclose(curve.mean, [0.4, 0.2, 0.3, 0.1])
    np.testing.assert_allclose(curve.smooth_mean, [0.3, 0.3, 0.2, 0.2])
    by_hand = [math.sqrt(((a - b) / 2) ** 2 * 2 / 1) / math.sqrt(2) for a, b in errors.T]
    np.testing.assert_allclose(curve.standard_error, by_hand, atol=1e-15)
    assert curve.reaches(0.2 + 1e-12) == 2
    assert curve.reaches(0.2 + 1e-12, smooth=True) == 3
    assert curve.reaches(0.05) is None
    assert learning_curve([1], [[0.3]]).standard_error.tolist() == [0.0]
    for share, bad in (([1, 2], [[0.1]]), ([2, 1], [[0.1, 0.2]]), ([1], [[math.nan]]), ([], [[]])):
        with pytest.raises(DataError):
            learning_curve(share, bad)
