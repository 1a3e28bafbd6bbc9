"""The MEMM against enumeration, finite differences and logistic regression."""

import itertools
import math

import numpy as np
import pytest
import scipy.optimize
from sklearn.linear_model import LogisticRegression

from bayeseq import MEMM
from bayeseq.baselines.linear import WeightIndex
from bayeseq.baselines.memm import MEMMLoss

CLASSES = ("a", "b", "c")


def oracle(X, y, sequence_weights, names, index, w, l2):
    C = len(CLASSES)
    states, transitions, triples = (table.tolist() for table in index.split(w))
    state = dict(zip(index.states.tolist(), states, strict=True))
    transition = dict(zip(index.transitions.tolist(), transitions, strict=True))
    triple = dict(zip(index.pairs.tolist(), triples, strict=True))

    def log_p(x, left, right):
        scores = []
        for c in range(C):
            s = sum(state.get(names.index(n) * C + c, 0.0) for n in x)
            if left is not None:
                s += transition.get(left * C + c, 0.0)
                s += sum(triple.get((names.index(n) * C + left) * C + c, 0.0) for n in x)
            scores.append(s)
        return scores[right] - math.log(sum(math.exp(s) for s in scores))

    total = l2 * float(w @ w)
    for x, labels, weight in zip(X, y, sequence_weights, strict=True):
        inside = 0.0
        for path in itertools.product(range(C), repeat=len(x)):
            if all(
                want is None or CLASSES[c] in want for c, want in zip(path, labels, strict=True)
            ):
                lefts = [None, *path[:-1]]
                inside += math.exp(
                    sum(log_p(t, a, b) for t, a, b in zip(x, lefts, path, strict=True))
                )
        total -= weight * math.log(inside)
    return total


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("pair_prefix", [None, "B"])
def test_loss_and_gradient(seed, pair_prefix):
    rng = np.random.default_rng(seed)
    X, y = [[["f"], ["g"], ["f", "Bh"]]], [["a", "b", "c"]]
    for _ in range(4):
        T = rng.integers(1, 5)
        X.append([[n for n in ("f", "g", "Bh") if rng.random() < 0.6] for _ in range(T)])
        kinds = [*CLASSES, None, frozenset("ab")]
        y.append([kinds[k] for k in rng.integers(5 if seed % 2 else 3, size=T)])
    weights = rng.uniform(0.5, 2.0, size=len(X))
    model = MEMM(pair_prefix=pair_prefix)
    data = model._training_data(X, y, weights)
    index = WeightIndex.observed(data.batch, model._pair_features(data))
    loss = MEMMLoss(data.batch, index, 0.2)
    w = rng.normal(size=index.size)
    value, gradient = loss(w)
    names = list(data.features.names)
    assert value == pytest.approx(oracle(X, y, weights, names, index, w, 0.2), rel=1e-9)
    numeric = scipy.optimize.approx_fprime(w, lambda v: loss(v)[0], 1e-6)
    np.testing.assert_allclose(gradient, numeric, rtol=0, atol=1e-4)


def test_with_known_labels_it_is_logistic_regression_on_the_label_before():
    rng = np.random.default_rng(0)
    X = [[[f"w{k}"] for k in rng.integers(5, size=6)] for _ in range(15)]
    y = [[CLASSES[k] for k in rng.integers(3, size=6)] for _ in range(15)]
    memm = MEMM(l2=0.5, all_possible_states=True, all_possible_transitions=True, tol=1e-13)
    memm.fit(X, y)
    rows, labels = [], []
    for x, seq in zip(X, y, strict=True):
        for t, token in enumerate(x):
            row = np.zeros(8)
            row[int(token[0][1])] = 1
            if t:
                row[5 + CLASSES.index(seq[t - 1])] = 1
            rows.append(row)
            labels.append(seq[t])
    peer = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-12, max_iter=5000)
    peer.fit(np.array(rows), labels)
    A = np.array([[memm.transition_features_[a, b] for b in CLASSES] for a in CLASSES])
    np.testing.assert_allclose(A, peer.coef_[:, 5:].T, rtol=0, atol=1e-3)


def test_bad_parameters_are_refused():
    with pytest.raises(ValueError, match="l2 is -1"):
        MEMM(l2=-1).fit([[["f"]]], [["a"]])
