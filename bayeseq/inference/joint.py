"""A Gaussian over all weights of a chain model together, across labels and label pairs.

Weights of a feature are looked at by contrasts of labels. Adding the same number to the scores of
all labels changes nothing, so of a feature's C weights one direction keeps its prior whatever the
data says, and the other C − 1 are independent of it: they are what there is to learn. Some of the
contrasts, and all transitions, depend on each other; the others are independent.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor


def contrasts(counts: Tensor) -> Tensor:
    """(C, C) an orthogonal matrix whose first column is constant: weights of labels times it are
    their common part and contrasts, each of a label with all that are more frequent.

    So a contrast has information only where its label is possible, as a label's own weight has.

    >>> contrasts(torch.tensor([5, 1]))
    tensor([[ 0.7071, -0.7071],
            [ 0.7071,  0.7071]], dtype=torch.float64)
    """
    C = len(counts)
    turn = torch.zeros(C, C, dtype=torch.float64)
    turn[:, 0] = C**-0.5
    order = torch.argsort(counts, stable=True)
    for k in range(1, C):
        later = C - k
        turn[order[k - 1], k] = (later / (later + 1)) ** 0.5
        turn[order[k:], k] = -((later * (later + 1)) ** -0.5)
    return turn


def mirrored_draws(draws: int, size: int, seed: int) -> Tensor:
    """(S, size) standard normal numbers, the second half the negatives of the first.

    >>> mirrored_draws(4, 3, seed=0).sum(0).abs() < 1e-12
    tensor([True, True, True])
    """
    generator = torch.Generator().manual_seed(seed)
    half = torch.randn((draws + 1) // 2, size, generator=generator, dtype=torch.float64)
    return torch.cat([half, -half])[:draws]


@dataclass(frozen=True, eq=False)
class Basis:
    """How weights (D + C, C), the last C rows transitions, are looked at: flat, those of features
    turned."""

    turn: Tensor
    """(C, C) Q, orthogonal: the weights w of a feature are looked at as w Q"""
    places: Tensor
    """(n,) the flat places that depend on each other, rising"""

    def turned(self, weights: Tensor) -> Tensor:
        """(…, (D + C) · C) from weights (…, D + C, C)."""
        return self._by_feature(weights, self.turn).flatten(-2)

    def back(self, flat: Tensor) -> Tensor:
        """(…, D + C, C) from what is flat and turned."""
        return self._by_feature(flat.unflatten(-1, (-1, len(self.turn))), self.turn.T)

    def _by_feature(self, rows: Tensor, turn: Tensor) -> Tensor:
        D = rows.shape[-2] - len(turn)
        return torch.cat([rows[..., :D, :] @ turn, rows[..., D:, :]], -2)


@dataclass(frozen=True, eq=False)
class JointPosterior:
    """q(W) over weights (D, C), in whitened units inside: the prior is N(0, I)."""

    whitened_mean: Tensor
    """(D, C)"""
    log_variance: Tensor
    """(G, C) log prior variances, the same for all labels"""
    scale: Tensor
    """(D, C) prior standard deviations"""
    basis: Basis
    root: Tensor
    """(n, n) F, lower triangular, whose Fᵀ F is the covariance of those that depend on others"""
    alone: Tensor
    """(D · C,) the variance of each of the others"""

    @property
    def mean(self) -> Tensor:
        """(D, C) in the weights' own units."""
        return self.whitened_mean * self.scale

    @property
    def variances(self) -> Tensor:
        """(D, C) in the weights' own units."""
        return self.whitened_variances * self.scale.square()

    @cached_property
    def turned_variances(self) -> Tensor:
        """(D, C) of the whitened weights as they are laid out."""
        found = self.alone.clone()
        found[self.basis.places] = self.root.square().sum(0)
        return found.reshape(self.scale.shape)

    @property
    def whitened_variances(self) -> Tensor:
        """(D, C)."""
        C = len(self.basis.turn)
        D = len(self.scale) - C
        places = self.basis.places.numpy()
        each = self.alone.clone()
        each[self.basis.places] = 0
        found = each.reshape(-1, C)
        found[:D] = found[:D] @ self.basis.turn.T.square()
        found[D:] = self.turned_variances[D:]
        local = places < D * C
        feature, contrast = np.divmod(places[local], C)
        some, row = np.unique(feature, return_inverse=True)
        F = self.root.numpy()[:, local].T
        for c, weights in enumerate(self.basis.turn.numpy()):
            place = (row, np.arange(len(row)))
            own = sp.csr_matrix((weights[contrast], place), shape=(len(some), len(row))) @ F
            found[some, c] += torch.from_numpy(np.square(own).sum(1))
        return found

    @cached_property
    def log_det(self) -> float:
        """log |S| of the whitened weights."""
        rest = torch.ones(len(self.alone), dtype=torch.bool)
        rest[self.basis.places] = False
        return 2 * float(self.root.diagonal().log().sum()) + float(self.alone[rest].log().sum())

    def coloured(self, white: Tensor) -> Tensor:
        """(…, D, C) whitened deviations from the mean, made of standard normal (…, D · C): R z,
        with R Rᵀ the whitened covariance."""
        places = self.basis.places
        found = white * self.alone.sqrt()
        found[..., places] = white[..., places] @ self.root
        return self.basis.back(found)

    def whitened(self, deviations: Tensor) -> Tensor:
        """(…, D · C) the standard normal numbers that deviations (…, D, C) are made of: R⁻¹ x."""
        flat, places = self.basis.turned(deviations), self.basis.places
        found = flat / self.alone.sqrt()
        found[..., places] = torch.linalg.solve_triangular(
            self.root, flat[..., places], upper=False, left=False
        )
        return found

    def gathered(self, vector: Tensor) -> Tensor:
        """(D · C,) Rᵀ g of a vector (D, C)."""
        flat, places = self.basis.turned(vector), self.basis.places
        found = flat * self.alone.sqrt()
        found[places] = self.root @ flat[places]
        return found

    def times(self, vector: Tensor) -> Tensor:
        """(D, C) the whitened covariance times a whitened vector."""
        return self.coloured(self.gathered(vector))

    def form(self, deviations: Tensor) -> Tensor:
        """(S,) xᵀ S⁻¹ x of whitened deviations (S, D, C)."""
        return self.whitened(deviations).square().sum(-1)

    def draws(self, n: int, generator: torch.Generator) -> Tensor:
        """(S, D, C) draws of the weights in their own units."""
        white = torch.randn(n, len(self.alone), generator=generator, dtype=self.scale.dtype)
        return (self.whitened_mean + self.coloured(white)) * self.scale
