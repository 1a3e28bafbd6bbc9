"""Totals of log Z against enumeration of all labellings."""

import itertools

import hypothesis.strategies as st
import numpy as np
import torch
from hypothesis import given, settings

from bayeseq.chain import Chain, constrain, log_partition, total_log_partition
from bayeseq.shapes import Layout


def enumerated(lengths, f, A, weights, allowed):
    """Σ w log Z by a loop over sequences and labellings; tokens lie end to end."""
    total, first = 0.0, 0
    for length, weight in zip(lengths, weights, strict=True):
        scores = []
        for labels in itertools.product(range(f.shape[1]), repeat=length):
            if all(allowed[first + s, c] for s, c in enumerate(labels)):
                scores.append(
                    sum(f[first + s, c] for s, c in enumerate(labels))
                    + sum(A[a, b] for a, b in itertools.pairwise(labels))
                )
        total += weight * np.logaddexp.reduce(scores)
        first += length
    return total


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 5), min_size=1, max_size=4),
    C=st.integers(1, 3),
    size=st.sampled_from([0.1, 3.0, 90.0, 400.0]),
    partial=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_total_is_that_of_all_labellings(lengths, C, size, partial, seed):
    """Scores so large that vectors are scaled at every step, or that the log-space way is taken."""
    rng = np.random.default_rng(seed)
    N, layout = sum(lengths), Layout.of(lengths)
    f, A = size * rng.normal(size=(2, N, C)), size * rng.normal(size=(2, C, C))
    weights = rng.random(len(lengths))
    allowed = rng.random((N, C)) < 0.6 if partial else np.ones((N, C), bool)
    allowed[np.arange(N), rng.integers(C, size=N)] = True
    rows = layout.rows
    chain = Chain(torch.tensor(f)[:, rows], torch.tensor(A), layout)
    chain = constrain(chain, allowed=torch.tensor(allowed)[rows])
    found = total_log_partition(chain, torch.tensor(weights))
    want = [enumerated(lengths, f[s], A[s], weights, allowed) for s in range(2)]
    np.testing.assert_allclose(found, want, rtol=1e-11, atol=1e-10)
    plain = total_log_partition(chain)
    want = [enumerated(lengths, f[s], A[s], np.ones(len(lengths)), allowed) for s in range(2)]
    np.testing.assert_allclose(plain, want, rtol=1e-11, atol=1e-10)


def test_long_chains_and_many_axes():
    rng = np.random.default_rng(0)
    layout = Layout.of([3000, 1, 700])
    f, A = (
        torch.tensor(rng.normal(size=(2, 3, 3701, 4))),
        torch.tensor(rng.normal(size=(2, 3, 4, 4))),
    )
    chain = Chain(20 * f, A, layout)
    want = log_partition(chain).sum(-1)
    np.testing.assert_allclose(total_log_partition(chain), want, rtol=1e-12)


def test_what_is_impossible_is_minus_infinity():
    chain = Chain(torch.zeros(2, 2).double(), torch.zeros(2, 2).double(), Layout.of([2]))
    never = constrain(chain, allowed=torch.tensor([[True, True], [False, False]]))
    assert float(total_log_partition(never)) == -np.inf
    pairs = constrain(chain, pairs=torch.tensor([[False, False], [False, True]]))
    np.testing.assert_allclose(float(total_log_partition(pairs)), 0.0, atol=1e-12)
