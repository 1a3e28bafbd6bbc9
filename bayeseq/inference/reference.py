"""Gaussians near a posterior, around which a sampler draws its ellipses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from bayeseq.linalg import cholesky


@dataclass(frozen=True, eq=False)
class DenseReference:
    """N(m, S) over weights of any shape, with a full covariance of the flat weights.

    >>> one = torch.ones(1, dtype=torch.float64)
    >>> DenseReference.of(one, 4 * one.unsqueeze(0)).colour(one.unsqueeze(0))
    tensor([[2.]], dtype=torch.float64)
    """

    mean: Tensor
    """(*latent_shape) m"""
    root: Tensor
    """(n, n) L, lower triangular, L Lᵀ = S"""

    @classmethod
    def of(cls, mean: Tensor, covariance: Tensor) -> DenseReference:
        """From the mean (*latent_shape) and the covariance (n, n) of the flat weights."""
        return cls(mean, cholesky(covariance, "the covariance of a reference"))

    def colour(self, white: Tensor) -> Tensor:
        """(S, *latent_shape) L a."""
        return (white.flatten(1) @ self.root.T).reshape(white.shape)

    def whiten(self, coloured: Tensor) -> Tensor:
        """(S, *latent_shape) L⁻¹ x."""
        flat = coloured.flatten(1).T
        found = torch.linalg.solve_triangular(self.root, flat, upper=False)
        return found.T.reshape(coloured.shape)


class Joint(Protocol):
    """A Gaussian over whitened weights (D, C)."""

    @property
    def whitened_mean(self) -> Tensor:
        """(D, C)"""

    def coloured(self, white: Tensor) -> Tensor:
        """(S, D, C) R z of standard normal z (S, D · C)"""

    def whitened(self, deviations: Tensor) -> Tensor:
        """(S, D · C) R⁻¹ x"""


@dataclass(frozen=True, eq=False)
class JointReference:
    """A Gaussian posterior of a chain model as the reference of a sampler."""

    posterior: Joint

    @property
    def mean(self) -> Tensor:
        """(D, C)."""
        return self.posterior.whitened_mean

    def colour(self, white: Tensor) -> Tensor:
        """(S, D, C) deviations from the mean, made of standard normal ones."""
        return self.posterior.coloured(white.flatten(1))

    def whiten(self, coloured: Tensor) -> Tensor:
        """(S, D, C) the standard normal ones that they are made of."""
        return self.posterior.whitened(coloured).reshape(coloured.shape)
