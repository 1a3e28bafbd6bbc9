"""Small chain models for the tests of their inference."""

from dataclasses import replace

import numpy as np
import scipy.sparse as sp
import torch

from bayeseq.models import GPSCModel
from bayeseq.shapes import Layout


def chain_model(seed=0, lengths=(5, 4, 1, 3), C=2, D=3, variance=0.5, missing=0.0, sparse=True):
    """Features that say something of the labels, which follow each other."""
    rng = np.random.default_rng(seed)
    N = sum(lengths)
    labels = rng.integers(C, size=N)
    X = rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.8)
    X[:, 0] += labels
    allowed = np.eye(C, dtype=bool)[labels]
    allowed[rng.random(N) < missing] = True
    layout = Layout.of(list(lengths))
    rows = layout.rows.numpy()
    features = sp.csr_matrix(X[rows]) if sparse else X[rows]
    model = GPSCModel.of(features, np.arange(D) % 2, layout, allowed[rows])
    return replace(model, log_variance=torch.full_like(model.log_variance, np.log(variance)))
