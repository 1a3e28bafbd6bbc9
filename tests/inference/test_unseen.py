"""Weights made of names: fixed, and as good as drawn."""

import numpy as np
import pytest
from scipy.stats import kstest

from bayeseq.inference.unseen import name_keys, weights_of_names


def splitmix(x):
    """The finaliser of splitmix64 in whole numbers of any size."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


def test_against_whole_numbers():
    keys, seed, step = name_keys(["a", "ü\udc80", ""]), 2**61 + 3, 0x9E3779B97F4A7C15
    found = weights_of_names(keys, 3, 2, seed)
    from statistics import NormalDist

    for j, key in enumerate(keys.tolist()):
        start = splitmix(key ^ splitmix((seed + step) % 2**64))
        for place in range(6):
            bits = splitmix((start + (place + 1) * step) % 2**64) >> 11
            expected = NormalDist().inv_cdf((bits + 0.5) * 2.0**-53)
            assert found[j, place // 2, place % 2] == pytest.approx(expected, abs=1e-9)


def test_they_are_standard_normal_and_independent():
    keys = name_keys([f"w={i}" for i in range(400)])
    found = weights_of_names(keys, 50, 3, seed=1)
    assert kstest(found.ravel(), "norm").pvalue > 0.01
    for axis in range(3):
        rows = np.moveaxis(found, axis, 0).reshape(found.shape[axis], -1)
        pairs = np.corrcoef(rows)[np.triu_indices(len(rows), 1)]
        # correlations of n independent pairs have a standard deviation of 1 / √n
        if len(pairs) > 100:  # of fewer the deviation says little
            assert np.sqrt(rows.shape[1]) * pairs.std() == pytest.approx(1, abs=0.3)
        assert abs(pairs).max() < 6 / np.sqrt(rows.shape[1])


def test_a_seed_changes_all_and_few_names_change_nothing():
    keys = name_keys(["a", "b", "c"])
    assert not np.isclose(weights_of_names(keys, 4, 2, 0), weights_of_names(keys, 4, 2, 1)).any()
    alone = weights_of_names(keys[1:2], 4, 2, 0)
    np.testing.assert_array_equal(alone[0], weights_of_names(keys, 4, 2, 0)[1])
    assert weights_of_names(keys[:0], 4, 2, 0).shape == (0, 4, 2)
