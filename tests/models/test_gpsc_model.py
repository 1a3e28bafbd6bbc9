"""The Gaussian-process chain against enumeration of all labellings."""

import itertools
from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pyro.poutine as poutine
import scipy.sparse as sp
import torch
from hypothesis import given, settings

from bayeseq.models import GPSCModel
from bayeseq.models.gpsc import Rules
from bayeseq.shapes import Layout


@st.composite
def problems(draw):
    """Ragged sequences laid end to end: features, label sets, weights, prior variances."""
    lengths = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4).filter(any))
    C, D = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    N = sum(lengths)
    X = rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.7)
    allowed = np.eye(C, dtype=bool)[rng.integers(C, size=N)]
    if draw(st.booleans()):
        allowed |= (rng.random((N, 1)) < 0.4) & (rng.random((N, C)) < 0.6)
        allowed[rng.random(N) < 0.2] = True
    return lengths, X, allowed, rng.choice([0.5, 1.0, 3.0], size=len(lengths)), rng


def built(problem, sparse=True):
    lengths, X, allowed, weights, rng = problem
    layout = Layout.of(lengths)
    rows = layout.rows.numpy()
    model = GPSCModel.of(
        sp.csr_matrix(X[rows]) if sparse else X[rows],
        np.arange(X.shape[1]) % 2,
        layout,
        allowed[rows],
        weights=torch.from_numpy(weights),
    )
    log_variance = torch.tensor(rng.normal(size=tuple(model.log_variance.shape)))
    return replace(model, log_variance=log_variance)


def enumerated(problem, model, u, pairs_allowed=None):
    """(B,) by loops over sequences, labellings and tokens."""
    lengths, X, allowed, weights, _ = problem
    C, D = allowed.shape[1], X.shape[1]
    t = model.log_variance.numpy()
    group = [d % 2 for d in range(D)] + [len(t) - 1] * C
    W = [[u[k, c] * np.exp(t[group[k], c] / 2) for c in range(C)] for k in range(D + C)]
    found, first = [], 0
    for length, weight in zip(lengths, weights, strict=True):
        every, known = [], []
        for labelling in itertools.product(range(C), repeat=length):
            total, possible = 0.0, True
            for s, c in enumerate(labelling):
                total += sum(X[first + s, d] * W[d][c] for d in range(D))
                possible &= bool(allowed[first + s, c])
                if s:
                    total += W[D + labelling[s - 1]][c]
                    if pairs_allowed is not None and not pairs_allowed[labelling[s - 1], c]:
                        total = -np.inf
            every.append(total)
            if possible:
                known.append(total)
        log_sum = [np.logaddexp.reduce(part) for part in (known, every)]
        found.append(weight * (log_sum[0] - log_sum[1]))
        first += length
    return np.array(found)


@settings(max_examples=60, deadline=None)
@given(problems(), st.booleans())
def test_the_likelihood_is_that_of_all_labellings(problem, sparse):
    model = built(problem, sparse)
    u = torch.tensor(problem[-1].normal(size=(2, *model.latent_shape)))
    found = model.log_likelihood(u)
    for draw, value in zip(u, found, strict=True):
        want = enumerated(problem, model, draw.numpy())
        np.testing.assert_allclose(value, want, rtol=0, atol=1e-10)


def test_rules_leave_labellings_out():
    rng = np.random.default_rng(3)
    X, allowed = rng.normal(size=(5, 2)), np.eye(2, dtype=bool)[[0, 0, 1, 1, 1]]
    problem = ([3, 2], X, allowed, np.ones(2), rng)
    pairs = np.array([[True, True], [False, True]])
    model = replace(built(problem), rules=Rules(pairs=torch.from_numpy(pairs)))
    u = rng.normal(size=model.latent_shape)
    want = enumerated(problem, model, u, pairs)
    np.testing.assert_allclose(model.log_likelihood(torch.tensor(u)), want, rtol=0, atol=1e-10)


@settings(max_examples=20, deadline=None)
@given(problems(), st.booleans())
def test_its_gradient_is_that_of_differences(problem, sparse):
    model = built(problem, sparse)
    rng = problem[-1]
    u, move = (torch.tensor(rng.normal(size=model.latent_shape)) for _ in range(2))
    u.requires_grad_()
    (gradient,) = torch.autograd.grad(model.log_likelihood(u).sum(), u)
    with torch.no_grad():
        after, before = (model.log_likelihood(u + s * 1e-5 * move).sum() for s in (1, -1))
    slope = float((after - before) / 2e-5)
    np.testing.assert_allclose(float((gradient * move).sum()), slope, rtol=1e-6, atol=1e-6)


def test_the_program_uses_the_weights_that_it_samples():
    rng = np.random.default_rng(0)
    model = built(
        ([2, 1], rng.normal(size=(3, 2)), np.eye(2, dtype=bool)[[0, 1, 1]], np.ones(2), rng)
    )
    u = torch.tensor(rng.normal(size=model.latent_shape))
    trace = poutine.trace(poutine.condition(model, {"weights": u})).get_trace()
    prior = float(torch.distributions.Normal(0.0, 1.0).log_prob(u).sum())
    want = prior + float(model.log_likelihood(u).sum())
    np.testing.assert_allclose(float(trace.log_prob_sum()), want, rtol=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    problem=problems(),
    alike=st.booleans(),
    spread=st.sampled_from([1.0, 30.0, 1e4]),
    ruled=st.booleans(),
)
def test_totals_by_the_fast_ways(problem, alike, spread, ruled):
    """Whatever the number of labels, the weights, the rules and the size of the scores; where steps
    in single precision are taken, the error is a millionth of the scores."""
    model = built(problem)
    if alike:
        model = replace(model, weights=torch.full_like(model.weights, 2.0))
    if ruled:
        C = model.n_labels
        pairs = torch.ones(C, C, dtype=torch.bool)
        pairs[0, -1] = C == 1
        start = torch.arange(C) < max(1, C - 1)
        model = replace(model, rules=Rules(pairs=pairs, start=start))
    u = spread * torch.tensor(np.random.default_rng(0).normal(size=(3, *model.latent_shape)))
    want = model.log_likelihood(u).sum(-1)
    summary = model.summary(u)
    before = [x.clone() for x in summary]
    found = model.total_of(summary)
    for x, y in zip(before, summary, strict=True):
        assert torch.equal(x, y)
    size = float(max(x.abs().max() for x in model.seen(u)))
    atol = 1e-6 * (1 + size) * (model.layout.n_tokens + 1) * float(model.weights.max())
    np.testing.assert_allclose(found, want, rtol=1e-9, atol=atol)
    parts = [model.group_summary(u, g) for g in range(model.log_variance.shape[-2])]
    for k, whole in enumerate(summary):
        added = sum(part[k].double() for part in parts)
        np.testing.assert_allclose(added, whole.double(), rtol=0, atol=1e-6 * (1 + 4 * size))
