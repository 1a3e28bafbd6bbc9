"""SGPS: its gradient is eq. 15 of [gpsc], it never rises, and with all coordinates it is the MAP.

The oracle writes γ out as [gpsc] does, one number for each token, label and next label, sums over
all labellings one by one, and is minimised by scipy with numerical gradients or BFGS.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from bayeseq.inference.chain_loss import ChainLoss
from bayeseq.inference.greedy import NO_LABEL, Coordinates, Greedy
from bayeseq.kernels import RBF, Linear, Polynomial
from bayeseq.kernels.columns import kernel_columns
from bayeseq.shapes import Layout
from tests.kernels.rows import draw_rows


class Problem:
    """A few sequences, both as the library has them and laid end to end for the loops."""

    def __init__(self, seed, lengths, C, kernel, v, u, partial=False):
        rng = np.random.default_rng(seed)
        N = sum(lengths)
        self.X = draw_rows(seed, N, 4, 0.6) if N > 1 else rng.normal(size=(1, 4))
        self.lengths, self.C, self.v, self.u = lengths, C, v, u
        self.weights = rng.uniform(0.5, 2.0, len(lengths))
        self.allowed = np.eye(C, dtype=bool)[rng.integers(C, size=N)]
        if partial:
            self.allowed |= rng.random((N, C)) < 0.3
        self.K = np.array([[kernel.unit()([x], [z])[0, 0] for z in self.X] for x in self.X])
        self.layout = Layout.of(lengths)
        rows = self.layout.rows.numpy()
        self.rows = rows
        loss = ChainLoss(
            self.layout, torch.from_numpy(self.allowed[rows]), torch.from_numpy(self.weights)
        )
        self.search = Greedy(loss, kernel_columns(kernel, self.X[rows]), v, u, directions=2)
        self.coordinates = []
        start = 0
        for T in lengths:
            for t in range(T):
                after = range(C) if t + 1 < T else [NO_LABEL]
                self.coordinates += [
                    (start + t, a, b) for a, b in itertools.product(range(C), after)
                ]
            start += T

    def scores(self, gamma):
        """f = v K γ¹ and A = u γ²: eqs. 11 and 17."""
        first, second = np.zeros((len(self.X), self.C)), np.zeros((self.C, self.C))
        for (n, a, b), value in zip(self.coordinates, gamma, strict=True):
            first[n, a] += value
            if b != NO_LABEL:
                second[a, b] += value
        f, A = self.v * self.K @ first, self.u * second
        return f, A, 0.5 * ((first * f).sum() + (second * A).sum())

    def objective(self, gamma):
        """Eq. 12 with a ½ before the penalty."""
        f, A, penalty = self.scores(gamma)
        total, start = penalty, 0
        for w, T in zip(self.weights, self.lengths, strict=True):
            every, known = [], []
            for y in itertools.product(range(self.C), repeat=T):
                score = sum(f[start + t, y[t]] for t in range(T))
                score += sum(A[y[t], y[t + 1]] for t in range(T - 1))
                every.append(score)
                if all(self.allowed[start + t, y[t]] for t in range(T)):
                    known.append(score)
            total += w * (_log_sum(every) - _log_sum(known))
            start += T
        return total

    def found(self, gamma):
        """The library's record of the same γ."""
        f, A, penalty = self.scores(gamma)
        f = f[self.rows]
        packed = self.layout.unpacked_rows.numpy()
        token, label, after = np.array(self.coordinates).T
        start = self.search.start()
        return type(start)(
            Coordinates(packed[token], label, after), gamma, f, A, penalty, self.search.loss(f, A)
        )

    def slopes(self, found):
        """The library's gradient in the order of the coordinates."""
        packed = self.layout.unpacked_rows.numpy()
        table = self.search.gradient(found, packed)  # tokens as they lie end to end
        return np.array([table[n, a, b] for n, a, b in self.coordinates])


def _log_sum(values):
    top = max(values)
    return top + math.log(sum(math.exp(value - top) for value in values))


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
    index = {key: s for s, key in enumerate(problem.coordinates)}
    n_visits = 0
    for visit in problem.search.search(np.arange(4), 14, threshold=1e-4):
        found = visit.found
        assert found.objective <= before
        before = found.objective
        n_visits += 1
        gamma, own = np.zeros(len(index)), found.coordinates
        for n, a, b, value in zip(*own, found.gamma, strict=True):
            key = int(problem.rows[n]), int(a), int(b)
            assert gamma[index[key]] == 0.0  # none twice
            gamma[index[key]] = value
        assert found.objective == pytest.approx(problem.objective(gamma), rel=1e-9)
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
    curvature = np.zeros((len(slope), len(slope)))  # K' by its definition
    for i, (n, a, b) in enumerate(problem.coordinates):
        for j, (m, c, d) in enumerate(problem.coordinates):
            curvature[i, j] = 0.7 * problem.K[n, m] * (a == c)
            curvature[i, j] += 1.3 * ((a, b) == (c, d) and b != NO_LABEL)
    first = max(own, key=lambda s: abs(slope[s]))
    then = slope - curvature[first] * slope[first] / curvature[first, first]
    second = max((s for s in own if s != first), key=lambda s: abs(then[s]))
    visit = next(iter(problem.search.search(np.array([0, 1]), 10)))
    chosen = [
        (int(problem.rows[n]), int(a), int(b))
        for n, a, b in zip(*visit.found.coordinates, strict=True)
    ]
    assert chosen == [problem.coordinates[first], problem.coordinates[second]]
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
