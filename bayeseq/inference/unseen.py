"""Weights of features that training never showed: they keep their prior, and a draw of the weights
draws them too.

Such a feature has no column, so its weight in a draw is made from its name: a fixed function of the
name, the seed, the draw and the label, standard normal over all of them. The same feature has the
same weight wherever it stands and whatever else is asked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri

_STEPS = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB], dtype=np.uint64)


def name_keys(names: Sequence[str]) -> np.ndarray:
    """(J,) a number of 64 bits for each name, the same in every process."""
    digests = (
        hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8) for name in names
    )
    return np.fromiter(
        (int.from_bytes(digest.digest(), "little") for digest in digests), np.uint64, len(names)
    )


def weights_of_names(keys: np.ndarray, draws: int, n_labels: int, seed: int) -> np.ndarray:
    """(J, S, C) standard normal numbers, each a fixed function of its name's key, the seed, the
    draw and the label.

    >>> found = weights_of_names(name_keys(["w=dog", "w=cat", "w=dog"]), 2, 3, seed=0)
    >>> found.shape, bool((found[0] == found[2]).all()), bool((found[0] == found[1]).any())
    ((3, 2, 3), True, False)
    """
    places = np.arange(1, draws * n_labels + 1, dtype=np.uint64) * _STEPS[0]
    start = _mixed(keys ^ _mixed(np.array([seed], dtype=np.uint64) + _STEPS[0]))
    mixed = _mixed(start[:, None] + places)
    uniform = ((mixed >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return ndtri(uniform).reshape(len(keys), draws, n_labels)


def _mixed(x: np.ndarray) -> np.ndarray:
    """Each number with all its bits stirred (the finaliser of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * _STEPS[1]
    x = (x ^ (x >> np.uint64(27))) * _STEPS[2]
    return x ^ (x >> np.uint64(31))
