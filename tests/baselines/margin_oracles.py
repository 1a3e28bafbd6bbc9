"""Loop-written references for margin labelers. They share no code with the library."""

from __future__ import annotations

import itertools

import numpy as np
from scipy.optimize import minimize


def joint_features(x, y, C):
    """ψ(x, y): features of tokens with their labels (D · C), then label pairs (C · C)."""
    D = x.shape[1]
    psi = np.zeros(D * C + C * C)
    for t, label in enumerate(y):
        for d in range(D):
            psi[d * C + label] += x[t, d]
        if t:
            psi[D * C + y[t - 1] * C + label] += 1
    return psi


def rivals(X, Y, C):
    """For each sequence, (labelling, ψ(right) − ψ(labelling), wrong tokens) of all wrong ones."""
    found = []
    for x, y in zip(X, Y, strict=True):
        right = joint_features(x, y, C)
        rows = []
        for other in itertools.product(range(C), repeat=len(y)):
            wrong = sum(a != b for a, b in zip(y, other, strict=True))
            if wrong:
                rows.append((other, right - joint_features(x, other, C), wrong))
        found.append(rows)
    return found


def primal(w, planes, penalty, slack, hamming):
    """The primal objective at w; inf where a hard margin is violated."""
    total = 0.5 * w @ w
    for c, rows in zip(penalty, planes, strict=True):
        xi = max([0.0, *((n if hamming else 1) - w @ d for _, d, n in rows)])
        total += {"l1": c * xi, "l2": c / 2 * xi**2, None: np.inf if xi > 1e-6 else 0.0}[slack]
    return total


def solve(planes, penalty, slack, hamming):
    """w of the primal problem, by a generic solver over w and the slacks, all rivals at once."""
    size, B = len(planes[0][0][1]), len(planes)
    rows, needs = [], []
    for i, some in enumerate(planes):
        for _, d, n in some:
            mark = np.zeros(B)
            mark[i] = 0.0 if slack is None else 1.0
            rows.append(np.r_[d, mark])
            needs.append(float(n) if hamming else 1.0)
    A, b = np.array(rows), np.array(needs)
    c = np.asarray(penalty, dtype=float)

    def objective(z):
        w, xi = z[:size], z[size:]
        if slack == "l1":
            return 0.5 * w @ w + c @ xi, np.r_[w, c]
        return 0.5 * w @ w + 0.5 * (c * xi) @ xi, np.r_[w, c * xi]

    found = minimize(
        objective,
        np.zeros(size + B),
        jac=True,
        method="SLSQP",
        bounds=[(None, None)] * size + [(0, None)] * B,
        constraints={"type": "ineq", "fun": lambda z: A @ z - b, "jac": lambda z: A},
        options={"maxiter": 1000, "ftol": 1e-14},
    )
    assert found.status in (0, 8), found.message
    return found.x[:size], float(found.fun)


def perceptron(X, Y, C, order, n_epochs):
    """w after each visit, by enumeration of all labellings. Of equals the one with the smaller last
    label wins, then the smaller label before it, and so on."""
    w = np.zeros(X[0].shape[1] * C + C * C)
    path = []
    for _ in range(n_epochs):
        for i in order:
            best, top = None, -np.inf
            for reverse in itertools.product(range(C), repeat=len(Y[i])):
                y = reverse[::-1]
                score = w @ joint_features(X[i], y, C)
                if score > top + 1e-9:
                    best, top = y, score
            if best != tuple(Y[i]):
                w = w + joint_features(X[i], Y[i], C) - joint_features(X[i], best, C)
            path.append(w)
    return path
