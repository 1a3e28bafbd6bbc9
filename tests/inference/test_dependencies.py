"""Distributions over labellings against their enumeration."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from bayeseq.inference.dependencies import Dependencies, check_offsets, refine
from bayeseq.shapes import Layout
from tests.inference import oracles

SETS = [(), (-1,), (1,), (-1, 1), (-2,), (2,), (-2, -1), (1, 2), (-2, -1, 1, 2), (-1, 2), (-2, 2)]


@st.composite
def problems(draw):
    """Ragged sequences with scores of labels and of dependencies, and maybe label sets."""
    offsets = draw(st.sampled_from(SETS))
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    C = draw(st.integers(2, 3))
    size = draw(st.sampled_from([0.1, 1.0, 4.0, 500.0]))
    draws = draw(st.sampled_from([None, 1, 2]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    lead = () if draws is None else (draws,)
    f = size * rng.normal(size=(*lead, sum(lengths), C))
    g = size * rng.normal(size=(*lead, len(offsets), C, C))
    allowed = np.ones((sum(lengths), C), dtype=bool)
    constrained = draw(st.booleans())
    if constrained:
        allowed = rng.random(allowed.shape) < 0.6
        allowed[np.arange(len(allowed)), rng.integers(C, size=len(allowed))] = True
    return offsets, lengths, f, g, allowed, constrained


def packed(problem):
    offsets, lengths, f, g, allowed, constrained = problem
    layout = Layout.of(lengths)
    deps = Dependencies(check_offsets(offsets), layout)
    mask = layout.pack(torch.tensor(allowed)) if constrained else None
    return deps, layout.pack(torch.tensor(f), -2), torch.tensor(g), mask


def enumerated(problem, at=()):
    """For each sequence, all labellings with their probabilities, for one draw."""
    offsets, lengths, f, g, allowed, _ = problem
    start, found = 0, []
    for length in lengths:
        rows = slice(start, start + length)
        sets = [set(np.flatnonzero(row)) for row in allowed[rows]]
        found.append(oracles.joint(f[at][rows], g[at], offsets, sets))
        start += length
    return found


@settings(max_examples=120, deadline=None)
@given(problems())
def test_marginals_equal_enumeration(problem):
    deps, f, g, allowed = packed(problem)
    found = deps.marginals(f, g, allowed)
    assert found.shape == f.shape
    draws = range(f.shape[0]) if f.dim() == 3 else [()]
    for at in draws:
        parts = deps.layout.split(found[at])
        for part, joint in zip(parts, enumerated(problem, at), strict=True):
            want = oracles.label_marginals(joint, *part.shape)
            np.testing.assert_allclose(part.numpy(), want, rtol=0, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(problems())
def test_the_best_labelling_equals_enumeration(problem):
    deps, f, g, allowed = packed(problem)
    found = deps.best(f, g, allowed)
    assert found.shape == f.shape[:-1]
    draws = range(f.shape[0]) if f.dim() == 3 else [()]
    for at in draws:
        parts = deps.layout.split(found[at])
        for part, joint in zip(parts, enumerated(problem, at), strict=True):
            p = joint[tuple(part.tolist())]
            assert p >= max(joint.values()) * (1 - 1e-9)


def test_a_directed_chain_is_the_product_of_its_conditionals():
    """Without masks the probabilities of the oracle's labellings add up to 1 by themselves."""
    rng = np.random.default_rng(0)
    f, g = rng.normal(size=(4, 3)), rng.normal(size=(2, 3, 3))
    for offsets in [(-2, -1), (1, 2)]:
        scores = [
            oracles._directed_score(f, g, offsets, labels)
            for labels in oracles.joint(f, g, offsets, [{0, 1, 2}] * 4)
        ]
        assert np.exp(scores).sum() == pytest.approx(1.0, abs=1e-12)


def test_scores_at_odds_by_hundreds_have_exact_local_normalisers():
    """One label for its features, another for its neighbour: neither may vanish from the sum."""
    f = np.array([[0.0, 0.3], [1000.0, 0.0], [0.0, 900.0]])
    g = np.array([[[0.0, 1000.0], [950.0, 0.0]]])
    for offsets in [(-1,), (1,), (-2,), (2,)]:
        joint = oracles.joint(f, g, offsets, [{0, 1}] * 3)
        deps = Dependencies(offsets, Layout.of([3]))
        found = deps.marginals(torch.tensor(f), torch.tensor(g))
        want = oracles.label_marginals(joint, 3, 2)
        np.testing.assert_allclose(found.numpy(), want, rtol=0, atol=1e-9)


# ---- sampling -----------------------------------------------------------------------------------


@pytest.mark.parametrize("offsets", [(-1, 1), (-2, -1, 1, 2)])
def test_gibbs_sampling_of_consistent_conditionals(offsets):
    """g_{+o} the transpose of g_{−o}: the conditionals are those of the undirected chain."""
    rng = np.random.default_rng(1)
    C, lengths, S = 3, [4, 1, 3], 512
    f = 0.7 * rng.normal(size=(8, C))
    back = {o: 0.7 * rng.normal(size=(C, C)) for o in offsets if o < 0}
    g = np.array([back[o] if o < 0 else back[-o].T for o in offsets])
    layout = Layout.of(lengths)
    allowed = np.ones((8, C), dtype=bool)
    allowed[[1, 6], [0, 2]] = False
    deps = Dependencies(offsets, layout)
    scores, mask = layout.pack(torch.tensor(f)), layout.pack(torch.tensor(allowed))
    exact = deps.marginals(scores, torch.tensor(g), mask)
    found = deps.gibbs(
        scores.expand(S, -1, -1),
        torch.tensor(g).expand(S, -1, -1, -1),
        torch.Generator().manual_seed(0),
        mask,
        warmup=15,
        sweeps=40,
    )
    assert found.shape == (S, 8, C)
    assert (found[:, ~mask] == 0).all()
    # The standard error from chains that do not know of each other, and five of them.
    error = found.std(0) / S**0.5
    assert error.max() < 5e-3
    assert ((found.mean(0) - exact).abs() <= 5 * error + 1e-12).all()


def test_gibbs_sampling_gives_every_draw_its_own_scores():
    """Without dependencies what is averaged are the softmaxes themselves."""
    rng = np.random.default_rng(2)
    f = torch.tensor(rng.normal(size=(3, 5, 2)))
    deps = Dependencies((), Layout.of([3, 2]))
    none, generator = torch.zeros(3, 0, 2, 2).double(), torch.Generator().manual_seed(0)
    found = deps.gibbs(f, none, generator, warmup=1, sweeps=3)
    torch.testing.assert_close(found, torch.softmax(f, -1), rtol=0, atol=1e-12)


def test_gibbs_sampling_reaches_any_offset():
    """Two tokens three apart, each looking at the other: a pair of labels, enumerated."""
    rng = np.random.default_rng(3)
    f, A = rng.normal(size=(4, 2)), rng.normal(size=(2, 2))
    g = np.array([A, A.T])
    pair = np.exp(f[0][:, None] + f[3][None, :] + A)
    pair /= pair.sum()
    S = 512
    deps = Dependencies((-3, 3), Layout.of([4]))
    found = deps.gibbs(
        torch.tensor(f).expand(S, -1, -1),
        torch.tensor(g).expand(S, -1, -1, -1),
        torch.Generator().manual_seed(0),
        warmup=10,
        sweeps=20,
    )
    error = found.std(0) / S**0.5 + 1e-12
    assert ((found.mean(0)[0] - torch.tensor(pair.sum(1))).abs() < 5 * error[0]).all()
    assert ((found.mean(0)[3] - torch.tensor(pair.sum(0))).abs() < 5 * error[3]).all()
    with pytest.raises(ValueError, match="reach farther than two labels"):
        deps.marginals(torch.tensor(f), torch.tensor(g))


# ---- refined normalised scores ------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.integers(2, 3),
    st.sampled_from([*SETS, (3,), (-3, 1)]),
    st.integers(1, 5),
)
def test_refined_scores_are_those_of_algorithm_2(seed, lengths, C, offsets, iterations):
    rng = np.random.default_rng(seed)
    N, R = sum(lengths), len(offsets)
    mean, variance = rng.normal(size=(N, C)), rng.random((N, C))
    mu, s = rng.normal(size=(R, C, C)), rng.random((R, C, C))
    layout = Layout.of(lengths)
    found = refine(
        Dependencies(offsets, layout),
        *(layout.pack(torch.tensor(x)) for x in (mean, variance)),
        torch.tensor(mu),
        torch.tensor(s),
        max_iter=iterations,
        tol=0.0,
    )
    want = oracles.refined_scores(lengths, mean, variance, offsets, mu, s, found.iterations)
    assert not found.damped
    np.testing.assert_allclose(layout.unpack(found.proba).numpy(), want, rtol=0, atol=1e-12)
    if not offsets:
        assert found.iterations == 0
        assert found.converged


def test_refined_scores_converge_and_say_so():
    rng = np.random.default_rng(4)
    layout = Layout.of([4, 2])
    deps = Dependencies((-1, 1), layout)
    mean, variance = torch.tensor(rng.normal(size=(6, 3))), torch.tensor(rng.random((6, 3)))
    mu, s = torch.tensor(0.3 * rng.normal(size=(2, 3, 3))), torch.tensor(rng.random((2, 3, 3)))
    found = refine(deps, mean, variance, mu, s, tol=1e-12)
    assert found.converged
    assert not found.damped
    inside = mean + variance / 2 + deps.neighbour_sum(found.proba, mu + s / 2)
    torch.testing.assert_close(found.proba, torch.softmax(inside, -1), rtol=0, atol=1e-11)
    short = refine(deps, mean, variance, mu, s, tol=1e-12, max_iter=2)
    assert short.iterations == 2
    assert not short.converged


def test_a_cycle_of_two_states_is_damped():
    """Two tokens, each of which likes to be like the other, with features at odds: all at once they
    exchange their labels for ever."""
    layout = Layout.of([2])
    deps = Dependencies((-1, 1), layout)
    mean = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    mu = 20 * torch.eye(2, dtype=torch.float64).expand(2, 2, 2)
    zero = torch.zeros_like
    plain = [
        oracles.refined_scores([2], mean.numpy(), np.zeros((2, 2)), (-1, 1), mu.numpy(), 0 * mu, k)
        for k in (40, 41, 42)
    ]
    np.testing.assert_allclose(plain[0], plain[2], rtol=0, atol=1e-9)
    assert np.abs(plain[0] - plain[1]).max() > 0.9
    found = refine(deps, mean, zero(mean), mu, zero(mu))
    assert found.damped
    assert found.converged
    inside = mean + deps.neighbour_sum(found.proba, mu)
    torch.testing.assert_close(found.proba, torch.softmax(inside, -1), rtol=0, atol=1e-4)


def test_refined_scores_with_another_softmax_and_label_sets():
    rng = np.random.default_rng(5)
    layout = Layout.of([3])
    deps = Dependencies((-1,), layout)
    mean, variance = torch.tensor(rng.normal(size=(3, 3))), torch.tensor(rng.random((3, 3)))
    mu, s = torch.tensor(0.5 * rng.normal(size=(1, 3, 3))), torch.tensor(rng.random((1, 3, 3)))
    allowed = torch.tensor([[True, True, False], [True, True, True], [False, False, True]])

    def average(mean, variance):
        """Any function of the two will do."""
        return torch.softmax(mean / (1 + variance), -1)

    for softmax in (None, average):
        found = refine(deps, mean, variance, mu, s, softmax=softmax, allowed=allowed, tol=1e-13)
        assert found.converged
        for n in range(3):
            m, v = mean[n].tolist(), variance[n].tolist()
            for c in range(3) if n > 0 else ():
                before = found.proba[n - 1].tolist()
                m[c] += sum(before[a] * float(mu[0, a, c]) for a in range(3))
                shares = before if softmax is None else [p * p for p in before]
                v[c] += sum(shares[a] * float(s[0, a, c]) for a in range(3))
            scores = [m[c] + v[c] / 2 if softmax is None else m[c] / (1 + v[c]) for c in range(3)]
            kept = [c for c in range(3) if allowed[n, c]]
            want = np.zeros(3)
            want[kept] = oracles.softmax([scores[c] for c in kept])
            np.testing.assert_allclose(found.proba[n].numpy(), want, rtol=0, atol=1e-11)


# ---- offsets ------------------------------------------------------------------------------------


@pytest.mark.parametrize("offsets", [(0,), (-1, -1), (1.0,), ("1",), "-1", "", (True,), (None,)])
def test_offsets_that_mean_nothing_are_refused(offsets):
    with pytest.raises(ValueError, match="expected different whole numbers other than 0"):
        check_offsets(offsets)


def test_offsets_in_rising_order():
    assert check_offsets([2, -1, 1]) == (-1, 1, 2)
    assert check_offsets(()) == ()
