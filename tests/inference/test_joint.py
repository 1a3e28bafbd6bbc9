"""Gaussians over all weights of a chain, against dense matrices and automatic differentiation."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from bayeseq.inference.chain_likelihood import likelihood
from bayeseq.inference.joint import JointFamily
from tests.inference.chains import chain_model


def dense_covariance(posterior):
    """S (P, P) of the whitened weights, by loops over places."""
    P = posterior.alone.numel()
    S = np.diag(posterior.alone.numpy().copy())
    block = posterior.root.numpy().T @ posterior.root.numpy()
    places = posterior.places.tolist()
    for i, a in enumerate(places):
        for j, b in enumerate(places):
            S[a, b] = block[i, j]
    assert S.shape == (P, P)
    return S


def negative_hessian(model, u):
    """(P, P) of the log-likelihood by differences of its gradient."""
    flat, step = u.reshape(-1), 1e-5
    rows = []
    for k in range(len(flat)):
        move = torch.zeros_like(flat)
        move[k] = step
        after, before = (
            likelihood(model, (flat + s * move).reshape(u.shape)).gradient.reshape(-1)
            for s in (1, -1)
        )
        rows.append(-(after - before) / (2 * step))
    return torch.stack(rows).numpy()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_the_gradient_is_autograds(seed, C, D, missing):
    model = chain_model(seed, (3, 1, 4), C, D, missing=0.4 * missing)
    u = torch.tensor(np.random.default_rng(seed).normal(size=(2, *model.latent_shape)))
    found = likelihood(model, u)
    u.requires_grad_()
    value = model.log_likelihood(u).sum(-1)
    (gradient,) = torch.autograd.grad(value.sum(), u)
    torch.testing.assert_close(found.value, value.detach(), rtol=0, atol=1e-10)
    torch.testing.assert_close(found.gradient, gradient, rtol=0, atol=1e-9)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 3), st.integers(1, 3), st.booleans())
def test_the_precision_is_the_prior_and_the_hessian(seed, C, D, sparse):
    model = chain_model(seed, (4, 1, 3), C, D, sparse=sparse)
    u = torch.tensor(np.random.default_rng(seed).normal(size=model.latent_shape))
    information = JointFamily("full").information(model, model.chain(model.seen(u)))
    posterior = information.posterior(model, u)
    want = np.eye(u.numel()) + negative_hessian(model, u)
    weak = np.setdiff1d(np.arange(u.numel()), posterior.places.numpy())
    want[weak] = want[:, weak] = 0.0  # features that never occur keep their prior
    want[weak, weak] = 1.0
    np.testing.assert_allclose(np.linalg.inv(dense_covariance(posterior)), want, atol=2e-5)


def test_what_is_not_known_tells_nothing():
    model = chain_model(1, (4, 3), missing=1.1)
    u = torch.zeros(model.latent_shape, dtype=torch.float64)
    posterior = (
        JointFamily("full").information(model, model.chain(model.seen(u))).posterior(model, u)
    )
    torch.testing.assert_close(posterior.whitened_variances, torch.ones_like(u))


@pytest.fixture(params=["full", "some", "diagonal"])
def posterior(request):
    model = chain_model(3, (6, 5, 4), C=3, D=4)
    u = torch.tensor(np.random.default_rng(0).normal(size=model.latent_shape))
    family = JointFamily(
        "diagonal" if request.param == "diagonal" else "full",
        14 if request.param == "some" else 3000,
    )
    return family.information(model, model.chain(model.seen(u))).posterior(model, u)


def test_every_answer_is_that_of_the_dense_covariance(posterior):
    S = torch.from_numpy(dense_covariance(posterior))
    shape = posterior.scale.shape
    rng = np.random.default_rng(1)
    x = torch.tensor(rng.normal(size=(3, *shape)))
    flat = x.reshape(3, -1)
    torch.testing.assert_close(posterior.whitened_variances, S.diagonal().reshape(shape))
    torch.testing.assert_close(posterior.log_det, float(torch.logdet(S)))
    torch.testing.assert_close(posterior.times(x[0]).reshape(-1), S @ flat[0])
    torch.testing.assert_close(
        posterior.form(x), torch.einsum("sp,pq,sq->s", flat, torch.linalg.inv(S), flat)
    )
    white = torch.eye(len(S), dtype=torch.float64)
    root = posterior.coloured(white).reshape(len(S), -1)
    torch.testing.assert_close(root.T @ root, S)
    scale = posterior.scale.reshape(-1)
    torch.testing.assert_close(posterior.variances.reshape(-1), S.diagonal() * scale.square())


def test_the_weights_that_matter_most_are_kept_together(posterior):
    kept = posterior.places.tolist()
    if kept:
        pairs = range(posterior.alone.numel() - 9, posterior.alone.numel())
        assert set(pairs) <= set(kept)
        assert kept == sorted(kept)


def test_sets_of_sequences_add_up():
    model = chain_model(2, (4, 3, 5), C=2)
    chain = model.chain(model.seen(torch.zeros(model.latent_shape, dtype=torch.float64)))
    family = JointFamily("full")
    whole = family.information(model, chain)
    parts = [model.select(torch.tensor(some)) for some in ([0, 2], [1])]
    zero = torch.zeros(model.latent_shape, dtype=torch.float64)
    told = [family.information(p, p.chain(p.seen(zero)), whole.places) for p in parts]
    torch.testing.assert_close((told[0] + told[1]).matrix, whole.matrix)
    torch.testing.assert_close((told[0] + told[1]).alone, whole.alone)


def test_other_families_are_refused():
    with pytest.raises(ValueError, match="'full', 'diagonal'"):
        JointFamily("block")
