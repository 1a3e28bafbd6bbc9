"""Gaussians over all weights of a chain, against dense matrices and automatic differentiation."""

from unittest.mock import patch

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from bayeseq.inference import information
from bayeseq.inference.chain_likelihood import likelihood
from bayeseq.inference.information import JointFamily
from bayeseq.inference.joint import contrasts
from tests.inference.chains import chain_model


def dense_covariance(posterior):
    """S (P, P) of the whitened weights, by loops over places, turned back by loops over labels."""
    P = posterior.alone.numel()
    turn = posterior.basis.turn.numpy()
    C = len(turn)
    S = np.diag(posterior.alone.numpy().copy())
    block = posterior.root.numpy().T @ posterior.root.numpy()
    places = posterior.basis.places.tolist()
    for i, a in enumerate(places):
        for j, b in enumerate(places):
            S[a, b] = block[i, j]
    back = np.eye(P)
    for d in range(P // C - C):  # not the transitions
        for c in range(C):
            for k in range(C):
                back[d * C + c, d * C + k] = turn[c, k]
    return back @ S @ back.T


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
    with patch.object(information, "NEGLIGIBLE", 1e-12):
        found = JointFamily("full").information(model, model.chain(model.seen(u)))
    want = np.eye(u.numel()) + negative_hessian(model, u)
    precision = np.linalg.inv(dense_covariance(found.posterior(model, u)))
    np.testing.assert_allclose(precision, want, atol=2e-5)


@pytest.mark.parametrize("counts", [[3], [1, 5], [2, 2, 9], [4, 0, 7, 1]])
def test_contrasts_are_of_a_label_with_those_that_are_more_frequent(counts):
    turn = contrasts(torch.tensor(counts)).numpy()
    C = len(counts)
    np.testing.assert_allclose(turn.T @ turn, np.eye(C), atol=1e-15)
    np.testing.assert_allclose(turn[:, 0], C**-0.5)
    order = np.argsort(counts, kind="stable")
    for k in range(1, C):
        label, later = order[k - 1], order[k:]
        assert (turn[order[: k - 1], k] == 0).all()
        assert turn[label, k] > 0
        np.testing.assert_allclose(turn[later, k], -turn[label, k] / len(later))


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
    torch.testing.assert_close(posterior.turned_variances.sum(), S.diagonal().sum())
    torch.testing.assert_close(posterior.log_det, float(torch.logdet(S)))
    torch.testing.assert_close(posterior.times(x[0]).reshape(-1), S @ flat[0])
    torch.testing.assert_close(
        posterior.form(x), torch.einsum("sp,pq,sq->s", flat, torch.linalg.inv(S), flat)
    )
    white = torch.eye(len(S), dtype=torch.float64)
    root = posterior.coloured(white).reshape(len(S), -1)
    torch.testing.assert_close(root.T @ root, S)
    made_of = posterior.whitened(posterior.coloured(flat))
    torch.testing.assert_close(made_of, flat)
    torch.testing.assert_close(posterior.gathered(x[0]), root @ flat[0])
    scale = posterior.scale.reshape(-1)
    torch.testing.assert_close(posterior.variances.reshape(-1), S.diagonal() * scale.square())


def test_the_weights_that_matter_most_are_kept_together():
    model = chain_model(3, (6, 5, 4), C=3, D=4)
    u = torch.tensor(np.random.default_rng(0).normal(size=model.latent_shape))
    chain = model.chain(model.seen(u))
    whole, some = (JointFamily("full", n).information(model, chain) for n in (3000, 14))
    gained = (whole.alone * model.scale.reshape(-1).square()).numpy()
    kept, all_kept = some.basis.places.tolist(), whole.basis.places.tolist()
    assert len(kept) == 14
    assert kept == sorted(kept)
    pairs = [p for p in all_kept if p >= 12]
    assert pairs == [p for p in kept if p >= 12]
    assert all(p % 3 for p in all_kept if p < 12)  # never what all labels have in common
    left_out = [gained[p] for p in all_kept if p < 12 and p not in kept]
    assert max(left_out) <= min(gained[p] for p in kept if p < 12)


def test_sets_of_sequences_add_up():
    model = chain_model(2, (4, 3, 5), C=2)
    chain = model.chain(model.seen(torch.zeros(model.latent_shape, dtype=torch.float64)))
    family = JointFamily("full")
    whole = family.information(model, chain)
    parts = [model.select(torch.tensor(some)) for some in ([0, 2], [1])]
    zero = torch.zeros(model.latent_shape, dtype=torch.float64)
    told = [family.information(p, p.chain(p.seen(zero)), whole.basis) for p in parts]
    torch.testing.assert_close((told[0] + told[1]).matrix, whole.matrix)
    torch.testing.assert_close((told[0] + told[1]).alone, whole.alone)


def test_other_families_are_refused():
    with pytest.raises(ValueError, match="'full', 'diagonal'"):
        JointFamily("block")
