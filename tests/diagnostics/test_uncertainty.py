"""Kinds of uncertainty, against definitions written as loops."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayeseq import DataError
from bayeseq.diagnostics import uncertainty


def entropy(row):
    return -sum(p * math.log(p) for p in row if p > 0)


@given(st.integers(1, 6), st.integers(0, 5), st.integers(1, 4), st.integers(0, 10**6))
def test_against_loops(S, T, C, seed):
    rng = np.random.default_rng(seed)
    draws = rng.dirichlet(np.full(C, 0.3), size=(S, T))
    found = uncertainty([draws])
    for t in range(T):
        mean = [sum(draws[s, t, c] for s in range(S)) / S for c in range(C)]
        # mutual information as the mean divergence of the draws from their mean
        apart = sum(
            draws[s, t, c] * math.log(draws[s, t, c] / mean[c])
            for s in range(S)
            for c in range(C)
            if draws[s, t, c] > 0
        )
        assert found.total[0][t] == pytest.approx(entropy(mean), abs=1e-12)
        assert found.epistemic[0][t] == pytest.approx(apart / S, abs=1e-12)
        assert found.aleatoric[0][t] == pytest.approx(sum(map(entropy, draws[:, t])) / S, abs=1e-12)


def test_by_sequence_and_share():
    sure, torn = np.array([[[1.0, 0.0]], [[0.0, 1.0]]]), np.full((2, 1, 2), 0.5)
    found = uncertainty([np.concatenate([sure, torn], 1), torn, np.zeros((2, 0, 2))])
    total, aleatoric, epistemic = found.by_sequence()
    np.testing.assert_allclose(total, [math.log(2), math.log(2), 0])
    np.testing.assert_allclose(aleatoric, [math.log(2) / 2, math.log(2), 0])
    np.testing.assert_allclose(epistemic, [math.log(2) / 2, 0, 0], atol=1e-15)
    assert found.epistemic_share == pytest.approx(1 / 3)
    assert uncertainty([np.ones((3, 2, 1))]).epistemic_share == 0


@pytest.mark.parametrize(
    "rows", [np.ones((2, 3)), np.zeros((0, 2, 2)), np.full((1, 1, 2), 0.6), [[[1.5, -0.5]]]]
)
def test_what_is_no_draws_is_refused(rows):
    with pytest.raises(DataError, match="sequence 1"):
        uncertainty([np.ones((1, 1, 1)), rows])
