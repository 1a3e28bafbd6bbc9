"""Models with Gaussian latent weights, as Pyro programs."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from bayeseq.kernels.design import Design


class LatentModel(ABC):
    """Whitened weights u ~ N(0, I) and a likelihood of them.

    A subclass says how many there are (`latent_shape`) and writes `log_likelihood`. Called, it is a
    Pyro program that uses the very weights it samples, so SVI, NUTS, `Predictive` and any other
    inference run on it and can be checked against each other.

    Inference that moves along lines and ellipses asks for what is linear in the weights once a move
    (`seen`), and then for the likelihood of it (`log_likelihood_of`).
    """

    @property
    @abstractmethod
    def latent_shape(self) -> tuple[int, ...]:
        """The shape of the whitened weights."""

    @abstractmethod
    def log_likelihood(self, whitened: Tensor) -> Tensor:
        """(…, N) the log-likelihood of each observation, for weights (…, *latent_shape)."""

    def seen(self, whitened: Tensor) -> tuple[Tensor, ...]:
        """What the likelihood sees of weights (…, *latent_shape), linear in them."""
        return (whitened,)

    def log_likelihood_of(self, seen: tuple[Tensor, ...]) -> Tensor:
        """(…, N) the log-likelihood of each observation, from what is seen of the weights."""
        return self.log_likelihood(seen[0])

    def summary(self, whitened: Tensor) -> tuple[Tensor, ...]:
        """What the total log-likelihood sees of weights (…, *latent_shape), linear in them."""
        return self.seen(whitened)

    def total_of(self, summary: tuple[Tensor, ...]) -> Tensor:
        """(…) the log-likelihood of all observations from a summary; not differentiable."""
        return self.log_likelihood_of(summary).sum(-1)

    def prior(self) -> Tensor:
        """Sample the whitened weights."""
        import pyro  # slow to import, and only its own inferences need it
        import pyro.distributions as dist

        shape = self.latent_shape
        base = dist.Normal(torch.zeros(shape, dtype=torch.float64), 1.0)
        return pyro.sample("weights", base.to_event(len(shape)))

    def __call__(self) -> Tensor:
        """The program; returns the whitened weights."""
        import pyro

        whitened = self.prior()
        pyro.factor("labels", self.log_likelihood(whitened).sum(-1))
        return whitened


class WeightModel(LatentModel):
    """Weights W (D, C) of the columns of a design and of label pairs, with a prior variance for
    each group of rows: W[k, c] ~ N(0, t[g(k), c])."""

    design: Design
    """The columns that the weights belong to"""
    groups: Tensor
    """(D,) the prior-variance group of each row of W"""
    n_dependent: int
    """How many of the last rows belong to label pairs"""
    log_variance: Tensor
    """(G, C) log prior variances; (…, G, C) where leading axes of the weights have their own"""

    @property
    def n_labels(self) -> int:
        """C."""
        return self.log_variance.shape[-1]

    @property
    def latent_shape(self) -> tuple[int, ...]:
        """(D, C)."""
        return len(self.groups), self.n_labels

    @property
    def scale(self) -> Tensor:
        """(…, D, C) prior standard deviations."""
        return torch.exp(self.log_variance / 2).index_select(-2, self.groups)

    def scaled(self, whitened: Tensor) -> Tensor:
        """The weights in their own units."""
        return whitened * self.scale

    def group_summary(self, whitened: Tensor, group: int) -> tuple[Tensor, ...]:
        """What the weights of one group add to the summary of weights (…, D, C)."""
        return self.summary(whitened * (self.groups == group).unsqueeze(-1))

    @abstractmethod
    def seen(self, whitened: Tensor) -> tuple[Tensor, ...]:
        """The scores that weights (…, D, C) give."""

    @abstractmethod
    def log_likelihood_of(self, seen: tuple[Tensor, ...]) -> Tensor:
        """(…, N) the log-likelihood of each observation, from its scores."""

    def log_likelihood(self, whitened: Tensor) -> Tensor:
        """(…, N) the log-likelihood of each observation, for weights (…, D, C)."""
        return self.log_likelihood_of(self.seen(whitened))
