"""Uniform ranks stay within the bands as often as they say; others do not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bayeseq import DataError
from bayeseq.diagnostics import rank_check


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(1, 30), st.data())
def test_counts_and_cumulative_shares_by_loops(n, draws, data):
    ranks = data.draw(st.lists(st.integers(0, draws), min_size=n, max_size=n))
    bins = data.draw(st.integers(1, draws + 1))
    check = rank_check(ranks, draws, bins=bins)
    own = [rank * bins // (draws + 1) for rank in range(draws + 1)]  # the bin of each rank
    for k in range(bins):
        inside = [rank for rank in range(draws + 1) if own[rank] == k]
        assert list(range(check.edges[k], check.edges[k + 1])) == inside
        assert check.counts[k] == sum(own[rank] == k for rank in ranks)
        assert check.expected[k] == pytest.approx(n * len(inside) / (draws + 1))
        chance = stats.binom(n, len(inside) / (draws + 1))
        assert chance.cdf(check.upper[k]) - chance.cdf(check.lower[k] - 1) >= 0.95 - 1e-9
    for place, excess in zip(check.places, check.excess, strict=True):
        share = sum(rank <= place for rank in ranks) / n
        assert excess == pytest.approx(share - (place + 1) / (draws + 1), abs=1e-12)
    assert (check.total, check.draws) == (n, draws)
    assert check.excess_band[-1] == pytest.approx(0, abs=1e-12)


def test_the_cumulative_band_holds_as_often_as_it_says():
    rng = np.random.default_rng(1)
    band = rank_check(rng.integers(0, 100, 60), 99, level=0.9)
    trials = 2000
    held = 0
    for _ in range(trials):
        ranks = rng.integers(0, 100, 60)
        share = (ranks[:, None] <= band.places).mean(0)
        held += (np.abs(share - (band.places + 1) / 100) <= band.excess_band + 1e-12).all()
    # Two Monte-Carlo errors: of this count, and of the band's own 2000 simulations.
    assert held / trials == pytest.approx(0.9, abs=4 * np.sqrt(2 * 0.9 * 0.1 / trials))


def test_a_posterior_too_narrow_or_biased_is_noticed():
    rng = np.random.default_rng(0)
    assert rank_check(rng.integers(0, 100, 300), 99).is_uniform
    assert not rank_check(np.round(99 * rng.beta(0.5, 0.5, 300)), 99).is_uniform
    assert not rank_check(np.round(99 * rng.beta(1.5, 1, 300)), 99).is_uniform


@pytest.mark.parametrize(
    ("ranks", "draws", "more", "error", "says"),
    [
        ([], 3, {}, DataError, "at least one"),
        ([[1]], 3, {}, DataError, "at least one"),
        ([0, 4], 3, {}, DataError, "entry 1 .from 0. is 4"),
        ([0.5], 3, {}, DataError, "whole number"),
        ([-1], 3, {}, DataError, "from 0 to 3"),
        ([0], 0, {}, ValueError, "draws"),
        ([0], 3, {"bins": 5}, ValueError, "between 1 and draws . 1 = 4"),
        ([0], 3, {"bins": 2, "level": 1.0}, ValueError, "level"),
    ],
)
def test_bad_ranks_are_refused(ranks, draws, more, error, says):
    with pytest.raises(error, match=says):
        rank_check(ranks, draws, **({"bins": 2} | more))
