"""A model with Gaussian latent weights, as a Pyro program."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor


class LatentModel(ABC):
    """Whitened weights u ~ N(0, I) and a likelihood of them.

    A subclass says how many there are (`latent_shape`) and writes `log_likelihood`. Called, it is a
    Pyro program that uses the very weights it samples, so SVI, NUTS, `Predictive` and any other
    inference run on it and can be checked against each other.
    """

    @property
    @abstractmethod
    def latent_shape(self) -> tuple[int, ...]:
        """The shape of the whitened weights."""

    @abstractmethod
    def log_likelihood(self, whitened: Tensor) -> Tensor:
        """(…, N) the log-likelihood of each observation, for weights (…, *latent_shape)."""

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
