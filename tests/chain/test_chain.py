"""The chain algorithms against enumeration of all labellings, and at the extremes."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from bayeseq.chain import (
    chain_from_padded,
    constrain,
    covariance,
    entropy,
    forward_backward,
    inside_probability,
    kbest,
    log_partition,
    loss_augmented,
    sample,
    score,
    span_log_prob,
    viterbi,
)
from bayeseq.chain.marginals import _log_forward_backward
from tests import oracles

CLOSE = {"rtol": 0, "atol": 1e-9}


@st.composite
def problems(draw, max_labels=3, max_length=4):
    """Ragged chains with or without forbidden labels and transitions, one matrix or many."""
    seed = draw(st.integers(0, 2**32 - 1))
    lengths = draw(st.lists(st.integers(1, max_length), min_size=1, max_size=4))
    C = draw(st.integers(1, max_labels))
    varies = draw(st.booleans())
    constrained = draw(st.booleans())
    size = draw(st.sampled_from([0.1, 1.0, 10.0, 300.0]))
    rng = np.random.default_rng(seed)
    B, T = len(lengths), max(lengths)
    unary = size * rng.normal(size=(B, T, C))
    pairs = size * rng.normal(size=(B, T - 1, C, C))
    if not varies:
        pairs[:] = size * rng.normal(size=(C, C))
    if constrained:
        # one labelling always stays possible, so that every question has an answer
        free = rng.integers(C, size=(B, T))
        keep = rng.random((B, T, C)) < 0.6
        np.put_along_axis(keep, free[..., None], True, -1)
        unary[~keep] = -np.inf
        if varies:
            keep_pairs = rng.random((B, T - 1, C, C)) < 0.6
            for b in range(B):
                for t in range(T - 1):
                    keep_pairs[b, t, free[b, t], free[b, t + 1]] = True
            pairs[~keep_pairs] = -np.inf
    matrix = pairs if varies or T == 1 else pairs[0, 0]
    chain = chain_from_padded(torch.tensor(unary), torch.tensor(matrix), torch.tensor(lengths))
    each = [(unary[b, :n], pairs[b, : n - 1]) for b, n in enumerate(lengths)]
    return chain, each, rng


def ragged(chain, packed):
    return [part.numpy() for part in chain.layout.split(packed)]


def ragged_pairs(chain, each):
    """(N − B, C, C) packed pair values → one (T − 1, C, C) array a sequence."""
    layout = chain.layout
    sequence, position = layout.token_index
    first = layout.n_tokens - layout.n_pairs
    found = [np.zeros((n - 1, *each.shape[1:])) for n in layout.lengths.tolist()]
    for r in range(layout.n_pairs):
        found[int(sequence[first + r])][int(position[first + r]) - 1] = each[r].numpy()
    return found


@settings(max_examples=120, deadline=None)
@given(problems())
def test_sums_equal_enumeration(problem):
    chain, each, rng = problem
    weights = torch.tensor(rng.random(len(each)))
    log_z = log_partition(chain)
    summed = forward_backward(chain, "sum", weights)
    single = ragged(chain, summed.unary)
    double = ragged_pairs(chain, forward_backward(chain, "each").pairs)
    H = entropy(chain)
    total = np.zeros((chain.n_labels, chain.n_labels))
    for b, (unary, pairs) in enumerate(each):
        expected = oracles.log_partition(unary, pairs)
        assert float(log_z[b]) == pytest.approx(expected, rel=1e-12, abs=1e-9)
        assert float(summed.log_partition[b]) == pytest.approx(expected, rel=1e-12, abs=1e-9)
        want_single, want_double = oracles.marginals(unary, pairs)
        np.testing.assert_allclose(single[b], want_single, **CLOSE)
        np.testing.assert_allclose(double[b], want_double, **CLOSE)
        assert float(H[b]) == pytest.approx(oracles.entropy(unary, pairs), abs=1e-9)
        total += float(weights[b]) * want_double.sum(0)
    np.testing.assert_allclose(summed.pairs.numpy(), total, **CLOSE)


@settings(max_examples=60, deadline=None)
@given(problems())
def test_log_space_equals_the_scaled_recursion(problem):
    chain, _, rng = problem
    weights = torch.tensor(rng.random(chain.layout.n_sequences))
    for pairs in ("sum", "each"):
        fast = forward_backward(chain, pairs, weights)
        slow = _log_forward_backward(chain, pairs, weights)
        torch.testing.assert_close(fast.unary, slow.unary, **CLOSE)
        torch.testing.assert_close(fast.pairs, slow.pairs, **CLOSE)


@settings(max_examples=60, deadline=None)
@given(problems(), st.integers(1, 30))
def test_best_labellings_equal_enumeration(problem, k):
    chain, each, _ = problem
    best = viterbi(chain)
    top = kbest(chain, k)
    torch.testing.assert_close(best.score, top.score[0], rtol=1e-12, atol=1e-9)
    torch.testing.assert_close(score(chain, best.labels), best.score, rtol=1e-12, atol=1e-9)
    for b, (unary, pairs) in enumerate(each):
        want = oracles.possible(unary, pairs)
        scores = dict(want)
        found = [
            (tuple(ragged(chain, top.labels[j])[b].tolist()), float(top.score[j, b]))
            for j in range(k)
        ]
        kept = [pair for pair in found if pair[1] > -math.inf]
        assert len(kept) == min(k, len(want))
        assert len({y for y, _ in kept}) == len(kept)
        for (y, s), (_, want_score) in zip(kept, want, strict=False):
            assert s == pytest.approx(want_score, rel=1e-12, abs=1e-9)
            assert s == pytest.approx(scores[y], rel=1e-12, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(problems())
def test_loss_augmented_decoding_equals_enumeration(problem):
    chain, each, rng = problem
    C = chain.n_labels
    cost = rng.random((C, C))
    given_labels = [rng.integers(-1, C, size=len(unary)) for unary, _ in each]
    packed = chain.layout.pack(torch.tensor(np.concatenate(given_labels)))
    for table, argument in ((cost, torch.tensor(cost)), (2.5 * (1 - np.eye(C)), 2.5)):
        found = loss_augmented(chain, packed, argument)
        for b, (unary, pairs) in enumerate(each):
            want = max(
                s + sum(table[g, y] for g, y in zip(given_labels[b], labels, strict=True) if g >= 0)
                for labels, s in oracles.possible(unary, pairs)
            )
            assert float(found.score[b]) == pytest.approx(want, rel=1e-12, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(problems())
def test_gradient_of_log_partition_is_the_marginals_and_the_finite_difference(problem):
    chain, _, rng = problem
    unary = chain.unary.clone().requires_grad_()
    transitions = chain.transitions.clone().requires_grad_()
    weights = torch.tensor(rng.random(chain.layout.n_sequences))

    def value(u, a):
        return (weights * log_partition(type(chain)(u, a, chain.layout))).sum()

    value(unary, transitions).backward()
    found = forward_backward(chain, "each" if chain.varies else "sum", weights)
    of_row = weights[chain.layout.sequence].unsqueeze(-1)
    torch.testing.assert_close(unary.grad, found.unary * of_row, **CLOSE)
    torch.testing.assert_close(transitions.grad, found.pairs, **CLOSE)
    if float(chain.unary[torch.isfinite(chain.unary)].abs().max()) < 50:
        h = 1e-5
        du = torch.tensor(rng.normal(size=unary.shape))
        da = torch.tensor(rng.normal(size=transitions.shape))
        with torch.no_grad():
            up = value(unary + h * du, transitions + h * da)
            down = value(unary - h * du, transitions - h * da)
        slope = (unary.grad * du).sum() + (transitions.grad * da).sum()
        assert float((up - down) / (2 * h)) == pytest.approx(float(slope), abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(problems())
def test_covariance_equals_enumeration(problem):
    chain, each, rng = problem
    direction = [rng.normal(size=unary.shape) for unary, _ in each]
    packed = chain.layout.pack(torch.tensor(np.concatenate(direction)))
    summed = covariance(chain, packed, "sum")
    single = ragged(chain, summed.unary)
    double = ragged_pairs(chain, covariance(chain, packed, "each").pairs)
    total = np.zeros((chain.n_labels, chain.n_labels))
    for b, (unary, pairs) in enumerate(each):
        want_single, want_double = oracles.covariance(unary, pairs, direction[b])
        np.testing.assert_allclose(single[b], want_single, **CLOSE)
        np.testing.assert_allclose(double[b], want_double, **CLOSE)
        total += want_double.sum(0)
    np.testing.assert_allclose(summed.pairs.numpy(), total, **CLOSE)


@settings(max_examples=60, deadline=None)
@given(problems())
def test_span_probabilities_equal_enumeration(problem):
    chain, each, rng = problem
    C = chain.n_labels
    continues = rng.random((C, C)) < 0.5
    spans, members = [], []
    for b, (unary, _) in enumerate(each):
        for start in range(len(unary)):
            for end in range(start + 1, len(unary) + 1):
                spans.append((b, start, end))
                members.append(rng.random(C) < 0.7)
    found = span_log_prob(
        chain, torch.tensor(spans), torch.tensor(np.array(members)), torch.tensor(continues)
    ).exp()
    for p, (b, start, end), inside in zip(found.tolist(), spans, members, strict=True):
        want = oracles.span_probability(*each[b], start, end, inside, continues)
        assert p == pytest.approx(want, abs=1e-9)


def test_spans_are_refused_outside_their_sequence():
    chain = chain_from_padded(torch.zeros(1, 2, 2), torch.zeros(2, 2), torch.tensor([2]))
    yes, pairs = torch.ones(2, dtype=torch.bool), torch.ones(2, 2, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"span 0 \(1, 3\) does not lie in sequence 0"):
        span_log_prob(chain, torch.tensor([[0, 1, 3]]), yes, pairs)
    with pytest.raises(ValueError, match="span 0 names sequence 4"):
        span_log_prob(chain, torch.tensor([[4, 0, 1]]), yes, pairs)


@settings(max_examples=20, deadline=None)
@given(problems())
def test_inside_probability(problem):
    chain, each, _ = problem
    outside = torch.zeros(chain.n_labels, dtype=torch.bool)
    outside[-1] = True
    found = ragged(chain, inside_probability(forward_backward(chain).unary, outside))
    for b, (unary, pairs) in enumerate(each):
        want = oracles.marginals(unary, pairs)[0][:, :-1].sum(1)
        np.testing.assert_allclose(found[b], want, **CLOSE)


@pytest.mark.parametrize("varies", [False, True])
def test_samples_have_the_chain_distribution(varies):
    rng = np.random.default_rng(5)
    unary = rng.normal(size=(2, 3, 3))
    unary[0, 1, 2] = -np.inf
    pairs = rng.normal(size=(2, 2, 3, 3)) if varies else rng.normal(size=(3, 3))
    chain = chain_from_padded(torch.tensor(unary), torch.tensor(pairs), torch.tensor([3, 2]))
    draws = 40_000
    labels = sample(chain, draws, torch.Generator().manual_seed(1))
    for b, n in enumerate([3, 2]):
        each = pairs[b, : n - 1] if varies else np.broadcast_to(pairs, (n - 1, 3, 3))
        codes = chain.layout.split(labels, dim=-1)[b] @ torch.tensor([3**t for t in range(n)])
        counts = torch.bincount(codes, minlength=3**n).numpy()
        for y, p in oracles.distribution(unary[b, :n], each):
            standard_error = math.sqrt(p * (1 - p) / draws)
            code = sum(c * 3**t for t, c in enumerate(y))
            assert abs(counts[code] / draws - p) < 5 * standard_error + 1e-4
            counts[code] = 0
        assert counts.sum() == 0, "a forbidden labelling was drawn"


def test_samples_repeat_with_the_generator_and_draw_axes_broadcast():
    unary, pairs = torch.randn(5, 4, 3), torch.randn(5, 3, 3)
    layout = chain_from_padded(torch.zeros(2, 3, 3), torch.zeros(3, 3), torch.tensor([1, 3])).layout
    chain = type(chain_from_padded(torch.zeros(1, 1, 1), torch.zeros(1, 1), torch.tensor([1])))(
        unary, pairs, layout
    )
    one = sample(chain, 2, torch.Generator().manual_seed(3))
    two = sample(chain, 2, torch.Generator().manual_seed(3))
    assert one.shape == (2, 5, 4)
    assert torch.equal(one, two)


@settings(max_examples=25, deadline=None)
@given(problems())
def test_leading_axes_are_independent_problems(problem):
    chain, _, rng = problem
    shift = torch.tensor(rng.normal(size=(3, *chain.unary.shape)))
    unary = chain.unary + shift
    lead = chain.transitions.dim() * (1,)
    transitions = chain.transitions.expand(3, *chain.transitions.shape) * torch.tensor(
        [1.0, 0.5, 2.0]
    ).reshape(3, *lead)
    many = type(chain)(unary, transitions, chain.layout)
    together = forward_backward(many, "sum")
    best, top, H = viterbi(many), kbest(many, 3), entropy(many)
    moved = covariance(many, shift, "sum")
    log_z = log_partition(many)
    for s in range(3):
        one = type(chain)(unary[s], transitions[s], chain.layout)
        alone = forward_backward(one, "sum")
        torch.testing.assert_close(together.unary[s], alone.unary, **CLOSE)
        torch.testing.assert_close(together.pairs[s], alone.pairs, **CLOSE)
        torch.testing.assert_close(log_z[s], log_partition(one), rtol=1e-12, atol=1e-9)
        torch.testing.assert_close(best.score[s], viterbi(one).score)
        torch.testing.assert_close(top.score[:, s], kbest(one, 3).score)
        torch.testing.assert_close(H[s], entropy(one), **CLOSE)
        torch.testing.assert_close(moved.pairs[s], covariance(one, shift[s], "sum").pairs, **CLOSE)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("varies", [False, True])
def test_ten_thousand_steps_with_huge_scores(dtype, varies):
    T, C = 10_000, 4
    generator = torch.Generator().manual_seed(0)
    unary = 100 * torch.randn(1, T, C, generator=generator, dtype=dtype)
    shape = (1, T - 1, C, C) if varies else (C, C)
    pairs = 100 * torch.randn(shape, generator=generator, dtype=dtype)
    chain = chain_from_padded(unary, pairs, torch.tensor([T]))
    found = forward_backward(chain, "sum")
    tolerance = {torch.float64: 1e-9, torch.float32: 1e-5}[dtype]
    assert torch.isfinite(found.log_partition).all()
    assert torch.isfinite(log_partition(chain)).all()
    assert torch.isfinite(entropy(chain)).all()
    ones = torch.ones(T, dtype=dtype)
    torch.testing.assert_close(found.unary.sum(-1), ones, rtol=0, atol=tolerance)
    assert float(found.pairs.sum()) == pytest.approx(T - 1, rel=tolerance)
    best = viterbi(chain)
    torch.testing.assert_close(score(chain, best.labels), best.score, rtol=1e-5, atol=0)
    assert float(best.score) <= float(found.log_partition) * (1 + 1e-5)


def test_a_late_constraint_that_contradicts_everything_before_is_not_lost():
    """Label 1 falls e⁻⁴⁰ a step behind and is then forced: the scaled recursion must notice."""
    T = 60
    unary = torch.zeros(1, T, 2, dtype=torch.float64)
    unary[..., 1] = -40.0
    stuck = torch.tensor([[0.0, -torch.inf], [-torch.inf, 0.0]], dtype=torch.float64)
    chain = chain_from_padded(unary, stuck, torch.tensor([T]))
    allowed = torch.ones(T, 2, dtype=torch.bool)
    allowed[-1, 0] = False
    forced = constrain(chain, allowed=allowed)
    found = forward_backward(forced, "sum")
    assert float(found.log_partition) == pytest.approx(-40.0 * T)
    torch.testing.assert_close(found.unary[:, 1], torch.ones(T, dtype=torch.float64))
    assert float(log_partition(forced)) == pytest.approx(-40.0 * T)


def test_constraints_by_position_pair_start_and_end():
    rng = np.random.default_rng(2)
    unary, pairs = rng.normal(size=(2, 3, 3)), rng.normal(size=(3, 3))
    chain = chain_from_padded(torch.tensor(unary), torch.tensor(pairs), torch.tensor([3, 2]))
    allowed = np.ones((2, 3, 3), dtype=bool)
    allowed[0, 1] = [True, False, True]
    may_follow = ~np.eye(3, dtype=bool)
    start, end = np.array([True, True, False]), np.array([False, True, True])
    bound = constrain(
        chain,
        allowed=chain.layout.from_padded(torch.tensor(allowed)),
        pairs=torch.tensor(may_follow),
        start=torch.tensor(start),
        end=torch.tensor(end),
    )
    found = ragged(bound, forward_backward(bound).unary)
    for b, n in enumerate([3, 2]):
        u = np.where(allowed[b, :n], unary[b, :n], -np.inf)
        u[0, ~start] = -np.inf
        u[-1, ~end] = -np.inf
        p = np.broadcast_to(np.where(may_follow, pairs, -np.inf), (n - 1, 3, 3))
        np.testing.assert_allclose(found[b], oracles.marginals(u, p)[0], **CLOSE)


def test_an_impossible_sequence_is_named():
    unary = torch.zeros(2, 2, 2)
    unary[1, 1] = -torch.inf
    chain = chain_from_padded(unary, torch.zeros(2, 2), torch.tensor([2, 2]))
    assert log_partition(chain).tolist()[1] == -math.inf
    for question in (forward_backward, viterbi, entropy, lambda c: sample(c, 1)):
        with pytest.raises(ValueError, match="sequence 1: no labelling satisfies"):
            question(chain)


def test_a_score_that_is_not_a_number_is_named():
    unary = torch.zeros(2, 2, 2)
    unary[0, 1, 0] = torch.nan
    chain = chain_from_padded(unary, torch.zeros(2, 2), torch.tensor([2, 2]))
    with pytest.raises(ValueError, match="sequence 0 has a score that is infinite or not a number"):
        forward_backward(chain)


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match="transitions have shape"):
        chain_from_padded(torch.zeros(1, 2, 3), torch.zeros(2, 2), torch.tensor([2]))
    with pytest.raises(ValueError, match="at least 1"):
        kbest(chain_from_padded(torch.zeros(1, 1, 1), torch.zeros(1, 1), torch.tensor([1])), 0)


def test_empty_sequences_have_one_labelling():
    chain = chain_from_padded(torch.zeros(3, 1, 2), torch.zeros(2, 2), torch.tensor([0, 1, 0]))
    expected = [0.0, math.log(2), 0.0]
    assert log_partition(chain).tolist() == pytest.approx(expected)
    assert forward_backward(chain).log_partition.tolist() == pytest.approx(expected)
    assert viterbi(chain).score.tolist() == [0.0, 0.0, 0.0]
    assert entropy(chain).tolist() == pytest.approx(expected)
