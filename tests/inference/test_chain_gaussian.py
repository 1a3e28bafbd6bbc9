"""Mode, Laplace and variational posteriors of chains against closed forms, other parametrisations
and importance sampling."""

from dataclasses import replace

import numpy as np
import pyro
import pytest
import torch
from pyro.infer import SVI, Trace_ELBO
from pyro.optim import ClippedAdam
from scipy.optimize import minimize

from bayeseq.inference.chain_gaussian import ChainSolver, Mode
from bayeseq.inference.chain_likelihood import likelihood
from bayeseq.inference.information import JointFamily
from bayeseq.inference.joint_guide import JointGuide
from bayeseq.kernels import Polynomial
from bayeseq.kernels.maps import exact_map
from bayeseq.models import GPSCModel
from bayeseq.shapes import Layout
from tests.inference.chains import chain_model


def solver(model, kind="full", learn=False, **options):
    learned = torch.full((len(model.log_variance),), learn)
    return ChainSolver(model, JointFamily(kind), learned, **{"tol": 1e-7, **options})


def test_the_mode_is_where_the_gradient_vanishes():
    model = chain_model(0)
    u, search = solver(model).mode(tol=1e-14)
    assert search.converged
    gradient = likelihood(model, u).gradient - u
    assert gradient.abs().max() < 1e-5


@pytest.mark.parametrize("seed", range(3))
def test_a_search_for_the_mode_knows_how_far_it_is(seed):
    """The value is within `excess` of the least one wherever it is asked for, and the gradient is
    that of differences."""
    model = chain_model(seed, (5, 4, 6), C=3, D=4, variance=2.0)
    least = solver(model).mode(tol=1e-14)[1].objective[-1]
    mode, rng = Mode(model), np.random.default_rng(seed)
    for size in (0.0, 0.3, 2.0):
        z = rng.normal(size=len(mode.step)) * size
        value, gradient = mode(z)
        assert least - 1e-9 <= value <= least + mode.excess
        move = rng.normal(size=len(z)) * 1e-6
        slope = (mode(z + move)[0] - mode(z - move)[0]) / 2
        assert slope == pytest.approx(gradient @ move, abs=1e-10)
    _, search = solver(model).mode(tol=1e-3)
    assert search.objective[-1] <= least + 1e-3 * abs(search.objective[-1])


def gamma_objective(G, labels, lengths, C):
    """[gpsc] eq. 12 with f = G γ1 and A = γ2 (eqs. 9-11, 17), and ½ before the penalty: by a loop
    over sequences, log Z by a forward pass."""
    N = len(labels)

    def value(flat):
        gamma1, A = flat[: N * C].reshape(N, C), flat[N * C :].reshape(C, C)
        f = G @ gamma1
        total = 0.5 * np.sum(gamma1 * f) + 0.5 * np.sum(A * A)
        first = 0
        for length in lengths:
            rows = range(first, first + length)
            forward = f[first]
            total -= f[first, labels[first]]
            for n in rows[1:]:
                total -= f[n, labels[n]] + A[labels[n - 1], labels[n]]
                forward = f[n] + np.logaddexp.reduce(forward[:, None] + A, 0)
            total += np.logaddexp.reduce(forward)
            first += length
        return total

    return value


def test_the_mode_is_that_of_the_papers_own_parameters():
    """DGPS with a polynomial kernel: the same objective, scores and transitions."""
    rng = np.random.default_rng(4)
    lengths, C = [3, 2, 1], 2
    X, labels = rng.normal(size=(6, 2)), rng.integers(2, size=6)
    layout = Layout.of(lengths)
    kernel = Polynomial(degree=2)
    features, _ = exact_map(kernel, X).features(X[layout.rows.numpy()])
    allowed = np.eye(C, dtype=bool)[labels][layout.rows.numpy()]
    model = GPSCModel.of(features, np.zeros(features.shape[1], np.int64), layout, allowed)
    u, search = solver(model).mode(tol=1e-14)
    G = kernel(X)
    value = gamma_objective(G, labels, lengths, C)
    found = minimize(value, np.zeros(6 * C + C * C), method="BFGS", options={"gtol": 1e-7})
    assert search.objective[-1] == pytest.approx(found.fun, abs=1e-6)
    f, A = model.seen(u)
    want = G @ found.x[: 6 * C].reshape(6, C)
    np.testing.assert_allclose(f.numpy(), want[layout.rows.numpy()], atol=1e-3)
    np.testing.assert_allclose(A.numpy(), found.x[6 * C :].reshape(C, C), atol=1e-3)


def test_laplace_is_the_hessian_at_the_mode_and_its_evidence():
    model = chain_model(1, C=3)
    posterior, trace = solver(model).laplace()
    u = posterior.whitened_mean.clone()

    def log_joint(flat):
        w = flat.reshape(u.shape)
        return model.log_likelihood(w).sum() - 0.5 * w.square().sum()

    H = torch.stack(
        [
            (_gradient(log_joint, u, k, 1e-5) - _gradient(log_joint, u, k, -1e-5)) / 2e-5
            for k in range(u.numel())
        ]
    )
    evidence = float(log_joint(u)) - 0.5 * float(torch.logdet(-H))
    assert trace.bound[-1] == pytest.approx(evidence, abs=1e-4)
    S = torch.linalg.inv(-H)
    torch.testing.assert_close(
        posterior.whitened_variances.reshape(-1), S.diagonal(), rtol=1e-4, atol=1e-5
    )


def _gradient(function, u, k, step):
    moved = u.reshape(-1).clone()
    moved[k] += step
    moved.requires_grad_()
    return torch.autograd.grad(function(moved), moved)[0]


@pytest.mark.parametrize("kind", ["full", "diagonal"])
@pytest.mark.parametrize("how", ["laplace", "variational"])
def test_evidence_and_bound_never_fall(kind, how):
    model = chain_model(5, (6, 5, 4, 3, 2), C=3, D=5, variance=1.0)
    posterior, trace = getattr(solver(model, kind, learn=True, tol=1e-5), how)()
    assert trace.converged
    assert len(trace.bound) > 2
    assert (np.diff(trace.bound) >= 0).all()
    assert not torch.equal(posterior.log_variance, model.log_variance)


def importance(model, posterior, n=40_000):
    """Moments of the posterior by self-normalised importance sampling, and the bound of q."""
    generator = torch.Generator().manual_seed(0)
    wide = replace(posterior, root=1.15 * posterior.root, alone=1.3225 * posterior.alone)
    u = wide.whitened_mean + wide.coloured(
        torch.randn(n, wide.alone.numel(), generator=generator, dtype=torch.float64)
    )
    log_p = model.log_likelihood(u).sum(-1) - 0.5 * u.square().sum((-2, -1))
    log_q = -0.5 * (wide.form(u - wide.whitened_mean) + wide.log_det)
    weight = torch.softmax(log_p - log_q, 0)
    assert 1 / float(weight.square().sum()) > n / 20  # enough of the draws count
    mean = torch.einsum("s,sdc->dc", weight, u)
    variance = torch.einsum("s,sdc->dc", weight, (u - mean).square())
    evidence = float(torch.logsumexp(log_p - log_q, 0)) - np.log(n)
    return mean, variance, evidence


def test_the_variational_posterior_is_near_the_true_one():
    """Means within a tenth of a standard deviation, variances within 15 %, where Laplace's are
    farther; the standard error of importance sampling is about a hundredth."""
    model = chain_model(2, (5, 4, 3, 5), C=2, D=2, variance=1.0)
    found, trace = solver(model, draws=256).variational()
    laplace, _ = solver(model).laplace()
    mean, variance, evidence = importance(model, found)
    off = ((found.whitened_mean - mean) / variance.sqrt()).abs().max()
    off_laplace = ((laplace.whitened_mean - mean) / variance.sqrt()).abs().max()
    assert off < 0.1
    assert off < off_laplace
    assert ((found.whitened_variances / variance).log().abs() < 0.15).all()
    assert trace.bound[-1] < evidence + 0.05
    assert trace.bound[-1] > evidence - 0.3


@pytest.fixture(autouse=True)
def _clean_room():
    pyro.clear_param_store()
    pyro.set_rng_seed(0)


def elbo(model, guide, n=4000):
    """The bound of a guide from n draws: its standard error is below 0.05 here."""
    with torch.no_grad():
        q = guide.distribution()
        flat = q.sample((n,))
        u = flat.reshape(n, *model.latent_shape)
        prior = torch.distributions.Normal(0.0, 1.0).log_prob(u).sum((-2, -1))
        terms = model.log_likelihood(u).sum(-1) + prior - q.log_prob(flat)
    assert float(terms.std()) / n**0.5 < 0.05
    return float(terms.mean())


@pytest.mark.parametrize("kind", ["full", "diagonal"])
def test_a_guide_takes_over_the_posterior_and_its_bound(kind):
    model = chain_model(2, (4, 3), C=2, D=2)
    found, trace = solver(model, kind, draws=512).variational()
    guide = JointGuide.from_posterior(model, found, kind)
    draws = torch.stack([guide() for _ in range(300)])
    error = found.whitened_variances.sqrt() / 300**0.5
    assert ((draws.mean(0) - found.whitened_mean).abs() < 5 * error).all()
    assert elbo(model, guide) == pytest.approx(trace.bound[-1], abs=0.1)


def test_svi_with_the_guide_reaches_the_solvers_bound():
    model = chain_model(2, (4, 3), C=2, D=2)
    _, trace = solver(model, draws=512).variational()
    guide = JointGuide(model, "full")
    before = elbo(model, guide)
    svi = SVI(model, guide, ClippedAdam({"lr": 0.05, "lrd": 0.99}), Trace_ELBO(num_particles=2))
    for _ in range(250):
        svi.step()
    assert before < trace.bound[-1] - 3
    assert elbo(model, guide) == pytest.approx(trace.bound[-1], abs=0.3)


def test_prior_variances_by_label_are_refused():
    model = chain_model()
    log_variance = model.log_variance.clone()
    log_variance[0, 0] += 1
    with pytest.raises(ValueError, match="differ between labels"):
        solver(replace(model, log_variance=log_variance))


def test_guides_of_other_kinds_are_refused():
    with pytest.raises(ValueError, match="'full' or 'diagonal'"):
        JointGuide(chain_model(), "lowrank")
