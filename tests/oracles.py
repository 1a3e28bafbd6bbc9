"""Slow references that enumerate everything. They share no code with the library."""

from __future__ import annotations

import itertools
import math

import numpy as np


def labellings(unary, pairs):
    """All (labelling, score) of one chain: unary (T, C), pairs (T − 1, C, C); −inf forbids."""
    T, C = unary.shape
    for labels in itertools.product(range(C), repeat=T):
        total = 0.0
        for t in range(T):
            total += unary[t, labels[t]]
            if t > 0:
                total += pairs[t - 1, labels[t - 1], labels[t]]
        yield labels, total


def possible(unary, pairs):
    """The labellings with a finite score, best first."""
    found = [(y, s) for y, s in labellings(unary, pairs) if s > -math.inf]
    return sorted(found, key=lambda pair: -pair[1])


def log_partition(unary, pairs):
    scores = [s for _, s in possible(unary, pairs)]
    if not scores:
        return -math.inf
    top = max(scores)
    return top + math.log(sum(math.exp(s - top) for s in scores))


def distribution(unary, pairs):
    """All possible labellings with their probabilities."""
    log_z = log_partition(unary, pairs)
    return [(y, math.exp(s - log_z)) for y, s in possible(unary, pairs)]


def marginals(unary, pairs):
    """Label marginals (T, C) and pair marginals (T − 1, C, C)."""
    T, C = unary.shape
    single, double = np.zeros((T, C)), np.zeros((max(T - 1, 0), C, C))
    for labels, p in distribution(unary, pairs):
        for t in range(T):
            single[t, labels[t]] += p
            if t > 0:
                double[t - 1, labels[t - 1], labels[t]] += p
    return single, double


def entropy(unary, pairs):
    return -sum(p * math.log(p) for _, p in distribution(unary, pairs) if p > 0)


def span_probability(unary, pairs, start, end, members, continues):
    """P(labels in [start, end) are one entity with exactly these boundaries)."""
    T = unary.shape[0]
    total = 0.0
    for labels, p in distribution(unary, pairs):
        good = all(members[labels[t]] for t in range(start, end))
        good = good and all(continues[labels[t - 1], labels[t]] for t in range(start + 1, end))
        if start > 0:
            good = good and not continues[labels[start - 1], labels[start]]
        if end < T:
            good = good and not continues[labels[end - 1], labels[end]]
        total += p if good else 0.0
    return total


def covariance(unary, pairs, direction):
    """Cov(R, [y_t = c]) and Cov(R, [y_{t-1} = a, y_t = b]) for R(y) = Σ_t direction[t, y_t]."""
    T, C = unary.shape
    mean = 0.0
    single, double = np.zeros((T, C)), np.zeros((max(T - 1, 0), C, C))
    for labels, p in distribution(unary, pairs):
        R = sum(direction[t, labels[t]] for t in range(T))
        mean += p * R
        for t in range(T):
            single[t, labels[t]] += p * R
            if t > 0:
                double[t - 1, labels[t - 1], labels[t]] += p * R
    plain_single, plain_double = marginals(unary, pairs)
    return single - mean * plain_single, double - mean * plain_double
