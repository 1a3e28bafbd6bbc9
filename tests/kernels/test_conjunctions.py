"""Polynomial kernels written out: the columns reproduce the kernel, and know what they miss."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from bayeseq.kernels import (
    RBF,
    ConjunctionMap,
    InducingMap,
    Linear,
    LinearMap,
    Polynomial,
    cheapest_map,
    conjunction_count,
    conjunctions,
    map_from_arrays,
    prefers_conjunctions,
)
from tests.kernels import oracles
from tests.kernels.rows import draw_rows


def written_out(x, degree, offset):
    """Conjunction → value: every ordered product of `degree` entries of (x, √offset), gathered by
    the features in it; n equal products have an inner product of n, so their value counts √n."""
    entries = {k: v for k, v in enumerate([*x, math.sqrt(offset)]) if v != 0}
    found = {}
    for chosen in itertools.product(entries, repeat=degree):
        found.setdefault(tuple(sorted(chosen)), []).append(math.prod(entries[k] for k in chosen))
    return {key: math.sqrt(len(values)) * values[0] for key, values in found.items()}


cases = given(
    st.integers(0, 10**6),
    st.integers(1, 9),
    st.integers(2, 6),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.3, 1.0]),
)


@settings(max_examples=40, deadline=None)
@cases
def test_columns_reproduce_the_kernel(seed, n, D, degree, offset):
    X, new = draw_rows(seed, n, D), draw_rows(seed + 1, 4, D)
    loop = partial(oracles.polynomial, degree=degree, offset=offset)
    made = ConjunctionMap(Polynomial(degree, offset, variance=3.0), sp.csr_matrix(X))
    (phi, residual), (phi_new, residual_new) = made.features(X), made.features(new)
    K, K_new = oracles.gram(loop, X, X), oracles.gram(loop, new, X)
    scale = max(K.max(), np.abs(K_new).max(), 1e-300)
    np.testing.assert_allclose((phi @ phi.T).toarray(), K, rtol=0, atol=1e-12 * scale)
    np.testing.assert_allclose((phi_new @ phi.T).toarray(), K_new, rtol=0, atol=1e-12 * scale)
    np.testing.assert_array_equal(residual, 0.0)
    prior = np.array([loop(x, x) for x in new])
    shown = np.asarray(phi_new.multiply(phi_new).sum(1)).ravel()
    np.testing.assert_allclose(residual_new, prior - shown, rtol=1e-9, atol=1e-9 * prior.max())
    assert residual_new.min(initial=0.0) >= 0


@settings(max_examples=25, deadline=None)
@cases
def test_conjunctions_are_those_that_occur(seed, n, D, degree, offset):
    X = draw_rows(seed, n, D)
    kernel = Polynomial(degree, offset)
    rows = [written_out(x, degree, offset) for x in X]
    made = ConjunctionMap(kernel, X)
    assert made.n_conjunctions == len(set().union(*rows))
    assert conjunction_count(kernel, sp.csr_matrix(X)) == sum(map(len, rows))
    assert made.features(X)[0].shape == (n, made.n_columns)
    # columns that are multiples of each other are one
    table = np.array([[row.get(key, 0.0) for key in sorted(set().union(*rows))] for row in rows])
    first = np.array([column[column != 0][0] for column in table.T])
    directions = np.unique((table / first).round(9), axis=1) if table.size else table
    assert made.n_columns >= directions.shape[1]
    assert made.n_columns <= table.shape[1]


def test_alike_conjunctions_are_one_column():
    """Of binary rows with disjoint features each is one column, and the constant another."""
    X = np.kron(np.eye(5), np.ones((1, 4)))
    made = ConjunctionMap(Polynomial(3, 1.0), X)
    assert made.n_conjunctions == 1 + 5 * (4 + 10 + 20)
    assert made.n_columns == 6
    phi, _ = made.features(X)
    np.testing.assert_allclose((phi @ phi.T).toarray(), Polynomial(3, 1.0)(X), rtol=1e-12)
    assert phi.nnz == 10


def test_the_residual_is_the_variance_that_the_points_do_not_explain():
    """No more is left out than a Gaussian process knows at the points, and unseen features are."""
    X, new = draw_rows(0, 6, 5, repeats=False), draw_rows(1, 4, 5)
    kernel = Polynomial(2, 0.5)
    _, residual = ConjunctionMap(kernel, X).features(new)
    K, k = kernel(X), kernel(X, new)
    unexplained = np.diag(kernel(new)) - np.einsum("ij,ij->j", k, np.linalg.pinv(K) @ k)
    assert (residual <= unexplained + 1e-9).all()
    alone = ConjunctionMap(kernel, [[1.0, 0.0]])
    # (2² + ½)² less what x₁² , x₁ and 1 can say of it: ½²
    np.testing.assert_allclose(alone.features([[0.0, 2.0]])[1], 4.5**2 - 0.25 * 0.25 / 2.25)


def test_small_blocks_change_nothing(monkeypatch):
    X, kernel = draw_rows(3, 30, 12), Polynomial(3, 1.0)
    whole = ConjunctionMap(kernel, X)
    expected, _ = whole.features(X)
    monkeypatch.setattr(conjunctions, "_BLOCK", 10)
    found, _ = ConjunctionMap(kernel, X).features(X)
    np.testing.assert_array_equal(found.toarray(), expected.toarray())


def test_column_weights_weigh_the_inner_products():
    X, weights = draw_rows(0, 6, 4, 0.9), np.array([2.0, 0.5, 0.0, 1.0])
    phi, residual = ConjunctionMap(Polynomial(2, 0.7), X, weights).features(X)
    loop = partial(oracles.polynomial, offset=0.7, weights=weights)
    np.testing.assert_allclose((phi @ phi.T).toarray(), oracles.gram(loop, X, X), rtol=1e-10)
    np.testing.assert_array_equal(residual, 0.0)


def test_rows_without_features():
    made = ConjunctionMap(Polynomial(2, 0.0), np.zeros((2, 3)))
    phi, residual = made.features(np.ones((1, 3)))
    assert phi.shape == (1, 0)
    np.testing.assert_allclose(residual, [9.0])
    assert made.features(sp.csr_matrix((0, 3)))[0].shape == (0, 0)


def test_many_degrees_fit_into_the_numbers():
    """100,000 features and degree 6 have 10³⁰ conjunctions, of which a row has few."""
    X = sp.random(8, 100_000, 5e-5, random_state=0, format="csr")
    kernel = Polynomial(6, 1.0)
    phi, _ = ConjunctionMap(kernel, X).features(X)
    np.testing.assert_allclose((phi @ phi.T).toarray(), kernel(X), rtol=1e-10)


# ---- the cheapest map --------------------------------------------------------------------------


def test_the_cheapest_map():
    few, many = np.eye(3) + 1.0, sp.identity(40, format="csr")
    groups = np.arange(40) % 2
    linear = cheapest_map(Linear(2.0), many, groups)
    assert isinstance(linear, LinearMap)
    np.testing.assert_array_equal(linear.column_groups, groups)
    assert cheapest_map(Linear(), few).n_columns == 3
    assert isinstance(cheapest_map(Polynomial(2), many), ConjunctionMap)
    assert isinstance(cheapest_map(Polynomial(2), few), InducingMap)
    assert isinstance(cheapest_map(RBF(), many), InducingMap)
    assert isinstance(cheapest_map(Polynomial(2) + RBF(), many), InducingMap)
    # forty equal rows are one row, for which a kernel matrix is small
    assert not prefers_conjunctions(Polynomial(2), np.ones((40, 9)))
    weights = np.linspace(1, 2, 40)
    for kernel in (Polynomial(2), RBF()):
        phi, _ = cheapest_map(kernel, many, column_weights=weights).features(many)
        gram = (phi @ phi.T).toarray() if sp.issparse(phi) else phi @ phi.T
        np.testing.assert_allclose(gram, kernel(many @ sp.diags(np.sqrt(weights))), atol=1e-6)


# ---- storing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [None, np.array([1.0, 0.5, 2.0])])
def test_stored_and_read_back(weights):
    made = ConjunctionMap(Polynomial(2, 0.3), draw_rows(0, 5, 3), weights)
    again, X = map_from_arrays(made.arrays()), draw_rows(1, 5, 3)
    assert isinstance(again, ConjunctionMap)
    (phi, residual), (phi2, residual2) = made.features(X), again.features(X)
    np.testing.assert_array_equal(phi.toarray(), phi2.toarray())
    np.testing.assert_array_equal(residual, residual2)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("conjunctions", np.frombuffer(b"os.system", np.uint8)),
        ("conjunctions", np.frombuffer(b"rbf", np.uint8)),
        ("conjunctions", np.array([1.0])),
        ("points.data", np.array([np.nan, 1.0])),
        ("points.indices", np.array([0, 7])),
        ("points.indptr", np.array([0, 2, 1])),
        ("points.shape", np.array([2])),
        ("column_weights", np.array([1.0, -1.0])),
    ],
)
def test_arrays_of_no_map_are_refused(name, wrong):
    arrays = ConjunctionMap(Polynomial(), np.eye(2), np.ones(2)).arrays()
    with pytest.raises(ValueError):  # noqa: PT011 — some messages are those of scipy
        map_from_arrays(arrays | {name: wrong})


def test_wrong_arguments():
    with pytest.raises(ValueError, match="at least one point"):
        ConjunctionMap(Polynomial(), sp.csr_matrix((0, 2)))
    with pytest.raises(ValueError, match="has no conjunctions"):
        ConjunctionMap(RBF(), [[1.0]])
    with pytest.raises(ValueError, match="rows have 2 columns, the feature map has 1"):
        ConjunctionMap(Polynomial(), [[1.0]]).features([[1.0, 2.0]])
    with pytest.raises(ValueError, match=r"column_weights have shape \(2,\)"):
        ConjunctionMap(Polynomial(), [[1.0]], np.ones(2))
