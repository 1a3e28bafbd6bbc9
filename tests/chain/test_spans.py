"""Probabilities of spans against enumeration, with draws, and at the extremes."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

import bayeseq.chain.spans as spans_module
from bayeseq.chain import Chain, chain_from_padded, overlap_log_prob, span_log_prob
from tests import oracles
from tests.chain.test_chain import problems


def overlap_probability(unary, pairs, start, end, members):
    """P(some label in [start, end) is a member)."""
    return sum(
        p
        for labels, p in oracles.distribution(unary, pairs)
        if any(members[labels[t]] for t in range(start, end))
    )


def every_span(each):
    return [
        (b, start, end)
        for b, (unary, _) in enumerate(each)
        for start in range(len(unary))
        for end in range(start + 1, len(unary) + 1)
    ]


@settings(max_examples=60, deadline=None)
@given(problems())
def test_overlaps_equal_enumeration(problem):
    chain, each, rng = problem
    spans = every_span(each)
    members = rng.random((len(spans), chain.n_labels)) < 0.5
    found = overlap_log_prob(chain, torch.tensor(spans), torch.tensor(members)).exp()
    for p, (b, start, end), inside in zip(found.tolist(), spans, members, strict=True):
        want = overlap_probability(*each[b], start, end, inside)
        assert p == pytest.approx(want, abs=1e-9)


@settings(max_examples=20, deadline=None)
@given(problems(), st.integers(1, 3), st.integers(1, 5))
def test_draws_are_chains_side_by_side_whatever_is_held_at_once(problem, S, at_once):
    chain, each, rng = problem
    C = chain.n_labels
    size = torch.tensor(rng.uniform(0.5, 1.5, S))
    unary = chain.unary * size.view(S, 1, 1)
    transitions = chain.transitions * size.view(S, *[1] * chain.transitions.dim())
    spans = torch.tensor(every_span(each))
    members = torch.tensor(rng.random((len(spans), C)) < 0.5)
    joins = torch.tensor(rng.random((C, C)) < 0.5)
    before = spans_module._PAIRS_AT_ONCE
    spans_module._PAIRS_AT_ONCE = at_once * S * C**2
    try:
        exact = span_log_prob(Chain(unary, transitions, chain.layout), spans, members, joins)
        overlap = overlap_log_prob(Chain(unary, transitions, chain.layout), spans, members)
    finally:
        spans_module._PAIRS_AT_ONCE = before
    assert exact.shape == overlap.shape == (S, len(spans))
    for s in range(S):
        alone = Chain(unary[s], transitions[s], chain.layout)
        close = {"rtol": 1e-12, "atol": 1e-12}
        torch.testing.assert_close(exact[s], span_log_prob(alone, spans, members, joins), **close)
        torch.testing.assert_close(overlap[s], overlap_log_prob(alone, spans, members), **close)


def test_tiny_overlaps_keep_their_digits():
    """Three tokens, each a member with probability 1 / (1 + e^100): 1 − (1 − p)³ is 3p."""
    unary = torch.tensor([[[0.0, -100.0]] * 3], dtype=torch.float64)
    chain = chain_from_padded(unary, torch.zeros(2, 2, dtype=torch.float64), torch.tensor([3]))
    found = overlap_log_prob(chain, torch.tensor([[0, 0, 3]]), torch.tensor([False, True]))
    assert float(found) == pytest.approx(math.log(3) - 100, abs=1e-12)


def test_a_span_of_a_long_chain_with_huge_scores():
    rng = np.random.default_rng(0)
    T, C = 3000, 4
    unary = torch.tensor(500 * rng.normal(size=(1, T, C)))
    chain = chain_from_padded(unary, torch.tensor(rng.normal(size=(C, C))), torch.tensor([T]))
    spans = torch.tensor([[0, 0, T], [0, 1000, 1002], [0, T - 1, T]])
    every = torch.ones(C, dtype=torch.bool)
    torch.testing.assert_close(
        overlap_log_prob(chain, spans, every), torch.zeros(3, dtype=torch.float64)
    )
    assert torch.isneginf(overlap_log_prob(chain, spans, ~every)).all()


def test_no_span_and_no_sequence():
    chain = chain_from_padded(torch.zeros(1, 2, 3), torch.zeros(3, 3), torch.tensor([2]))
    none = torch.zeros(0, 3, dtype=torch.long)
    assert overlap_log_prob(chain, none, torch.ones(3, dtype=torch.bool)).shape == (0,)
    with pytest.raises(ValueError, match=r"span 0 \(0, 3\) does not lie in sequence 0"):
        overlap_log_prob(chain, torch.tensor([[0, 0, 3]]), torch.ones(3, dtype=torch.bool))
