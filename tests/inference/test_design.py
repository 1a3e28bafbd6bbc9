"""Products with a design against dense algebra."""

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings

from bayeseq.kernels import design as module
from bayeseq.kernels.design import Design

CLOSE = {"rtol": 0, "atol": 1e-12}


@st.composite
def matrices(draw):
    """A matrix with empty rows and columns, its design, and how pairs are to be summed."""
    N, D = draw(st.integers(1, 6)), draw(st.integers(0, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dense = rng.normal(size=(N, D)) * (rng.random((N, D)) < draw(st.sampled_from([0.1, 0.4, 1.0])))
    if draw(st.booleans()):
        dense[rng.integers(N)] = 0.0
    made = Design(sp.csr_matrix(dense) if draw(st.booleans()) else dense)
    return dense, made, draw(st.sampled_from(["pairs", "products", "as it comes"])), rng


def with_path(path):
    """Whether sums run over pairs of non-zeros or go through matrix products."""
    patch = pytest.MonkeyPatch()
    if path == "pairs":
        patch.setattr(module, "_MOST_PAIRS", 2**62)
        patch.setattr(module, "min", lambda most, _: most, raising=False)
    if path == "products":
        patch.setattr(module, "_MOST_PAIRS", -1)
    return patch


def same(found, want):
    assert found.dtype == torch.float64
    assert tuple(found.shape) == want.shape
    np.testing.assert_allclose(found.numpy(), want, **CLOSE)


@settings(max_examples=80, deadline=None)
@given(matrices(), st.integers(1, 3))
def test_products_equal_dense_algebra(problem, C):
    psi, design, _, rng = problem
    N, D = psi.shape
    assert design.shape == (N, D)
    W, R = rng.normal(size=(D, C)), rng.normal(size=(N, C))
    same(design.times(torch.tensor(W)), psi @ W)
    same(design.transpose_times(torch.tensor(R)), psi.T @ R)
    same(design.squared_times(torch.tensor(W**2)), psi**2 @ W**2)
    same(design.squared_transpose_times(torch.tensor(R)), (psi**2).T @ R)
    same(design.times(torch.tensor(W[:, 0])), psi @ W[:, 0])
    same(design.squared_transpose_times(torch.tensor(R[:, 0])), (psi**2).T @ R[:, 0])


@settings(max_examples=150, deadline=None)
@given(matrices())
def test_quadratic_forms_equal_dense_algebra(problem):
    psi, design, path, rng = problem
    N, D = psi.shape
    curvature = rng.random(N)
    M = rng.normal(size=(D, D))
    M = M + M.T
    big = rng.normal(size=(N, N))
    big = big + big.T
    patch = with_path(path)
    try:
        if design.sparse and path != "as it comes":
            assert (design._pairs is None) == (path == "products")
        same(design.columns_gram(torch.tensor(curvature)), psi.T @ np.diag(curvature) @ psi)
        forms = [psi[n] @ M @ psi[n] for n in range(N)]
        same(design.row_forms(torch.tensor(M)), np.array(forms))
        forms = [psi[:, k] @ big @ psi[:, k] for k in range(D)]
        same(design.column_forms(torch.tensor(big)), np.array(forms))
    finally:
        patch.undo()


@settings(max_examples=60, deadline=None)
@given(matrices(), st.booleans(), st.integers(1, 4))
def test_products_of_rows_with_rows(problem, sparse, n_other):
    psi, design, _, rng = problem
    D = psi.shape[1]
    other = rng.normal(size=(n_other, D)) * (rng.random((n_other, D)) < 0.5)
    second = Design(sp.csr_matrix(other) if sparse else other)
    t = rng.random(D)
    same(design.rows_gram(torch.tensor(t)), psi @ np.diag(t) @ psi.T)
    same(design.rows_gram(torch.tensor(t), second), psi @ np.diag(t) @ other.T)


@settings(max_examples=60, deadline=None)
@given(matrices(), st.data())
def test_parts_of_a_design(problem, data):
    psi, design, _, _ = problem
    N, D = psi.shape

    def dense(part):
        return part.matrix.toarray() if part.sparse else part.matrix

    np.testing.assert_array_equal(dense(design.transposed()), psi.T)
    some = np.array(data.draw(st.lists(st.integers(0, N - 1), max_size=4)), dtype=np.int64)
    np.testing.assert_array_equal(dense(design.select(some)), psi[some])
    column = data.draw(st.integers(0, D))
    before, after = design.split(column)
    np.testing.assert_array_equal(dense(before), psi[:, :column])
    np.testing.assert_array_equal(dense(after), psi[:, column:])
    assert before.sparse == after.sparse == design.sparse
    assert design.split(column)[0] is before
    assert design.split(column)[1] is after


def test_a_design_without_a_feature():
    design = Design(sp.csr_matrix((3, 2)))
    same(design.columns_gram(torch.ones(3).double()), np.zeros((2, 2)))
    same(design.row_forms(torch.ones(2, 2).double()), np.zeros(3))


def test_many_pairs_go_through_a_matrix_product_and_few_do_not():
    rng = np.random.default_rng(0)
    full = sp.csr_matrix(rng.normal(size=(5, 16)))
    thin = sp.csr_matrix(np.eye(5, 16))
    assert Design(full)._pairs is None
    assert Design(thin)._pairs is not None
