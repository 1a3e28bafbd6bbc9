"""Scores without a sequence against dense algebra, and against fitting without it."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from bayeseq.inference.expectations import expectation
from bayeseq.inference.heldout import leave_one_out, refitted
from bayeseq.kernels.design import Design
from bayeseq.shapes import Layout
from tests.inference import oracles
from tests.inference.problems import problem, solver


def pieces(made, posterior, rule):
    """What `leave_one_out` asks for: gradients, the design without dependencies, rows."""
    model = made.model
    scores, variance = posterior.scores(model.design, model.residual)
    targets = torch.softmax(scores.masked_fill(~model.allowed, -torch.inf), -1)
    gradient = model.weights.unsqueeze(-1) * (targets - rule(scores, variance).probability)
    layout = Layout.of(made.lengths)
    X = np.hstack([made.X[layout.rows.numpy()], np.zeros((len(made.X), model.n_dependent))])
    sequence = layout.sequence.numpy()
    rows = [
        (np.flatnonzero(sequence[model.rows] == b), np.flatnonzero(sequence == b))
        for b in range(len(made.lengths))
    ]
    return gradient, Design(X), rows


def removed(made, posterior, gradient, local, rows, kind):
    """(N, C) the mean scores when the Gaussian factors of a sequence are taken out, densely.

    Row n entered with precision λ_n ψ_n ψ_nᵀ and linear part ψ_n (g_n + λ_n m_n), of which the
    family keeps its part.
    """
    model = made.model
    psi = model.design.matrix.toarray() if model.design.sparse else model.design.matrix
    head = psi.shape[1] - (model.n_dependent if kind == "block" else 0)
    found = np.zeros((local.shape[0], model.n_labels))
    for seen, tokens in rows:
        for c in range(model.n_labels):
            w = posterior.mean[:, c].numpy()
            lam, prior = posterior.curvature[:, c].numpy(), posterior.precision[:, c].numpy()
            whole = oracles.block_part(oracles.precision_matrix(psi, lam, prior), head)
            without = lam.copy()
            without[seen] = 0.0
            rest = oracles.block_part(oracles.precision_matrix(psi, without, prior), head)
            linear = whole @ w
            for n in seen:
                own = oracles.block_part(lam[n] * np.outer(psi[n], psi[n]), head)
                linear -= own @ w + psi[n] * float(gradient[n, c])
            found[tokens, c] = local.matrix[tokens] @ np.linalg.solve(rest, linear)
    return found


@pytest.mark.parametrize("lengths", [[3, 1, 4, 2], [5], [1, 1, 1]])
@pytest.mark.parametrize("D", [3, 12], ids=["columns", "rows"])
@pytest.mark.parametrize("kind", ["full", "block"])
def test_taking_out_a_sequence_equals_dense_algebra(kind, D, lengths):
    made = problem(0, lengths, 3, (-1, 1), D, sparse=False, weighted=True, sets=0.3, residual=True)
    rule = expectation("exact", 3)
    posterior, _ = solver(made.model, kind, "exact", max_sweeps=30).solve(made.model.log_variance)
    gradient, local, rows = pieces(made, posterior, rule)
    found = leave_one_out(made.model, posterior, gradient, local, rows)
    want = removed(made, posterior, gradient, local, rows, kind)
    np.testing.assert_allclose(found.numpy(), want, rtol=0, atol=1e-7)
    assert np.abs(want - local.times(posterior.mean).numpy()).max() > 0.05


@pytest.mark.parametrize("kind", ["full", "block"])
def test_sparse_rows_and_sequences_without_a_label(kind):
    dense = problem(1, [3, 2, 2], 2, (-1,), 3, sparse=True)
    rule = expectation("exact", 2)
    posterior, _ = solver(dense.model, kind, "exact").solve(dense.model.log_variance)
    gradient, local, rows = pieces(dense, posterior, rule)
    want = leave_one_out(dense.model, posterior, gradient, local, rows)
    sparse = Design(sp.csr_matrix(local.matrix))
    found = leave_one_out(dense.model, posterior, gradient, sparse, rows)
    torch.testing.assert_close(found, want, rtol=0, atol=1e-12)
    rows[1] = (rows[1][0][:0], rows[1][1])
    kept = leave_one_out(dense.model, posterior, gradient, local, rows)
    plain = local.times(posterior.mean)
    torch.testing.assert_close(kept[rows[1][1]], plain[rows[1][1]], rtol=0, atol=0)
    torch.testing.assert_close(kept[rows[0][1]], want[rows[0][1]], rtol=0, atol=0)


@pytest.mark.parametrize("rule", ["exact", "jensen"])
@pytest.mark.parametrize("kind", ["full", "block"])
def test_it_comes_near_to_fitting_without_the_sequence(kind, rule):
    """Within half of what the sequence's own labels do to its scores, on the average."""
    made = problem(0, [4, 3, 5, 4, 3, 4] * 2, 3, (-1,), 3, sparse=False)
    model = made.model
    posterior, _ = solver(model, kind, rule).solve(model.log_variance)
    gradient, local, rows = pieces(made, posterior, expectation(rule, 3))
    found = leave_one_out(model, posterior, gradient, local, rows)
    plain = local.times(posterior.mean)
    refit = torch.zeros_like(plain)
    for seen, tokens in rows:
        keep = np.setdiff1d(np.arange(model.design.shape[0]), seen)
        part = replace(
            model,
            design=model.design.select(keep),
            allowed=model.allowed[keep],
            weights=model.weights[keep],
        )
        without, _ = solver(part, kind, rule).solve(model.log_variance)
        refit[tokens] = local.select(tokens).times(without.mean)
    effect = (refit - plain).abs()
    error = (refit - found).abs()
    assert effect.max() > 0.5
    assert error.max() < 0.4 * effect.max()
    assert error.mean() < 0.5 * effect.mean()


def test_without_its_only_sequence_the_posterior_is_the_prior():
    made = problem(4, [6], 3, (-1, 1), 4)
    for kind in ("full", "block"):
        posterior, _ = solver(made.model, kind, "exact").solve(made.model.log_variance)
        gradient, local, rows = pieces(made, posterior, expectation("exact", 3))
        found = leave_one_out(made.model, posterior, gradient, local, rows)
        torch.testing.assert_close(found, torch.zeros_like(found), rtol=0, atol=1e-4)


def test_refitted_is_the_fit_to_the_other_folds():
    made = problem(3, [4, 3, 2, 3], 2, (-1,), 3, residual=True)
    model = made.model
    posterior, _ = solver(model, "diagonal", "exact").solve(model.log_variance)
    _, local, rows = pieces(made, posterior, expectation("exact", 2))
    sequence = Layout.of(made.lengths).sequence.numpy()
    found = refitted(
        model,
        lambda part: solver(part, "diagonal", "exact", learn=True),
        posterior,
        local,
        sequence[model.rows],
        sequence,
        folds=2,
    )
    for fold in range(2):
        keep = np.concatenate([rows[b][0] for b in range(4) if b % 2 != fold])
        part = replace(
            model,
            design=model.design.select(keep),
            allowed=model.allowed[keep],
            weights=model.weights[keep],
            residual=model.residual[keep],
        )
        without, _ = solver(part, "diagonal", "exact").solve(posterior.log_variance)
        tokens = np.concatenate([rows[b][1] for b in range(4) if b % 2 == fold])
        want = local.select(tokens).times(without.mean)
        torch.testing.assert_close(found[tokens], want, rtol=0, atol=1e-4)


def test_refitted_means_come_near_to_the_fit_to_the_other_folds():
    made = problem(5, [6, 5, 4, 6, 5, 6], 3, (-1,), 5)
    model = made.model
    posterior, _ = solver(model, "diagonal", "exact").solve(model.log_variance)
    sequence = Layout.of(made.lengths).sequence.numpy()
    _, local, _ = pieces(made, posterior, expectation("exact", 3))
    whole, quick = (
        refitted(
            model,
            lambda part: solver(part, "diagonal", "exact"),
            posterior,
            local,
            sequence[model.rows],
            sequence,
            means_only=means_only,
        )
        for means_only in (False, True)
    )
    effect = (whole - local.times(posterior.mean)).abs()
    error = (whole - quick).abs()
    assert effect.mean() > 0.1
    assert error.max() < 0.1 * effect.max()
    assert error.mean() < 0.1 * effect.mean()
