"""The marginalized perceptron and SVM against loops, primal features, a peer and a plain QP."""

import copy
import itertools
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save
from scipy.optimize import minimize
from sklearn.svm import LinearSVC

import bayeseq
from bayeseq import (
    CRF,
    DAG,
    HMM,
    DAGKernel,
    DataError,
    MarginalizedPerceptron,
    MarginalizedSVM,
    SequenceKernel,
    Tree,
    TreeKernel,
)
from bayeseq.baselines.marginalized import Perceptron, Problem
from bayeseq.baselines.marginalized_svm import CrammerSinger, bounded_step
from bayeseq.kernels.marginalized import Graph, Positions
from tests.kernels import structure_oracles as slow
from tests.labelers.conformance import NEW, X, Y, assert_same, easy_task
from tests.labelers.test_persistence import broken_tensors, rewrite

seeds = st.integers(0, 10**6)


def draw_problem(seed, N, C, diagonal=False):
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(N, 3))
    G = factor @ factor.T + 0.1 * np.eye(N)
    rho = np.ones((N, C)) if diagonal else C * rng.dirichlet(np.ones(C), size=N)
    root = np.eye(C) if diagonal else np.eye(C) + 0.3 * rng.normal(size=(C, C))
    labels = rng.integers(C, size=N)
    allowed = np.eye(C, dtype=bool)[labels]
    weights = rng.integers(1, 3, size=N).astype(float)
    return Problem(G, rho, root @ root.T, allowed, weights)


# ---- the perceptron -----------------------------------------------------------------------------


def loop_perceptron(p, order):
    """[mlp] figure 3, and the mean of α over visits, as loops."""
    N, C = p.rho.shape
    alpha = np.zeros((N, C))
    total, visits, mistakes = np.zeros((N, C)), 0, 0
    for t in order:
        scores = []
        for c in range(C):
            score = 0.0
            for j in range(N):
                for a in range(C):
                    score += alpha[j, a] * p.rho[j, a] * p.rho[t, c] * p.k_y[a, c] * p.G[j, t]
            scores.append(score)
        found = scores.index(max(scores))
        if not p.allowed[t, found]:
            right = max((c for c in range(C) if p.allowed[t, c]), key=lambda c: scores[c])
            alpha[t, right] += p.weights[t]
            alpha[t, found] -= p.weights[t]
            mistakes += 1
        visits += 1
        total += alpha
    return alpha, total / visits, mistakes


@settings(max_examples=15, deadline=None)
@given(seed=seeds, N=st.integers(1, 7), C=st.integers(2, 4))
def test_the_perceptron_is_figure_3(seed, N, C):
    problem = draw_problem(seed, N, C)
    rng = np.random.default_rng(seed)
    problem.allowed[rng.integers(N)] = True  # one label is missing
    if N > 1:
        problem.allowed[0, :2] = True  # and one is a set
    orders = [rng.permutation(N) for _ in range(4)]
    alpha, mean, mistakes = loop_perceptron(problem, np.concatenate(orders))
    learner = Perceptron(problem)
    learner.AT_ONCE = 3
    assert sum(learner.visit(order) for order in orders) == mistakes
    np.testing.assert_allclose(learner.alpha, alpha, rtol=0, atol=1e-12)
    np.testing.assert_allclose(learner.averaged(), mean, rtol=0, atol=1e-12)


def marginal_features(x, t, label, n_labels, c):
    """Σ_{y: y_t = label} P(y | x) Φ(x, y; t) under the uniform prior, as a dict."""
    found = {}
    for labels in itertools.product(range(n_labels), repeat=len(x)):
        if labels[t] == label:
            for feature, value in slow.counted(slow.substrings, (x, []), t, labels, c).items():
                found[feature] = found.get(feature, 0.0) + value / n_labels ** len(x)
    return found


def test_the_dual_is_the_primal():
    """[mlp] eqs. 5 to 7 with every feature written out."""
    rng = np.random.default_rng(1)
    words = [[f"{rng.integers(3)}" for _ in range(n)] for n in (3, 1, 2, 4, 3)]
    y = [[int(rng.integers(2)) for _ in x] for x in words]
    w = {}

    def score(x, t, label):
        found = marginal_features(x, t, label, 2, 0.9)
        return sum(w.get(feature, 0.0) * value for feature, value in found.items())

    for _ in range(3):
        for x, labels in zip(words, y, strict=True):
            for t in range(len(x)):
                found = max((0, 1), key=lambda label: score(x, t, label))
                if found != labels[t]:
                    for label, sign in ((labels[t], 1), (found, -1)):
                        for f, value in marginal_features(x, t, label, 2, 0.9).items():
                            w[f] = w.get(f, 0.0) + sign * value
    kernel = SequenceKernel("delta", c=0.9, unit=False, normalize=False)
    model = MarginalizedPerceptron(
        kernel, average=False, shuffle=False, max_iter=3, patience=None, progress=False
    )
    model.fit([[[word] for word in x] for x in words], [["AB"[c] for c in row] for row in y])
    new = [*words, ["0", "2", "2", "1"], ["1"]]
    expected = [[[score(x, t, label) for label in (0, 1)] for t in range(len(x))] for x in new]
    found = model.decision_scores([[[word] for word in x] for x in new])
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a / 4, b, rtol=1e-10, atol=1e-12)  # ρ = 2 P on both sides


def test_order_rounds_and_patience():
    data, labels = easy_task(0, 30)
    runs = [
        MarginalizedPerceptron(random_state=seed, progress=False).fit(data, labels)
        for seed in (0, 0, 1)
    ]
    scores = [run.decision_scores(data[:5]) for run in runs]
    assert_same(scores[0], scores[1])
    assert any((a != b).any() for a, b in zip(scores[0], scores[2], strict=True))
    twice = [[["a"]], [["a"]]]  # nothing can tell the two apart
    stuck = MarginalizedPerceptron(patience=2, progress=False).fit(twice, [["A"], ["B"]])
    assert stuck.result_.converged
    assert "no further" in stuck.result_.message
    short = MarginalizedPerceptron(patience=None, max_iter=3, progress=False)
    assert not short.fit(twice, [["A"], ["B"]]).result_.converged
    assert short.result_.iterations == 3


def test_only_what_has_a_coefficient_is_kept():
    model = MarginalizedPerceptron(progress=False).fit(*easy_task(0, 60))
    n = sum(map(len, easy_task(0, 60)[0]))
    assert model.alpha_.any(1).all()
    assert len(model.alpha_) < n
    starts = model.support_.graph.starts
    places = np.searchsorted(starts, model.support_rows_, side="right") - 1
    assert set(places) == set(range(len(model.support_.graph.lengths)))


# ---- the SVM ------------------------------------------------------------------------------------


def test_the_svm_is_crammer_and_singers():
    """On sequences of one token and the linear kernel it is scikit-learn's."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 4))
    labels = np.array(list("ABC"))[(rows[:, :3] + 0.5 * rng.normal(size=(40, 3))).argmax(1)]
    kernel = SequenceKernel("linear", c=1.0, unit=False, normalize=False)
    ours = MarginalizedSVM(0.7, kernel, tol=1e-12, progress=False)
    ours.fit([row[None] for row in rows], [[label] for label in labels])
    peer = LinearSVC(
        C=0.7, multi_class="crammer_singer", fit_intercept=False, tol=1e-10, max_iter=10**6
    ).fit(rows, labels)
    new = rng.normal(size=(20, 4))
    found = np.concatenate(ours.decision_scores([row[None] for row in new]))
    np.testing.assert_allclose(found, peer.decision_function(new), rtol=0, atol=1e-5)


@settings(max_examples=6, deadline=None)
@given(seed=seeds, N=st.integers(2, 6))
def test_the_svm_against_a_plain_solver(seed, N):
    """Priors, a label kernel with off-diagonal entries, weights: the primal in all N·C dual
    directions, minimised by a general method."""
    problem, C = draw_problem(seed, N, 3), 3
    dual = CrammerSinger(problem, 0.8)
    trace = []
    for _ in range(3000):
        dual.sweep()
        trace.append(dual.objective_and_gap())
    assert (np.diff([value for value, _ in trace]) >= -1e-10).all()  # the dual never falls
    assert trace[-1][1] < 1e-6 * max(1, trace[-1][0])
    assert (dual.alpha.sum(1) < 1e-9).all()
    K = np.einsum("ij,ia,jb,ab->iajb", problem.G, problem.rho, problem.rho, problem.k_y)
    K = K.reshape(N * C, N * C)
    truth = problem.allowed.argmax(1)

    def primal(flat):
        v, slack = flat[: N * C], flat[N * C :]
        return 0.5 * v @ K @ v + 0.8 * problem.weights @ slack

    def margins(flat):
        scores = (K @ flat[: N * C]).reshape(N, C)
        right = scores[np.arange(N), truth][:, None]
        cost = 1.0 - np.eye(C)[truth]
        return (right - scores - cost + flat[N * C :, None]).ravel()

    start = np.r_[np.zeros(N * C), np.ones(N)]
    constraint = {"type": "ineq", "fun": margins}
    found = minimize(
        primal, start, constraints=[constraint], options={"ftol": 1e-12, "maxiter": 1000}
    )
    assert found.fun == pytest.approx(trace[-1][0], rel=1e-3, abs=1e-3)


@settings(max_examples=40, deadline=None)
@given(seed=seeds, C=st.integers(2, 5))
def test_a_step_is_the_best_one(seed, C):
    rng = np.random.default_rng(seed)
    slope, curvature = rng.normal(size=C), rng.uniform(0.1, 3, size=C)
    room = np.where(rng.random(C) < 0.3, 0.0, rng.uniform(0, 1, size=C))
    step = bounded_step(slope, curvature, room)
    assert abs(step.sum()) < 1e-12
    assert (step <= room).all()
    mu = slope + curvature * step  # equal where there is room, not above it elsewhere
    free = step < room - 1e-12
    if free.any():
        np.testing.assert_allclose(mu[free], mu[free][0], atol=1e-10)
        assert (mu[~free] <= mu[free][0] + 1e-10).all()


def test_the_gap_is_reported():
    model = MarginalizedSVM(tol=1e-6, progress=False).fit(X, Y)
    assert model.result_.converged
    assert 0 <= model.result_.diagnostics["duality gap"] <= 1e-6 * model.result_.objective[-1]


# ---- priors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [MarginalizedPerceptron, MarginalizedSVM])
def test_training_tokens_get_held_out_probabilities(kind, tmp_path):
    data, labels = easy_task(2, 20)
    prior = CRF(l2=0.1, tol=1e-12, progress=False)
    model = kind(prior=prior, prior_folds=4, progress=False).fit(data, labels)
    # the prior of each kept sequence, by hand
    lengths, start = model.support_.graph.lengths, 0
    expected = []
    for fold in range(4):
        others = [i for i in range(20) if i % 4 != fold]
        crf = CRF(l2=0.1, tol=1e-12, progress=False)
        crf.fit([data[i] for i in others], [labels[i] for i in others])
        for i in range(fold, 20, 4):
            expected.append((i, crf.predict_proba([data[i]])[0]))
    by_hand = [p for _, p in sorted(expected, key=lambda pair: pair[0])]
    for n in lengths:
        mine = model.support_.prior[start : start + n]
        assert any(p.shape == mine.shape and np.allclose(p, mine, atol=1e-5) for p in by_hand)
        start += n
    whole = CRF(l2=0.1, tol=1e-12, progress=False).fit(data, labels)
    assert_same(model.prior_.predict_proba(NEW), whole.predict_proba(NEW), 1e-6)
    model.save(tmp_path / "model")
    loaded = bayeseq.load(tmp_path / "model")
    assert_same(loaded.decision_scores(data), model.decision_scores(data))
    assert loaded.prior.l2 == 0.1


def test_priors_by_name_and_what_is_refused(tmp_path):
    data, labels = easy_task(2, 30)
    test = easy_task(3, 60)
    for prior in ("hmm", "memm", "crf", HMM(smoothing=0.5)):
        model = MarginalizedPerceptron(prior=prior, progress=False).fit(data, labels)
        assert model.score(*test) > 0.85
    model.save(tmp_path / "model")
    assert bayeseq.load(tmp_path / "model").prior.smoothing == 0.5
    for prior in ("gp", 3, MarginalizedSVM()):
        with pytest.raises(ValueError, match="prior is"):
            MarginalizedPerceptron(prior=prior).fit(data, labels)
    alone = MarginalizedPerceptron(prior="hmm", progress=False).fit(X[:1], Y[:1])
    assert alone.predict(X[:1]) == Y[:1]
    with pytest.raises(DataError, match="fewer prior_folds"):
        MarginalizedPerceptron(prior="hmm").fit(X[:2], [Y[0], [None]])


def test_given_labels_rule_out_and_speak_to_their_neighbours():
    model = MarginalizedPerceptron(progress=False).fit(*easy_task(0, 40))
    data = easy_task(1, 5)[0]
    given = [[None] * len(x) for x in data]
    i = max(range(5), key=lambda i: len(data[i]))
    given[i][1] = "A"
    given[i][2] = {"A", "B"}
    free, bound = model.decision_scores(data), model.decision_scores(data, given)
    assert np.isneginf(bound[i][1, 1:]).all()
    assert np.isneginf(bound[i][2, 2])
    assert np.abs(free[i][0] - bound[i][0]).max() > 1e-6
    assert model.predict(data, given)[i][1] == "A"


# ---- trees and graphs ---------------------------------------------------------------------------


def family_task(seed, n):
    """The label of a node is the word of its head, which may stand anywhere in the sentence."""
    rng = np.random.default_rng(seed)
    trees, labels = [], []
    for _ in range(n):
        T = int(rng.integers(2, 9))
        order = rng.permutation(T)
        heads = [None] * T
        for k in range(1, T):
            heads[order[k]] = int(order[rng.integers(k)])
        words = [f"w{rng.integers(3)}" for _ in range(T)]
        trees.append(Tree([[word, "any"] for word in words], heads))
        labels.append(["root" if head is None else words[head] for head in heads])
    return trees, labels


@pytest.mark.parametrize("kernel", ["tree", "dag"])
@pytest.mark.parametrize("kind", [MarginalizedPerceptron, MarginalizedSVM])
def test_edges_tell_what_order_does_not(kind, kernel):
    data, labels = family_task(0, 80)
    test = family_task(1, 40)
    followed = kind(kernel=kernel, progress=False).fit(data, labels).score(*test)
    in_order = kind(progress=False).fit(data, labels).score(*test)
    assert followed > in_order + 0.25
    assert followed > 0.8


def test_graphs_that_are_no_trees():
    """A node's label says whether two of its parents have the same word."""
    rng = np.random.default_rng(0)

    def task(n):
        data, labels = [], []
        for _ in range(n):
            a, b = rng.integers(2, size=2)
            data.append(DAG([["c"], [f"p{a}"], [f"p{b}"]], [(1, 0), (2, 0)]))
            labels.append([f"{a + b}", "O", "O"])
        return data, labels

    model = MarginalizedSVM(10.0, DAGKernel(), progress=False).fit(*task(30))
    assert model.score(*task(30)) == 1.0


def test_other_labelers_take_trees_as_sequences():
    trees, labels = family_task(0, 20)
    plain = [list(tree) for tree in trees]
    assert_same(
        HMM().fit(trees, labels).predict_proba(trees), HMM().fit(plain, labels).predict_proba(plain)
    )


@pytest.mark.parametrize("kernel", [TreeKernel(c=0.7), DAGKernel("linear", skip=True), "tree"])
def test_models_of_trees_are_saved(kernel, tmp_path):
    data, labels = family_task(0, 25)
    model = MarginalizedPerceptron(kernel, prior="hmm", progress=False).fit(data, labels)
    model.save(tmp_path / "model")
    loaded = bayeseq.load(tmp_path / "model")
    assert str(loaded.kernel) == str(kernel)
    new = family_task(1, 10)[0]
    assert_same(loaded.decision_scores(new), model.decision_scores(new))
    assert_same(copy.deepcopy(model).decision_scores(x for x in new), model.decision_scores(new))
    assert model.predict([]) == []


def test_broken_models_of_trees_are_refused(tmp_path):
    model = MarginalizedPerceptron("tree", prior="hmm", progress=False).fit(*family_task(0, 12))
    model.save(tmp_path / "good")
    good = load_file(tmp_path / "good" / "model.safetensors")
    accepted = []
    for case, tensors in broken_tensors(good):
        folder = shutil.copytree(tmp_path / "good", tmp_path / "bad", dirs_exist_ok=True)
        rewrite(folder, tensors=save(tensors if "missing" in case else {**good, **tensors}))
        try:
            bayeseq.load(folder)
        except DataError:
            continue
        accepted.append(case)
    assert accepted == []


def test_data_that_the_kernel_cannot_follow():
    trees, labels = family_task(0, 5)
    with pytest.raises(DataError, match=r"plain sequences.*TreeKernel"):
        MarginalizedPerceptron("tree").fit(X, Y)
    with pytest.raises(DataError, match="sequence 5 is a list"):
        MarginalizedPerceptron("tree").fit([*trees, X[0]], [*labels, Y[0]])
    two_heads = DAG([["a"], ["b"], ["c"]], [(0, 2), (1, 2)])
    with pytest.raises(DataError, match="sequence 5: a node has two heads"):
        MarginalizedPerceptron("tree").fit([*trees, two_heads], [*labels, ["root"] * 3])
    two_roots = DAG([["a"], ["b"]], [])
    with pytest.raises(DataError, match="sequence 5: it has 2 roots"):
        MarginalizedPerceptron("tree").fit([*trees, two_roots], [*labels, ["root"] * 2])
    model = MarginalizedPerceptron("tree", progress=False).fit(trees, labels)
    with pytest.raises(DataError, match="sequence 1: a node has two heads"):
        model.predict([trees[0], two_heads])


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (MarginalizedPerceptron("string"), "kernel is 'string'; expected one of 'sequence'"),
        (MarginalizedPerceptron(3), "kernel is 3"),
        (MarginalizedPerceptron(SequenceKernel(c=-1)), "c is -1"),
        (MarginalizedPerceptron(max_iter=0), "max_iter is 0"),
        (MarginalizedPerceptron(prior="hmm", prior_folds=0), "prior_folds is 0"),
        (MarginalizedPerceptron(max_memory=1e-9), "max_memory is 1e-09"),
        (MarginalizedSVM(C=0), "C is 0"),
        (MarginalizedSVM(tol=-1), "tol is -1"),
    ],
)
def test_settings_that_make_no_sense(model, words):
    with pytest.raises(ValueError, match=words):
        model.fit(X, Y)


def test_a_label_kernel_joins_labels_that_are_alike():
    """With k_y = 1 between A and B, what is learned for one is learned for the other."""
    alike = ((1.0, 1.0, 0.0), (1.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    model = MarginalizedPerceptron(SequenceKernel(label=alike), progress=False, max_iter=2)
    model.fit(*easy_task(0, 20))
    for scores in model.decision_scores(easy_task(1, 3)[0]):
        np.testing.assert_allclose(scores[:, 0], scores[:, 1], atol=1e-10)


def test_scores_are_those_of_the_whole_kernel_matrix():
    """What is kept after training gives the scores that all training tokens would give."""
    data, labels = easy_task(0, 15)
    model = MarginalizedSVM(progress=False).fit(data, labels)
    matrix, lengths = model.feature_space_.matrix(data)
    every = Positions.of(matrix, Graph.chains(lengths), 3)
    new, new_lengths = model.feature_space_.matrix(NEW)
    there = Positions.of(new, Graph.chains(new_lengths), 3)
    G = SequenceKernel().gram(there, every)
    full = np.zeros((matrix.shape[0], 3))
    names = list(model.classes_)
    truth = np.array([names.index(label) for row in labels for label in row])
    problem = Problem(
        SequenceKernel().gram(every),
        np.ones((len(truth), 3)),
        np.eye(3),
        np.eye(3, dtype=bool)[truth],
        np.ones(len(truth)),
    )
    full, _ = model._solve(problem)
    np.testing.assert_allclose(np.concatenate(model.decision_scores(NEW)), G @ full, atol=1e-10)
