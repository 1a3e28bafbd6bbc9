"""Feature maps: they reproduce the kernel, know what they leave out, and can be stored."""

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bayeseq.kernels import (
    RBF,
    GroupedProducts,
    InducingMap,
    Linear,
    LinearMap,
    Polynomial,
    exact_map,
    features_from_factor,
    inducing_factor,
    inducing_features,
    inner_products,
    map_from_arrays,
)
from bayeseq.linalg import NotPositiveDefiniteError
from tests.kernels import oracles
from tests.kernels.rows import draw_rows

# the loops have no overall variance: a map leaves that to the prior
CASES = {
    "linear": (Linear(3.0), oracles.linear),
    "polynomial": (Polynomial(3, 0.5, 3.0), partial(oracles.polynomial, degree=3, offset=0.5)),
    "no offset": (Polynomial(2, 0, 3.0), partial(oracles.polynomial, offset=0.0)),
    "rbf": (RBF(0.4, 3.0), partial(oracles.rbf, scale=0.4)),
    "product": (
        RBF(0.4, 3.0) * Linear(2.0),
        lambda x, z: oracles.rbf(x, z, 0.4) * oracles.linear(x, z),
    ),
    "sum": (
        RBF(0.4, 3.0) + Linear(2.0),
        lambda x, z: oracles.rbf(x, z, 0.4, 3.0) + oracles.linear(x, z, 2.0),
    ),
}
each_case = pytest.mark.parametrize(("kernel", "loop"), CASES.values(), ids=list(CASES))


@each_case
@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(2, 6))
def test_exact_map_reproduces_the_kernel(kernel, loop, seed, n, D):
    X = draw_rows(seed, n, D, 0.7)
    X[:, 0] = 1.0  # a row of zeros alone would leave a linear kernel nothing
    phi, residual = exact_map(kernel, sp.csr_matrix(X)).features(sp.csr_matrix(X))
    K = oracles.gram(loop, X, X)
    np.testing.assert_allclose(phi @ phi.T, K, atol=1e-6 * K.max())
    assert residual.min() >= 0
    np.testing.assert_allclose(residual, 0.0, atol=1e-6 * K.max())


@each_case
def test_new_rows_keep_the_variance_of_the_posterior(kernel, loop):
    """r* = k(x*, x*) − k(x*, Z) k(Z, Z)⁻¹ k(Z, x*), and φ*·φ = k(x*, Z) k(Z, Z)⁻¹ k(Z, x)."""
    rng = np.random.default_rng(0)
    Z, X = rng.normal(size=(4, 6)), rng.normal(size=(9, 6))
    phi, residual = InducingMap(kernel, Z, jitter=0.0).features(X)
    K_ZX = oracles.gram(loop, Z, X)
    explained = K_ZX.T @ np.linalg.inv(oracles.gram(loop, Z, Z)) @ K_ZX
    prior = np.array([loop(x, x) for x in X])
    np.testing.assert_allclose(phi @ phi.T, explained, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(residual, prior - np.diag(explained), rtol=1e-8, atol=1e-10)
    assert residual.min() > 0


def test_posterior_of_a_gaussian_process():
    """Weights on Φ plus the residual give the mean and variance of GP regression at new rows."""
    rng = np.random.default_rng(1)
    X, new, y, noise = rng.normal(size=(12, 3)), rng.normal(size=(5, 3)), rng.normal(size=12), 0.3
    loop = partial(oracles.rbf, scale=0.5)
    K, k = oracles.gram(loop, X, X), oracles.gram(loop, X, new)
    inverse = np.linalg.inv(K + noise * np.eye(12))
    made = exact_map(RBF(0.5), X, jitter=1e-12)
    (phi, _), (phi_new, residual) = made.features(X), made.features(new)
    S = np.linalg.inv(np.eye(12) + phi.T @ phi / noise)
    np.testing.assert_allclose(phi_new @ (S @ phi.T @ y / noise), k.T @ inverse @ y, atol=1e-8)
    variance = np.einsum("nm,mk,nk->n", phi_new, S, phi_new) + residual
    np.testing.assert_allclose(variance, 1 - np.diag(k.T @ inverse @ k), atol=1e-8)


def test_equal_rows_are_one_point():
    X = np.repeat(draw_rows(0, 5, 4, 0.9, repeats=False), 200, axis=0)
    made = exact_map(RBF(), X, jitter=0.0)
    assert made.n_columns == 5
    phi, residual = made.features(X)
    np.testing.assert_allclose(phi @ phi.T, RBF()(X), atol=1e-12)
    np.testing.assert_allclose(residual, 0.0, atol=1e-12)


def test_column_weights():
    X, weights = draw_rows(0, 6, 4, 0.9), np.array([2.0, 0.5, 0.0, 1.0])
    phi, _ = exact_map(RBF(0.7), X, weights).features(X)
    K = oracles.gram(lambda x, z: oracles.rbf(x, z, 0.7, weights=weights), X, X)
    np.testing.assert_allclose(phi @ phi.T, K, atol=1e-6)


def test_linear_map_is_the_rows_themselves():
    X = sp.csr_matrix(draw_rows(0, 4, 3))
    made = LinearMap(np.array([1, 0, 1]))
    phi, residual = made.features(X)
    assert sp.issparse(phi)
    np.testing.assert_array_equal(phi.toarray(), X.toarray())
    np.testing.assert_array_equal(residual, np.zeros(4))
    assert made.n_columns == 3
    np.testing.assert_array_equal(made.column_groups, [1, 0, 1])


def test_one_group_of_columns():
    made = InducingMap(RBF(), [[0.0], [1.0]])
    np.testing.assert_array_equal(made.column_groups, [0, 0])
    phi, residual = made.features(sp.csr_matrix((0, 1)))
    assert phi.shape == (0, 2)
    assert residual.shape == (0,)


def test_a_map_does_not_follow_later_changes_of_its_kernel():
    kernel = RBF()
    made = InducingMap(kernel, [[0.0], [1.0]])
    before = made.features([[0.5]])[0]
    kernel.set_params(scale=9.0)
    np.testing.assert_array_equal(made.features([[0.5]])[0], before)


# ---- gradients -------------------------------------------------------------------------------


def sum_of_squares_and_residual(phi, residual, mix):
    """Depends on Φ through ΦΦᵀ, and on the residual."""
    return ((phi @ phi.T) * mix).sum() + (residual * mix[0]).sum()


@pytest.mark.parametrize("kernel", [k for k, _ in CASES.values() if k.shape_parameters()], ids=str)
def test_gradient_in_every_number(kernel):
    rng = np.random.default_rng(0)
    Z, X = rng.normal(size=(4, 5)), rng.normal(size=(6, 5))
    points, cross = inner_products(Z), inner_products(Z, X)
    mix = torch.from_numpy(rng.normal(size=(6, 6)))
    names = list(kernel.shape_parameters())
    start = np.array([float(log) for log in kernel.shape_parameters().values()])

    def value(logs):
        named = dict(zip(names, torch.as_tensor(logs), strict=True))
        return sum_of_squares_and_residual(*inducing_features(kernel, points, cross, named), mix)

    found = torch.autograd.functional.jacobian(value, torch.tensor(start))
    expected = oracles.slopes(lambda logs: value(logs).numpy(), start)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("budget", [0, 10**6])
@pytest.mark.parametrize("kernel", [RBF(0.4), Polynomial(2, 0.5), Linear() + RBF()], ids=str)
def test_gradient_in_group_weights(kernel, budget):
    rng = np.random.default_rng(1)
    Z, X = rng.normal(size=(4, 5)), rng.normal(size=(6, 5))
    groups, start = np.array([0, 1, 1, 0, 2]), np.array([0.2, -0.4, 0.5])
    points = GroupedProducts.between(Z, None, groups, budget)
    cross = GroupedProducts.between(Z, X, groups, budget)
    mix = torch.from_numpy(rng.normal(size=(6, 6)))

    def value(logs):
        logs = torch.as_tensor(logs)
        made = inducing_features(kernel, points.weighted(logs), cross.weighted(logs))
        return sum_of_squares_and_residual(*made, mix)

    found = torch.autograd.functional.jacobian(value, torch.tensor(start))
    expected = oracles.slopes(lambda logs: value(logs).numpy(), start)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    phi, residual = InducingMap(kernel, Z, np.exp(start)[groups]).features(X)
    same = sum_of_squares_and_residual(torch.from_numpy(phi), torch.from_numpy(residual), mix)
    np.testing.assert_allclose(value(start), same, rtol=1e-10)


def test_the_overall_variance_is_not_the_maps():
    rows = inner_products([[0.0], [1.0]])
    loud = {"log_variance": torch.tensor(3.0, dtype=torch.float64)}
    phi, residual = inducing_features(RBF(), rows, rows)
    for kernel, logs in [(RBF(), loud), (RBF(variance=7.0), None), (RBF(variance=7.0), loud)]:
        found = inducing_features(kernel, rows, rows, logs)
        assert torch.equal(found[0], phi)
        assert torch.equal(found[1], residual)
    factor = inducing_factor(RBF(), rows)
    assert torch.equal(features_from_factor(RBF(), factor, rows)[0], phi)


# ---- storing ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "made",
    [
        LinearMap(np.array([0, 2, 1])),
        InducingMap(RBF(0.3), draw_rows(0, 4, 3, repeats=False)),
        InducingMap(Linear() + RBF(0.1) * Linear(), np.eye(3), np.array([1.0, 0.5, 2.0]), 1e-6),
    ],
    ids=["linear", "rbf", "sum"],
)
def test_stored_and_read_back(made):
    arrays = made.arrays()
    assert all(isinstance(array, np.ndarray) for array in arrays.values())
    again, X = map_from_arrays(arrays), draw_rows(1, 5, 3)
    assert type(again) is type(made)
    (phi, residual), (phi2, residual2) = made.features(X), again.features(X)
    np.testing.assert_array_equal(sp.csr_matrix(phi).toarray(), sp.csr_matrix(phi2).toarray())
    np.testing.assert_array_equal(residual, residual2)
    np.testing.assert_array_equal(made.column_groups, again.column_groups)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("kernel", np.frombuffer(b"os.system", np.uint8)),
        ("kernel", np.array([255, 254], np.uint8)),
        ("jitter", np.array([np.nan])),
        ("jitter", np.array([1.0, 2.0])),
        ("points.data", np.array([1.0])),
        ("points.data", np.array([[1.0, np.inf]])),
        ("points.data", np.array([np.nan, 1.0])),
        ("points.indices", np.array([0, 7])),
        ("points.indices", np.array([-1, 0])),
        ("points.indptr", np.array([0, 2, 1])),
        ("points.indptr", np.array([0, 1, 9])),
        ("points.shape", np.array([2])),
        ("points.shape", np.array([-2, 2])),
        ("points.shape", np.array([0, 0])),
        ("column_weights", np.array([1.0])),
        ("column_weights", np.array([1.0, -1.0])),
    ],
)
def test_arrays_of_no_map_are_refused(name, wrong):
    arrays = InducingMap(RBF(), np.eye(2), np.ones(2)).arrays()
    with pytest.raises(ValueError):  # noqa: PT011 — some messages are those of scipy
        map_from_arrays(arrays | {name: wrong})
    if name != "column_weights":
        with pytest.raises(KeyError):
            map_from_arrays({other: arrays[other] for other in arrays if other != name})


# ---- errors ----------------------------------------------------------------------------------


def test_wrong_arguments():
    with pytest.raises(ValueError, match="at least one point"):
        InducingMap(RBF(), sp.csr_matrix((0, 2)))
    with pytest.raises(ValueError, match="jitter is -1"):
        InducingMap(RBF(), [[1.0]], jitter=-1)
    with pytest.raises(ValueError, match=r"column_weights have shape \(2,\)"):
        InducingMap(RBF(), [[1.0]], np.ones(2))
    for made in (InducingMap(RBF(), [[1.0]]), LinearMap(np.array([0]))):
        with pytest.raises(ValueError, match="rows have 2 columns, the feature map has 1"):
            made.features([[1.0, 2.0]])
    with pytest.raises(NotPositiveDefiniteError, match=r"k\(Z, Z\) of the inducing points"):
        InducingMap(RBF(), [[1.0], [1.0]], jitter=0.0).features([[1.0]])
