"""Columns of a kernel matrix: the same products whether through features or as they are."""

import numpy as np
import pytest
import scipy.sparse as sp

from bayeseq.kernels import RBF, Linear, Polynomial
from bayeseq.kernels.columns import kernel_columns
from tests.kernels.rows import draw_rows

SPARSE = sp.csr_matrix(draw_rows(0, 30, 40, 0.05))
DENSE = draw_rows(1, 6, 3, 0.9)


@pytest.mark.parametrize("X", [SPARSE, DENSE], ids=["sparse", "dense"])
@pytest.mark.parametrize("kernel", [Linear(5.0), Polynomial(2, 0.5, 5.0), RBF(0.2, 5.0)], ids=str)
def test_products_with_some_columns(kernel, X):
    rng = np.random.default_rng(0)
    K = kernel(X) / 5.0  # the overall variance is left out
    rows = np.array([4, 0, 5])
    columns = kernel_columns(kernel, X)(rows)
    W, R = rng.normal(size=(3, 2)), rng.normal(size=(K.shape[0], 2))
    np.testing.assert_allclose(columns.times(W), K[:, rows] @ W, atol=1e-10)
    np.testing.assert_allclose(columns.transpose_times(R), K[rows] @ R, atol=1e-10)
    np.testing.assert_allclose(columns.block(), K[np.ix_(rows, rows)], atol=1e-10)


def test_all_columns_where_they_cost_no_more():
    R = np.random.default_rng(0).normal(size=(30, 2))
    every = kernel_columns(Polynomial(2, 0.5), SPARSE).every
    assert every is not None
    np.testing.assert_allclose(every.transpose_times(R), Polynomial(2, 0.5)(SPARSE) @ R, atol=1e-10)
    assert kernel_columns(RBF(0.2), SPARSE).every is None
