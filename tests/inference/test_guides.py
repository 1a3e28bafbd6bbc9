"""The Pyro side of inference: guides, the program they approximate, and the solver as both see it.

Monte Carlo tolerances are five standard errors, which are computed where they are used.
"""

import copy
import math
from dataclasses import dataclass, replace

import numpy as np
import pyro
import pytest
import torch
from pyro import poutine
from pyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO
from pyro.infer.importance import psis_diagnostic, vectorized_importance_weights
from pyro.ops.stats import effective_sample_size
from pyro.optim import ClippedAdam

from bayeseq.inference.covariance import CovarianceFamily
from bayeseq.inference.expectations import expectation
from bayeseq.inference.guides import (
    BlockGuide,
    DiagonalGuide,
    LowRankGuide,
    PrecisionGuide,
    PrecisionNormal,
    cold_start,
    guide_of,
)
from bayeseq.inference.variational import Solver
from bayeseq.kernels.design import Design
from bayeseq.models import GPSLModel, LatentModel
from bayeseq.shapes import Layout

KINDS = ("full", "block", "lowrank", "diagonal")
GUIDES = {
    "full": PrecisionGuide,
    "block": BlockGuide,
    "lowrank": lambda model: LowRankGuide(model, rank=2),
    "diagonal": DiagonalGuide,
}


@pytest.fixture(autouse=True)
def _clean_room():
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    with pyro.validation_enabled():
        yield


def tiny_model(C, variance, lengths=(5, 4, 3)):
    """Two features that say something of the label, and the label before."""
    rng = np.random.default_rng(0)
    N = sum(lengths)
    X = rng.normal(size=(N, 2))
    y = np.where(rng.random(N) < 0.6, X[:, 0] > 0, rng.integers(C, size=N))
    allowed = np.eye(C, dtype=bool)[y.astype(int)]
    model = GPSLModel.of(X, np.zeros(2, dtype=int), Layout.of(lengths), allowed, (-1,))
    return replace(model, log_variance=torch.full_like(model.log_variance, math.log(variance)))


def solve(model, kind):
    """The posterior and its bound, prior variances kept, the expectation exact."""
    solver = Solver(
        model,
        CovarianceFamily(kind, model.design, model.n_dependent, rank=2),
        expectation("exact", model.n_labels, points=1024),
        torch.zeros(len(model.log_variance), dtype=torch.bool),
        max_sweeps=200,
        tol=1e-9,
    )
    posterior, trace = solver.solve(model.log_variance)
    return posterior, trace.bound[-1]


def log_ratios(model, guide, draws):
    """(S,) log p(y, W) − log q(W) at draws of the guide; their mean estimates the bound."""
    with torch.no_grad():
        found, _, _ = vectorized_importance_weights(
            model, guide, num_samples=draws, max_plate_nesting=0
        )
    return found


def standard_error(draws):
    return draws.std(0) / math.sqrt(len(draws))


def train(model, guide, steps, lr=0.1, particles=16):
    """Adam with a rate that falls a hundredfold, so that the noise of the gradient dies out."""
    optimiser = ClippedAdam({"lr": lr, "lrd": 0.01 ** (1 / steps)})
    elbo = Trace_ELBO(particles, max_plate_nesting=0, vectorize_particles=True)
    svi = SVI(model, guide, optimiser, elbo)
    for _ in range(steps):
        svi.step()


# ---- the distribution ---------------------------------------------------------------------------


@pytest.mark.parametrize("r", [0, 1, 2, 3, 5])
def test_the_distribution_is_a_multivariate_normal_a_column(r):
    D, C, S = 3, 2, 40_000
    generator = torch.Generator().manual_seed(r)
    loc, factor, value = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in [(D, C), (C, D, r), (7, D, C)]
    )
    diagonal = 0.5 + torch.rand(D, C, generator=generator, dtype=torch.float64)
    found = PrecisionNormal(loc, diagonal, factor)
    expected = torch.zeros(7, dtype=torch.float64)
    draws = found.rsample((4, S // 4)).reshape(S, D, C)
    for c in range(C):
        P = torch.diag(diagonal[:, c]) + factor[c] @ factor[c].T
        normal = torch.distributions.MultivariateNormal(loc[:, c], precision_matrix=P)
        expected += normal.log_prob(value[:, :, c])
        covariance = torch.linalg.inv(P)
        torch.testing.assert_close(found.variance[:, c], covariance.diagonal())
        centred = draws[:, :, c] - loc[:, c]
        products = centred.unsqueeze(-1) * centred.unsqueeze(-2)
        assert ((products.mean(0) - covariance).abs() < 5 * standard_error(products)).all()
        assert (centred.mean(0).abs() < 5 * standard_error(centred)).all()
    torch.testing.assert_close(found.log_prob(value), expected)


@pytest.mark.parametrize("r", [0, 2, 4])
def test_draws_and_density_move_with_the_parameters_as_finite_differences_say(r):
    generator = torch.Generator().manual_seed(1)
    loc, factor = (
        torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)
        for shape in [(3, 2), (2, 3, r)]
    )
    diagonal = (1 + torch.rand(3, 2, generator=generator, dtype=torch.float64)).requires_grad_()
    fixed = torch.ones(3, 2, dtype=torch.float64)

    def program(*parameters):
        pyro.set_rng_seed(0)
        normal = PrecisionNormal(*parameters)
        return normal.rsample((2,)), normal.log_prob(fixed)

    assert torch.autograd.gradcheck(program, (loc, diagonal, factor))


# ---- the program --------------------------------------------------------------------------------


def test_the_density_of_the_program_equals_a_loop():
    """Missing labels, sets of labels, row weights, group variances, offsets, ragged sequences."""
    rng = np.random.default_rng(3)
    C, lengths, offsets = 3, (2, 4, 1, 3), (-1, 2)
    N = sum(lengths)
    layout = Layout.of(lengths)
    X, weights = rng.normal(size=(N, 3)), rng.uniform(0.5, 2, size=N)
    sets = [{0}, {1, 2}, {0, 1, 2}, {2}, {1}, {0, 1, 2}, {1}, {0, 2}, {0}, {2}]
    place = layout.rows.tolist()  # packed row → place when sequences are laid end to end
    allowed = np.array([[c in sets[i] for c in range(C)] for i in place])
    groups = np.array([0, 1, 1])
    model = GPSLModel.of(X[place], groups, layout, allowed, offsets, weights=weights[place])
    log_variance = torch.from_numpy(rng.normal(size=(4, C)))
    model = replace(model, log_variance=log_variance)

    whitened = rng.normal(size=(3 + 2 * C, C))
    group_of_column = [0, 1, 1] + [2] * C + [3] * C
    expected = 0.0
    for k in range(len(whitened)):
        for c in range(C):
            expected += -0.5 * whitened[k, c] ** 2 - 0.5 * math.log(2 * math.pi)
    W = [
        [whitened[k, c] * math.exp(log_variance[group_of_column[k], c] / 2) for c in range(C)]
        for k in range(len(whitened))
    ]
    start = 0
    for length in lengths:
        for t in range(length):
            i = start + t
            scores = [sum(X[i, k] * W[k][c] for k in range(3)) for c in range(C)]
            for number, offset in enumerate(offsets):
                if 0 <= t + offset < length and len(sets[i + offset]) == 1:
                    (neighbour,) = sets[i + offset]
                    for c in range(C):
                        scores[c] += W[3 + number * C + neighbour][c]
            among = sum(math.exp(scores[c]) for c in sets[i])
            expected += weights[i] * math.log(among / sum(math.exp(s) for s in scores))
        start += length

    conditioned = poutine.condition(model, {"weights": torch.from_numpy(whitened)})
    found = poutine.trace(conditioned).get_trace().log_prob_sum().item()
    assert found == pytest.approx(expected, rel=1e-12)


# ---- a posterior known in closed form -----------------------------------------------------------


@dataclass(frozen=True, eq=False)
class GaussianModel(LatentModel):
    """Regression, y (N, C) = Ψ W + noise: the posterior is Gaussian and independent a label."""

    design: Design
    groups: torch.Tensor
    log_variance: torch.Tensor
    n_dependent: int
    y: torch.Tensor
    noise: float = 1.0

    @property
    def latent_shape(self):
        return self.design.shape[1], self.y.shape[1]

    def log_likelihood(self, whitened):
        scale = torch.exp(self.log_variance / 2)[self.groups]
        mean = torch.from_numpy(self.design.matrix) @ (whitened * scale)
        return torch.distributions.Normal(mean, self.noise).log_prob(self.y).sum(-1)

    def moments(self):
        """Means (D, C) and precisions (C, D, D) in the weights' own units, and the evidence."""
        X = torch.from_numpy(self.design.matrix)
        variances = torch.exp(self.log_variance)[self.groups]
        means, precisions, evidence = [], [], 0.0
        for y, t in zip(self.y.T, variances.T, strict=True):
            P = torch.diag(1 / t) + X.T @ X / self.noise**2
            means.append(torch.linalg.solve(P, X.T @ y) / self.noise**2)
            precisions.append(P)
            marginal = X @ torch.diag(t) @ X.T + self.noise**2 * torch.eye(len(X))
            zero = torch.zeros_like(y)
            evidence += torch.distributions.MultivariateNormal(zero, marginal).log_prob(y).item()
        return torch.stack(means, -1), torch.stack(precisions), evidence


@pytest.fixture
def regression():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(6, 4)) @ (np.eye(4) + 0.15)
    return GaussianModel(
        Design(X),
        torch.tensor([0, 0, 0, 1]),
        torch.tensor([[0.5, -0.3], [-1.0, 0.4]], dtype=torch.float64),
        n_dependent=2,
        y=torch.from_numpy(X @ rng.normal(size=(4, 2)) + rng.normal(size=(6, 2))),
    )


def kept_precisions(kind, precisions, n_dependent):
    """(C, D, D) what a family keeps of precisions: the best approximation has its inverse.

    With r = D − 1 columns a low-rank guide can have any precision.
    """
    D = precisions.shape[-1]
    full = D if kind in ("full", "lowrank") else D - n_dependent if kind == "block" else 0
    keep = torch.eye(D, dtype=torch.float64)
    keep[:full, :full] = 1.0
    return precisions * keep


@pytest.mark.parametrize("kind", KINDS)
def test_svi_recovers_moments_that_are_known(kind, regression):
    """The gradient's noise leaves 0.05 of a standard deviation, 5 % of a variance and 0.003 of the
    bound.

    The best Gaussian with precisions Q, those kept of P, has the same means, and
    KL(q ‖ p) = ½ Σ_c log |Q_c| / |P_c|.
    """
    mean, P, evidence = regression.moments()
    Q = kept_precisions(kind, P, regression.n_dependent)
    variances = torch.linalg.inv(Q).diagonal(dim1=-2, dim2=-1).T
    bound = evidence - 0.5 * float((torch.logdet(Q) - torch.logdet(P)).sum())
    guide = LowRankGuide(regression, rank=3) if kind == "lowrank" else GUIDES[kind](regression)
    train(regression, guide, 400)
    assert ((guide.mean - mean) / variances.sqrt()).abs().max() < 0.1
    assert (guide.variances / variances - 1).abs().max() < 0.1
    ratios = log_ratios(regression, guide, 20_000)
    assert standard_error(ratios) < 0.02
    assert abs(bound - ratios.mean()) < 0.01 + 5 * standard_error(ratios)


def test_the_exact_guide_has_ratios_that_do_not_vary(regression):
    """Where q is the posterior, log p(y, W) − log q(W) is the evidence, whatever W."""
    mean, _, evidence = regression.moments()
    start = cold_start(regression, "full")
    curvature = torch.full_like(start.curvature, 1 / regression.noise**2)
    family = CovarianceFamily("full", regression.design)
    exact = replace(
        start, mean=mean, curvature=curvature, covariances=family(curvature, start.precision)
    )
    guide = PrecisionGuide.from_posterior(regression, exact)
    ratios = log_ratios(regression, guide, 100)
    torch.testing.assert_close(ratios, torch.full_like(ratios, evidence))


# ---- the solver's answer in Pyro ----------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("C", [2, 3])
def test_a_guide_takes_over_the_solvers_posterior(C, kind):
    model = tiny_model(C, variance=2.0)
    posterior, bound = solve(model, kind)
    guide = guide_of(model, posterior)
    torch.testing.assert_close(guide.mean, posterior.mean)
    torch.testing.assert_close(guide.variances, posterior.variances)
    ratios = log_ratios(model, guide, 40_000)
    error = standard_error(ratios)
    assert error < 0.02
    assert abs(ratios.mean() - bound) < 5 * error


def test_a_posterior_between_two_prior_variances_is_taken_over():
    model = tiny_model(3, variance=2.0)
    posterior, _ = solve(model, "full")
    precision = 1.3 * posterior.precision
    family = CovarianceFamily("full", model.design)
    between = replace(
        posterior, precision=precision, covariances=family(posterior.curvature, precision)
    )
    torch.testing.assert_close(guide_of(model, between).variances, between.variances)


def test_a_posterior_that_does_not_fit_is_refused():
    model = tiny_model(2, variance=1.0)
    posterior, _ = solve(model, "diagonal")
    with pytest.raises(TypeError, match="stands for covariances that are ByColumns or ByRows"):
        PrecisionGuide.from_posterior(model, posterior)
    other = replace(model, log_variance=model.log_variance + 1)
    with pytest.raises(ValueError, match="other prior variances"):
        DiagonalGuide.from_posterior(other, posterior)


@pytest.mark.parametrize("kind", KINDS)
def test_svi_from_a_cold_start_reaches_the_solvers_bound(kind):
    """Two labels, where the solver's expectation is exact to rounding.

    The solver's answer is the best of its family, but for low rank, whose form has more freedom;
    the full one is the best of all. Training stops within 0.02 of it.
    """
    model = tiny_model(2, variance=1.0)
    _, bound = solve(model, kind)
    _, best = solve(model, "full")
    guide = GUIDES[kind](model)
    before = log_ratios(model, guide, 40_000).mean()
    train(model, guide, 300)
    ratios = log_ratios(model, guide, 40_000)
    error = standard_error(ratios)
    assert error < 0.01
    assert before < bound - 0.5
    assert ratios.mean() > bound - 0.02 - 5 * error
    assert ratios.mean() < (best if kind == "lowrank" else bound) + 5 * error


# ---- against a sampler --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chain():
    """A model, and draws of NUTS on its program in the weights' own units."""
    pyro.set_rng_seed(0)
    model = tiny_model(3, variance=0.5)
    with pyro.validation_enabled(False):
        sampler = MCMC(NUTS(model), num_samples=400, warmup_steps=300, disable_progbar=True)
        sampler.run()
    return model, model.scaled(sampler.get_samples()["weights"])


def chain_error(draws):
    """The standard error of the mean of draws that hang together."""
    effective = effective_sample_size(draws.unsqueeze(0), chain_dim=0, sample_dim=1)
    assert effective.min() > 50
    return draws.std(0) / effective.sqrt()


def contrasts(W):
    """Weights less their mean over labels: what the likelihood knows of."""
    return W - W.mean(-1, keepdim=True)


def test_predictions_agree_with_nuts(chain):
    """E[softmax] at the training rows, to 0.03: two of the sampler's standard errors."""
    model, W = chain
    posterior, _ = solve(model, "full")
    found = expectation("exact", 3, points=1024).softmax(*posterior.scores(model.design))
    draws = torch.softmax(torch.from_numpy(model.design.matrix) @ W, -1)
    assert chain_error(draws).max() < 0.015
    assert (found - draws.mean(0)).abs().max() < 0.03


def test_nuts_knows_what_the_likelihood_does_not_see(chain):
    """A constant added to the weights of all labels changes nothing, so the posterior of a column's
    mean over labels is its prior: a fact about the program that needs no solver."""
    model, W = chain
    common, prior = W.mean(-1), model.log_variance.exp()[0, 0] / 3
    assert (common.mean(0).abs() < 4 * chain_error(common)).all()
    squares = common.square()
    assert ((squares.mean(0) - prior).abs() < 4 * chain_error(squares)).all()


def test_moments_agree_with_nuts(chain):
    """What a Gaussian with independent labels gets right, and what it cannot.

    The data speak of contrasts alone. Independent labels have one curvature, π (1 − π), both for
    contrasts, whose own is larger, and for the common part, which has none: the variance of a
    contrast is up to C / (C − 1) = 1.5 times too large, that of the common part too small, and a
    single weight's, which mixes the two, about right. The sampler's standard errors are 0.05 to
    0.08 of a standard deviation, 7 to 15 % of a variance.
    """
    model, W = chain
    posterior, _ = solve(model, "full")
    deviation = contrasts(posterior.mean) - contrasts(W).mean(0)
    assert (deviation / contrasts(W).std(0)).abs().max() < 0.2

    S = posterior.variances
    squares = (W - W.mean(0)).square()
    beyond = (S - W.var(0)).abs() - 0.25 * W.var(0)
    assert (beyond < 2 * chain_error(squares)).all()
    assert abs((S / W.var(0)).mean() - 1) < 0.15
    # Var(w_c − w̄) of independent labels is (1 − 2/C) S_c + Σ S / C².
    contrast = (S / 3 + S.sum(-1, keepdim=True) / 9) / contrasts(W).var(0)
    assert 0.8 < contrast.min() < contrast.max() < 1.5 * 1.2
    assert 1.0 < contrast.mean() < 1.3
    common = S.mean(-1) / 3 / W.mean(-1).var(0)
    assert common.mean() < 0.9


def test_moments_agree_with_reweighted_draws():
    """The same with less noise: 100,000 draws of the guide, weighed with p / q, which makes their
    moments the posterior's. They are worth 20,000: errors are 0.007 of a standard deviation, 1 % of
    a variance, 0.002 of a probability."""
    model = tiny_model(3, variance=0.5)
    posterior, _ = solve(model, "full")
    with torch.no_grad():
        ratios, _, trace = vectorized_importance_weights(
            model, guide_of(model, posterior), num_samples=100_000, max_plate_nesting=0
        )
    weights = torch.softmax(ratios, 0)
    assert 1 / weights.square().sum() > 10_000
    W = model.scaled(trace.nodes["weights"]["value"])

    def mean(draws):
        return torch.tensordot(weights, draws, 1)

    def variance(draws):
        return mean((draws - mean(draws)).square())

    found = expectation("exact", 3, points=1024).softmax(*posterior.scores(model.design))
    exact = mean(torch.softmax(torch.from_numpy(model.design.matrix) @ W, -1))
    assert (found - exact).abs().max() < 0.01
    sd = variance(contrasts(W)).sqrt()
    assert ((contrasts(posterior.mean) - mean(contrasts(W))) / sd).abs().max() < 0.03
    S = posterior.variances
    single = S / variance(W)
    assert 0.8 < single.min() < single.max() < 1.05
    contrast = (S / 3 + S.sum(-1, keepdim=True) / 9) / sd.square()
    assert 1.0 < contrast.min() < contrast.max() < 1.5


# ---- other inference of Pyro --------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_importance_weights_have_light_tails(kind):
    """k-hat is below 0.7.

    In the direction common to all labels the posterior has the prior's variance 1, the guide some
    S < 1: the ratio of two such Gaussians has tail index 1 − S, so k is small where the data are
    few or the prior narrow.
    """
    model = tiny_model(3, variance=0.3)
    posterior, _ = solve(model, kind)
    assert psis_diagnostic(model, guide_of(model, posterior), num_particles=20_000) < 0.7


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_predictive_draws_from_the_guide(kind, parallel):
    model = tiny_model(2, variance=1.0)
    posterior, _ = solve(model, kind)
    guide = guide_of(model, posterior)
    n = 4000 if parallel else 20
    predictive = Predictive(
        model, guide=guide, num_samples=n, parallel=parallel, return_sites=("weights", "_RETURN")
    )
    found = predictive()
    assert found["weights"].shape == (n, *model.latent_shape)
    torch.testing.assert_close(found["weights"], found["_RETURN"])
    draws = model.scaled(found["weights"])
    assert ((draws.mean(0) - posterior.mean).abs() < 5 * standard_error(draws)).all()
    if parallel:
        squares = (draws - posterior.mean).square()
        assert ((squares.mean(0) - posterior.variances).abs() < 5 * standard_error(squares)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_guides_are_trained_side_by_side(kind):
    """Training one leaves another, and a copy, as they were; both are trained as if alone."""
    model = tiny_model(2, variance=1.0)
    first, second = GUIDES[kind](model), GUIDES[kind](model)
    train(model, first, 3)
    kept = first.mean.clone()
    copied = copy.deepcopy(first)
    train(model, second, 3)
    train(model, copied, 3)
    torch.testing.assert_close(first.mean, kept, rtol=0, atol=0)
    assert not torch.equal(second.mean, torch.zeros_like(kept))
    assert not torch.equal(copied.mean, kept)
    pyro.clear_param_store()
    first()
    torch.testing.assert_close(first.mean, kept, rtol=0, atol=0)
