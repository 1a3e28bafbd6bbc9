"""Perceptron and maximum-margin labelers against enumeration and a generic QP solver."""

import itertools
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

import bayeseq
from bayeseq import HMSVM, DataError, HMPerceptron, NoProbabilitiesError, StructuredSVM
from bayeseq.baselines.hmperceptron import Perceptron
from bayeseq.baselines.pieces import Pieces, Rules
from bayeseq.baselines.tokens import DualScores, PrimalScores
from bayeseq.baselines.workingset import along_ray, second_best
from bayeseq.chain import Chain, max_marginals
from bayeseq.data.batch import SequenceBatch
from bayeseq.kernels import RBF, Linear
from bayeseq.shapes import Layout
from tests import oracles
from tests.baselines import margin_oracles as reference
from tests.labelers.conformance import easy_task

NAMES = "ABCDE"


def drawn(rng, lengths, C, D=3):
    """Real features and random labels, every label used."""
    # eighths add up without rounding, so that equal scores are equal in any order of summing
    X = [(8 * rng.normal(size=(n, D))).round() / 8 for n in lengths]
    flat = rng.permutation(np.r_[np.arange(C), rng.integers(0, C, sum(lengths) - C)])
    Y = [row.tolist() for row in np.split(flat, np.cumsum(lengths)[:-1])]
    return X, Y


def named(Y):
    return [[NAMES[c] for c in y] for y in Y]


def vector(model):
    return np.r_[model.state_weights_.ravel(), model.transitions_.ravel()]


def pieces_of(X, Y, C):
    lengths = [len(x) for x in X]
    allowed = np.eye(C, dtype=bool)[np.concatenate(Y)]
    return Pieces.of(SequenceBatch.of(sp.csr_matrix(np.concatenate(X)), lengths, allowed))


sizes = st.tuples(
    st.integers(0, 2**32 - 1), st.lists(st.integers(1, 3), min_size=2, max_size=4), st.just(2)
) | st.tuples(
    st.integers(0, 2**32 - 1), st.lists(st.integers(1, 2), min_size=3, max_size=4), st.just(3)
)


# ---- chain functions --------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(sizes, st.booleans())
def test_max_marginals_by_enumeration(drawn_sizes, forbid):
    seed, lengths, C = drawn_sizes
    rng = np.random.default_rng(seed)
    unary = [rng.normal(size=(n, C)) for n in lengths]
    A = rng.normal(size=(C, C))
    if forbid:
        A[0, 1] = -np.inf
    layout = Layout.of(lengths)
    packed = layout.pack(torch.from_numpy(np.concatenate(unary)))
    found = layout.split(max_marginals(Chain(packed, torch.from_numpy(A), layout)))
    for f, u in zip(found, unary, strict=True):
        pairs = np.repeat(A[None], len(u) - 1, 0)
        every = list(oracles.labellings(u, pairs))
        best = max(score for _, score in every)
        for t, c in itertools.product(range(len(u)), range(C)):
            expected = max(score for y, score in every if y[t] == c) - best
            assert f[t, c] == pytest.approx(expected, abs=1e-12)


@settings(max_examples=20, deadline=None)
@given(sizes)
def test_the_best_wrong_labelling_by_enumeration(drawn_sizes):
    seed, lengths, C = drawn_sizes
    rng = np.random.default_rng(seed)
    unary, A = [rng.normal(size=(n, C)) for n in lengths], rng.normal(size=(C, C))
    every = [oracles.possible(u, np.repeat(A[None], len(u) - 1, 0)) for u in unary]
    truth = [scored[int(rng.integers(2))][0] for scored in every]  # the best or the second
    layout = Layout.of(lengths)
    packed = layout.pack(torch.from_numpy(np.concatenate(unary)))
    right = layout.pack(torch.tensor([c for y in truth for c in y]))
    labels, has_one = second_best(Chain(packed, torch.from_numpy(A), layout), right)
    assert bool(has_one.all())
    for found, y, scored in zip(layout.split(labels), truth, every, strict=True):
        assert tuple(found.tolist()) == next(other for other, _ in scored if other != y)


# ---- perceptron -------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(sizes)
def test_perceptron_by_enumeration_and_its_mean(drawn_sizes):
    seed, lengths, C = drawn_sizes
    X, Y = drawn(np.random.default_rng(seed), [*lengths, C], C)
    options = {"shuffle": False, "patience": None, "max_iter": 3, "progress": False}
    path = reference.perceptron(X, Y, C, range(len(X)), 3)
    for average in (False, True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # three passes are asked for
            model = HMPerceptron(average=average, **options).fit(X, named(Y))
        n = model.result_.iterations * len(X)
        expected = np.mean(path[:n], axis=0) if average else path[n - 1]
        np.testing.assert_allclose(vector(model), expected, atol=1e-9)


@settings(max_examples=10, deadline=None)
@given(sizes)
def test_primal_and_dual_perceptron_agree_at_every_update(drawn_sizes):
    seed, lengths, C = drawn_sizes
    rng = np.random.default_rng(seed)
    X, Y = drawn(rng, [*lengths, C], C)
    pieces = pieces_of(X, Y, C)
    rules = Rules.of(pieces, None, tuple(NAMES[:C]))
    kernel = Linear(variance=2.0)
    primal = Perceptron(pieces, PrimalScores(pieces.features, C, 2.0), rules)
    dual = Perceptron(pieces, DualScores(pieces.features, C, kernel), rules)
    rows = np.arange(len(pieces.labels))
    for i in rng.integers(len(X), size=15).tolist():
        assert primal.visit(i) == dual.visit(i)
        np.testing.assert_array_equal(primal.alpha, dual.alpha)
        np.testing.assert_array_equal(primal.A, dual.A)
        np.testing.assert_allclose(primal.tokens.of(rows), dual.tokens.of(rows), atol=1e-10)
    assert primal.updates == dual.updates


def test_perceptron_separates_within_the_mistake_bound():
    rng = np.random.default_rng(3)
    X, Y = drawn(rng, [3, 2, 3, 1, 3], 2, D=8)
    planes = reference.rivals(X, Y, 2)
    w, _ = reference.solve(planes, np.ones(5), None, False)
    margin = 1 / np.linalg.norm(w)
    radius = max(np.linalg.norm(d) for rows in planes for _, d, _ in rows)
    for dual in (False, True):
        model = HMPerceptron(average=False, patience=None, max_iter=1000, dual=dual).fit(
            X, named(Y)
        )
        assert model.result_.converged
        assert model.result_.diagnostics["wrong sequences"] == 0
        assert 0 < model.result_.diagnostics["updates"] <= radius**2 / margin**2
        assert model.predict(X) == named(Y)


def test_perceptron_with_a_kernel_learns_what_no_line_separates():
    X = [np.array([[a, b]]) for a in (-1.0, 1.0) for b in (-1.0, 1.0)]
    Y = [["A" if x[0, 0] == x[0, 1] else "B"] for x in X]
    for kernel in ("polynomial(degree=2)", RBF(scale=1.0)):
        assert HMPerceptron(kernel=kernel, average=False).fit(X, Y).predict(X) == Y


def test_orders_depend_on_the_seed_alone():
    data = easy_task(0, 20)
    first, again, other = (
        HMPerceptron(random_state=seed, max_iter=50).fit(*data) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(vector(first), vector(again))
    assert (vector(first) != vector(other)).any()


# ---- maximum margin ---------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(sizes, st.sampled_from(["l1", "l2", "hamming"]), st.sampled_from([0.3, 2.0]))
def test_the_optimum_of_a_generic_solver(drawn_sizes, kind, C_penalty):
    seed, lengths, C = drawn_sizes
    rng = np.random.default_rng(seed)
    X, Y = drawn(rng, [*lengths, C], C)
    weights = rng.uniform(0.5, 2, len(X))
    hamming, slack = kind == "hamming", "l1" if kind == "hamming" else kind
    planes = reference.rivals(X, Y, C)
    w, objective = reference.solve(planes, C_penalty * weights, slack, hamming)
    options = {"C": C_penalty, "tol": 1e-9, "progress": False}
    model = StructuredSVM(**options) if hamming else HMSVM(slack=slack, **options)
    model.fit(X, named(Y), sample_weight=weights)
    found = model.result_.diagnostics
    assert model.result_.converged
    assert found["primal"] == pytest.approx(objective, rel=1e-6)
    assert -1e-12 <= found["duality gap"] <= 1e-9
    assert found["KKT residual"] < 1e-3
    np.testing.assert_allclose(vector(model), w, atol=2e-4)
    # The primal value is that of the best multiple of the weights (`along_ray`, tested below).
    ours = reference.primal(vector(model), planes, C_penalty * weights, slack, hamming)
    assert ours >= found["primal"] * (1 - 1e-9)
    assert ours == pytest.approx(found["primal"], rel=1e-3)
    trace = np.array(model.result_.objective)
    assert (np.diff(trace) >= -1e-12).all()
    assert trace[-1] == pytest.approx(found["dual"], rel=1e-8)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.sampled_from([1, 2]))
def test_the_best_multiple_of_the_weights(seed, n, power):
    """Against a fine grid, whose best can be neither below nor far above the least."""
    rng = np.random.default_rng(seed)
    squared_norm, price = rng.gamma(1.0), rng.gamma(1.0, size=n)
    margin = rng.normal(size=n) + rng.integers(-1, 2)
    found = along_ray(squared_norm, price, margin, power)
    most = 2 * (price @ np.abs(margin)) / squared_norm + 1
    s = np.linspace(0, most, 200_001)[:, None]
    slack = np.maximum(1 - s * margin, 0)
    grid = s[:, 0] ** 2 * squared_norm / 2 + slack**power @ price / power
    step = s[1, 0]
    assert found <= grid.min() + 1e-9
    steepest = most * squared_norm + price @ (np.abs(margin) * (1 + most * np.abs(margin)))
    assert found >= grid.min() - step * steepest


@pytest.mark.parametrize("slack", ["l1", "l2"])
def test_the_gap_of_a_search_that_was_cut_short(slack):
    """Primal and dual, from all labellings, of weights that are not yet the best."""
    rng = np.random.default_rng(3)
    X, Y = drawn(rng, [3, 2, 3, 1, 2], 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = HMSVM(C=2.0, slack=slack, max_iter=1, progress=False).fit(X, named(Y))
    w = vector(model)
    margins = [min(w @ d for _, d, _ in rows) for rows in reference.rivals(X, Y, 3)]
    s = np.linspace(0, 5, 50_001)[:, None]
    short = np.maximum(1 - s * np.array(margins), 0)
    cost = 2 * short.sum(1) if slack == "l1" else (short**2).sum(1)
    found = model.result_.diagnostics
    assert found["primal"] == pytest.approx((s[:, 0] ** 2 * (w @ w) / 2 + cost).min(), rel=1e-4)
    assert found["dual"] <= found["primal"]
    assert found["duality gap"] == pytest.approx(1 - found["dual"] / found["primal"])


def test_blocks_do_not_change_the_optimum(monkeypatch):
    X, y = easy_task(4, 12)
    values = []
    for size in (40, 10**6):
        monkeypatch.setattr("bayeseq.baselines.hmsvm._BLOCK_SIZE", size)
        monkeypatch.setattr("bayeseq.baselines.ssvm._BLOCK_TOKENS", size)
        for model in (HMSVM(tol=1e-5), HMSVM(kernel="rbf", tol=1e-5), StructuredSVM(tol=1e-5)):
            values.append(model.fit(X, y).result_.diagnostics["dual"])
    np.testing.assert_allclose(values[:3], values[3:], rtol=2e-5)


def test_a_hard_margin_is_the_widest():
    rng = np.random.default_rng(3)
    X, Y = drawn(rng, [3, 2, 3, 1, 3], 2, D=8)
    planes = reference.rivals(X, Y, 2)
    w, objective = reference.solve(planes, np.ones(5), None, False)
    model = HMSVM(slack=None, tol=1e-8, progress=False).fit(X, named(Y))
    assert model.result_.diagnostics["primal"] == pytest.approx(objective, rel=1e-6)
    np.testing.assert_allclose(vector(model), w, atol=1e-3)
    assert min(vector(model) @ d for rows in planes for _, d, _ in rows) > 1 - 1e-6


def test_kernels_by_their_feature_maps():
    """A kernel machine is a linear one on K = L Lᵀ."""
    rng = np.random.default_rng(5)
    X, Y = drawn(rng, [2, 3, 1, 3], 2)
    flat = np.concatenate(X)
    for kernel in (RBF(scale=0.5), bayeseq.Polynomial(degree=2)):
        L = np.linalg.cholesky(kernel(flat) + 1e-10 * np.eye(len(flat)))
        rows = np.split(L, np.cumsum([len(x) for x in X])[:-1])
        w, objective = reference.solve(reference.rivals(rows, Y, 2), np.ones(4), "l1", False)
        model = HMSVM(kernel=kernel, tol=1e-8, progress=False).fit(X, named(Y))
        assert model.result_.diagnostics["dual"] == pytest.approx(objective, rel=1e-5)
        np.testing.assert_allclose(model.transitions_.ravel(), w[-4:], atol=1e-3)


def test_weights_and_the_kernel_matrix_lead_to_the_same_machine():
    data = easy_task(0, 15)
    weights, matrix = (
        HMSVM(dual=dual, tol=1e-9, progress=False).fit(*data) for dual in (None, True)
    )
    assert weights.points_ is None
    assert matrix.state_weights_ is None
    for a, b in zip(weights.decision_scores(data[0]), matrix.decision_scores(data[0]), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("slack", ["l1", "l2"])
def test_support_sequences_make_the_weights(slack, tmp_path):
    rng = np.random.default_rng(1)
    X, Y = drawn(rng, [3, 2, 3, 1], 3)
    model = HMSVM(slack=slack, C=0.5, tol=1e-8, progress=False).fit(X, named(Y))
    planes = reference.rivals(X, Y, 3)
    w = np.zeros_like(planes[0][0][1])
    for support in model.support_sequences():
        assert support.alpha > 0
        assert support.true == named(Y)[support.sequence]
        labels = tuple(NAMES.index(label) for label in support.labels)
        w += support.alpha * next(d for y, d, _ in planes[support.sequence] if y == labels)
    np.testing.assert_allclose(vector(model), w, atol=1e-10)
    one = model.support_sequences(0)
    assert [s.alpha for s in one] == sorted((s.alpha for s in one), reverse=True)
    if slack == "l1":
        assert sum(s.alpha for s in one) <= 0.5 + 1e-12
    model.save(tmp_path / "model")
    assert bayeseq.load(tmp_path / "model").support_sequences() == model.support_sequences()


def test_sequences_are_cut_where_labels_are_missing():
    X, y = easy_task(2, 12)
    gaps = [list(row) for row in y]
    gaps[3][0], gaps[5][-1], gaps[7][len(gaps[7]) // 2] = None, {"A", "B"}, None
    pieces_X, pieces_y = [], []
    for x, row in zip(X, gaps, strict=True):
        start = 0
        for t in [t for t, label in enumerate(row) if not isinstance(label, str)] + [len(row)]:
            if t > start:
                pieces_X.append(x[start:t])
                pieces_y.append(row[start:t])
            start = t + 1
    for cls in (HMSVM, StructuredSVM):
        a = cls(tol=1e-10, progress=False).fit(X, gaps)
        b = cls(tol=1e-10, progress=False).fit(pieces_X, pieces_y)
        for p, q in zip(a.decision_scores(X), b.decision_scores(X), strict=True):
            np.testing.assert_allclose(p, q, atol=1e-6)


def test_a_scheme_is_obeyed_in_training_and_after():
    X = [[["a"], ["b"], ["c"]], [["c"], ["a"], ["b"]], [["b"], ["b"]]]
    Y = [["B-X", "I-X", "O"], ["O", "B-X", "I-X"], ["B-X", "B-X"]]
    for cls in (HMPerceptron, HMSVM, StructuredSVM):
        model = cls(scheme="IOB2", progress=False).fit(X, Y)
        for row in model.rank_labellings([[["b"], ["b"], ["b"]]], 50):
            for labels, _ in row:
                assert labels[0] != "I-X"
                assert ("O", "I-X") not in itertools.pairwise(labels)
    model = HMSVM(scheme="IOB2", progress=False).fit(X, Y)
    for support in model.support_sequences():
        assert support.labels[0] != "I-X"


def test_ranked_labellings_by_enumeration():
    rng = np.random.default_rng(8)
    X, Y = drawn(rng, [3, 2, 3, 1], 3)
    model = StructuredSVM(progress=False).fit(X, named(Y))
    for x, row in zip(X, model.rank_labellings(X, 40), strict=True):
        u = x @ model.state_weights_
        every = oracles.possible(u, np.repeat(model.transitions_[None], len(x) - 1, 0))
        assert [s for _, s in row] == pytest.approx([s for _, s in every][:40], abs=1e-10)
        assert tuple(row[0].labels) == tuple(NAMES[c] for c in every[0][0])


def test_what_cannot_be_separated_is_named():
    twice = [[["a"], ["a"]], [["a"], ["a"]]]
    with pytest.warns(ConvergenceWarning), np.errstate(all="raise"):
        model = HMSVM(slack=None, max_iter=5).fit(twice, [["A", "B"], ["B", "A"]])
    assert not model.result_.converged
    assert "duality gap" in model.result_.message
    with pytest.raises(DataError, match=r"sequence 1.*slack"):
        HMSVM(slack=None).fit([[["a"]], [[]]], [["A"], ["B"]])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (HMSVM(C=0.0), "C is 0.0"),
        (HMSVM(slack="l3"), "slack is 'l3'"),
        (HMSVM(kernel="cubic"), "cubic"),
        (HMSVM(kernel="rbf", dual=False), "dual=False"),
        (StructuredSVM(tol=0.0), "tol is 0.0"),
        (HMPerceptron(max_iter=0), "max_iter is 0"),
    ],
)
def test_settings_that_make_no_sense(model, message):
    with pytest.raises(ValueError, match=message):
        model.fit(*easy_task(0, 3))


def test_every_answer_that_would_be_a_probability_is_refused():
    X, y = easy_task(0, 4)
    model = HMSVM(progress=False).fit(X, y)
    for ask in (
        lambda: model.predict_nbest(X, 2),
        lambda: model.predict_entities(X),
        lambda: model.entity_proba(X, [[] for _ in X]),
        lambda: model.log_likelihood(X, y),
        lambda: model.predict_entropy(X),
        lambda: model.sample_labels(X, 1),
        lambda: model.predict_proba([]),
    ):
        with pytest.raises(NoProbabilitiesError, match="wrap it"):
            ask()
