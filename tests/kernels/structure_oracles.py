"""Slow references for marginalized kernels: every labelling, every occurrence of every feature.

They share no code with the library. A structure is a list of observations and a list of edges
(parent, child). A feature that contains a position is marked with the place of that position in it,
so that two occurrences agree only if they agree about that place.
"""

from __future__ import annotations

import itertools

import numpy as np


def substrings(T, edges, t):
    """(positions in order, weight) of each run of positions through t."""
    for first in range(t + 1):
        for last in range(t, T):
            yield tuple(range(first, last + 1)), 1.0


def subsequences(gap):
    """The same with gaps, each position left out counting `gap`."""

    def through(T, edges, t):
        for size in range(1, T + 1):
            for chosen in itertools.combinations(range(T), size):
                if t in chosen:
                    missing = chosen[-1] - chosen[0] + 1 - size
                    yield chosen, gap**missing if missing else 1.0

    return through


def paths(T, edges, t):
    """Directed paths through t."""
    for size in range(1, T + 1):
        for chosen in itertools.permutations(range(T), size):
            if t in chosen and all(step in edges for step in itertools.pairwise(chosen)):
                yield chosen, 1.0


def subtrees(T, edges, t):
    """Connected parts of an ordered tree through t, as nested tuples (root, child, child, …)."""
    for size in range(1, T + 1):
        for chosen in itertools.combinations(range(T), size):
            if t not in chosen:
                continue
            inside = [(a, b) for a, b in edges if a in chosen and b in chosen]
            if len(inside) == size - 1:
                (root,) = set(chosen) - {b for _, b in inside}
                yield nested(root, inside), 1.0


def nested(root, edges):
    return (root, *(nested(b, edges) for b in sorted(b for a, b in edges if a == root)))


def aligned(first, second):
    """Pairs of positions of two occurrences, or None if they have another shape."""
    if len(first) != len(second):
        return None
    pairs = []
    for a, b in zip(first, second, strict=True):
        if isinstance(a, tuple):
            inner = aligned(a, b)
            if inner is None:
                return None
            pairs += inner
        else:
            pairs.append((a, b))
    return pairs


def counted(occurrences, structure, t, labels, c):
    """Marked feature → its weighted count: for observations and labels that are alike or not."""
    xs, edges = structure
    found = {}
    for occurrence, weight in occurrences(len(xs), edges, t):
        content, size = content_of(occurrence, xs, labels, t)
        found[content] = found.get(content, 0.0) + weight * c**size
    return found


def content_of(occurrence, xs, labels, t):
    content, size = [], 0
    for item in occurrence:
        if isinstance(item, tuple):
            inner, n = content_of(item, xs, labels, t)
            content.append(inner)
            size += n
        else:
            content.append((xs[item], labels[item], item == t))
            size += 1
    return tuple(content), size


def by_counting(occurrences, one, other, priors, place, c):
    """K(τ, t, a, b) (C, C) from counts of marked features, summed over all labellings. Eq. 10."""
    C = len(priors[0][0])
    K = np.zeros((C, C))
    for labels in itertools.product(range(C), repeat=len(one[0])):
        mine = counted(occurrences, one, place[0], labels, c)
        p = np.prod([priors[0][i][y] for i, y in enumerate(labels)])
        for others in itertools.product(range(C), repeat=len(other[0])):
            theirs = counted(occurrences, other, place[1], others, c)
            q = np.prod([priors[1][i][y] for i, y in enumerate(others)])
            inner = sum(value * theirs.get(feature, 0.0) for feature, value in mine.items())
            K[labels[place[0]], others[place[1]]] += p * q * inner
    return K


def agreement(p, q, k_y):
    """Σ_ab p_a q_b k_y(a, b)."""
    return sum(x * y * k_y[a][b] for a, x in enumerate(p) for b, y in enumerate(q))


def by_pairs(occurrences, one, other, priors, place, c, k_x, k_y, unit=False):
    """The same for any k_x and k_y: all pairs of occurrences of one shape, all labellings.

    With `unit`, labels around the marked position agree by the cosine of their priors.
    """
    C = len(k_y)
    K = np.zeros((C, C))
    tau, t = place
    for first, weight in occurrences(len(one[0]), one[1], tau):
        for second, other_weight in occurrences(len(other[0]), other[1], t):
            pairs = aligned(first, second)
            if pairs is None or (tau, t) not in pairs:
                continue
            for labels in itertools.product(range(C), repeat=len(pairs)):
                for others in itertools.product(range(C), repeat=len(pairs)):
                    value = weight * other_weight * c ** (2 * len(pairs))
                    for (i, j), y, z in zip(pairs, labels, others, strict=True):
                        value *= priors[0][i][y] * priors[1][j][z] * k_y[y][z]
                        value *= k_x(one[0][i], other[0][j])
                        if unit and (i, j) != (tau, t):
                            here, there = priors[0][i], priors[1][j]
                            size = agreement(here, here, k_y) * agreement(there, there, k_y)
                            value /= size**0.5
                    at = pairs.index((tau, t))
                    K[labels[at], others[at]] += value
    return K
