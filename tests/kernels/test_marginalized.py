"""Marginalized kernels against the enumeration of all labellings and all features."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from bayeseq.kernels import Polynomial
from bayeseq.kernels.marginalized import (
    DAGKernel,
    GappySequenceKernel,
    Graph,
    Positions,
    SequenceKernel,
    TreeKernel,
    base,
)
from tests.kernels import oracles
from tests.kernels import structure_oracles as slow

GAP = 0.6
KINDS = {
    "sequence": (SequenceKernel(), slow.substrings),
    "gappy": (GappySequenceKernel(gap=GAP), slow.subsequences(GAP)),
    "gaps for nothing": (GappySequenceKernel(gap=1.0), slow.subsequences(1.0)),
    "dag": (DAGKernel(), slow.paths),
    "tree": (TreeKernel(), slow.subtrees),
}
each_kind = pytest.mark.parametrize("kind", list(KINDS))
seeds = st.integers(0, 10**6)
how = st.fixed_dictionaries({"skip": st.booleans(), "unit": st.booleans()})


def draw_edges(rng, kind, T):
    """Edges of one structure; numbers of positions say nothing about who is whose parent."""
    order = rng.permutation(T)
    if kind == "dag":
        return [
            (int(order[a]), int(order[b])) for b in range(T) for a in range(b) if rng.random() < 0.5
        ]
    if kind == "tree":
        return [(int(order[rng.integers(b)]), int(order[b])) for b in range(1, T)]
    return [(t, t + 1) for t in range(T - 1)]


def draw(seed, kind, lengths, n_labels, real=False):
    """Structures as the oracles take them, their priors, and the same as Positions."""
    rng = np.random.default_rng(seed)
    rows = [
        rng.normal(size=(T, 2)) if real else np.eye(2)[rng.integers(2, size=T)] for T in lengths
    ]
    edges = [draw_edges(rng, kind, T) for T in lengths]
    priors = [rng.dirichlet(np.ones(n_labels), size=T) for T in lengths]
    structures = [
        ([tuple(x) for x in part], part_edges) for part, part_edges in zip(rows, edges, strict=True)
    ]
    positions = Positions.of(np.concatenate(rows), Graph.of(lengths, edges), np.concatenate(priors))
    return structures, priors, positions


def tables(G, left, right, k_y):
    """K (N, M, C, C) from G (N, M)."""
    return np.einsum("ij,ia,jb,ab->ijab", G, left.prior, right.prior, k_y)


def enumerated(work, one, other):
    """K (N, M, C, C) position by position, from a function of two structures and two places."""
    blocks = []
    for structure, prior in zip(*one, strict=True):
        for tau in range(len(structure[0])):
            row = [
                work(structure, partner, (prior, its), (tau, t))
                for partner, its in zip(*other, strict=True)
                for t in range(len(partner[0]))
            ]
            blocks.append(np.stack(row))
    return np.stack(blocks)


@each_kind
@settings(max_examples=8, deadline=None)
@given(seed=seeds, lengths=st.lists(st.integers(1, 3), min_size=1, max_size=2))
def test_counts_of_features_and_their_inner_products(kind, seed, lengths):
    """[mlp] eq. 10 as it stands: labellings and features enumerated, k_x and k_y as [mlp] has."""
    kernel, occurrences = KINDS[kind]
    kernel = clone(kernel).set_params(observation="delta", c=0.8, unit=False, normalize=False)
    left, prior, here = draw(seed, kind, lengths, 2)
    right, other, there = draw(seed + 1, kind, [3, 1], 2)
    expected = enumerated(
        lambda *args: slow.by_counting(occurrences, *args, 0.8), (left, prior), (right, other)
    )
    found = tables(kernel.gram(here, there), here, there, np.eye(2))
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-14)


@each_kind
@settings(max_examples=8, deadline=None)
@given(seed=seeds, lengths=st.lists(st.integers(1, 4), min_size=1, max_size=2), how=how)
def test_any_kernel_of_observations_and_labels(kind, seed, lengths, how):
    """Real features, so that k_x is negative in places; a k_y that is not diagonal."""
    kernel, occurrences = KINDS[kind]
    k_y = ((1.0, 0.3), (0.3, 0.5))
    kernel = clone(kernel).set_params(
        observation="polynomial(degree=1, offset=0.2)", label=k_y, c=0.7, normalize=False, **how
    )
    left, prior, here = draw(seed, kind, lengths, 2, real=True)
    right, other, there = draw(seed + 1, kind, [4], 2, real=True)

    def k_x(x, z):
        k = oracles.polynomial
        value = k(x, z, 1, 0.2)
        if how["unit"]:
            value /= (k(x, x, 1, 0.2) * k(z, z, 1, 0.2)) ** 0.5
        return (value + how["skip"]) / (2 if how["unit"] and how["skip"] else 1)

    expected = enumerated(
        lambda *args: slow.by_pairs(occurrences, *args, 0.7, k_x, k_y, how["unit"]),
        (left, prior),
        (right, other),
    )
    found = tables(kernel.gram(here, there), here, there, np.array(k_y))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_the_sign_in_the_footnote():
    """Two equal positions after two equal ones: with + λ² what both share would count twice."""
    pair = Positions.of([[1.0]] * 3, Graph.chains([3]))
    kernel = GappySequenceKernel("delta", c=1.0, gap=0.5, normalize=False)
    # through the last positions: 1 alone; pairs (2, 3) and (1, 3)·λ on each side; 1 triple
    expected = 1 + (1 + 0.5) ** 2 + 1
    assert kernel.gram(pair)[2, 2] == pytest.approx(expected, rel=1e-14)


@settings(max_examples=15, deadline=None)
@given(seed=seeds, lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_kernels_agree_where_their_features_do(seed, lengths):
    """A chain is a DAG; no gaps are gaps that cost everything; a chain is a tree of only children,
    whose connected parts are its substrings."""
    _, _, chains = draw(seed, "sequence", lengths, 3, real=True)
    expected = SequenceKernel(c=0.9).gram(chains)
    for other in (DAGKernel(c=0.9), GappySequenceKernel(c=0.9, gap=0.0), TreeKernel(c=0.9)):
        np.testing.assert_allclose(other.gram(chains), expected, rtol=1e-10, atol=1e-13)


# ---- one matrix for a whole corpus --------------------------------------------------------------


@each_kind
@settings(max_examples=10, deadline=None)
@given(seed=seeds, lengths=st.lists(st.integers(0, 5), min_size=1, max_size=6))
def test_blocks_halves_and_sides_change_nothing(kind, seed, lengths):
    kernel = KINDS[kind][0]
    _, _, all_ = draw(seed, kind, lengths, 2, real=True)
    whole = kernel.gram(all_)
    np.testing.assert_allclose(kernel.gram(all_, all_), whole, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(whole, whole.T, rtol=1e-13, atol=1e-15)
    starts = all_.graph.starts
    for i in range(len(lengths)):
        one = all_.select(slice(i, i + 1))
        rows = slice(starts[i], starts[i + 1])
        np.testing.assert_allclose(kernel.gram(one, all_), whole[rows], rtol=1e-12, atol=1e-14)


@each_kind
def test_small_blocks(kind, monkeypatch):
    kernel = KINDS[kind][0]
    _, _, all_ = draw(3, kind, [4, 1, 5, 2, 3], 2, real=True)
    whole = kernel.gram(all_)
    monkeypatch.setattr(base, "ROWS_AT_ONCE", 5)
    monkeypatch.setattr(base, "_SELF_ROWS", 3)
    np.testing.assert_allclose(kernel.gram(all_), whole, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(kernel.gram(all_, all_), whole, rtol=1e-12, atol=1e-14)


@each_kind
def test_positive_semidefinite_and_normalised(kind):
    kernel = KINDS[kind][0]
    _, _, all_ = draw(5, kind, [6, 5, 7, 1, 4], 2, real=True)
    K = kernel.gram(all_)
    np.testing.assert_allclose(np.diagonal(K), 1, rtol=0, atol=1e-12)
    assert np.abs(K).max() <= 1 + 1e-12
    assert np.linalg.eigvalsh(K).min() > -1e-10
    raw = clone(kernel).set_params(normalize=False).gram(all_)
    norms = np.exp(kernel.log_norms(all_))
    np.testing.assert_allclose(raw, K * norms[:, None] * norms, rtol=1e-10, atol=1e-12)


def test_nothing_seen_and_nothing_there():
    """Positions without features have a kernel of 0 with everything; no structure is legal."""
    rows = np.array([[0.0], [1.0], [0.0]])
    for kernel in (SequenceKernel("linear"), TreeKernel("linear"), GappySequenceKernel("linear")):
        K = kernel.gram(Positions.of(rows, Graph.chains([3]), 2))
        np.testing.assert_allclose(K, np.diag([0.0, 1.0, 0.0]), atol=1e-15)
        none = Positions.of(np.zeros((0, 1)), Graph.chains([]), 2)
        assert kernel.gram(none).shape == (0, 0)
        assert kernel.gram(none, Positions.of(rows, Graph.chains([3]), 2)).shape == (0, 3)
        assert np.isneginf(kernel.log_norms(Positions.of(rows, Graph.chains([3]), 2))[0])


def test_a_prior_with_zeros_divides_by_nothing():
    """Labels that cannot agree end a feature: U and D are 1 beyond them."""
    prior = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    rows = np.ones((3, 1))
    here = Positions.of(rows, Graph.chains([3]), prior)
    there = Positions.of(rows, Graph.chains([3]), prior[::-1][[0, 0, 2]])
    G = SequenceKernel("delta", c=1.0, normalize=False).gram(here, there)
    assert G[0, 0] == pytest.approx(1.0)  # the second positions cannot agree
    assert np.isfinite(SequenceKernel("delta").gram(here, there)).all()


# ---- long structures ----------------------------------------------------------------------------


def long_structures(kind, T):
    """Two alike structures of T positions, and one short."""
    if kind == "tree":  # a root with many children
        edges = [[(0, t) for t in range(1, T)]] * 2 + [[(0, 1)]]
    elif kind == "dag":  # a ladder: the number of paths doubles at each step
        ladder = [(a, b) for b in range(T) for a in range(max(0, b - 2), b)]
        edges = [ladder, ladder, [(0, 1)]]
    else:
        edges = [[(t, t + 1) for t in range(T - 1)]] * 2 + [[(0, 1)]]
    return Positions.of(np.ones((2 * T + 2, 3)), Graph.of([T, T, 2], edges), 2)


@each_kind
def test_no_length_overflows(kind):
    kernel = clone(KINDS[kind][0]).set_params(unit=False, c=3.0)
    positions = long_structures(kind, 500)
    K = kernel.gram(positions)
    assert np.isfinite(K).all()
    np.testing.assert_allclose(np.diagonal(K), 1, rtol=0, atol=1e-9)
    np.testing.assert_allclose(K[:500, :500], K[:500, 500:1000], rtol=0, atol=1e-9)
    assert kernel.log_norms(positions).max() > 400
    with pytest.raises(ValueError, match=r"too large a number.*normalize=True"):
        kernel.set_params(normalize=False).gram(positions)


def test_a_long_repeat_has_its_closed_form():
    """T equal positions: U(τ, t) = Σ_{d ≤ min(τ, t)} κ^d, in logs."""
    T, kappa = 300, 7.0
    ones = Positions.of(np.ones((T, 1)), Graph.chains([T]))
    kernel = SequenceKernel("linear", c=np.sqrt(kappa), unit=False)
    steps = np.arange(T)
    log_u = np.log(kappa) * steps + np.log(1 - kappa ** -(steps + 1.0)) - np.log(1 - 1 / kappa)
    expected = 0.5 * (np.log(kappa) + log_u + log_u[::-1])
    np.testing.assert_allclose(kernel.log_norms(ones), expected, rtol=1e-12)
    first, last = kernel.gram(ones)[0, [1, T - 1]]
    shared = np.log(kappa) + log_u[T - 2]  # position 0 with 1: U = 1, D of T − 1 positions
    assert first == pytest.approx(np.exp(shared - expected[0] - expected[1]), rel=1e-10)
    alone = np.exp(np.log(kappa) - 2 * expected[0])  # the ends: nothing upstream or downstream
    assert last == pytest.approx(alone, rel=1e-10)


# ---- graphs and settings ------------------------------------------------------------------------


def test_levels_are_the_longest_way_down():
    graph = Graph.of([5, 1], [[(4, 0), (0, 2), (4, 2), (2, 1)], []])
    assert graph.depth.tolist() == [1, 3, 2, 0, 0, 0]
    assert [level.tolist() for level in graph.levels] == [[3, 4, 5], [0], [2], [1]]
    assert graph.reversed.depth.tolist() == [2, 0, 1, 0, 3, 0]
    part = Graph.of([2, 3], [[(1, 0)], [(0, 1), (2, 1)]]).select(slice(1, 2))
    assert (part.parent.tolist(), part.child.tolist()) == ([0, 2], [1, 1])


@pytest.mark.parametrize(
    ("lengths", "edges", "words"),
    [
        ([2, 2], [[], [(0, 1), (1, 0)]], "structure 1: its edges run in a circle"),
        ([1], [[(0, 0)]], "structure 0: its edges run in a circle"),
        ([1, 1], [[(0, 1)], []], "structure 0 to another"),
        ([2], [[(0, 2)]], "does not exist"),
        ([2], [[(-1, 1)]], "does not exist"),
        ([2], [[(0, 1), (0, 1)]], "given twice"),
    ],
)
def test_graphs_that_make_no_sense(lengths, edges, words):
    with pytest.raises(ValueError, match=words):
        Graph.of(lengths, edges)


def test_a_tree_has_one_parent():
    graph = Graph.of([1, 3], [[], [(0, 2), (1, 2)]])
    with pytest.raises(ValueError, match=r"structure 1: position 2 has two parents.*DAGKernel"):
        TreeKernel().gram(Positions.of(np.ones((4, 1)), graph))


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (SequenceKernel(c=0.0), "c is 0.0"),
        (SequenceKernel(c="1"), "c is '1'"),
        (SequenceKernel("matern"), "expected a kernel"),
        (SequenceKernel(3), "observation is 3"),
        (SequenceKernel(skip=1), "skip is 1"),
        (SequenceKernel(unit=None), "unit is None"),
        (SequenceKernel(normalize="no"), "normalize is 'no'"),
        (GappySequenceKernel(gap=1.5), "gap is 1.5"),
        (SequenceKernel(label=((1.0,),)), r"label has shape \(1, 1\)"),
        (SequenceKernel(label=((1.0, 0.5), (0.0, 1.0))), "symmetric"),
        (SequenceKernel(label=((1.0, 2.0), (2.0, 1.0))), "eigenvalue -1"),
    ],
)
def test_settings_that_make_no_sense(kernel, words):
    with pytest.raises(ValueError, match=words):
        kernel.gram(Positions.of([[1.0]], Graph.chains([1]), 2))


def test_positions_that_make_no_sense():
    graph = Graph.chains([2])
    with pytest.raises(ValueError, match="1 rows of features for 2 positions"):
        Positions.of([[1.0]], graph)
    with pytest.raises(ValueError, match="label prior has shape"):
        Positions.of([[1.0]] * 2, graph, np.ones((1, 2)))
    with pytest.raises(ValueError, match="must hold probabilities"):
        Positions.of([[1.0]] * 2, graph, -np.ones((2, 2)))


def test_kernels_are_estimators():
    kernel = GappySequenceKernel(Polynomial(3), gap=0.25)
    twin = clone(kernel)
    assert twin.get_params()["observation__degree"] == 3
    assert twin.set_params(gap=0.5, observation__degree=2).gap == 0.5
    assert kernel.gap == 0.25
    rows = sp.csr_matrix(np.eye(3))
    np.testing.assert_allclose(
        twin.gram(Positions.of(rows, Graph.chains([2, 1]))),
        GappySequenceKernel("polynomial", gap=0.5).gram(Positions.of(rows, Graph.chains([2, 1]))),
    )
