"""One weight for each group of columns: values and gradients, kept by group or not."""

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bayeseq.kernels import RBF, GroupedProducts, Linear, inner_products
from bayeseq.kernels import groups as module
from tests.kernels import oracles
from tests.kernels.rows import draw_rows

each_way = pytest.mark.parametrize("budget", [0, 10**6], ids=["made when needed", "kept"])


@each_way
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 4), st.integers(1, 6))
def test_equals_weighted_columns(budget, seed, n, m, D):
    rng = np.random.default_rng(seed)
    X, Z = draw_rows(seed, n, D), draw_rows(seed + 1, m, D)
    groups = rng.integers(0, 3, D)
    groups[0] = 2  # some of the others may have no column
    logs = rng.normal(size=3)
    made = GroupedProducts.between(sp.csr_matrix(X), sp.csr_matrix(Z), groups, budget)
    assert (made.stack is None) == (budget == 0)
    found = made.weighted(torch.tensor(logs))
    expected = inner_products(X, Z, np.exp(logs)[groups])
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@each_way
@pytest.mark.parametrize("block", [1, 2**22])
@pytest.mark.parametrize("kernel", [Linear(0.5), RBF(0.7)], ids=str)
def test_gradient(budget, block, kernel, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", block)
    X, Z = draw_rows(1, 6, 7), draw_rows(2, 4, 7)
    groups, start = np.array([0, 1, 2, 0, 1, 2, 2]), np.array([0.3, -0.5, 0.1])
    made = GroupedProducts.between(X, Z, groups, budget)
    mix = torch.from_numpy(np.random.default_rng(0).normal(size=(6, 4)))

    def value(logs):
        return (kernel.of(*made.weighted(torch.as_tensor(logs))) * mix).sum()

    found = torch.autograd.functional.jacobian(value, torch.tensor(start))
    expected = oracles.slopes(lambda logs: value(logs).numpy(), start)
    np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_linear_is_a_sum_of_groups_and_rbf_has_a_length_scale_a_group():
    X, groups = draw_rows(3, 5, 4), np.array([0, 0, 1, 1])
    logs = torch.tensor([0.4, -0.9], dtype=torch.float64)
    made = GroupedProducts.between(X, None, groups).weighted(logs)
    a, b = np.exp(logs.numpy())
    close = partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-12)
    close(Linear().of(*made), a * X[:, :2] @ X[:, :2].T + b * X[:, 2:] @ X[:, 2:].T)
    weights = [a, a, b, b]
    close(RBF().of(*made), oracles.gram(partial(oracles.rbf, weights=weights), X, X))


@each_way
def test_rows_with_themselves_are_exactly_symmetric(budget):
    X, groups = draw_rows(4, 20, 9), np.arange(9) % 3
    K = GroupedProducts.between(X, None, groups, budget).weighted(torch.tensor([0.1, 0.7, -0.3]))
    assert torch.equal(K.products, K.products.T)


def test_wrong_groups():
    X = [[1.0, 2.0]]
    with pytest.raises(ValueError, match=r"column_groups have shape \(1,\), expected \(2,\)"):
        GroupedProducts.between(X, None, np.array([0]))
    for groups in (np.array([0.0, 1.0]), np.array([0, -1])):
        with pytest.raises(ValueError, match="whole numbers"):
            GroupedProducts.between(X, None, groups)
    with pytest.raises(ValueError, match="2 columns on one side, 1 on the other"):
        GroupedProducts.between(X, [[1.0]], np.array([0, 1]))
    with pytest.raises(ValueError, match=r"log_weights have shape \(3,\) beside 2 groups"):
        GroupedProducts.between(X, None, np.array([0, 1])).weighted(torch.zeros(3))
