"""SGPS: its gradient is eq. 15 of [gpsc], it never rises, and with all coordinates it is the MAP.

The oracle writes γ out as [gpsc] does, and is minimised by scipy with numerical gradients or BFGS.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar

from bayeseq.inference import greedy
from bayeseq.inference.greedy import NO_LABEL
from bayeseq.kernels import RBF, Linear, Polynomial
from tests.inference.sparse_problem import Problem

drawn = given(
    st.integers(0, 10**6),
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    st.integers(1, 3),
    st.sampled_from([Linear(), Polynomial(2, 0.5), RBF(0.3)]),
    st.booleans(),
)


@settings(max_examples=20, deadline=None)
@drawn
def test_gradient_and_objective(seed, lengths, C, kernel, partial):
    problem = Problem(seed, lengths, C, kernel, 0.7, 1.3, partial)
    gamma = 0.3 * np.random.default_rng(seed).normal(size=len(problem.coordinates))
    found = problem.found(gamma)
    assert found.objective == pytest.approx(problem.objective(gamma), rel=1e-10)
    step, expected = 1e-5, []
    for s in range(len(gamma)):
        up, down = gamma.copy(), gamma.copy()
        up[s] += step
        down[s] -= step
        expected.append((problem.objective(up) - problem.objective(down)) / (2 * step))
    np.testing.assert_allclose(problem.slopes(found), expected, rtol=1e-5, atol=1e-7)
    # a coordinate exists or is marked
    table = problem.search.gradient(found, np.arange(len(problem.X)))
    assert np.isfinite(table).sum() == len(problem.coordinates)


@pytest.mark.parametrize("kernel", [Linear(), Polynomial(2, 0.5), RBF(0.3)], ids=str)
@pytest.mark.parametrize("at_once", [None, 1, 9])
def test_all_coordinates_reach_the_dense_optimum(kernel, at_once):
    problem = Problem(3, [3, 1, 2], 2, kernel, 0.7, 1.3)
    object.__setattr__(problem.search, "at_once", at_once)
    every = len(problem.coordinates)
    for visit in problem.search.search(np.array([2, 0, 1]), every, threshold=0.0):
        found = visit.found
    found, _ = problem.search.moved(found, np.arange(len(found.gamma)), 2000, 1e-16)
    dense = minimize(problem.objective, np.zeros(every), method="BFGS", options={"gtol": 1e-7})
    assert found.objective == pytest.approx(dense.fun, rel=1e-8)
    f, A, _ = problem.scores(dense.x)
    np.testing.assert_allclose(found.f, f[problem.rows], atol=1e-4)
    np.testing.assert_allclose(found.A, A, atol=1e-4)
    np.testing.assert_allclose(problem.slopes(found), 0.0, atol=1e-5)


@pytest.mark.parametrize("update", ["new", "all"])
@pytest.mark.parametrize("kernel", [Polynomial(2, 0.5), RBF(0.3)], ids=str)
def test_the_objective_never_rises_and_the_record_is_right(update, kernel):
    problem = Problem(5, [4, 1, 3, 2], 3, kernel, 0.7, 1.3)
    object.__setattr__(problem.search, "update", update)
    before = problem.search.start().objective
    n_visits = 0
    for visit in problem.search.search(np.arange(4), 14, threshold=1e-4):
        found = visit.found
        assert found.objective <= before
        before = found.objective
        n_visits += 1
        assert found.objective == pytest.approx(problem.objective(problem.full(found)), rel=1e-9)
    assert len(found.gamma) == 14
    assert n_visits >= 2
    tokens, by_token = found.by_token()
    f = 0.7 * problem.K[:, problem.rows[tokens]] @ by_token
    np.testing.assert_allclose(found.f, f[problem.rows], atol=1e-9)


def test_the_steepest_coordinates_are_taken():
    """The first of the first sequence, then the steepest after a step along it."""
    problem = Problem(7, [3, 2], 3, Polynomial(2, 0.5), 0.7, 1.3)
    slope = problem.slopes(problem.search.start())
    own = [s for s, (n, _, _) in enumerate(problem.coordinates) if n < 3]
    curvature = problem.curvature()
    first = max(own, key=lambda s: abs(slope[s]))
    then = slope - curvature[first] * slope[first] / curvature[first, first]
    second = max((s for s in own if s != first), key=lambda s: abs(then[s]))
    visit = next(iter(problem.search.search(np.array([0, 1]), 10)))
    assert problem.keys(visit.found.coordinates) == [first, second]
    assert visit.steepest == pytest.approx(abs(slope[first]))


def test_a_search_ends_where_nothing_is_steep():
    problem = Problem(1, [2, 2], 2, RBF(0.3), 0.7, 1.3)
    visits = list(problem.search.search(np.arange(2), 100, threshold=1e9))
    assert len(visits) == 2
    assert len(visits[-1].found.gamma) == 0
    *_, last = problem.search.search(np.arange(2), 100, threshold=1e-2)
    own = last.found.coordinates
    taken = set(zip(problem.rows[own.token], own.label, own.following, strict=True))
    slope = np.abs(problem.slopes(last.found))
    rest = [s for s, key in zip(slope, problem.coordinates, strict=True) if key not in taken]
    assert max(rest) <= 1e-2


def _rank(problem, numbers):
    """Of the moves of some coordinates: 1 at their token and label, 1 at their label pair."""
    moves = np.zeros((len(numbers), len(problem.X) + problem.C, problem.C))
    for i, s in enumerate(numbers):
        n, a, b = problem.coordinates[s]
        moves[i, n, a] = 1.0
        if b != NO_LABEL:
            moves[i, len(problem.X) + b, a] = 1.0
    return np.linalg.matrix_rank(moves.reshape(len(numbers), -1)) if len(numbers) else 0


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 10**6),
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    st.integers(1, 3),
    st.integers(0, 12),
    st.integers(0, 3),
)
def test_sums_of_chosen_coordinates_are_told(seed, lengths, C, n_chosen, n_added):
    """A coordinate is a sum of others where it does not raise the rank of their moves."""
    problem = Problem(seed, lengths, C, RBF(0.3), 0.7, 1.3)
    order = np.random.default_rng(seed).permutation(len(problem.coordinates)).tolist()
    chosen, added = order[:n_chosen], order[n_chosen : n_chosen + n_added]
    found = problem.search.at(problem.chosen(chosen), np.zeros(len(chosen)))
    packed = problem.layout.unpacked_rows.numpy()
    span = greedy._Span(found, packed)
    for s in [None, *added]:
        if s is not None:
            n, a, b = problem.coordinates[s]
            if b == NO_LABEL:
                continue
            chosen.append(s)
            span.add(n, a, b)
        rank = _rank(problem, chosen)
        for i, (n, a, b) in enumerate(problem.coordinates):
            if i not in chosen:
                assert span.lacks[n, a, b] == (_rank(problem, [*chosen, i]) > rank)


@pytest.mark.parametrize("at_once", [None, 1, 3])
def test_where_all_move_no_sum_of_chosen_coordinates_is_taken(at_once):
    problem = Problem(5, [4, 1, 3], 3, Linear(), 0.7, 1.3)
    object.__setattr__(problem.search, "at_once", at_once)
    *_, last = problem.search.search(np.arange(3), 1000)
    chosen = problem.keys(last.found.coordinates)
    every = range(len(problem.coordinates))
    assert len(chosen) == _rank(problem, chosen) == _rank(problem, every) < len(every)


@pytest.mark.parametrize("pool", [1, 3, 100])
def test_a_visit_of_all_sequences_takes_the_steepest_of_all(pool, monkeypatch):
    monkeypatch.setattr(greedy, "_POOL", pool)
    problem = Problem(2, [3, 2, 4], 3, Linear(), 0.7, 1.3)
    slope = np.abs(problem.slopes(problem.search.start()))
    visit = next(iter(problem.search.search(np.arange(3), 10)))
    assert problem.keys(visit.found.coordinates)[0] == slope.argmax()
    assert visit.steepest == pytest.approx(slope.max())


def _lowest(problem, gamma, unit):
    """γ moved along a unit vector to where R is lowest."""
    return gamma + minimize_scalar(lambda x: problem.objective(gamma + x * unit)).x * unit


def test_one_coordinate_of_one_sequence_at_a_time_is_the_papers_algorithm():
    """Algorithm 2 in loops: the steepest coordinate of a sequence, then R lowered along it alone;
    sums of chosen coordinates are taken like others."""
    problem = Problem(4, [2, 3, 1], 2, RBF(0.3), 0.7, 1.3)
    for name, value in (("at_once", 1), ("directions", 1), ("update", "new"), ("inner", 100)):
        object.__setattr__(problem.search, name, value)
    starts = np.cumsum([0, *problem.lengths])
    gamma, chosen = np.zeros(len(problem.coordinates)), []
    every = problem.search.search(np.array([1, 0, 2]), 16)
    for i, visit in zip([1, 0, 2] * 7, every, strict=False):
        slope = problem.slopes(problem.found(gamma))
        own = [
            s
            for s, (n, _, _) in enumerate(problem.coordinates)
            if starts[i] <= n < starts[i + 1] and s not in chosen
        ]
        if own:
            chosen.append(max(own, key=lambda s: abs(slope[s])))
            gamma = _lowest(problem, gamma, np.eye(len(gamma))[chosen[-1]])
        assert problem.keys(visit.found.coordinates) == chosen
        np.testing.assert_allclose(visit.found.gamma, gamma[chosen], atol=1e-4)
    assert _rank(problem, chosen) < len(chosen)
