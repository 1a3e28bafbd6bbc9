"""The pseudo-likelihood model against loops."""

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pyro.poutine as poutine
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings

from bayeseq.models import GPSLModel, dependency_columns
from bayeseq.models.gpsl import known_labels
from bayeseq.shapes import Layout
from tests.inference import oracles

OFFSETS = [(), (-1,), (-1, 1), (-2, -1, 1, 2), (3,), (-1, 2)]


@st.composite
def problems(draw):
    """Ragged sequences laid end to end: features, label sets, weights, prior variances."""
    lengths = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4).filter(any))
    C, D = draw(st.integers(2, 4)), draw(st.integers(1, 3))
    offsets = draw(st.sampled_from(OFFSETS))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    N = sum(lengths)
    X = rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.7)
    allowed = np.eye(C, dtype=bool)[rng.integers(C, size=N)]
    allowed |= (rng.random((N, 1)) < 0.4) & (rng.random((N, C)) < 0.6)
    allowed[rng.random(N) < 0.2] = True
    weights = rng.choice([0.0, 0.5, 1.0, 3.0], size=N) if draw(st.booleans()) else None
    return lengths, offsets, X, allowed, weights, draw(st.booleans()), rng


def built(problem):
    lengths, offsets, X, allowed, weights, sparse, rng = problem
    layout = Layout.of(lengths)
    rows = layout.rows.numpy()
    features = sp.csr_matrix(X[rows]) if sparse else X[rows]
    groups = np.arange(X.shape[1]) % 2
    model = GPSLModel.of(
        features,
        groups,
        layout,
        allowed[rows],
        offsets,
        weights=None if weights is None else weights[rows],
    )
    log_variance = torch.tensor(rng.normal(size=tuple(model.log_variance.shape)))
    return replace(model, log_variance=log_variance), rows


@settings(max_examples=120, deadline=None)
@given(problems())
def test_the_likelihood_equals_equations_4_and_5(problem):
    lengths, offsets, X, allowed, weights, sparse, rng = problem
    model, order = built(problem)
    N, C = allowed.shape
    D, R = X.shape[1], len(offsets)
    assert model.latent_shape == (D + R * C, C)
    assert model.n_dependent == R * C
    assert model.design.sparse == sparse
    u = rng.normal(size=(2, *model.latent_shape))
    found = model.log_likelihood(torch.tensor(u))
    assert found.shape == (2, len(model.rows))
    scale = np.exp(model.log_variance.numpy() / 2)
    n_groups = min(D, 2)
    sets = [{int(c) for c in np.flatnonzero(row)} for row in allowed]
    for draw in range(2):
        f = np.zeros((N, C))
        g = np.zeros((R, C, C))
        for c in range(C):
            for n in range(N):
                for k in range(D):
                    f[n, c] += X[n, k] * u[draw, k, c] * scale[k % 2, c]
            for r in range(R):
                for a in range(C):
                    g[r, a, c] = u[draw, D + r * C + a, c] * scale[n_groups + r, c]
        each = oracles.pseudo_log_likelihood(lengths, f, g, offsets, sets)
        seen = [n for n in order if each[n] is not None and (weights is None or weights[n] > 0)]
        assert [order[row] for row in model.rows] == seen
        want = [each[n] * (1.0 if weights is None else weights[n]) for n in seen]
        np.testing.assert_allclose(found[draw].numpy(), want, rtol=0, atol=1e-10)


@settings(max_examples=80, deadline=None)
@given(problems())
def test_dependency_columns_equal_loops(problem):
    lengths, offsets, _, allowed, _, _, rng = problem
    N, C = allowed.shape
    layout = Layout.of(lengths)
    order = layout.rows.numpy()
    place = {int(n): row for row, n in enumerate(order)}
    for beliefs in (known_labels(allowed), rng.dirichlet(np.ones(C), size=N)):
        found = dependency_columns(layout, beliefs[order], offsets).toarray()
        want = np.zeros((N, len(offsets) * C))
        for n in range(N):
            for r, offset in enumerate(offsets):
                there = oracles.neighbour(lengths, n, offset)
                if there is not None:
                    want[place[n], r * C : (r + 1) * C] = beliefs[there]
        np.testing.assert_array_equal(found, want)


def test_known_labels_are_those_that_stand_alone():
    allowed = np.array([[1, 0, 0], [1, 1, 0], [1, 1, 1], [0, 0, 1]], dtype=bool)
    want = [[1, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 1]]
    np.testing.assert_array_equal(known_labels(allowed), want)


def test_beliefs_stand_for_the_labels_of_neighbours():
    allowed = np.array([[True, False], [True, True], [False, True]])
    beliefs = np.array([[1.0, 0.0], [0.3, 0.7], [0.0, 1.0]])
    groups = np.zeros(1, dtype=np.int64)
    model = GPSLModel.of(np.ones((3, 1)), groups, Layout.of([3]), allowed, (-1, 1), beliefs=beliefs)
    assert model.rows.tolist() == [0, 2]
    want = [[1.0, 0.0, 0.0, 0.3, 0.7], [1.0, 0.3, 0.7, 0.0, 0.0]]
    np.testing.assert_array_equal(model.design.matrix, want)


def test_weights_are_whitened_by_the_variance_of_their_group_and_label():
    problem = ([3], (-1,), np.eye(3), np.eye(3, dtype=bool), None, False, np.random.default_rng(0))
    model, _ = built(problem)
    u = torch.ones(model.latent_shape, dtype=torch.float64)
    scaled = model.scaled(u)
    assert model.groups.tolist() == [0, 1, 0, 2, 2, 2]
    for k, group in enumerate([0, 1, 0, 2, 2, 2]):
        for c in range(3):
            want = np.exp(float(model.log_variance[group, c]) / 2)
            assert float(scaled[k, c]) == pytest.approx(want, rel=1e-12)
    # Twice the standard deviation at half the whitened weights is the same model.
    wider = replace(model, log_variance=model.log_variance + 2 * np.log(2))
    torch.testing.assert_close(
        wider.log_likelihood(u / 2), model.log_likelihood(u), rtol=0, atol=1e-12
    )


def test_the_program_has_the_prior_and_the_likelihood():
    problem = ([3], (-1,), np.eye(3), np.eye(3, dtype=bool), None, False, np.random.default_rng(1))
    model, _ = built(problem)
    u = torch.tensor(np.random.default_rng(2).normal(size=model.latent_shape))
    trace = poutine.trace(poutine.condition(model, data={"weights": u})).get_trace()
    prior = -0.5 * float((u**2).sum()) - 0.5 * u.numel() * np.log(2 * np.pi)
    want = prior + float(model.log_likelihood(u).sum())
    assert float(trace.log_prob_sum()) == pytest.approx(want, rel=1e-12)
    assert torch.equal(trace.nodes["_RETURN"]["value"], u)
