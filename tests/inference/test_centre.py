"""The search for the mean of a Gaussian over weights, against loops over draws and differences."""

import numpy as np
import pytest
import torch

from bayeseq.inference.centre import Centre, centred
from bayeseq.inference.chain_likelihood import likelihood, mean_likelihood
from bayeseq.inference.information import JointFamily
from bayeseq.inference.joint import mirrored_draws
from tests.inference.chains import chain_model


def problem(seed, missing=0.0, draws=6):
    """A model, a Gaussian near its posterior and deviations of it."""
    model = chain_model(seed, (5, 4, 1, 6), C=3, D=4, missing=missing)
    u = torch.tensor(np.random.default_rng(seed).normal(size=model.latent_shape)) / 2
    near = JointFamily("full", 15).information(model, model.chain(model.seen(u)))
    near = near.posterior(model, u)
    return model, near, near.coloured(mirrored_draws(draws, u.numel(), seed))


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_the_mean_over_deviations_is_that_of_a_loop(missing):
    model, near, deviations = problem(0, missing)
    u = near.whitened_mean
    found = mean_likelihood(model, u, model.seen(deviations))
    each = [likelihood(model, u + deviation) for deviation in deviations]
    torch.testing.assert_close(found.value, torch.stack([one.value for one in each]).mean())
    torch.testing.assert_close(
        found.gradient, torch.stack([one.gradient for one in each]).mean(0), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_is_that_of_differences(seed):
    model, near, deviations = problem(seed)
    centre, rng = Centre(model, near, deviations), np.random.default_rng(seed)
    z, move = rng.normal(size=len(near.alone)), rng.normal(size=len(near.alone)) * 1e-6
    slope = (centre(z + move)[0] - centre(z - move)[0]) / 2
    assert slope == pytest.approx(centre(z)[1] @ move, abs=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_the_mean_is_where_the_bound_is_level(seed):
    """And the value there is the mean log-likelihood; a mode is searched with no deviation."""
    model, near, deviations = problem(seed)
    for some in (deviations, torch.zeros_like(deviations[:1])):
        mean, value = centred(model, near, some, 1e-14)
        found = [likelihood(model, mean + deviation) for deviation in some]
        gradient = torch.stack([one.gradient for one in found]).mean(0) - mean
        assert gradient.abs().max() < 1e-4
        assert value == pytest.approx(float(np.mean([float(one.value) for one in found])))


def test_another_prior_variance_is_allowed_for():
    """The Gaussian nearby may have been found with other prior variances."""
    _, near, deviations = problem(1)
    wider = chain_model(1, (5, 4, 1, 6), C=3, D=4, variance=1.5)
    mean, _ = centred(wider, near, deviations, 1e-14)
    gradient = mean_likelihood(wider, mean, wider.seen(deviations)).gradient - mean
    assert gradient.abs().max() < 1e-4
