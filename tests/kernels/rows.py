"""Rows for the tests: few features active, some columns empty, some rows alike."""

import numpy as np


def draw_rows(seed, n, D, active=0.5, repeats=True):
    """(n, D) with about `active` of the values other than zero; the last row repeats the first."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D)) * (rng.random((n, D)) < active)
    X[:, rng.integers(D)] = 0.0
    if repeats:
        X[-1] = X[0]
    return X
