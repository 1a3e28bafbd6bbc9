"""Densities of Gaussian posteriors at draws, against dense matrices and a closed form."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from bayeseq.inference.covariance import LabelCovariance
from bayeseq.inference.density import densities, form, log_density, precision
from bayeseq.inference.joint import Basis, JointPosterior
from bayeseq.kernels.design import Design
from bayeseq.models.latent import WeightModel
from tests.inference.problems import dense, problem, solver


@pytest.mark.parametrize("kind", ["full", "block", "lowrank", "diagonal"])
@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    D=st.integers(1, 12),
)
def test_density_of_each_covariance_family(kind, seed, lengths, D):
    model = problem(seed, lengths, C=2, D=D).model
    posterior, _ = solver(model, kind, rank=2, max_sweeps=3).solve(model.log_variance)
    weights = posterior.draws(5, torch.Generator().manual_seed(seed))
    expected = np.zeros(5)
    for c, S in enumerate(posterior.covariances):
        matrix = dense(S, len(model.groups))
        mean = posterior.mean[:, c].numpy()
        found = multivariate_normal(mean, (matrix + matrix.T) / 2).logpdf(weights[:, :, c].numpy())
        expected += found
    np.testing.assert_allclose(log_density(posterior, weights).numpy(), expected, rtol=1e-7)


@pytest.mark.parametrize("kind", ["full", "block", "lowrank", "diagonal"])
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), C=st.integers(2, 4), D=st.integers(1, 6))
def test_ratios_are_those_of_differences_between_labels(kind, seed, C, D):
    """By an orthonormal basis H of what is orthogonal to the sum over labels, written out."""
    model = problem(seed, [3, 2], C=C, D=D).model
    model = replace(model, log_variance=model.log_variance + 0.7)
    posterior, _ = solver(model, kind, rank=2, max_sweeps=3).solve(model.log_variance)
    found = densities(model, posterior, 6, torch.Generator().manual_seed(seed))
    u = (posterior.draws(6, torch.Generator().manual_seed(seed)) / model.scale).numpy()
    H = np.linalg.qr(np.column_stack([np.ones(C), np.eye(C)[:, 1:]]))[0][:, 1:].T
    n, scale = len(model.groups), model.scale[:, 0].numpy()
    covariance = np.zeros(((C - 1) * n, (C - 1) * n))
    for c, S in enumerate(posterior.covariances):
        white = dense(S, n) / scale / scale[:, None]
        covariance += np.kron(np.outer(H[:, c], H[:, c]), white)
    mean = (H @ (posterior.mean / model.scale).numpy().T).ravel()
    covariance = (covariance + covariance.T) / 2
    differences = np.array([(H @ draw.T).ravel() for draw in u])
    log_q = multivariate_normal(mean, covariance).logpdf(differences)
    log_p = multivariate_normal(np.zeros(len(mean))).logpdf(differences)
    expected = model.log_likelihood(torch.from_numpy(u)).sum(-1).numpy() + log_p - log_q
    np.testing.assert_allclose(found.log_ratios.numpy(), expected, rtol=1e-6, atol=1e-6)


def test_densities_of_draws_average_to_the_bound():
    """E_q[log p − log q] of all weights is the bound that the solver reports, and that of what
    scores see of them is no lower."""
    model = problem(3, [4, 3, 5], C=3).model
    posterior, trace = solver(model, rule="exact").solve(model.log_variance)
    drawn = densities(model, posterior, 4000, torch.Generator().manual_seed(0))
    found = drawn.log_p - drawn.log_q
    error = float(found.std()) / np.sqrt(len(found))
    assert abs(float(found.mean()) - trace.bound[-1]) < 4 * error + 1e-3
    assert drawn.log_ratios.mean() > found.mean()
    assert drawn.log_ratios.std() < found.std()


def test_an_unknown_covariance_is_refused():
    class Other(LabelCovariance):
        def times(self, columns):
            return columns

        def row_variances(self, design):
            return design

        def sample(self, noise):
            return noise

    with pytest.raises(TypeError, match="inverse of a Other"):
        form(Other(), torch.zeros(1, 1))
    with pytest.raises(TypeError, match="inverse of a Other"):
        precision(Other())


def test_large_covariances_are_refused(monkeypatch):
    monkeypatch.setattr("bayeseq.inference.density.LARGEST_PRECISION", 3)
    model = problem(0, [3], C=2, D=4).model
    for kind in ("full", "diagonal"):
        posterior, _ = solver(model, kind, max_sweeps=2).solve(model.log_variance)
        if kind == "diagonal":
            assert densities(model, posterior, 2, torch.Generator()).log_sum.isfinite().all()
        else:
            with pytest.raises(ValueError, match="too large to take apart"):
                densities(model, posterior, 2, torch.Generator())


@dataclass(frozen=True, eq=False)
class Regression(WeightModel):
    """y = Ψ w + noise of variance 1: its posterior is a Gaussian in closed form."""

    design: Design
    groups: torch.Tensor
    log_variance: torch.Tensor
    y: torch.Tensor
    n_dependent: int = 0

    def seen(self, whitened):
        return (self.design.product(self.scaled(whitened))[..., 0],)

    def log_likelihood_of(self, seen):
        return -0.5 * (self.y - seen[0]).square() - 0.5 * np.log(2 * np.pi)


def regression(seed=0, N=6, D=3):
    """A model, its exact posterior and its log evidence."""
    rng = np.random.default_rng(seed)
    design, y = rng.normal(size=(N, D)), rng.normal(size=N)
    log_variance = torch.tensor([[np.log(2.0)]], dtype=torch.float64)
    groups = torch.zeros(D, dtype=torch.long)
    model = Regression(Design(design), groups, log_variance, torch.from_numpy(y))
    scale = np.sqrt(2.0)
    precision = np.eye(D) + scale**2 * design.T @ design
    covariance = np.linalg.inv(precision)
    mean = covariance @ (scale * design.T @ y)
    # F lower triangular with Fᵀ F = S: the inverse of the Cholesky factor of S⁻¹
    root = torch.from_numpy(np.linalg.inv(np.linalg.cholesky(precision)))
    posterior = JointPosterior(
        torch.from_numpy(mean).unsqueeze(-1),
        log_variance,
        torch.full((D, 1), scale, dtype=torch.float64),
        Basis(torch.ones(1, 1, dtype=torch.float64), torch.arange(D)),
        root,
        torch.ones(D, dtype=torch.float64),
    )
    evidence = multivariate_normal(np.zeros(N), np.eye(N) + 2 * design @ design.T).logpdf(y)
    return model, posterior, float(evidence)


@pytest.mark.parametrize("seed", range(3))
def test_the_exact_posterior_weighs_all_draws_alike(seed):
    """log p(y, w) − log q(w) is then log p(y), whatever w is."""
    model, posterior, evidence = regression(seed)
    found = densities(model, posterior, 200, torch.Generator().manual_seed(1))
    np.testing.assert_allclose(found.log_ratios.numpy(), evidence, rtol=0, atol=1e-9)


def test_draws_are_made_in_parts(monkeypatch):
    model, posterior, evidence = regression()
    monkeypatch.setattr("bayeseq.inference.density._NUMBERS_AT_ONCE", 60)
    parts = densities(model, posterior, 20, torch.Generator().manual_seed(1))
    assert parts.log_likelihood.shape == (20, 6)
    assert len(parts.log_q.unique()) == 20
    np.testing.assert_allclose(parts.log_ratios.numpy(), evidence, rtol=0, atol=1e-9)
    narrow = replace(posterior, root=posterior.root / 2)
    assert float(densities(model, narrow, 20, torch.Generator()).log_ratios.std()) > 0.1
