"""Exchanges: what goes is what the others can best stand in for, and R never rises."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bayeseq.inference.exchange import SHARE, exchanged, without_least
from bayeseq.inference.greedy import JITTER
from bayeseq.kernels import RBF, Linear, Polynomial
from tests.inference.sparse_problem import Problem


def _without_least(K, gamma, n):
    """One by one: leave each out, move the others by least squares, and see what changes least."""
    left, gamma, clear = list(range(len(gamma))), gamma.copy(), True
    for _ in range(n):
        options = []
        for s in left:
            rest = [i for i in left if i != s]
            moved = np.zeros_like(gamma)
            moved[rest] = np.linalg.solve(K[np.ix_(rest, rest)], K[rest] @ gamma)
            change = moved - gamma
            options.append((change @ K @ change, s, moved))
        options.sort(key=lambda option: option[0])
        clear &= len(options) == 1 or options[1][0] > 1.001 * options[0][0] + 1e-8
        _, s, gamma = options[0]
        left.remove(s)
    return left, gamma, clear


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 10**6),
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    st.integers(1, 3),
    st.sampled_from([Linear(), Polynomial(2, 0.5), RBF(0.3)]),
    st.integers(0, 4),
)
def test_what_goes_is_what_changes_the_scores_least(seed, lengths, C, kernel, n):
    problem = Problem(seed, lengths, C, kernel, 0.7, 1.3)
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(problem.coordinates))[:8]
    n = min(n, len(chosen))
    found = problem.search.at(problem.chosen(chosen), rng.normal(size=len(chosen)))
    K = problem.curvature()[np.ix_(chosen, chosen)]
    labels = np.array([problem.coordinates[s][1] for s in chosen])
    for label in set(labels):  # as the library has it
        K[labels == label, labels == label] += JITTER * K.diagonal()[labels == label].mean()
    left, expected, clear = _without_least(K, found.gamma, n)
    assume(clear)
    gamma = without_least(problem.search, found, n)
    assert np.flatnonzero(gamma).tolist() == sorted(left)
    np.testing.assert_allclose(K @ gamma, K @ expected, atol=1e-6)


@pytest.mark.parametrize("kernel", [Linear(), Polynomial(2, 0.5), RBF(0.3)], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_an_exchange_never_raises_the_objective(kernel, seed):
    problem = Problem(seed, [4, 1, 3, 2], 3, kernel, 0.7, 1.3)
    for visit in problem.search.search(np.arange(4), 12):
        found = visit.found
    for _ in range(3):
        after = exchanged(problem.search, found, np.arange(4))
        assert after is found or after.objective < found.objective
        assert len(after.gamma) <= len(found.gamma)
        objective = problem.objective(problem.full(after))
        assert after.objective == pytest.approx(objective, rel=1e-9)
        found = after


def test_an_exchange_replaces_what_is_of_no_use():
    """Coordinates of γ = 0 beside one of use: they go first, and what comes lowers R."""
    problem = Problem(1, [3, 3, 3], 2, RBF(0.3), 0.7, 1.3)
    slope = np.abs(problem.slopes(problem.search.start()))
    order = np.argsort(slope)
    chosen = [int(order[-1]), *order[:6].tolist()]
    gamma = np.zeros(7)
    gamma[0] = -1e-3 * np.sign(problem.slopes(problem.search.start())[chosen[0]])
    found = problem.search.at(problem.chosen(chosen), gamma)
    after = exchanged(problem.search, found, np.arange(3))
    assert int(SHARE * 7) == 1
    assert after.objective < found.objective - 0.1
    assert len(after.gamma) == 7
    assert chosen[0] in problem.keys(after.coordinates)
