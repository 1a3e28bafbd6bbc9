"""The covariance of label and label-pair counts against enumeration of all labellings."""

import itertools

import hypothesis.strategies as st
import numpy as np
import torch
from hypothesis import given, settings

from bayeseq.chain import Chain, constrain, label_covariances, pair_covariances
from bayeseq.shapes import Layout


@st.composite
def problems(draw):
    lengths = draw(st.lists(st.integers(0, 4), min_size=1, max_size=3).filter(any))
    C, S = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    N = sum(lengths)
    unary = rng.normal(size=(S, N, C)) * draw(st.sampled_from([1.0, 4.0]))
    known = rng.random(N) < (0.7 if draw(st.booleans()) else 2.0)
    forbidden = rng.random((N, C)) < 0.2
    forbidden[forbidden.all(-1)] = False
    weights = rng.choice([0.5, 1.0, 3.0], size=len(lengths))
    return lengths, unary, rng.normal(size=(S, C, C)), known, forbidden, weights


def enumerated(lengths, unary, A, known, forbidden, weights):
    """(N·C + C², N·C + C²) by loops over draws, sequences, labellings; tokens end to end."""
    S, N, C = unary.shape
    total = np.zeros((N * C + C * C,) * 2)
    for s in range(S):
        first = 0
        for length, weight in zip(lengths, weights, strict=True):
            counts, scores = [], []
            for labelling in itertools.product(range(C), repeat=length):
                if any(forbidden[first + t, c] for t, c in enumerate(labelling)):
                    continue
                x, score = np.zeros(N * C + C * C), 0.0
                for t, c in enumerate(labelling):
                    n = first + t
                    score += unary[s, n, c]
                    x[n * C + c] += known[n]
                    if t:
                        before = labelling[t - 1]
                        score += A[s, before, c]
                        x[N * C + before * C + c] += known[n] and known[n - 1]
                counts.append(x)
                scores.append(score)
            p = np.exp(np.array(scores) - np.logaddexp.reduce(scores))
            x = np.array(counts) - p @ np.array(counts)
            total += weight * (x * p[:, None]).T @ x / S
            first += length
    return total


@settings(max_examples=60, deadline=None)
@given(problems())
def test_all_covariances_are_those_of_all_labellings(problem):
    lengths, unary, A, known, forbidden, weights = problem
    layout = Layout.of(lengths)
    _, N, C = unary.shape
    rows = layout.rows
    chain = Chain(torch.tensor(unary)[:, rows], torch.tensor(A), layout)
    chain = constrain(chain, allowed=~torch.tensor(forbidden)[rows])
    told, omega = torch.tensor(known)[rows], torch.tensor(weights)
    found = np.zeros((N, C, N, C))
    for left, right, covariance in label_covariances(chain, told, omega, tol=0.0):
        a, b = rows[left].numpy(), rows[right].numpy()
        assert (b >= a).all()
        found[a, :, b] = covariance
        found[b, :, a] = covariance.transpose(-1, -2)
    want = enumerated(*problem)
    np.testing.assert_allclose(found.reshape(N * C, -1), want[: N * C, : N * C], atol=1e-12)
    pairs = pair_covariances(chain, told, omega)
    with_labels = torch.empty_like(pairs.with_labels)
    with_labels[rows] = pairs.with_labels
    np.testing.assert_allclose(with_labels.reshape(N * C, -1), want[: N * C, N * C :], atol=1e-12)
    np.testing.assert_allclose(pairs.among, want[N * C :, N * C :], atol=1e-12)
    some = torch.arange(C * C)[:: max(1, C - 1)]
    counted = pair_covariances(chain, told, omega, some)
    torch.testing.assert_close(counted.with_labels, pairs.with_labels[..., some])
    torch.testing.assert_close(counted.among, pairs.among[some.unsqueeze(-1), some])


def test_what_is_left_out_of_a_long_chain_is_small():
    rng = np.random.default_rng(0)
    layout = Layout.of([300])
    chain = Chain(
        torch.tensor(rng.normal(size=(300, 3))), torch.eye(3, dtype=torch.float64), layout
    )
    known, weights = torch.ones(300, dtype=torch.bool), torch.ones(1, dtype=torch.float64)
    whole = list(label_covariances(chain, known, weights, tol=0.0))
    some = list(label_covariances(chain, known, weights, tol=1e-7))
    assert len(some) < 60 < len(whole)
    kept = {
        (int(a), int(b)) for found in some for a, b in zip(found.left, found.right, strict=True)
    }
    for found in whole:
        for a, b, covariance in zip(*found, strict=True):
            if (int(a), int(b)) not in kept:
                assert float(covariance.abs().max()) < 1e-6
