"""Slow references on dense rows, written as loops. They share no code with the library."""

from __future__ import annotations

import math

import numpy as np


def dot(x, z, weights=None):
    total = 0.0
    for d in range(len(x)):
        total += x[d] * z[d] * (1.0 if weights is None else weights[d])
    return total


def linear(x, z, variance=1.0, weights=None):
    return variance * dot(x, z, weights)


def polynomial(x, z, degree=2, offset=1.0, variance=1.0, weights=None):
    base, value = dot(x, z, weights) + offset, variance
    for _ in range(degree):
        value *= base
    return value


def rbf(x, z, scale=1.0, variance=1.0, weights=None):
    difference = [a - b for a, b in zip(x, z, strict=True)]
    return variance * math.exp(-scale / 2 * dot(difference, difference, weights))


def delta(x, z, variance=1.0):
    for a, b in zip(x, z, strict=True):
        if a != b:
            return 0.0
    return variance


def gram(function, X, Z):
    """K[i, j] = function(X[i], Z[j])."""
    K = np.zeros((len(X), len(Z)))
    for i in range(len(X)):
        for j in range(len(Z)):
            K[i, j] = function(X[i], Z[j])
    return K


def pivots(K, m):
    """The rows that complete pivoting takes, one after another, eliminating in the whole of K."""
    rest, found = K.copy(), []
    for _ in range(m):
        p = 0
        for i in range(len(rest)):
            if rest[i, i] > rest[p, p]:
                p = i
        found.append(p)
        rest = rest - np.outer(rest[:, p], rest[p]) / rest[p, p]
        rest[p] = rest[:, p] = 0.0
    return found


def slopes(function, point, step=1e-5):
    """Central differences of a function of a vector: (…, len(point))."""
    columns = []
    for i in range(len(point)):
        up, down = point.copy(), point.copy()
        up[i] += step
        down[i] -= step
        columns.append((function(up) - function(down)) / (2 * step))
    return np.stack(columns, -1)
