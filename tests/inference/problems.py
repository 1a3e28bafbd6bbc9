"""Small models for the tests of the inference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch

from bayeseq.inference.covariance import CovarianceFamily
from bayeseq.inference.expectations import expectation
from bayeseq.inference.variational import Solver
from bayeseq.models.gpsl import GPSLModel
from bayeseq.shapes import Layout


@dataclass
class Problem:
    """A model, and what it was made of with the sequences laid end to end."""

    model: GPSLModel
    lengths: list[int]
    offsets: tuple[int, ...]
    X: np.ndarray
    labels: np.ndarray

    @property
    def flat(self) -> np.ndarray:
        """For each row of the model, its token's place end to end."""
        return Layout.of(self.lengths).rows.numpy()[self.model.rows]


def problem(
    seed,
    lengths,
    C=3,
    offsets=(-1,),
    D=4,
    *,
    square=False,
    sparse=True,
    sets=0.0,
    weighted=False,
    residual=False,
    n_groups=1,
    sticky=0.0,
):
    """A random model. With `square`, there are as many features as tokens and the kernel has an
    inverse; with `sticky`, a label likes to follow itself, by so much."""
    rng = np.random.default_rng(seed)
    N = sum(lengths)
    D = N if square else D
    X = np.eye(N) + 0.4 * rng.normal(size=(N, N)) if square else rng.normal(size=(N, D))
    if sparse and not square:
        X = X * (rng.random((N, D)) < 0.6)
    labels = rng.integers(C, size=N)
    if not square:
        scores = X @ rng.normal(size=(D, C)) + rng.gumbel(size=(N, C))
        for n in range(N):
            labels[n] = np.argmax(scores[n] + sticky * (np.arange(C) == labels[n - 1]))
    allowed = np.zeros((N, C), dtype=bool)
    allowed[np.arange(N), labels] = True
    allowed |= (rng.random((N, 1)) < sets) & (rng.random((N, C)) < 0.5)
    weights = rng.choice([0.5, 1.0, 2.5], size=N) if weighted else np.ones(N)
    rest = 0.3 * rng.random(N) if residual else None
    rows = Layout.of(lengths).rows.numpy()
    model = GPSLModel.of(
        sp.csr_matrix(X[rows]) if sparse else X[rows],
        np.arange(D) % n_groups,
        Layout.of(lengths),
        allowed[rows],
        offsets,
        weights=weights[rows],
        residual=None if rest is None else rest[rows],
    )
    return Problem(model, list(lengths), offsets, X, labels)


def solver(model, kind="full", rule="jensen", learn=False, tol=1e-13, max_sweeps=400, **options):
    """A solver that goes on until nothing is left to gain."""
    family = CovarianceFamily(kind, model.design, model.n_dependent, options.pop("rank", 3))
    learned = torch.full((len(model.log_variance),), learn)
    found = expectation(rule, model.n_labels)
    return Solver(model, family, found, learned, tol=tol, max_sweeps=max_sweeps, **options)


def dense(S, D):
    """(D, D) a covariance as a matrix."""
    return S.times(torch.eye(D, dtype=torch.float64)).numpy()
