"""Densities of Gaussian posteriors at draws, against dense matrices and a closed form."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from bayeseq.inference.covariance import LabelCovariance
from bayeseq.inference.density import densities, form, log_density
from bayeseq.inference.joint import JointPosterior
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


def test_densities_of_draws_average_to_the_bound():
    """E_q[log p − log q] is the bound that the solver reports (with the exact expectation)."""
    model = problem(3, [4, 3, 5], C=3).model
    posterior, trace = solver(model, rule="exact").solve(model.log_variance)
    found = densities(model, posterior, 4000, torch.Generator().manual_seed(0)).log_ratios
    error = float(found.std()) / np.sqrt(len(found))
    assert abs(float(found.mean()) - trace.bound[-1]) < 4 * error + 1e-3


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
        torch.arange(D),
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
