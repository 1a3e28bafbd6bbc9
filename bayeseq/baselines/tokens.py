"""Local scores f = K α of all training tokens, kept up to date while α changes a little at a time.

`PrimalScores` keeps the weights W = Φᵀα of a linear kernel, `DualScores` the scores Kα themselves,
for any kernel. A learner that talks to one can talk to the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from bayeseq.kernels import Kernel, Linear, kernel_from_text

MAX_TOKENS = 25_000
"""Tokens whose kernel matrix is still kept (5 GB)."""
_ROWS_AT_ONCE = 1024


class TokenScores(ABC):
    """Scores (N, C) of training tokens as a function of coefficients α (N, C)."""

    @abstractmethod
    def of(self, rows: np.ndarray) -> np.ndarray:
        """(n, C) the scores of some tokens."""

    def reader(self, rows: np.ndarray) -> Callable[[], np.ndarray]:
        """What gives `of(rows)`, as it is at the time, to those who ask for it often."""
        return lambda: self.of(rows)

    @abstractmethod
    def add(self, rows: np.ndarray, change: np.ndarray) -> None:
        """Add (n, C) to the coefficients of some tokens, each named once."""

    @abstractmethod
    def gram(self, rows: np.ndarray) -> np.ndarray:
        """(n, n) the kernel between some tokens."""


class PrimalScores(TokenScores):
    """The linear kernel, by its weights.

    >>> scores = PrimalScores(sp.csr_matrix([[1.0, 1.0], [0.0, 2.0]]), n_labels=1)
    >>> scores.add(np.array([0]), np.array([[1.0]]))
    >>> scores.of(np.array([0, 1])).ravel()
    array([2., 2.])
    """

    def __init__(self, features: sp.csr_matrix, n_labels: int, variance: float = 1.0) -> None:
        self._features, self._variance = features, variance
        self.W = np.zeros((features.shape[1], n_labels))

    def of(self, rows: np.ndarray) -> np.ndarray:
        """(n, C) Φ W."""
        return np.asarray(self._features[rows] @ self.W)

    def reader(self, rows: np.ndarray) -> Callable[[], np.ndarray]:
        """`of`, with the features taken out once."""
        some = self._features[rows]
        return lambda: np.asarray(some @ self.W)

    def add(self, rows: np.ndarray, change: np.ndarray) -> None:
        """W += σ² Φᵀ change, at the features that the tokens have."""
        some = self._features[rows]
        columns, place = np.unique(some.indices, return_inverse=True)
        small = sp.csr_matrix((some.data, place, some.indptr), (len(rows), len(columns)))
        self.W[columns] += self._variance * (small.T @ change)

    def weights(self, alpha: np.ndarray) -> np.ndarray:
        """(D, C) σ² Φᵀα, whatever the weights are now."""
        return self._variance * np.asarray(self._features.T @ alpha)

    def gram(self, rows: np.ndarray) -> np.ndarray:
        """(n, n) σ² Φ Φᵀ."""
        some = self._features[rows]
        return self._variance * (some @ some.T).toarray()


class DualScores(TokenScores):
    """Any kernel, by its matrix between all training tokens, which is computed once."""

    def __init__(self, features: sp.csr_matrix, n_labels: int, kernel: Kernel) -> None:
        N = features.shape[0]
        if N > MAX_TOKENS:
            raise ValueError(
                f"{N} training tokens are too many for the matrix of {kernel}; use fewer than "
                f"{MAX_TOKENS}, or the linear kernel"
            )
        self.K = np.empty((N, N))
        for start in range(0, N, _ROWS_AT_ONCE):
            some = slice(start, start + _ROWS_AT_ONCE)
            self.K[some] = kernel(features[some], features)
        self._F = np.zeros((n_labels, N))

    def of(self, rows: np.ndarray) -> np.ndarray:
        """(n, C) rows of K α."""
        return np.ascontiguousarray(self._F[:, rows].T)

    def add(self, rows: np.ndarray, change: np.ndarray) -> None:
        """K α += K[:, rows] change, for the labels that change."""
        labels = np.flatnonzero(change.any(0))
        self._F[labels] += change[:, labels].T @ self.K[rows]

    def gram(self, rows: np.ndarray) -> np.ndarray:
        """(n, n) a part of K."""
        return self.K[np.ix_(rows, rows)]


def as_kernel(kernel: Kernel | str) -> Kernel:
    """A kernel, from itself or its text, with its numbers checked."""
    found = kernel_from_text(kernel) if isinstance(kernel, str) else kernel
    if not isinstance(found, Kernel):
        raise ValueError(f"kernel is {kernel!r}; give a kernel or its text, such as 'linear'")
    found.check()
    return found


def token_scores(
    features: sp.csr_matrix, n_labels: int, kernel: Kernel, dual: bool | None
) -> TokenScores:
    """Weights for a linear kernel, unless the dual is asked for; the dual for any other."""
    if isinstance(kernel, Linear) and not dual:
        return PrimalScores(features, n_labels, kernel.variance)
    if dual is False:
        raise ValueError(f"{kernel} has no weights; dual=False is for the linear kernel")
    return DualScores(features, n_labels, kernel)
