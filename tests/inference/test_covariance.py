"""Covariances of the weights against dense inverses."""

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings

from bayeseq.inference.covariance import (
    FAMILIES,
    Block,
    ByColumns,
    ByRows,
    CovarianceFamily,
    Diagonal,
    LowRank,
)
from bayeseq.kernels.design import Design
from tests.inference import oracles

CLOSE = {"rtol": 1e-9, "atol": 1e-10}


def kept(kind, psi, curvature, precision, n_dependent, rank):
    """The part of the precision that a family keeps."""
    P = oracles.precision_matrix(psi, curvature, precision)
    if kind == "block":
        return oracles.block_part(P, len(P) - n_dependent)
    if kind == "diagonal":
        return np.diag(np.diag(P))
    if kind == "lowrank":
        return oracles.lowrank_part(psi, curvature, precision, rank)
    return P


@st.composite
def problems(draw):
    """A design, curvatures with zeros and next to zeros, precisions, and other rows."""
    N, D = draw(st.integers(1, 7)), draw(st.integers(2, 9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    psi = rng.normal(size=(N, D)) * (rng.random((N, D)) < draw(st.sampled_from([0.4, 1.0])))
    C = draw(st.integers(1, 2))
    curvature = rng.random((N, C)) * draw(st.sampled_from([0.1, 1.0, 30.0]))
    for tiny in (0.0, 1e-12, 1e-7, 2e-6):
        if draw(st.booleans()):
            curvature[rng.integers(N), rng.integers(C)] = tiny
    precision = np.exp(draw(st.sampled_from([0.0, 2.0])) * rng.normal(size=(D, C)))
    if draw(st.booleans()):
        precision[:] = precision[:, :1]
    design = Design(sp.csr_matrix(psi) if draw(st.booleans()) else psi)
    other = rng.normal(size=(4, D)) * (rng.random((4, D)) < 0.6)
    return psi, design, curvature, precision, other, draw(st.integers(0, D)), rng


def check(S, P, psi, design, curvature, other, rng):
    """Every question to a covariance, answered by the inverse of its precision."""
    want = np.linalg.inv(P)
    D = len(want)
    assert S.log_det == pytest.approx(np.linalg.slogdet(want)[1], rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(S.diagonal.numpy(), np.diag(want), **CLOSE)
    X = rng.normal(size=(D, 3))
    np.testing.assert_allclose(S.times(torch.tensor(X)).numpy(), want @ X, **CLOSE)
    own = np.einsum("nk,kl,nl->n", psi, want, psi)
    # The N × N way loses a rounding error over the curvature.
    found, allowed = S.row_variances(design).numpy(), 1e-10 + 4e-15 / np.maximum(curvature, 1e-9)
    assert (np.abs(found - own) <= allowed + 1e-9 * own).all()
    for elsewhere in (Design(other), Design(sp.csr_matrix(other))):
        variances = np.einsum("nk,kl,nl->n", other, want, other)
        np.testing.assert_allclose(S.row_variances(elsewhere).numpy(), variances, **CLOSE)
        np.testing.assert_allclose(
            S.between(elsewhere, design).numpy(), other @ want @ psi.T, **CLOSE
        )
        np.testing.assert_allclose(
            S.between(design, elsewhere).numpy(), psi @ want @ other.T, **CLOSE
        )


@settings(max_examples=200, deadline=None)
@given(problems(), st.sampled_from(FAMILIES), st.integers(1, 8))
def test_every_family_equals_the_inverse_of_what_it_keeps(problem, kind, rank):
    psi, design, curvature, precision, other, n_dependent, rng = problem
    family = CovarianceFamily(kind, design, n_dependent, rank)
    found = family(torch.tensor(curvature), torch.tensor(precision))
    assert len(found) == curvature.shape[1]
    for c, S in enumerate(found):
        P = kept(kind, psi, curvature[:, c], precision[:, c], n_dependent, rank)
        check(S, P, psi, design, curvature[:, c], other, rng)


@settings(max_examples=80, deadline=None)
@given(problems())
def test_factorising_rows_and_columns_agree_whatever_the_sizes(problem):
    psi, design, curvature, precision, other, _, rng = problem
    lam, p = torch.tensor(curvature[:, 0]), torch.tensor(precision[:, 0])
    P = oracles.precision_matrix(psi, curvature[:, 0], precision[:, 0])
    check(ByColumns(design, lam, p), P, psi, design, curvature[:, 0], other, rng)
    check(ByRows(design, lam, p), P, psi, design, curvature[:, 0], other, rng)


def test_the_smaller_factorisation_is_chosen():
    rng = np.random.default_rng(0)
    for N, D, sparse, rows in [(4, 5, False, True), (5, 4, False, False), (4, 5, True, False)]:
        psi = rng.normal(size=(N, D))
        design = Design(sp.csr_matrix(psi) if sparse else psi)
        lam, p = torch.ones(N, 1).double(), torch.ones(D, 1).double()
        assert isinstance(
            CovarianceFamily("full", design)(lam, p)[0], ByRows if rows else ByColumns
        )
        block = CovarianceFamily("block", design, 2)(lam, p)[0]
        assert isinstance(block, Block)
        assert isinstance(block.first, ByRows if rows else ByColumns)


@pytest.mark.parametrize("N", [3, 12])
def test_low_rank_is_exact_where_the_data_has_no_more(N):
    """Three distinct rows: three directions, however often the rows recur."""
    rng = np.random.default_rng(N)
    psi = rng.normal(size=(3, 8))[np.arange(N) % 3]
    curvature, precision = rng.random(N), np.exp(rng.normal(size=8))
    S = LowRank(Design(psi), torch.tensor(curvature), torch.tensor(precision), 3)
    P = oracles.precision_matrix(psi, curvature, precision)
    check(S, P, psi, Design(psi), curvature, rng.normal(size=(2, 8)), rng)
    fewer = LowRank(Design(psi), torch.tensor(curvature), torch.tensor(precision), 2)
    assert abs(fewer.log_det - S.log_det) > 1e-3


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("D", [1, 4])
def test_no_curvature_leaves_the_prior(kind, D):
    rng = np.random.default_rng(0)
    psi, precision = rng.normal(size=(5, D)), np.exp(rng.normal(size=(D, 2)))
    family = CovarianceFamily(kind, Design(psi), 1)
    for c, S in enumerate(family(torch.zeros(5, 2).double(), torch.tensor(precision))):
        other = rng.normal(size=(3, D))
        check(S, np.diag(precision[:, c]), psi, family.design, np.zeros(5), other, rng)


def test_the_search_for_low_rank_may_begin_anywhere():
    """A vector of ones, say, where the data has nothing to say."""
    psi = np.zeros((1, 6))
    psi[0, :2] = 1.0, -1.0
    S = LowRank(Design(psi), torch.ones(1).double(), torch.ones(6).double(), 2)
    P = np.eye(6) + psi.T @ psi
    check(S, P, psi, Design(psi), np.ones(1), np.eye(6), np.random.default_rng(0))


@pytest.mark.parametrize("kind", FAMILIES)
def test_one_column(kind):
    psi, lam = np.array([[1.0], [2.0], [0.0]]), np.array([0.3, 0.5, 1.0])
    S = CovarianceFamily(kind, Design(psi))(
        torch.tensor(lam[:, None]), torch.full((1, 1), 2.0).double()
    )[0]
    want = 1 / (2.0 + 0.3 + 4 * 0.5)
    assert S.diagonal.tolist() == pytest.approx([want], rel=1e-12)
    assert S.log_det == pytest.approx(np.log(want), rel=1e-12)


def label_covariances(psi, lam, p):
    """One of each class."""
    design = Design(psi)
    lam, p = torch.tensor(lam), torch.tensor(p)
    head, tail = design.split(psi.shape[1] - 2)
    return {
        "columns": ByColumns(design, lam, p),
        "rows": ByRows(design, lam, p),
        "diagonal": Diagonal(design, lam, p),
        "lowrank": LowRank(design, lam, p, 2),
        "block of columns": Block(
            ByColumns(head, lam, p[:-2]), Diagonal(tail, lam, p[-2:]), psi.shape[1] - 2
        ),
        "block of rows": Block(
            ByRows(head, lam, p[:-2]), Diagonal(tail, lam, p[-2:]), psi.shape[1] - 2
        ),
    }


NAMES = ["columns", "rows", "diagonal", "lowrank", "block of columns", "block of rows"]


@pytest.mark.parametrize("name", NAMES)
def test_samples_have_the_covariance(name):
    rng = np.random.default_rng(4)
    N, D, n = 4, 5, 200_000
    psi, p = rng.normal(size=(N, D)), np.exp(rng.normal(size=D))
    lam = np.array([0.0, 1e-12, 0.7, 3.0])
    S = label_covariances(psi, lam, p)[name]
    noise = torch.randn(D + N, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    draws = S.sample(noise)
    assert draws.shape == (D, n)
    want = S.times(torch.eye(D, dtype=torch.float64))
    scale = want.diagonal().sqrt()
    # A mean has standard error √(S_kk / n), a covariance √((S_kk S_ll + S_kl²) / n): five of them.
    assert (draws.mean(-1).abs() < 5 * scale / n**0.5).all()
    error = ((scale.outer(scale) ** 2 + want**2) / n).sqrt()
    assert ((draws @ draws.T / n - want).abs() < 5 * error).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_is_linear_in_its_noise_and_has_exactly_the_covariance(name):
    """A A^T = S for the matrix A that turns noise into draws."""
    rng = np.random.default_rng(5)
    N, D = 4, 5
    psi, p, lam = rng.normal(size=(N, D)), np.exp(rng.normal(size=D)), rng.random(N)
    S = label_covariances(psi, lam, p)[name]
    A = S.sample(torch.eye(D + N, dtype=torch.float64))
    want = S.times(torch.eye(D, dtype=torch.float64))
    torch.testing.assert_close(A @ A.T, want, rtol=0, atol=1e-10)


@settings(max_examples=30, deadline=None)
@given(problems(), st.sampled_from(["full", "block", "diagonal"]))
def test_a_family_holds_the_best_of_its_kind(problem, kind):
    """½ log|S| − ½ tr(P S) falls when S moves within its family."""
    psi, design, curvature, precision, _, n_dependent, rng = problem
    D = psi.shape[1]
    family = CovarianceFamily(kind, design, n_dependent)
    S = family(torch.tensor(curvature), torch.tensor(precision))[0]
    best = S.times(torch.eye(D, dtype=torch.float64)).numpy()
    P = oracles.precision_matrix(psi, curvature[:, 0], precision[:, 0])

    def value(S):
        return 0.5 * np.linalg.slogdet(S)[1] - 0.5 * np.trace(P @ S)

    pattern = (
        oracles.block_part(np.ones((D, D)), D - n_dependent) if kind == "block" else np.ones((D, D))
    )
    pattern = np.eye(D) if kind == "diagonal" else pattern
    root = np.linalg.cholesky(best)
    for size in (0.03, 0.3):
        for _ in range(4):
            step = rng.normal(size=(D, D)) * pattern
            step = (step + step.T) / np.linalg.norm(step + step.T) * size
            # In units of S: root has the family's own pattern, so the move stays inside.
            moved = root @ (np.eye(D) + step) @ root.T
            np.testing.assert_array_equal(moved[pattern == 0], 0.0)
            assert value(moved) < value(best) - 0.1 * size**2


def test_unknown_families_are_refused():
    with pytest.raises(ValueError, match="covariance is 'dense'; expected one of 'full'"):
        CovarianceFamily("dense", Design(np.eye(2)))


def test_columns_that_the_data_hardly_touches_are_independent():
    """With `negligible`, S is the inverse of the precision with their other entries set to zero."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(12, 6)) * np.array([1.0, 1.0, 1e-3, 1.0, 1e-3, 1.0])
    curvature, precision = rng.uniform(0.1, 0.3, 12), rng.uniform(0.5, 2.0, 6)
    P = np.diag(precision) + X.T @ np.diag(curvature) @ X
    weak = [2, 4]
    for k in weak:
        P[k, np.arange(6) != k] = P[np.arange(6) != k, k] = 0.0
    arguments = (Design(X), torch.from_numpy(curvature), torch.from_numpy(precision))
    found = ByColumns(*arguments, negligible=1e-3)
    np.testing.assert_allclose(found.S.numpy(), np.linalg.inv(P), atol=1e-12)
    np.testing.assert_allclose(found.log_det, -np.linalg.slogdet(P)[1], atol=1e-10)


def test_rows_that_say_next_to_nothing_are_left_out():
    """With `negligible`, S is what it would be if their curvature were zero."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(5, 9))
    precision = rng.uniform(0.5, 2.0, 9)
    curvature = np.array([0.2, 1e-7, 0.1, 1e-7, 0.3])
    kept = np.where(curvature > 1e-4, curvature, 0.0)
    S = np.linalg.inv(np.diag(precision) + X.T @ np.diag(kept) @ X)
    design = Design(X)
    found = ByRows(
        design, torch.from_numpy(curvature), torch.from_numpy(precision), negligible=1e-4
    )
    np.testing.assert_allclose(found.diagonal.numpy(), np.diag(S), atol=1e-12)
    np.testing.assert_allclose(found.log_det, np.linalg.slogdet(S)[1], atol=1e-10)
    expected = np.einsum("nk,kl,nl->n", X, S, X)
    np.testing.assert_allclose(found.row_variances(design).numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(found.row_variances(Design(X)).numpy(), expected, atol=1e-12)
    eye = torch.eye(9, dtype=torch.float64)
    np.testing.assert_allclose(found.times(eye).numpy(), S, atol=1e-12)
