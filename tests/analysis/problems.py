"""Tiny labelled data, and the likelihoods of every labelling written out, for oracles."""

import itertools

import numpy as np

WORDS = [["a"], ["b"], ["a", "c"]]


def tiny(seed=0, n=6):
    """Sequences of one to three tokens, two labels that mostly follow the word."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for i in range(n):
        # every feature and both labels occur, whichever sequence is left out
        words = [0, 1, 2] if i < 2 else rng.integers(3, size=rng.integers(1, 4)).tolist()
        labels = ["AB"[int(w == 1) ^ int(rng.random() < 0.3)] for w in words]
        X.append([WORDS[w] for w in words])
        y.append(["A", "B", "A"] if i < 2 else labels)
    return X, y


def prior_likelihoods(X, y, draws, directed=False, seed=0):
    """(draws, B) log p(y_i | x_i, w) for weights from N(0, 1): one for each word and label, one for
    each label pair. A softmax over whole labellings, or, directed, one for each token given the
    label before it."""
    rng = np.random.default_rng(seed)
    names = sorted({name for x in X for token in x for name in token})
    W = rng.normal(size=(draws, len(names), 2))
    A = rng.normal(size=(draws, 2, 2))
    found = np.zeros((draws, len(X)))
    for i, (x, labels) in enumerate(zip(X, y, strict=True)):
        f = [sum(W[:, names.index(name)] for name in token) for token in x]
        numbers = ["AB".index(label) for label in labels]
        if directed:
            for t, c in enumerate(numbers):
                score = f[t] + (A[:, numbers[t - 1]] if t else 0.0)
                found[:, i] += score[:, c] - np.logaddexp(score[:, 0], score[:, 1])
            continue
        totals = {}
        for path in itertools.product((0, 1), repeat=len(x)):
            total = sum(f[t][:, c] for t, c in enumerate(path))
            totals[path] = total + sum(A[:, a, b] for a, b in itertools.pairwise(path))
        found[:, i] = totals[tuple(numbers)] - np.logaddexp.reduce(list(totals.values()))
    return found


def log_mean(values):
    """log of the mean of exp, over draws."""
    return np.logaddexp.reduce(values, axis=0) - np.log(len(values))
