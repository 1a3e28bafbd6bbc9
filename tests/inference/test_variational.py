"""The variational solver against the paper's own equations in function space."""

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from scipy.optimize import minimize

from bayeseq.inference.covariance import FAMILIES
from bayeseq.inference.expectations import RULES, Jensen
from bayeseq.kernels.design import Design
from bayeseq.models.gpsl import GPSLModel
from bayeseq.shapes import Layout
from tests.inference import oracles
from tests.inference.problems import dense, problem, solver

# ---- the bound ----------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.integers(2, 4),
    st.sampled_from([(), (-1,), (-1, 1), (-2, -1, 1, 2), (3,)]),
    st.sampled_from(RULES),
    st.sampled_from(FAMILIES),
    st.booleans(),
    st.booleans(),
    st.fixed_dictionaries(
        {
            "sparse": st.booleans(),
            "sets": st.sampled_from([0.0, 0.5]),
            "weighted": st.booleans(),
            "residual": st.booleans(),
            "n_groups": st.integers(1, 2),
        }
    ),
)
def test_the_bound_never_falls(seed, lengths, C, offsets, rule, kind, learn, by_label, options):
    made = problem(seed, lengths, C, offsets, **options)
    one = solver(made.model, kind, rule, learn, tol=1e-6, max_sweeps=12, by_label=by_label)
    posterior, trace = one.solve(made.model.log_variance)
    assert len(trace.bound) == len(trace.elapsed) > 1
    assert all(b >= a for a, b in zip(trace.bound, trace.bound[1:], strict=False))
    assert posterior.mean.isfinite().all()
    if not learn:
        assert torch.equal(posterior.log_variance, made.model.log_variance)
    # The bound of the last sweep is that of the posterior which is returned.
    assert trace.bound[-1] == pytest.approx(
        loop_bound(made.model, posterior, one.rule), rel=1e-9, abs=1e-9
    )


def loop_bound(model, posterior, rule):
    """The bound in weight space, a row and a weight at a time; E[log Σ exp] by the rule."""
    D, C = posterior.mean.shape
    psi = model.design.matrix.toarray() if model.design.sparse else model.design.matrix
    variances = posterior.log_variance.exp().numpy()[model.groups.numpy()]
    total = 0.0
    S = [dense(part, D) for part in posterior.covariances]
    for c in range(C):
        prior = np.diag(variances[:, c])
        w = posterior.mean[:, c].numpy()
        ratio = np.linalg.solve(prior, S[c])
        total -= 0.5 * (np.trace(ratio) - D - np.linalg.slogdet(ratio)[1])
        total -= 0.5 * sum(w[k] ** 2 / variances[k, c] for k in range(D))
    for n in range(len(psi)):
        m = [float(psi[n] @ posterior.mean[:, c].numpy()) for c in range(C)]
        v = [float(psi[n] @ S[c] @ psi[n]) for c in range(C)]
        if model.residual is not None:
            group = posterior.log_variance[0].exp().tolist()
            v = [v[c] + float(model.residual[n]) * group[c] for c in range(C)]
        m_row, v_row = (torch.tensor([x], dtype=torch.float64) for x in (m, v))
        value = rule(m_row, v_row.clamp_min(0)).value
        known = [m[c] for c in range(C) if model.allowed[n, c]]
        # The best distribution over a set of labels adds up to the log of their sum.
        total += float(model.weights[n]) * (oracles.log_sum_exp(known) - float(value))
    return total


def function_space(made, posterior):
    """m, V, K of the features' scores and mu, s of the dependencies, tokens laid end to end."""
    C, R = made.model.n_labels, len(made.offsets)
    D = made.X.shape[1]
    w = posterior.mean.numpy()
    S = [dense(part, len(w)) for part in posterior.covariances]
    m = made.X @ w[:D]
    V = np.array([made.X @ part[:D, :D] @ made.X.T for part in S])
    mu = w[D:].reshape(R, C, C)
    s = np.stack([np.diag(part)[D:] for part in S], -1).reshape(R, C, C)
    return m, V, made.X @ made.X.T, mu, s


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.integers(2, 3),
    st.sampled_from([(), (-1,), (-1, 1), (-2, 1)]),
    st.integers(1, 6),
)
def test_the_bound_is_equation_9_of_the_paper(seed, lengths, C, offsets, sweeps):
    """At any stage of the search, in function space."""
    made = problem(seed, lengths, C, offsets, square=True)
    posterior, trace = solver(made.model, "block", max_sweeps=sweeps).solve(made.model.log_variance)
    m, V, K, mu, s = function_space(made, posterior)
    want = oracles.jensen_bound(m, V, K, mu, s, made.lengths, made.labels, offsets)
    assert trace.bound[-1] == pytest.approx(want, rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("offsets", [(), (-1,), (-1, 1), (-2, -1, 1, 2)])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_solution_is_the_fixed_point_of_the_paper(seed, offsets):
    made = problem(seed, [4, 1, 3], 3, offsets, square=True)
    posterior, trace = solver(made.model, "block").solve(made.model.log_variance)
    assert trace.converged
    m, V, K, mu, s = function_space(made, posterior)
    labels, lengths = made.labels, made.lengths
    pi = oracles.jensen_responsibilities(m, V, mu, s, lengths, labels, offsets)
    for c in range(3):
        np.testing.assert_allclose(m[:, c], K @ ((labels == c) - pi[:, c]), rtol=0, atol=2e-5)
        inverse = np.linalg.inv(np.linalg.inv(K) + np.diag(pi[:, c]))
        np.testing.assert_allclose(V[c], inverse, rtol=0, atol=2e-5)
    for r, offset in enumerate(offsets):
        expected, counts = np.zeros((3, 3)), np.zeros((3, 3))
        for n in range(sum(lengths)):
            there = oracles.neighbour(lengths, n, offset)
            if there is not None:
                expected[labels[there]] += pi[n]
                counts[labels[there], labels[n]] += 1
        np.testing.assert_allclose(s[r], 1 / (1 + expected), rtol=0, atol=2e-5)
        np.testing.assert_allclose(mu[r], counts - expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("C", [2, 3])
def test_without_dependencies_it_is_a_gaussian_process_classifier(C):
    """The same bound, maximised over m and a curvature for each token and label by L-BFGS."""
    made = problem(2, [2, 3], C, (), square=True)
    K, labels, N = made.X @ made.X.T, made.labels, 5

    def unpack(x):
        return K @ x[: N * C].reshape(N, C), np.exp(x[N * C :].reshape(N, C))

    def negative(x):
        m, curvature = unpack(x)
        V = np.array([np.linalg.inv(np.linalg.inv(K) + np.diag(curvature[:, c])) for c in range(C)])
        empty = np.zeros((0, C, C))
        return -oracles.jensen_bound(m, V, K, empty, empty, [5], labels, ())

    start = np.concatenate([np.zeros(N * C), np.full(N * C, -1.0)])
    best = minimize(negative, start, method="L-BFGS-B", options={"maxiter": 500, "ftol": 1e-13})
    posterior, trace = solver(made.model).solve(made.model.log_variance)
    assert trace.bound[-1] == pytest.approx(-best.fun, abs=1e-5)
    assert trace.bound[-1] >= -best.fun - 1e-8
    m, _ = unpack(best.x)
    np.testing.assert_allclose(made.X @ posterior.mean.numpy(), m, rtol=0, atol=5e-3)


@pytest.mark.parametrize("rule", ["exact", "tilted"])
def test_better_expectations_give_higher_bounds(rule):
    made = problem(3, [4, 3], 2, (-1,), square=True)
    start = made.model.log_variance
    jensen = solver(made.model).solve(start)[1].bound[-1]
    tilted = solver(made.model, rule="tilted").solve(start)[1].bound[-1]
    found = solver(made.model, rule=rule).solve(start)[1].bound[-1]
    assert found >= tilted - 1e-9
    assert tilted > jensen + 1e-3


@pytest.mark.parametrize("kind", ["block", "diagonal"])
def test_fewer_covariances_give_lower_bounds(kind):
    made = problem(4, [4, 3], 2, (-1,))
    start = made.model.log_variance
    full = solver(made.model, "full", "exact").solve(start)[1].bound[-1]
    fewer = solver(made.model, kind, "exact").solve(start)[1].bound[-1]
    assert fewer < full - 1e-4


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("C", [2, 3])
def test_nothing_nearby_has_a_higher_bound(rule, C):
    """Moving the means of the solution lowers the bound."""
    made = problem(5, [4, 3, 2], C, (-1, 1), sets=0.4, weighted=True)
    one = solver(made.model, rule=rule)
    posterior, trace = one.solve(made.model.log_variance)
    rng = np.random.default_rng(0)
    for size in (0.01, 0.3):
        for _ in range(5):
            step = torch.tensor(rng.normal(size=posterior.mean.shape)) * size
            moved = replace(posterior, mean=posterior.mean + step)
            assert loop_bound(made.model, moved, one.rule) < trace.bound[-1]


# ---- rows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_weight_of_two_is_the_row_twice(kind):
    made = problem(6, [4, 2, 3], 3, (-1,))
    model = made.model
    weights = torch.ones(9).double()
    weights[[1, 4]] = 2.0
    heavy = replace(model, weights=weights)
    rows = np.concatenate([np.arange(9), [1, 4]])
    twice = replace(
        model,
        design=model.design.select(rows),
        allowed=model.allowed[rows],
        weights=torch.ones(11).double(),
    )
    first, one = solver(heavy, kind).solve(model.log_variance)
    second, other = solver(twice, kind).solve(model.log_variance)
    assert one.bound[-1] == pytest.approx(other.bound[-1], abs=1e-8)
    torch.testing.assert_close(first.mean, second.mean, rtol=0, atol=1e-4)
    torch.testing.assert_close(first.variances, second.variances, rtol=0, atol=1e-5)


@pytest.mark.parametrize("rule", RULES)
def test_tokens_without_a_label_add_nothing(rule):
    """A sequence of unlabelled tokens, and unlabelled ends, leave the posterior as it was."""
    rng = np.random.default_rng(7)
    X, C = rng.normal(size=(8, 3)), 3
    allowed = np.eye(C, dtype=bool)[rng.integers(C, size=8)]
    allowed[[3, 5, 6, 7]] = True
    groups = np.zeros(3, dtype=np.int64)

    def fitted(lengths, keep):
        layout = Layout.of(lengths)
        rows = keep[layout.rows.numpy()]
        model = GPSLModel.of(X[rows], groups, layout, allowed[rows], (-1, 1))
        return solver(model, rule=rule).solve(model.log_variance)

    # Sequences of three labelled tokens and one without, one with, and three without.
    whole, trace = fitted([4, 1, 3], np.arange(8))
    known, short = fitted([3, 1], np.array([0, 1, 2, 4]))
    assert trace.bound[-1] == pytest.approx(short.bound[-1], abs=1e-9)
    torch.testing.assert_close(whole.mean, known.mean, rtol=0, atol=1e-6)


def test_a_set_of_labels_has_the_likelihood_of_the_set():
    """With next to no prior variance left to the posterior, the bound is the log-likelihood."""
    made = problem(8, [3, 4], 3, (-1,), sets=0.8)
    model = made.model
    assert (model.allowed.sum(-1) == 2).any()
    tiny = torch.full_like(model.log_variance, -18.0)
    posterior, trace = solver(replace(model, log_variance=tiny)).solve(tiny)
    scores = posterior.scores(model.design)[0].numpy()
    want = 0.0
    for n in range(len(scores)):
        known = [scores[n, c] for c in range(3) if model.allowed[n, c]]
        want += oracles.log_sum_exp(known) - oracles.log_sum_exp(list(scores[n]))
    assert trace.bound[-1] == pytest.approx(want, abs=1e-5)


def test_a_residual_widens_the_scores_only():
    made = problem(9, [4, 3], 3, (-1,), residual=True)
    variance = torch.full_like(made.model.log_variance, 0.5)
    posterior, _ = solver(made.model).solve(variance)
    _, without = posterior.scores(made.model.design)
    _, with_it = posterior.scores(made.model.design, made.model.residual)
    want = made.model.residual.unsqueeze(-1) * np.exp(0.5)
    torch.testing.assert_close(with_it - without, want.expand(-1, 3), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", FAMILIES)
def test_without_a_label_the_posterior_is_the_prior(kind):
    groups = np.zeros(3, dtype=np.int64)
    model = GPSLModel.of(np.ones((4, 3)), groups, Layout.of([4]), np.ones((4, 2), bool), (-1,))
    posterior, trace = solver(model, kind).solve(model.log_variance + 0.3)
    assert trace.bound[-1] == pytest.approx(0.0, abs=1e-12)
    assert torch.equal(posterior.mean, torch.zeros(5, 2).double())
    want = torch.full((5, 2), np.exp(0.3), dtype=torch.float64)
    torch.testing.assert_close(posterior.variances, want, rtol=1e-12, atol=0)


# ---- prior variances ----------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["exact", "tilted"])
@pytest.mark.parametrize("by_label", [False, True])
def test_learned_variances_are_where_the_bound_is_flat(rule, by_label):
    """∂/∂ log t of the bound, re-solved at each t, is 0; and was not where the search began."""
    made = problem(10, [6] * 5, 2, (-1,), D=2, sticky=2.0)
    one = solver(made.model, "full", rule, True, by_label=by_label)
    posterior, trace = one.solve(made.model.log_variance)
    found = posterior.log_variance
    assert by_label == bool((found != found[:, :1]).any())
    held = solver(made.model, "full", rule)

    def bound(log_variance):
        return held.solve(log_variance)[1].bound[-1]

    assert bound(found) == pytest.approx(trace.bound[-1], abs=1e-7)

    def slopes(at):
        slopes = []
        for g in range(len(found)):
            for c in range(2) if by_label else [slice(None)]:
                shift = torch.zeros_like(at)
                shift[g, c] = 1e-2
                slopes.append((bound(at + shift) - bound(at - shift)) / 2e-2)
        return np.abs(slopes)

    inside = found.amax() < 5 and found.amin() > -5
    assert inside
    assert slopes(found).max() < 2e-3
    assert slopes(made.model.log_variance).max() > 0.1


def test_only_the_groups_that_are_learned_move():
    made = problem(11, [5, 4], 2, (-1, 1))
    one = solver(made.model, learn=True, max_sweeps=8)
    one.learned = torch.tensor([True, False, True])
    posterior, _ = one.solve(made.model.log_variance)
    assert (posterior.log_variance[[0, 2]] != 0).all()
    assert torch.equal(posterior.log_variance[1], torch.zeros(2).double())


# ---- stopping and starting ----------------------------------------------------------------------


class Impatient(Jensen):
    """Counts its calls, and is interrupted at one of them."""

    def __init__(self, limit):
        self.calls, self.limit = 0, limit

    def __call__(self, mean, variance):
        self.calls += 1
        if self.calls > self.limit:
            raise KeyboardInterrupt
        return super().__call__(mean, variance)


def test_an_interrupt_keeps_the_best_state():
    made = problem(12, [5, 4], 3, (-1,))

    def solve(limit, max_sweeps=400):
        one = solver(made.model, max_sweeps=max_sweeps)
        one.rule = Impatient(limit)
        return *one.solve(made.model.log_variance), one.rule.calls

    _, whole, calls = solve(10**6)
    _, _, first = solve(10**6, max_sweeps=1)
    assert whole.converged
    assert not whole.interrupted
    seen = []
    for limit in np.linspace(first, calls - 1, 6).astype(int):
        posterior, short, _ = solve(limit)
        assert short.interrupted
        assert not short.converged
        assert short.bound == pytest.approx(whole.bound[: len(short.bound)], abs=1e-12)
        assert loop_bound(made.model, posterior, Jensen()) == pytest.approx(short.bound[-1])
        seen.append(len(short.bound))
    assert seen[0] == 1
    assert seen == sorted(seen)
    assert seen[-1] > 3


def test_starting_from_a_solution_there_is_nothing_to_do():
    made = problem(13, [5, 4], 3, (-1,))
    posterior, trace = solver(made.model).solve(made.model.log_variance)
    again, short = solver(made.model).solve(made.model.log_variance, posterior)
    assert len(short.bound) <= 5 < len(trace.bound)
    assert short.bound[0] == pytest.approx(trace.bound[-1], abs=1e-8)
    torch.testing.assert_close(again.mean, posterior.mean, rtol=0, atol=1e-5)


# ---- what a posterior says ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", FAMILIES)
def test_scores_and_draws_of_a_posterior(kind):
    made = problem(14, [5, 4], 2, (-1,))
    posterior, _ = solver(made.model, kind, max_sweeps=10).solve(made.model.log_variance)
    D = len(posterior.mean)
    rows = np.random.default_rng(0).normal(size=(3, D))
    mean, variance = posterior.scores(Design(rows))
    n = 100_000
    draws = posterior.draws(n, torch.Generator().manual_seed(0))
    assert draws.shape == (n, D, 2)
    drawn = torch.tensor(rows) @ draws
    for c in range(2):
        S = dense(posterior.covariances[c], D)
        np.testing.assert_allclose(mean[:, c].numpy(), rows @ posterior.mean[:, c].numpy())
        np.testing.assert_allclose(variance[:, c].numpy(), np.diag(rows @ S @ rows.T), atol=1e-12)
        np.testing.assert_allclose(posterior.variances[:, c].numpy(), np.diag(S), atol=1e-12)
    # Five standard errors: of a mean √(v / n), of a variance v √(2 / n).
    assert ((drawn.mean(0) - mean).abs() < 5 * (variance / n).sqrt()).all()
    assert ((drawn.var(0) - variance).abs() < 5 * variance * (2 / n) ** 0.5).all()


def test_draws_of_different_labels_are_independent():
    made = problem(15, [5, 4], 2, (-1,))
    posterior, _ = solver(made.model, max_sweeps=5).solve(made.model.log_variance)
    n = 50_000
    draws = posterior.draws(n, torch.Generator().manual_seed(1)) - posterior.mean
    first, second = draws[..., 0], draws[..., 1]
    cross = first.T @ second / n
    error = (first.var(0).outer(second.var(0)) / n).sqrt()
    assert (cross.abs() < 5 * error).all()
