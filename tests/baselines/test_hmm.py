"""The HMM against counting loops; its EM against enumeration."""

import itertools
import math

import numpy as np
import pytest

from bayeseq import HMM

X = [[["f", "g"], ["g"], ["f"]], [["g"], ["g", "h"]], [["h"]]]
Y = [["a", "b", "a"], ["b", "b"], ["a"]]
NAMES = ("g", "f", "h")


def test_probabilities_are_smoothed_counts():
    alpha = 0.5
    hmm = HMM(smoothing=alpha).fit(X, Y)
    assert set(hmm.feature_space_.names) == set(NAMES)
    for c, label in enumerate(["a", "b"]):
        first = sum(labels[0] == label for labels in Y)
        assert hmm.log_initial_[c] == pytest.approx(math.log((first + alpha) / (3 + 2 * alpha)))
        emitted = [
            n
            for x, y in zip(X, Y, strict=True)
            for t, found in zip(x, y, strict=True)
            for n in t
            if found == label
        ]
        for d, name in enumerate(hmm.feature_space_.names):
            want = (emitted.count(name) + alpha) / (len(emitted) + 3 * alpha)
            assert hmm.log_emissions_[c, d] == pytest.approx(math.log(want))
        pairs = [p for labels in Y for p in itertools.pairwise(labels) if p[0] == label]
        for e, right in enumerate(["a", "b"]):
            want = (pairs.count((label, right)) + alpha) / (len(pairs) + 2 * alpha)
            assert hmm.log_transitions_[c, e] == pytest.approx(math.log(want))


def joint_log_likelihood(hmm, y):
    """log p(x, known labels) + log-prior, by enumeration."""
    classes = hmm.classes_.tolist()
    column = {name: d for d, name in enumerate(hmm.feature_space_.names)}
    total = 0.0
    for x, labels in zip(X, y, strict=True):
        inside = 0.0
        for path in itertools.product(range(len(classes)), repeat=len(x)):
            if any(
                want is not None and classes[c] not in want
                for c, want in zip(path, labels, strict=True)
            ):
                continue
            s = hmm.log_initial_[path[0]]
            s += sum(hmm.log_transitions_[a, b] for a, b in itertools.pairwise(path))
            s += sum(
                hmm.log_emissions_[c, column[n]] for c, t in zip(path, x, strict=True) for n in t
            )
            inside += math.exp(s)
        total += math.log(inside)
    tables = (hmm.log_initial_, hmm.log_transitions_, hmm.log_emissions_)
    return total + hmm.smoothing * sum(float(table.sum()) for table in tables)


def test_em_with_missing_labels_never_lowers_the_likelihood_and_reports_it():
    y = [["a", None, "a"], [{"a", "b"}, "b"], [None]]
    hmm = HMM(smoothing=0.3, tol=1e-12, max_iter=300).fit(X, y)
    trace = np.array(hmm.result_.objective)
    assert len(trace) > 3
    assert (np.diff(trace) >= -1e-10).all()
    known = [["a", None, "a"], [("a", "b"), "b"], [None]]
    assert trace[-1] == pytest.approx(joint_log_likelihood(hmm, known), rel=1e-9)


def test_all_labels_known_takes_one_round():
    hmm = HMM().fit(X, Y)
    assert hmm.result_.iterations == 1
    assert hmm.result_.converged
    assert hmm.result_.objective[0] == pytest.approx(joint_log_likelihood(hmm, Y))


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="smoothing is 0"):
        HMM(smoothing=0).fit(X, Y)
    with pytest.raises(ValueError, match="cannot be negative"):
        HMM().fit([np.array([[-1.0]])], [["a"]])
