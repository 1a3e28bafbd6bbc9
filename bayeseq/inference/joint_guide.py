"""A Pyro guide over all weights of a model together, full or diagonal.

The site is "weights": whitened, so that the prior is N(0, I). It starts near the prior, or has the
moments of a posterior that `ChainSolver` found, and serves `SVI`, `Predictive` and importance
sampling. The full one holds a matrix of all weights by all weights: it is for small models, and for
checking the solver.
"""

from __future__ import annotations

from typing import Any, Self

import pyro
import pyro.distributions as dist
import torch
from pyro.distributions import constraints
from pyro.nn import PyroModule, PyroParam
from torch import Tensor, nn

from bayeseq.inference.guides import unused_name
from bayeseq.inference.joint import JointPosterior
from bayeseq.linalg import cholesky
from bayeseq.models import LatentModel


class JointGuide(PyroModule):
    """N(m, S) over the whitened weights of a model, S full or diagonal."""

    scale_tril: Tensor

    def __init__(self, model: LatentModel, covariance: str = "full", scale: float = 0.1) -> None:
        super().__init__(unused_name())
        if covariance not in ("full", "diagonal"):
            raise ValueError(f"covariance is {covariance!r}; expected 'full' or 'diagonal'")
        self.shape = torch.Size(model.latent_shape)
        self.full = covariance == "full"
        n = self.shape.numel()
        self.whitened_mean = nn.Parameter(torch.zeros(n, dtype=torch.float64))
        start = torch.full((n,), scale, dtype=torch.float64)
        self._set_scale(torch.diag(start) if self.full else start)

    def _set_scale(self, value: Tensor) -> None:
        kept = constraints.lower_cholesky if self.full else constraints.positive
        parameter: Any = PyroParam(value, kept)
        self.scale_tril = parameter

    @classmethod
    def from_posterior(
        cls, model: LatentModel, posterior: JointPosterior, covariance: str = "full"
    ) -> Self:
        """The guide with the moments of a posterior; a diagonal one takes its variances."""
        guide = cls(model, covariance)
        guide.whitened_mean.data = posterior.whitened_mean.reshape(-1).clone()
        if guide.full:
            roots = posterior.coloured(torch.eye(len(posterior.alone), dtype=torch.float64))
            S = roots.flatten(1).T @ roots.flatten(1)
            guide._set_scale(cholesky(S, "the covariance of a posterior"))
        else:
            guide._set_scale(posterior.whitened_variances.reshape(-1).sqrt())
        return guide

    def distribution(self) -> dist.TorchDistribution:
        """The Gaussian of the flat whitened weights."""
        if self.full:
            return dist.MultivariateNormal(self.whitened_mean, scale_tril=self.scale_tril)
        return dist.Normal(self.whitened_mean, self.scale_tril).to_event(1)

    def forward(self) -> Tensor:
        """The program; returns the whitened weights."""
        shaped = dist.transforms.ReshapeTransform(self.whitened_mean.shape, self.shape)
        return pyro.sample("weights", dist.TransformedDistribution(self.distribution(), [shaped]))
