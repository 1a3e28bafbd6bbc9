"""Elliptical slice sampling against posteriors known in closed form, by quadrature, by importance
sampling from the prior, and by NUTS. Tolerances are in Monte-Carlo standard errors, found from the
spread of independent chains."""

from dataclasses import dataclass, replace

import numpy as np
import pyro
import pytest
import scipy.sparse as sp
import torch
from pyro.infer import MCMC, NUTS

from bayeseq.inference.elliptical import EllipticalSlice
from bayeseq.inference.ensemble import CIRCLE, Ensemble
from bayeseq.inference.joint import Basis, JointPosterior, contrasts
from bayeseq.inference.reference import DenseReference, JointReference
from bayeseq.inference.slices import slice_move, step_out
from bayeseq.inference.variances import VarianceMoves, VariancePrior
from bayeseq.kernels.design import Design
from bayeseq.models import GPSCModel
from bayeseq.models.gpsl import GPSLModel
from bayeseq.models.latent import LatentModel, WeightModel
from bayeseq.shapes import Layout


@dataclass(frozen=True, eq=False)
class Regression(LatentModel):
    """y ~ N(X u, s²): the posterior is N(S Xᵀy / s², S) with S⁻¹ = I + XᵀX / s²."""

    X: torch.Tensor
    y: torch.Tensor
    noise: float

    @property
    def latent_shape(self):
        return (self.X.shape[1],)

    def seen(self, whitened):
        return (whitened @ self.X.T,)

    def log_likelihood(self, whitened):
        return self.log_likelihood_of(self.seen(whitened))

    def log_likelihood_of(self, seen):
        return -0.5 * ((self.y - seen[0]) / self.noise) ** 2

    def posterior(self):
        precision = np.eye(self.X.shape[1]) + (self.X.T @ self.X).numpy() / self.noise**2
        S = np.linalg.inv(precision)
        return S @ (self.X.T @ self.y).numpy() / self.noise**2, S


def regression(seed=0, n=6, d=3, noise=0.5):
    rng = np.random.default_rng(seed)
    return Regression(
        torch.tensor(rng.normal(size=(n, d))), torch.tensor(rng.normal(size=n)), noise
    )


def run(ensemble, sweeps, warmup, tune=True, moves=None):
    """(S, sweeps, …) the whitened weights after the warm-up."""
    kept = []
    for k in range(warmup + sweeps):
        if tune and k == warmup // 2:
            ensemble.tune(True)
        if tune and k == warmup:
            ensemble.tune(False)
        ensemble.sweep()
        if moves is not None:
            moves.sweep()
        if k >= warmup:
            kept.append(ensemble.weights.clone())
    return torch.stack(kept, 1).numpy()


def assert_mean(found, want, errors=4.5):
    """Chains' means (S, …) of something against its expectation."""
    by_chain = found.mean(1)
    error = by_chain.std(0, ddof=1) / np.sqrt(len(by_chain))
    assert (error < 0.05 * max(1.0, np.abs(want).max())).all(), "the test says too little"
    np.testing.assert_array_less(np.abs(by_chain.mean(0) - want), errors * error + 1e-12)


def assert_moments(found, mean, covariance):
    assert_mean(found, mean)
    centred = found - mean
    assert_mean(centred[..., :, None] * centred[..., None, :], covariance)


@pytest.mark.parametrize("reference", ["prior", "posterior", "poor"])
@pytest.mark.parametrize("tune", [True, False])
def test_gaussian_posteriors(reference, tune):
    model = regression()
    mean, S = model.posterior()
    about = None
    if reference == "posterior":
        about = DenseReference.of(torch.tensor(mean), torch.tensor(S))
    if reference == "poor":
        spread = np.diag([0.3, 2.0, 0.7]) + 0.1
        about = DenseReference.of(torch.tensor(mean + 0.3), torch.tensor(spread))
    ensemble = Ensemble(model, 64, np.random.default_rng(1), reference=about, refresh=50)
    found = run(ensemble, 400, 60, tune)
    assert_moments(found, mean, S)
    assert (ensemble.width < CIRCLE) == tune or reference == "posterior"


def test_a_reference_that_is_the_posterior_is_always_accepted():
    model = regression()
    mean, S = model.posterior()
    about = DenseReference.of(torch.tensor(mean), torch.tensor(S))
    ensemble = Ensemble(model, 16, np.random.default_rng(0), reference=about)
    for _ in range(20):
        ensemble.sweep()
    assert ensemble.evaluations == 16 * 20


def test_what_is_carried_along_is_what_the_state_gives():
    model = regression()
    mean, S = model.posterior()
    for about in (None, DenseReference.of(torch.tensor(mean + 0.2), torch.tensor(2 * S))):
        ensemble = Ensemble(model, 5, np.random.default_rng(0), reference=about, refresh=10**6)
        for _ in range(500):
            ensemble.sweep()
        want = model.log_likelihood(ensemble.weights).sum(-1)
        np.testing.assert_allclose(ensemble.log_likelihood, want, rtol=0, atol=1e-9)


def random_chain(C, weights=None, seed=0):
    rng = np.random.default_rng(seed)
    layout = Layout.of(rng.integers(1, 30, size=20).tolist())
    X = sp.random(layout.n_tokens, 40, density=0.15, random_state=rng, format="csr")
    allowed = np.eye(C, dtype=bool)[rng.integers(C, size=layout.n_tokens)]
    return GPSCModel.of(X, np.zeros(40, int), layout, allowed, weights=weights)


@pytest.mark.parametrize(("C", "error"), [(2, 1e-9), (3, 1e-9), (5, 1e-4)])
@pytest.mark.parametrize("with_reference", [False, True])
def test_what_is_carried_along_in_chains(C, error, with_reference):
    """Rounding errors of 200 sweeps, of more chains than are evaluated together: with more than
    three labels they are those of single precision."""
    model = random_chain(C)
    about = None
    if with_reference:
        D = int(np.prod(model.latent_shape))
        spread = torch.diag(torch.full((D,), 0.5).double())
        about = DenseReference.of(torch.full(model.latent_shape, 0.1).double(), spread)
    ensemble = Ensemble(model, 70, np.random.default_rng(0), reference=about, refresh=10**6)
    for _ in range(200):
        ensemble.sweep()
    want = model.log_likelihood(ensemble.weights).sum(-1)
    np.testing.assert_allclose(ensemble.log_likelihood, want, rtol=0, atol=error)


def test_one_chain_of_pyro_is_one_of_many():
    model = regression()
    mean, S = model.posterior()
    pyro.set_rng_seed(3)
    kernel = MCMC(EllipticalSlice(model), num_samples=3000, warmup_steps=100, disable_progbar=True)
    kernel.run()
    draws = kernel.get_samples()["weights"].numpy().reshape(30, 100, 3)  # pieces for chains
    assert_moments(draws, mean, S)


def test_pyro_repeats_itself_and_starts_where_it_is_told():
    model = regression()
    found = []
    for _ in range(2):
        pyro.set_rng_seed(5)
        kernel = EllipticalSlice(model)
        kernel.initial_params = {"weights": torch.full((3,), 7.0).double()}
        chain = MCMC(kernel, num_samples=3, warmup_steps=0, disable_progbar=True)
        chain.run()
        found.append(chain.get_samples()["weights"])
    assert torch.equal(*found)
    assert float(found[0][0].abs().max()) > 1


def test_one_number_in_many_chains():
    """A skewed density on a half line, with stepping out from a bracket far too narrow."""
    rng = np.random.default_rng(0)

    def density(chains, x):
        return torch.where(x > 0, 2 * torch.log(x.clamp_min(1e-300)) - x, -torch.inf)  # Gamma(3)

    at = torch.ones(400, dtype=torch.float64)
    kept = []
    for k in range(130):
        at, value, _ = slice_move(density, at, density(None, at), 0.3, rng)
        np.testing.assert_array_equal(value, density(None, at))
        if k >= 30:
            kept.append(at.clone())
    kept = torch.stack(kept, 1).numpy()
    assert_mean(kept, 3.0)
    assert_mean((kept - 3) ** 2, 3.0)


def test_stepping_out_stops():
    at = torch.zeros(50, dtype=torch.float64)
    flat = torch.zeros(50, dtype=torch.float64)
    low, high, _ = step_out(lambda c, x: x * 0, flat - 1, at, 1.0, np.random.default_rng(0), 5)
    np.testing.assert_allclose(high - low, 5.0)
    assert bool((low < 0).all())
    assert bool((high > 0).all())


# ---- the models of the library -------------------------------------------------------------------


def tiny_chain(seed=0, partial=False):
    rng = np.random.default_rng(seed)
    layout = Layout.of([3, 1, 2])
    allowed = np.eye(2, dtype=bool)[[0, 1, 1, 0, 1, 1]]
    if partial:
        allowed[2] = True
    X = sp.csr_matrix(rng.normal(size=(6, 2)))
    weights = torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64)
    model = GPSCModel.of(X, np.array([0, 1]), layout, allowed, weights=weights)
    start = torch.tensor([[1.0], [0.0], [0.5]]).double().expand(3, 2).clone()
    return replace(model, log_variance=start)


def tiny_pseudo(seed=0):
    rng = np.random.default_rng(seed)
    layout = Layout.of([3, 1, 2])
    allowed = np.eye(2, dtype=bool)[[0, 1, 1, 0, 1, 1]]
    X = sp.csr_matrix(rng.normal(size=(6, 2)))
    return GPSLModel.of(X, np.array([0, 1]), layout, allowed, (-1,))


def by_importance(model, n=150_000, seed=0):
    """Posterior means and variances of the weights, from draws of the prior."""
    u = torch.tensor(np.random.default_rng(seed).normal(size=(n, *model.latent_shape)))
    with torch.no_grad():
        w = torch.softmax(model.log_likelihood(u).sum(-1), 0).reshape(-1, 1, 1)
    mean = (w * u).sum(0)
    variance = (w * (u - mean) ** 2).sum(0)
    size = float(1 / w.square().sum())
    return mean.numpy(), variance.numpy(), size


@pytest.mark.parametrize("make", [tiny_chain, lambda: tiny_chain(partial=True), tiny_pseudo])
@pytest.mark.parametrize("with_reference", [False, True])
def test_posteriors_by_importance_sampling(make, with_reference):
    model = make()
    mean, variance, size = by_importance(model)
    about = None
    if with_reference:
        spread = torch.diag(torch.tensor(variance).flatten() * 1.1)
        about = DenseReference.of(torch.tensor(mean) + 0.05, spread)
    found = run(Ensemble(model, 32, np.random.default_rng(2), reference=about), 400, 40)
    flat = found.reshape(32, 400, -1)
    for values, want in ((flat, mean), ((flat - mean.flatten()) ** 2, variance)):
        by_chain = values.mean(1)
        own = by_chain.std(0, ddof=1) / np.sqrt(32)
        other = np.sqrt(values.var((0, 1)) / size)  # of the oracle
        error = np.hypot(own, other)
        assert error.max() < 0.04
        np.testing.assert_array_less(np.abs(by_chain.mean(0) - want.flatten()), 4.5 * error)


@pytest.mark.parametrize("make", [tiny_chain, tiny_pseudo])
def test_posteriors_by_nuts(make):
    model = make()
    pyro.set_rng_seed(0)
    chain = MCMC(NUTS(model, max_tree_depth=3), 200, warmup_steps=80, disable_progbar=True)
    chain.run()
    theirs = chain.get_samples()["weights"].numpy().reshape(10, 20, -1)
    ours = run(Ensemble(model, 32, np.random.default_rng(2)), 250, 40).reshape(32, 250, -1)
    for power in (1, 2):
        a, b = (x**power for x in (ours, theirs))
        error = np.hypot(*(x.mean(1).std(0, ddof=1) / np.sqrt(len(x)) for x in (a, b)))
        assert error.max() < 0.25 * power
        np.testing.assert_array_less(np.abs(a.mean((0, 1)) - b.mean((0, 1))), 4.5 * error)


# ---- prior variances -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Scaled(WeightModel):
    """One weight a group, y_g ~ N(w_g, s²): each variance has a posterior in one dimension."""

    y: torch.Tensor
    noise: float
    groups: torch.Tensor
    log_variance: torch.Tensor
    design: Design | None = None
    n_dependent: int = 0

    def seen(self, whitened):
        return (self.scaled(whitened),)

    def log_likelihood_of(self, seen):
        return (-0.5 * ((self.y - seen[0]) / self.noise) ** 2).flatten(-2)


@pytest.mark.parametrize("with_reference", [False, True])
def test_variances_by_quadrature(with_reference):
    y = torch.tensor([[3.0], [0.2]], dtype=torch.float64)
    model = Scaled(y, 0.5, torch.tensor([0, 1]), torch.zeros(2, 1, dtype=torch.float64))
    prior = VariancePrior(0.5, 1.5)
    about = None
    if with_reference:
        spread = torch.tensor([[0.4, 0.1], [0.1, 0.8]]).double()
        about = DenseReference.of(torch.tensor([[1.0], [0.1]]).double(), spread)
    ensemble = Ensemble(model, 64, np.random.default_rng(0), reference=about)
    moves = VarianceMoves(ensemble, prior)
    kept = []
    for k in range(330):
        ensemble.sweep()
        moves.sweep()
        if k >= 30:
            kept.append(ensemble.log_variance[..., 0].clone())
    found = torch.stack(kept, 1).numpy()
    grid = np.linspace(-9, 10, 4001)
    total = np.exp(grid) + 0.25  # of y: prior and noise
    for g in range(2):
        log_p = -0.5 * ((grid - 0.5) / 1.5) ** 2
        log_p = log_p - 0.5 * np.log(total) - 0.5 * float(y[g]) ** 2 / total
        p = np.exp(log_p - log_p.max())
        p /= p.sum()
        mean = (p * grid).sum()
        assert_mean(found[..., g], mean)
        assert_mean((found[..., g] - mean) ** 2, (p * (grid - mean) ** 2).sum())


def test_variances_of_groups_of_a_chain():
    """Geweke's test: data drawn from the model, then one step of the sampler for weights and
    variances, again and again, leave the prior of the variances as it is."""
    rng = np.random.default_rng(0)
    base = tiny_chain()
    prior = VariancePrior(-0.5, 0.8)
    S, rounds = 20, 30
    kept = np.zeros((S, rounds, 3))
    for s in range(S):
        v = prior.mean + prior.sd * rng.normal(size=3)
        u = torch.tensor(rng.normal(size=(1, *base.latent_shape)))
        for k in range(rounds):
            log_variance = torch.tensor(v).unsqueeze(-1).expand(3, 2).clone()
            model = replace(base, log_variance=log_variance)
            model = replace(model, allowed=drawn_labels(model, u[0], rng))
            model = replace(model, weights=torch.ones(3, dtype=torch.float64))
            ensemble = Ensemble(model, 1, rng, latent=u)
            moves = VarianceMoves(ensemble, prior)
            ensemble.sweep()
            moves.sweep()
            u, v = ensemble.weights, ensemble.log_variance[0, :, 0].numpy().copy()
            kept[s, k] = v
    by_chain = kept.mean(1)
    error = by_chain.std(0, ddof=1) / np.sqrt(S)
    assert error.max() < 0.2
    np.testing.assert_array_less(np.abs(by_chain.mean(0) - prior.mean), 4 * error)


def drawn_labels(model, u, rng):
    """Labels of every sequence, by lot among all labellings."""
    import itertools

    f, A = (x.numpy() for x in model.seen(u))
    allowed = np.zeros(model.allowed.shape, dtype=bool)
    rows = model.layout.split(torch.arange(model.layout.n_tokens))
    for own in rows:
        labellings = list(itertools.product(range(2), repeat=len(own)))
        scores = [
            sum(f[int(r), c] for r, c in zip(own, labels, strict=True))
            + sum(A[a, b] for a, b in itertools.pairwise(labels))
            for labels in labellings
        ]
        p = np.exp(np.array(scores) - np.logaddexp.reduce(scores))
        chosen = labellings[rng.choice(len(p), p=p / p.sum())]
        allowed[own.numpy(), list(chosen)] = True
    return torch.from_numpy(allowed)


def test_summaries_by_group_add_up():
    for partial in (False, True):
        model = tiny_chain(partial=partial)
        rng = np.random.default_rng(0)
        model = replace(model, log_variance=torch.tensor(rng.normal(size=(4, 3, 2))))
        u = torch.tensor(rng.normal(size=(4, *model.latent_shape)))
        whole = model.summary(u)
        parts = [model.group_summary(u, g) for g in range(3)]
        for k, want in enumerate(whole):
            np.testing.assert_allclose(sum(part[k] for part in parts), want, atol=1e-5)
        want = model.log_likelihood(u).sum(-1)
        np.testing.assert_allclose(model.total_of(whole), want, rtol=1e-5)


def test_a_joint_reference_undoes_itself():
    rng = np.random.default_rng(0)
    posterior = JointPosterior(
        torch.zeros(4, 2).double(),
        torch.zeros(2, 2).double(),
        torch.ones(4, 2).double(),
        Basis(contrasts(torch.tensor([1, 2])), torch.tensor([1, 3, 6])),
        torch.tensor(np.tril(rng.normal(size=(3, 3))) + 2 * np.eye(3)),
        torch.tensor(rng.random(8) + 0.5),
    )
    about = JointReference(posterior)
    white = torch.tensor(rng.normal(size=(4, 4, 2)))
    np.testing.assert_allclose(about.whiten(about.colour(white)), white, atol=1e-12)


def test_what_cannot_be_sampled_is_refused():
    with pytest.raises(TypeError, match="no prior variances"):
        VarianceMoves(Ensemble(regression(), 2, np.random.default_rng(0)), VariancePrior())
    with pytest.raises(ValueError, match="shape"):
        Ensemble(regression(), 2, np.random.default_rng(0), latent=torch.zeros(2, 4).double())
    uneven = tiny_chain()
    uneven = replace(uneven, log_variance=torch.tensor([[1.0, 0.0], [0, 0], [0, 0]]).double())
    with pytest.raises(ValueError, match="differ between labels"):
        VarianceMoves(Ensemble(uneven, 2, np.random.default_rng(0)), VariancePrior())
    with pytest.raises(ValueError, match="sd"):
        VariancePrior(sd=0.0)
