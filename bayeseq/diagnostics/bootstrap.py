"""Bands by reweighting whole sequences: tokens of one sequence depend on each other.

This is Rubin's Bayesian bootstrap: each sequence gets an independent weight from the exponential
distribution of mean 1, where the ordinary bootstrap counts how often it was drawn. Both have the
same spread on large data; on small data the smooth weights behave better, and no sequence vanishes.
A statistic made of sums over tokens needs no new pass over the tokens: sum once within each
sequence, and each draw is a weighted sum of those rows.
"""

import numpy as np
from scipy import sparse

from bayeseq.diagnostics.tokens import Floats, Ints


def sequence_weights(sequences: int, draws: int, rng: np.random.Generator) -> Floats:
    """The weight of each of B sequences in each of S draws: (S, B)."""
    if draws < 0:
        raise ValueError(f"bootstrap must be at least 0, not {draws}")
    return rng.standard_exponential((draws, sequences))


def weighted_sums(
    weights: Floats, sequence: Ints, group: Ints, groups: int, values: Floats
) -> Floats:
    """Sums of `values` (N,) within each group, under each row of weights: (S, groups).

    Args:
        weights: (S, B), the weight of each sequence in each draw.
        sequence: (N,), the sequence of each value, 0 to B - 1.
        group: (N,), the group of each value, 0 to groups - 1.
        groups: the number of groups.
        values: (N,).
    """
    shape = (weights.shape[1], groups)
    sums = sparse.coo_array((values, (sequence, group)), shape=shape).tocsr()
    return np.asarray(weights @ sums)


def band(samples: Floats, level: float) -> tuple[Floats, Floats]:
    """The central `level` part of each column of `samples` (S, K), as lower and upper (K,).

    Without samples (S = 0) there is no band: NaN.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, not {level!r}; 0.9 keeps 90 %")
    if not len(samples):
        empty = np.full(samples.shape[1], np.nan)
        return empty, empty.copy()
    lower, upper = np.quantile(samples, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return lower, upper
