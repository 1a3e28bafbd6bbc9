"""The fast ways to Σ w log Z against enumeration of all labellings, and against the general way."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from bayeseq.chain import Chain, log_partition
from bayeseq.chain.joined import Joined
from bayeseq.chain.stepped import Stepped
from bayeseq.shapes import Layout
from tests.chain.test_sums import enumerated


def drawn(lengths, C, size, partial, seed):
    """Scores of two draws, weights, allowed labels and one allowed labelling, end to end."""
    rng = np.random.default_rng(seed)
    N = sum(lengths)
    f, A = size * rng.normal(size=(2, N, C)), size * rng.normal(size=(2, C, C))
    allowed = rng.random((N, C)) < 0.6 if partial else np.ones((N, C), bool)
    base = rng.integers(C, size=N)
    allowed[np.arange(N), base] = True
    return f, A, rng.random(len(lengths)), allowed, base


def score_of(lengths, f, A, weights, labels):
    """Σ w score of one labelling, by a loop."""
    total, first = 0.0, 0
    for length, weight in zip(lengths, weights, strict=True):
        for t in range(first, first + length):
            total += weight * f[t, labels[t]]
            total += weight * A[labels[t - 1], labels[t]] if t > first else 0.0
        first += length
    return total


cases = given(
    lengths=st.lists(st.integers(0, 5), min_size=1, max_size=5),
    C=st.integers(2, 3),
    size=st.sampled_from([0.1, 3.0, 15.0]),
    partial=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)


@settings(max_examples=60, deadline=None)
@cases
def test_the_product_of_all_sequences(lengths, C, size, partial, seed):
    f, A, _, allowed, _ = drawn(lengths, C, size, partial, seed)
    layout, weight = Layout.of(lengths), 1.5
    joined = Joined(layout, C, weight)
    packed = torch.tensor(f)[:, layout.rows]
    odds = (packed[:, joined.rows, 1:] - packed[:, joined.rows, :1]).transpose(1, 2)
    weights = np.full(len(lengths), weight)
    within = np.abs(np.asarray(odds)).max(initial=0.0) + np.abs(A).max() + np.log(C) <= 75.0
    for _ in range(2):  # what memory held before does not matter
        for mask in (allowed, None):
            labels = None if mask is None else torch.tensor(mask)[layout.rows]
            found = joined.total(odds, torch.tensor(A), labels)
            if not within and sum(lengths):
                assert bool(found.isnan().all())
                continue
            every = np.ones_like(allowed) if mask is None else mask
            want = [enumerated(lengths, f[s], A[s], weights, every) for s in range(2)]
            want -= weight * f[..., 0].sum(1)
            np.testing.assert_allclose(found, want, rtol=1e-11, atol=1e-9)
    shifted = packed - packed[..., :1]
    np.testing.assert_array_equal(joined.scores(odds), shifted)


@settings(max_examples=60, deadline=None)
@cases
def test_steps_in_single_precision(lengths, C, size, partial, seed):
    """The error is some 1e-7 of the largest score, a token; else there is no result."""
    f, A, weights, allowed, base = drawn(lengths, C, size, partial, seed)
    layout = Layout.of(lengths)
    stepped = Stepped(layout, torch.tensor(base)[layout.rows], torch.tensor(weights))
    odds = stepped.odds(torch.tensor(f)[:, layout.rows], torch.tensor(A))
    error = 1e-6 * (sum(lengths) + 1) * max(1.0, size)
    for mask in (allowed, None):
        labels = None if mask is None else torch.tensor(mask)[layout.rows]
        found = stepped.total(odds, torch.tensor(A), labels).numpy()
        for s in range(2):
            if size <= 3.0 and np.abs(A[s]).max() <= 10:
                assert np.isfinite(found[s])
            if np.isfinite(found[s]):
                every = np.ones_like(allowed) if mask is None else mask
                want = enumerated(lengths, f[s], A[s], weights, every)
                want -= score_of(lengths, f[s], A[s], weights, base)
                np.testing.assert_allclose(found[s], want, rtol=0, atol=error)


@pytest.mark.parametrize("C", [2, 3])
@pytest.mark.parametrize("size", [1.0, 8.0])
def test_long_sequences_and_many_draws(C, size):
    rng = np.random.default_rng(0)
    layout = Layout.of([3000, 1, 0, 700, 64])
    f = size * torch.tensor(rng.normal(size=(70, layout.n_tokens, C)))
    A = torch.tensor(rng.normal(size=(70, C, C)))
    joined = Joined(layout, C)
    odds = (f[:, joined.rows, 1:] - f[:, joined.rows, :1]).transpose(1, 2).contiguous()
    found = joined.total(odds, A) + f[..., 0].sum(1)
    np.testing.assert_allclose(found, log_partition(Chain(f, A, layout)).sum(-1), rtol=1e-12)
    np.testing.assert_array_equal(joined.total(odds, A), joined.total(odds, A))


def test_an_error_far_below_a_nat():
    """Thousands of tokens whose base labelling is as likely as known labels are."""
    rng = np.random.default_rng(0)
    layout = Layout.of(rng.integers(1, 60, size=150).tolist())
    N, C = layout.n_tokens, 12
    base = torch.tensor(rng.integers(C, size=N))
    f = 4 * torch.tensor(rng.normal(size=(8, N, C)))
    f[:, torch.arange(N), base] += 8.0
    A = torch.tensor(rng.normal(size=(8, C, C)))
    stepped = Stepped(layout, base, torch.ones(150, dtype=torch.float64))
    odds = stepped.odds(f, A)
    found = stepped.total(odds, A)
    want = log_partition(Chain(f, A, layout)).sum(-1)
    shift = Stepped(layout, base, torch.ones(150)).odds(f * 0, A)  # only to show it is linear
    np.testing.assert_allclose(odds, stepped.odds(f, A * 0) + shift, atol=1e-5)
    own = f[:, torch.arange(N), base].sum(-1)
    first = layout.sizes[0]
    own += A[:, base[layout.previous], base[first:]].sum(-1)
    assert float(want.sub(own).min()) > 100.0
    np.testing.assert_allclose(found, want - own, rtol=0, atol=1e-4)


def test_scores_that_are_too_large():
    layout = Layout.of([40])
    f, A = torch.zeros(1, 40, 2).double(), torch.zeros(1, 2, 2).double()
    joined, base = Joined(layout, 2), torch.zeros(40, dtype=torch.long)
    stepped = Stepped(layout, base, torch.ones(1, dtype=torch.float64))
    assert bool(joined.total(f[..., 1:].mT + 400.0, A).isnan())
    assert bool(joined.total(f[..., 1:].mT + torch.inf, A).isnan())
    assert not bool(stepped.total(stepped.odds(f, A) + 80.0, A).isfinite())
    assert not bool(stepped.total(stepped.odds(f, A), A - 40.0).isfinite())
    never = torch.zeros(40, 2, dtype=torch.bool)
    assert not bool(joined.total(f[..., 1:].mT, A, never).isfinite())
    found = joined.total(f[..., 1:].mT, A)
    np.testing.assert_allclose(found, 40 * np.log(2.0), rtol=1e-14)
