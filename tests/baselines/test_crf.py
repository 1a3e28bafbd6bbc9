"""The CRF against enumeration, finite differences, logistic regression and CRFsuite."""

import itertools
import math
import warnings

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given, settings
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from bayeseq import CRF, load_dataset
from bayeseq.baselines import crf as crf_module
from bayeseq.baselines.crf import CRFLoss
from bayeseq.baselines.linear import WeightIndex

CLASSES = ("a", "b", "c")


def possible_labels(label):
    if label is None:
        return CLASSES
    return (label,) if isinstance(label, str) else tuple(sorted(label))


def oracle_loss(X, y, weights, model, pair_prefix=None, allowed_pair=lambda a, b: True):
    """−Σ_i w_i log p(y_i | x_i) or its pointwise version, by enumeration with dicts and loops."""
    state, transition, triple, l2, pointwise, sequence_weights = weights
    total = 0.0
    for x, labels, weight in zip(X, y, sequence_weights, strict=True):
        scores = {}
        for path in itertools.product(CLASSES, repeat=len(x)):
            s = 0.0
            for t, c in enumerate(path):
                for name in x[t]:
                    if pair_prefix is not None and name.startswith(pair_prefix):
                        if t > 0:
                            s += triple.get((name, path[t - 1], c), 0.0)
                    else:
                        s += state.get((name, c), 0.0)
                if t > 0:
                    s += transition.get((path[t - 1], c), 0.0)
            if all(allowed_pair(a, b) for a, b in itertools.pairwise(path)):
                scores[path] = s
        Z = sum(math.exp(s) for s in scores.values())
        if pointwise:
            for t, label in enumerate(labels):
                options = possible_labels(label)
                inside = sum(math.exp(s) for path, s in scores.items() if path[t] in options)
                total -= weight * math.log(inside / Z)
        else:
            inside = sum(
                math.exp(s)
                for path, s in scores.items()
                if all(c in possible_labels(label) for c, label in zip(path, labels, strict=True))
            )
            total -= weight * math.log(inside / Z)
    squares = sum(v * v for table in (state, transition, triple) for v in table.values())
    return total + l2 * squares


@st.composite
def problems(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    names = ["f", "g", "B-h", "B-i"]
    X, y = [], []
    for _ in range(draw(st.integers(1, 4))):
        T = draw(st.integers(1, 4))
        X.append([[n for n in names if rng.random() < 0.6] for _ in range(T)])
        kinds = [*CLASSES, None, {"a", "b"}, {"c"}]
        y.append([kinds[k] for k in rng.choice(6, size=T, p=[0.25, 0.2, 0.2, 0.15, 0.1, 0.1])])
    X.append([["f"], ["g"], ["f", "B-h"]])
    y.append(["a", "b", "c"])
    return X, y, rng, draw(st.booleans()), draw(st.booleans()), draw(st.booleans())


def learned_index(model, X, y, weights):
    data = model._training_data(X, y, weights)
    index = WeightIndex.observed(
        data.batch,
        model._pair_features(data),
        all_states=model.all_possible_states,
        all_transitions=model.all_possible_transitions,
    )
    return data, index


@settings(max_examples=40, deadline=None)
@given(problems())
def test_loss_and_gradient_equal_enumeration_and_finite_differences(problem):
    X, y, rng, pointwise, with_pairs, everything = problem
    sequence_weights = rng.uniform(0.5, 2.0, size=len(X))
    model = CRF(
        pair_prefix="B" if with_pairs else None,
        all_possible_states=everything,
        all_possible_transitions=everything,
    )
    data, index = learned_index(model, X, y, sequence_weights)
    objective = "pointwise" if pointwise else "likelihood"
    loss = CRFLoss.of(data.batch, index, 0.3, objective, None, data.labels.classes)
    w = rng.normal(size=index.size)
    value, gradient = loss(w)

    names, C = data.features.names, len(CLASSES)
    assert data.labels.classes == CLASSES
    states, transitions, triples = index.split(w)
    state = {(names[p // C], CLASSES[p % C]): v for p, v in zip(index.states, states, strict=True)}
    transition = {
        (CLASSES[p // C], CLASSES[p % C]): v
        for p, v in zip(index.transitions, transitions, strict=True)
    }
    triple = {
        (names[p // C**2], CLASSES[p // C % C], CLASSES[p % C]): v
        for p, v in zip(index.pairs, triples, strict=True)
    }
    table = (state, transition, triple, 0.3, pointwise, sequence_weights)
    want = oracle_loss(X, y, table, model, model.pair_prefix)
    assert value == pytest.approx(want, rel=1e-9, abs=1e-9)
    numeric = scipy.optimize.approx_fprime(w, lambda v: loss(v)[0], 1e-6)
    np.testing.assert_allclose(gradient, numeric, rtol=0, atol=2e-4)
    direction = rng.normal(size=w.shape)
    slope = (loss(w + 1e-5 * direction)[0] - loss(w - 1e-5 * direction)[0]) / 2e-5
    assert gradient @ direction == pytest.approx(slope, rel=1e-6, abs=1e-6)


def test_observed_weights_are_the_pairs_that_occur():
    X = [[["f"], ["g", "B:x"], ["f"]], [["g"], ["B:x"]]]
    y = [["a", "b", None], ["a", {"b", "c"}]]
    crf = CRF(pair_prefix="B:", max_iter=2)
    data, index = learned_index(crf, X, y, None)
    names = data.features.names
    states = {(names[p // 3], CLASSES[p % 3]) for p in index.states}
    assert states == {("f", "a"), ("g", "b"), ("g", "a")}
    assert {(CLASSES[p // 3], CLASSES[p % 3]) for p in index.transitions} == {
        ("a", "b"),
        ("a", "c"),
    }
    triples = {(names[p // 9], CLASSES[p // 3 % 3], CLASSES[p % 3]) for p in index.pairs}
    assert triples == {("B:x", "a", "b"), ("B:x", "a", "c")}


def test_a_scheme_is_obeyed_in_training():
    X = [[["f"], ["g"]], [["g"], ["f"]]]
    y = [["B-x", "I-x"], ["O", "O"]]
    model = CRF()
    data, index = learned_index(model, X, y, None)
    loss = CRFLoss.of(data.batch, index, 0.0, "likelihood", "IOB2", data.labels.classes)
    # of nine label pairs, O I-x, I-x at the start are forbidden: six are left
    value, _ = loss(np.zeros(index.size))
    legal = [
        (a, b)
        for a, b in itertools.product(["B-x", "I-x", "O"], repeat=2)
        if a != "I-x" and not (a == "O" and b == "I-x")
    ]
    assert value == pytest.approx(2 * math.log(len(legal)))


def test_without_transitions_it_is_logistic_regression():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 4))
    labels = np.array(["x", "y", "z"])[(rows @ rng.normal(size=(4, 3))).argmax(1)]
    X = [rows[i : i + 5] for i in range(0, 60, 5)]
    y = [labels[i : i + 5].tolist() for i in range(0, 60, 5)]
    crf = CRF(l2=0.5, transitions=False, all_possible_states=True, tol=1e-12).fit(X, y)
    peer = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-10, max_iter=1000)
    peer.fit(rows, labels)
    np.testing.assert_allclose(
        np.concatenate(crf.predict_proba(X)), peer.predict_proba(rows), rtol=0, atol=1e-4
    )


def test_pointwise_and_likelihood_agree_on_single_tokens():
    X = [[["f"]], [["g"]], [["f", "g"]], [["g"]]]
    y = [["a"], ["b"], ["a"], ["a"]]
    one = CRF(l2=0.1, tol=1e-12).fit(X, y).predict_proba(X)
    two = CRF(l2=0.1, objective="pointwise", tol=1e-12).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(np.concatenate(one), np.concatenate(two), rtol=0, atol=1e-6)


def test_the_objective_never_rises_and_the_gradient_ends_small():
    rng = np.random.default_rng(3)
    X = [[[f"w{k}"] for k in rng.integers(6, size=5)] for _ in range(20)]
    y = [[CLASSES[int(w[0][1]) % 3] for w in x] for x in X]
    crf = CRF(l2=0.05, tol=1e-10).fit(X, y)
    trace = np.array(crf.result_.objective)
    assert (np.diff(trace) <= 0).all()
    assert crf.result_.converged
    data, index = learned_index(crf, X, y, None)
    loss = CRFLoss.of(data.batch, index, crf.l2, "likelihood", None, data.labels.classes)
    assert np.abs(loss(crf.weights_)[1]).max() < 1e-3


def test_warm_start_goes_on_where_it_was():
    rng = np.random.default_rng(3)
    X = [[[f"w{k}"] for k in rng.integers(6, size=5)] for _ in range(20)]
    y = [[CLASSES[int(w[0][1]) % 3] for w in x] for x in X]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        crf = CRF(l2=0.05, max_iter=4, tol=0.0, warm_start=True).fit(X, y)
        first = crf.result_.objective
        crf.fit(X, y)
    assert crf.result_.objective[0] < first[-1]
    weights = dict(crf.state_features_)
    # new features and labels arrive, and the old ones keep their weights at the start
    more_X, more_y = [*X, [["new"], ["w0"]]], [*y, ["d", "a"]]
    data, index = learned_index(crf, more_X, more_y, None)
    start = index.split(crf._start(data, index))[0]
    C = len(data.labels.classes)
    for place, value in zip(index.states.tolist(), start.tolist(), strict=True):
        key = data.features.names[place // C], data.labels.classes[place % C]
        assert value == weights.get(key, 0.0)


def test_an_interrupt_keeps_the_best_weights(monkeypatch):
    calls = itertools.count()
    compute = CRFLoss.__call__

    def interrupted(self, weights):
        if next(calls) == 6:
            raise KeyboardInterrupt
        return compute(self, weights)

    monkeypatch.setattr(CRFLoss, "__call__", interrupted)
    rng = np.random.default_rng(3)
    X = [[[f"w{k}"] for k in rng.integers(6, size=5)] for _ in range(20)]
    y = [[CLASSES[int(w[0][1]) % 3] for w in x] for x in X]
    with pytest.warns(ConvergenceWarning, match="interrupted after"):
        crf = CRF(l2=0.01).fit(X, y)
    assert not crf.result_.converged
    assert crf.score(X, y) > 0.9


def test_too_few_iterations_are_told():
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        CRF(max_iter=2, l2=0.001).fit([[["f"], ["g"], ["f"]]], [["a", "b", "a"]])


def test_bad_parameters_are_refused():
    X, y = [[["f"]]], [["a"]]
    with pytest.raises(ValueError, match="objective is 'margin'"):
        CRF(objective="margin").fit(X, y)
    with pytest.raises(ValueError, match="l2 is -1"):
        CRF(l2=-1).fit(X, y)
    with pytest.raises(ValueError, match="pair_prefix needs feature names"):
        CRF(pair_prefix="B").fit([np.eye(2)], [["a", "b"]])


def test_parts_and_rare_features_do_not_change_the_value(monkeypatch):
    rng = np.random.default_rng(1)
    X = [[[f"w{k}"] for k in rng.integers(40, size=n)] for n in rng.integers(1, 9, size=30)]
    y = [[rng.choice([*CLASSES, None]) for _ in x] for x in X]
    model = CRF()
    data, index = learned_index(model, X, y, None)
    w = rng.normal(size=index.size)
    value, gradient = CRFLoss.of(data.batch, index, 0.1)(w)
    monkeypatch.setattr(crf_module, "_NARROW", 30)
    monkeypatch.setattr(crf_module, "_FEW", 1)
    again = CRFLoss.of(data.batch, index, 0.1)
    assert len(again.parts) > 5
    assert not again.is_common.any()
    assert again(w)[0] == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(again(w)[1], gradient, rtol=0, atol=1e-10)


def test_the_number_of_threads_does_not_change_the_value(monkeypatch):
    rng = np.random.default_rng(2)
    X = [[[f"w{k}"] for k in rng.integers(40, size=n)] for n in rng.integers(1, 9, size=30)]
    y = [[rng.choice([*CLASSES, None]) for _ in x] for x in X]
    data, index = learned_index(CRF(), X, y, None)
    w = rng.normal(size=index.size)
    monkeypatch.setattr(crf_module, "_NARROW", 30)
    loss = CRFLoss.of(data.batch, index, 0.1)
    assert len(loss.parts) > 5
    before, found = torch.get_num_threads(), []
    for n_threads in (1, 2, 3):
        torch.set_num_threads(n_threads)
        found.append(loss(w))
    torch.set_num_threads(before)
    for value, gradient in found[1:]:
        assert value == found[0][0]
        np.testing.assert_array_equal(gradient, found[0][1])


# ---- the peer ------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["basenp", "chunking", "segmentation", "japanesene"])
def test_same_optimum_as_crfsuite(task, data_dir, tmp_path):
    pycrfsuite = pytest.importorskip("pycrfsuite")
    dataset = load_dataset(task, cache=data_dir)
    X, y = dataset.features("all"), dataset.labels("all")
    train, test = dataset.splits[0]
    train = [i for i in train if None not in y[i]]
    crf = CRF(l2=0.5, tol=1e-7).fit([X[i] for i in train], [y[i] for i in train])

    trainer = pycrfsuite.Trainer(verbose=False)
    for i in train:
        trainer.append([list(token) for token in X[i]], y[i])
    trainer.set_params({"c1": 0.0, "c2": 0.5, "delta": 1e-7, "period": 10})
    path = str(tmp_path / "peer.crfsuite")
    trainer.train(path)
    theirs = trainer.logparser.last_iteration["loss"]
    assert crf.result_.objective[-1] == pytest.approx(theirs, rel=1e-3)

    tagger = pycrfsuite.Tagger()
    tagger.open(path)
    proba = crf.predict_proba([X[i] for i in test])
    predicted = crf.predict([X[i] for i in test])
    wrong = their_wrong = tokens = 0
    largest = 0.0
    for i, p, labels in zip(test, proba, predicted, strict=True):
        tagger.set([list(token) for token in X[i]])
        their_labels = tagger.tag()
        columns = [[tagger.marginal(label, t) for label in crf.classes_] for t in range(len(p))]
        largest = max(largest, float(np.abs(p - np.array(columns)).max()))
        for true, ours, them in zip(y[i], labels, their_labels, strict=True):
            wrong += ours != true
            their_wrong += them != true
            tokens += 1
    assert largest < 0.01
    assert abs(wrong - their_wrong) <= max(1, 2e-4 * tokens)


def test_missing_labels_cost_little_on_base_np(data_dir):
    """30 % of the labels removed at random lose less than 1.5 points of accuracy."""
    dataset = load_dataset("basenp", cache=data_dir)
    X, y = dataset.features("all"), dataset.labels("all")
    rng = np.random.default_rng(0)
    losses = []
    for train, test in dataset.splits:
        X_train, y_train = [X[i] for i in train], [y[i] for i in train]
        X_test, y_test = [X[i] for i in test], [y[i] for i in test]
        holed = [[None if rng.random() < 0.3 else label for label in labels] for labels in y_train]
        full = CRF(l2=0.5).fit(X_train, y_train).score(X_test, y_test)
        partial = CRF(l2=0.5).fit(X_train, holed).score(X_test, y_test)
        losses.append(full - partial)
    assert max(losses) < 0.015
