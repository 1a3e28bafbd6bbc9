"""Choosing points: the pivots of a whole factorisation, without the whole matrix."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from bayeseq.kernels import RBF, InducingMap, Linear, Polynomial, choose_points, pivoted_rows
from tests.kernels import oracles
from tests.kernels.rows import draw_rows

LOOPS = [
    (RBF(0.3, 7.0), lambda x, z: oracles.rbf(x, z, 0.3)),
    (Polynomial(2, 0.5), lambda x, z: oracles.polynomial(x, z, 2, 0.5)),
    (Linear() + RBF(2.0), lambda x, z: oracles.linear(x, z) + oracles.rbf(x, z, 2.0)),
]


@pytest.mark.parametrize(("kernel", "loop"), LOOPS)
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(3, 6))
def test_pivots_equal_those_of_a_whole_factorisation(kernel, loop, seed, n, D):
    X = np.random.default_rng(seed).normal(size=(n, D))
    m = max(1, n // 2)
    expected = oracles.pivots(oracles.gram(loop, X, X), m)
    assert pivoted_rows(kernel, sp.csr_matrix(X), m).tolist() == expected
    np.testing.assert_array_equal(choose_points(kernel, X, m).toarray(), X[expected])


def test_weighted_columns_move_the_pivots():
    X, weights = np.random.default_rng(0).normal(size=(15, 4)), np.array([9.0, 0.0, 0.1, 1.0])
    K = oracles.gram(lambda x, z: oracles.rbf(x, z, 0.5, weights=weights), X, X)
    found = pivoted_rows(RBF(0.5), X, 7, weights).tolist()
    assert found == oracles.pivots(K, 7)
    assert found != pivoted_rows(RBF(0.5), X, 7).tolist()


def test_each_of_several_equal_rows_is_taken_once():
    X = np.repeat(draw_rows(1, 4, 5, 0.9, repeats=False), 3, axis=0)
    assert sorted(i // 3 for i in pivoted_rows(RBF(), X, 12)) == [0, 1, 2, 3]


def test_stops_when_nothing_is_left():
    """A linear kernel of D columns has rank D."""
    X = np.random.default_rng(0).normal(size=(30, 4))
    assert len(pivoted_rows(Linear(), X, 20)) == 4
    phi, residual = InducingMap(Linear(), choose_points(Linear(), X, 20)).features(X)
    np.testing.assert_allclose(phi @ phi.T, X @ X.T, atol=1e-6)
    np.testing.assert_allclose(residual, 0.0, atol=1e-6)


def test_rows_of_zeros_give_one_point():
    assert pivoted_rows(Linear(), np.zeros((3, 2)), 3).tolist() == [0]


@pytest.mark.parametrize("method", ["pivoted", "kmeans"])
def test_any_method(method):
    """Eight heaps of rows, one after another: the first rows all lie in one heap."""
    heaps = 3 * draw_rows(0, 8, 12, 0.9, repeats=False)
    X = sp.csr_matrix(np.repeat(heaps, 8, axis=0) + draw_rows(1, 64, 12) / 10)
    kernel = RBF(0.3)
    points = choose_points(kernel, X, 8, method, seed=3)
    assert points.shape == (8, 12)
    again = choose_points(kernel, X, 8, method, seed=3)
    np.testing.assert_array_equal(points.toarray(), again.toarray())
    residual = InducingMap(kernel, points).features(X)[1]
    first_rows = InducingMap(kernel, X[:8]).features(X)[1]
    assert residual.sum() < 0.2 * first_rows.sum()
    assert choose_points(kernel, X[:1], 5, method).shape == (1, 12)
    assert choose_points(kernel, sp.vstack([X[:2], X[:2]]), 5, method).shape[0] == 2


def test_centres_lie_where_the_weights_look():
    """Two heaps far apart in a column without weight, near each other in the others."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)) * [0.01, 0.01, 0.0] + np.repeat([[0, 0, 0], [1, 0, 0]], 100, 0)
    X[:, 1] += 50 * rng.integers(0, 2, 200)
    weights = np.array([4.0, 0.0, 1.0])
    centres = choose_points(RBF(), X, 2, "kmeans", 0, weights).toarray()
    np.testing.assert_allclose(np.sort(centres[:, 0]), [0.0, 1.0], atol=0.01)
    np.testing.assert_array_equal(centres[:, 1], 0.0)


def test_wrong_arguments():
    with pytest.raises(ValueError, match="m is 0"):
        choose_points(RBF(), [[1.0]], 0)
    with pytest.raises(ValueError, match="method is 'random'"):
        choose_points(RBF(), [[1.0]], 1, "random")
    with pytest.raises(ValueError, match="no rows"):
        choose_points(RBF(), sp.csr_matrix((0, 2)), 1)
