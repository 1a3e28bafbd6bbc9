"""Inner products of sparse rows, and rows that are alike."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from bayeseq.kernels import distinct_rows, inner_products
from tests.kernels import oracles
from tests.kernels.rows import draw_rows


@pytest.mark.parametrize("active", [0.02, 0.9])
def test_weighted_products(active):
    X, Z = draw_rows(0, 6, 40, active), draw_rows(1, 4, 40, active)
    weights = np.random.default_rng(2).random(40)
    weights[3] = 0.0
    found = inner_products(sp.csr_matrix(X), sp.csr_matrix(Z), weights)
    expected = oracles.gram(lambda x, z: oracles.dot(x, z, weights), X, Z)
    np.testing.assert_allclose(found.products, expected, atol=1e-12)
    np.testing.assert_allclose(found.left, [oracles.dot(x, x, weights) for x in X])
    np.testing.assert_allclose(found.right, [oracles.dot(z, z, weights) for z in Z])


def test_entries_that_come_in_parts_are_summed_and_the_input_is_left_alone():
    X = sp.csr_matrix(([1.0, 2.0, 1.0], [1, 0, 1], [0, 3]), shape=(1, 2))
    found = inner_products(X)
    np.testing.assert_array_equal(found.products, [[8.0]])
    np.testing.assert_array_equal(found.left, [8.0])
    assert X.nnz == 3


def test_no_column_weighs_less_than_nothing():
    for weights, message in [([-1.0], "not negative"), ([np.nan], "finite"), ([1.0, 1.0], "shape")]:
        with pytest.raises(ValueError, match=message):
            inner_products([[1.0]], None, np.array(weights))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.sampled_from([0.0, 1.0, -2.0]), min_size=3, max_size=3)))
def test_distinct_rows(rows):
    X = np.array(rows).reshape(-1, 3)
    seen, expected = [], []
    for n, row in enumerate(X.tolist()):
        if row not in seen:
            seen.append(row)
            expected.append(n)
    assert distinct_rows(sp.csr_matrix(X)).tolist() == expected


def test_rows_are_alike_however_they_are_stored():
    stored = sp.csr_matrix(([2.0, 1.0, 0.0, 1.0, 2.0], [1, 0, 0, 0, 1], [0, 2, 5]), shape=(2, 2))
    assert distinct_rows(stored).tolist() == [0]
    assert stored.nnz == 5
    assert distinct_rows([[0.0], [-0.0]]).tolist() == [0]
