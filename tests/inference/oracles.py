"""Slow references for the inference: dense grids, loops, enumeration. They share no code with the
library."""

from __future__ import annotations

import itertools
import math

import numpy as np

# ---- E[log Σ exp f] -----------------------------------------------------------------------------


def log_sum_exp(values):
    top = max(values)
    return top + math.log(sum(math.exp(value - top) for value in values))


def softmax(values):
    total = log_sum_exp(values)
    return [math.exp(value - total) for value in values]


def expected_log_sum_exp(mean, variance, points=73, reach=9.0):
    """E[log Σ exp f] and E[softmax f] for f_c ~ N(mean_c, variance_c): the trapezoidal rule on a
    dense grid of all C dimensions, which beneath a Gaussian is exact to rounding."""
    C = len(mean)
    line = np.linspace(-reach, reach, points)
    weight = np.exp(-(line**2) / 2)
    weight = weight / weight.sum()
    grids = np.meshgrid(*[line] * C, indexing="ij")
    weights = np.ones_like(grids[0])
    for axis in range(C):
        shape = [1] * C
        shape[axis] = points
        weights = weights * weight.reshape(shape)
    f = [mean[c] + math.sqrt(variance[c]) * grids[c] for c in range(C)]
    top = np.max(f, axis=0)
    total = sum(np.exp(one - top) for one in f)
    value = float((weights * (top + np.log(total))).sum())
    return value, [float((weights * np.exp(one - top) / total).sum()) for one in f]


# ---- the pseudo-likelihood ----------------------------------------------------------------------


def neighbour(lengths, n, offset):
    """The token `offset` places on from token n of sequences laid end to end, or None."""
    start = 0
    for length in lengths:
        if n < start + length:
            there = n + offset
            return there if start <= there < start + length else None
        start += length
    raise IndexError(n)


def pseudo_log_likelihood(lengths, f, g, offsets, sets):
    """[gpsl] eqs. 4, 5: for each token that has one, log Σ_{c in its set} p(c | neighbours).

    f[n][c] and g[r][a][c] are scores; sets[n] are the labels that token n may have. A neighbour
    that is not there, or of which more than one label is possible, adds nothing. A token that may
    have any label has no term: None.
    """
    found = []
    for n in range(sum(lengths)):
        C = len(f[n])
        if len(sets[n]) == C:
            found.append(None)
            continue
        scores = []
        for c in range(C):
            score = f[n][c]
            for r, offset in enumerate(offsets):
                there = neighbour(lengths, n, offset)
                if there is not None and len(sets[there]) == 1:
                    (a,) = sets[there]
                    score += g[r][a][c]
            scores.append(score)
        found.append(log_sum_exp([scores[c] for c in sets[n]]) - log_sum_exp(scores))
    return found


# ---- covariances --------------------------------------------------------------------------------


def precision_matrix(psi, curvature, precision):
    """diag(p) + Ψᵀ diag(λ) Ψ, by loops."""
    N, D = psi.shape
    P = np.zeros((D, D))
    for k in range(D):
        P[k, k] += precision[k]
        for j in range(D):
            for n in range(N):
                P[k, j] += psi[n, k] * curvature[n] * psi[n, j]
    return P


def block_part(P, head):
    """What is left of P when only the first `head` columns depend on each other."""
    kept = np.zeros_like(P)
    kept[:head, :head] = P[:head, :head]
    for k in range(head, len(P)):
        kept[k, k] = P[k, k]
    return kept


def lowrank_part(psi, curvature, precision, rank):
    """diag(p)^½ (I + the leading eigenpairs + the diagonal of the rest) diag(p)^½."""
    root = np.diag(np.sqrt(precision))
    inverse_root = np.linalg.inv(root)
    data = inverse_root @ (psi.T @ np.diag(curvature) @ psi) @ inverse_root
    values, vectors = np.linalg.eigh(data)
    leading = np.zeros_like(data)
    for j in range(max(len(values) - rank, 0), len(values)):
        leading += values[j] * np.outer(vectors[:, j], vectors[:, j])
    rest = np.diag(np.diag(data - leading))
    return root @ (np.eye(len(data)) + leading + rest) @ root


# ---- the bound of [gpsl] ------------------------------------------------------------------------


def jensen_bound(m, V, K, mu, s, lengths, labels, offsets):
    """[gpsl] eq. 9, in function space: m (N, C), V (C, N, N), K (N, N), mu and s (R, C, C).

    The constants that eq. 9 leaves out, half the number of latent values, are added, so that this
    is a bound on the evidence.
    """
    N, C = m.shape
    inverse = np.linalg.inv(K)
    total = 0.0
    for c in range(C):
        VK = V[c] @ inverse
        total += 0.5 * (np.linalg.slogdet(VK)[1] - np.trace(VK) - m[:, c] @ inverse @ m[:, c] + N)
    for r in range(len(offsets)):
        for a in range(C):
            for b in range(C):
                total += 0.5 * (math.log(s[r, a, b]) - s[r, a, b] - mu[r, a, b] ** 2 + 1)
    for n in range(N):
        scores = []
        for c in range(C):
            score = m[n, c] + 0.5 * V[c][n, n]
            for r, offset in enumerate(offsets):
                there = neighbour(lengths, n, offset)
                if there is not None:
                    score += mu[r, labels[there], c] + 0.5 * s[r, labels[there], c]
            scores.append(score)
        total += m[n, labels[n]] - log_sum_exp(scores)
        for r, offset in enumerate(offsets):
            there = neighbour(lengths, n, offset)
            if there is not None:
                total += mu[r, labels[there], labels[n]]
    return total


def jensen_responsibilities(m, V, mu, s, lengths, labels, offsets):
    """(N, C) softmax of what stands inside the last logarithm of [gpsl] eq. 9."""
    N, C = m.shape
    found = np.zeros((N, C))
    for n in range(N):
        scores = []
        for c in range(C):
            score = m[n, c] + 0.5 * V[c][n, n]
            for r, offset in enumerate(offsets):
                there = neighbour(lengths, n, offset)
                if there is not None:
                    score += mu[r, labels[there], c] + 0.5 * s[r, labels[there], c]
            scores.append(score)
        found[n] = softmax(scores)
    return found


# ---- labellings ---------------------------------------------------------------------------------


def joint(f, g, offsets, sets):
    """All labellings of one sequence that the sets allow, with their probabilities.

    f (T, C); g[r][a, c] is the score of label c where the token offsets[r] places on has label a.
    Offsets on one side: the product of the local conditionals. On both, or none: proportional to
    the exponential of the scores, those of a pair averaged over the sides that speak of it.
    """
    T, C = f.shape
    directed = len({offset > 0 for offset in offsets}) == 1
    log_weights = {}
    for labels in itertools.product(range(C), repeat=T):
        if any(labels[t] not in sets[t] for t in range(T)):
            continue
        log_weights[labels] = (
            _directed_score(f, g, offsets, labels)
            if directed
            else _undirected_score(f, g, offsets, labels)
        )
    log_total = log_sum_exp(list(log_weights.values()))
    return {labels: math.exp(value - log_total) for labels, value in log_weights.items()}


def _directed_score(f, g, offsets, labels):
    T, C = f.shape
    total = 0.0
    for t in range(T):
        scores = []
        for c in range(C):
            score = f[t, c]
            for r, offset in enumerate(offsets):
                if 0 <= t + offset < T:
                    score += g[r][labels[t + offset], c]
            scores.append(score)
        total += scores[labels[t]] - log_sum_exp(scores)
    return total


def _undirected_score(f, g, offsets, labels):
    T = len(f)
    total = sum(f[t, labels[t]] for t in range(T))
    for early in range(T):
        for late in range(early + 1, T):
            said = []
            for r, offset in enumerate(offsets):
                if offset == early - late:  # the later token looks back
                    said.append(g[r][labels[early], labels[late]])
                if offset == late - early:  # the earlier token looks ahead
                    said.append(g[r][labels[late], labels[early]])
            if said:
                total += sum(said) / len(said)
    return total


def label_marginals(distribution, T, C):
    """(T, C) from labellings with their probabilities."""
    found = np.zeros((T, C))
    for labels, p in distribution.items():
        for t in range(T):
            found[t, labels[t]] += p
    return found


def refined_scores(lengths, mean, variance, offsets, mu, s, iterations):
    """[gpsl] Algorithm 2 after so many iterations, on sequences laid end to end."""
    N, C = mean.shape
    now = [softmax([mean[n, c] + variance[n, c] / 2 for c in range(C)]) for n in range(N)]
    for _ in range(iterations):
        after = []
        for n in range(N):
            scores = []
            for c in range(C):
                score = mean[n, c] + variance[n, c] / 2
                for r, offset in enumerate(offsets):
                    there = neighbour(lengths, n, offset)
                    if there is not None:
                        for a in range(C):
                            score += now[there][a] * (mu[r, a, c] + s[r, a, c] / 2)
                scores.append(score)
            after.append(softmax(scores))
        now = after
    return np.array(now)
