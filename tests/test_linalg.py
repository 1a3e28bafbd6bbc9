"""Factorising: the factor, its gradient, and errors that say what is wrong."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bayeseq.linalg import NotPositiveDefiniteError, cholesky


def positive_definite(seed, n, *lead):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(*lead, n, n))
    return torch.from_numpy(A @ np.swapaxes(A, -1, -2) + 0.1 * np.eye(n))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.sampled_from([(), (1,), (3,), (2, 2)]))
def test_factor_multiplies_back(seed, n, lead):
    matrix = positive_definite(seed, n, *lead)
    L = cholesky(matrix, "K")
    assert torch.equal(L, L.tril())
    assert bool((L.diagonal(dim1=-2, dim2=-1) > 0).all())
    torch.testing.assert_close(L @ L.mT, matrix, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("lead", [(), (3,)])
def test_jitter_is_a_part_of_the_mean_diagonal_of_each_matrix(lead):
    matrix = positive_definite(0, 4, *lead)
    L = cholesky(matrix, "K", jitter=0.5)
    product = (L @ L.mT).reshape(-1, 4, 4)
    for found, given_ in zip(product, matrix.reshape(-1, 4, 4), strict=True):
        mean = sum(float(given_[i, i]) for i in range(4)) / 4
        expected = given_ + 0.5 * mean * torch.eye(4, dtype=torch.float64)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_jitter_mends_a_singular_matrix():
    ones = torch.ones(3, 3, dtype=torch.float64)
    with pytest.raises(NotPositiveDefiniteError):
        cholesky(ones, "K")
    assert bool(cholesky(ones, "K", jitter=1e-8).isfinite().all())


def test_gradient():
    matrix = positive_definite(1, 3).requires_grad_()

    def factor(A):
        return cholesky((A + A.mT) / 2, "K", jitter=0.1)

    assert torch.autograd.gradcheck(factor, (matrix,))


def test_error_names_matrix_shape_and_eigenvalue():
    bad = torch.diag(torch.tensor([1.0, -0.25, 3.0], dtype=torch.float64))
    with pytest.raises(NotPositiveDefiniteError) as caught:
        cholesky(bad, "k(Z, Z)", jitter=1e-12)
    for piece in ("k(Z, Z)", "(3, 3)", "-0.25", "jitter 1e-12", "raise jitter"):
        assert piece in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, np.linalg.LinAlgError)


def test_error_in_a_batch_is_about_the_bad_one():
    good = torch.eye(2, dtype=torch.float64)
    bad = torch.diag(torch.tensor([2.0, -0.75], dtype=torch.float64))
    with pytest.raises(NotPositiveDefiniteError, match=r"K, of shape \(3, 2, 2\).*is -0\.75"):
        cholesky(torch.stack([good, bad, good]), "K")


@pytest.mark.parametrize(("value", "said"), [(np.nan, "1 NaN"), (-np.inf, "1 infinite")])
def test_values_that_are_not_finite_are_named(value, said):
    matrix = torch.eye(2, dtype=torch.float64)
    matrix[1, 0] = value
    with pytest.raises(NotPositiveDefiniteError, match=rf"K, of shape \(2, 2\), holds.*{said}"):
        cholesky(matrix, "K")


def test_wrong_arguments():
    with pytest.raises(ValueError, match=r"K has shape \(2, 3\)"):
        cholesky(torch.zeros(2, 3), "K")
    with pytest.raises(ValueError, match="jitter is -1"):
        cholesky(torch.eye(2), "K", jitter=-1)
    with pytest.raises(ValueError, match="jitter is nan"):
        cholesky(torch.eye(2), "K", jitter=float("nan"))
