"""How well a Gaussian posterior stands for the one it approximates: both log densities at draws.

Whatever the guide, its draws u of the whitened weights have two log densities: log q(u), its own,
and log p(y, u) = ℓ(u) − ½‖u‖² + const, the model's up to a constant. The ratios p / q are the
importance weights of the draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import singledispatch

import torch
from torch import Tensor

from bayeseq.inference.covariance import (
    Block,
    ByColumns,
    ByRows,
    Diagonal,
    LabelCovariance,
    LowRank,
)
from bayeseq.inference.joint import JointPosterior
from bayeseq.inference.variational import GaussianPosterior
from bayeseq.models.latent import WeightModel


@dataclass(frozen=True, eq=False)
class Densities:
    """What S draws from a guide weigh."""

    log_likelihood: Tensor
    """(S, N) of each observation of the model"""
    log_prior: Tensor
    """(S,) of the whitened weights"""
    log_q: Tensor
    """(S,) of the whitened weights, under the guide"""

    @property
    def log_p(self) -> Tensor:
        """(S,) log p(y, u)."""
        return self.log_likelihood.sum(-1) + self.log_prior

    @property
    def log_ratios(self) -> Tensor:
        """(S,) log p(y, u) − log q(u)."""
        return self.log_p - self.log_q


def densities(
    model: WeightModel,
    posterior: GaussianPosterior | JointPosterior,
    draws: int,
    generator: torch.Generator,
) -> Densities:
    """Both densities at draws from a posterior of the model's weights."""
    parts = [_densities(model, posterior, n, generator) for n in _parts(model, draws)]
    return Densities(*(torch.cat(found) for found in zip(*parts, strict=True)))


def _densities(
    model: WeightModel,
    posterior: GaussianPosterior | JointPosterior,
    draws: int,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor, Tensor]:
    weights = posterior.draws(draws, generator)
    whitened = weights / model.scale
    log_q = log_density(posterior, weights) + float(model.scale.log().sum())
    return model.log_likelihood(whitened), log_standard_normal(whitened), log_q


def log_standard_normal(values: Tensor) -> Tensor:
    """(S,) the log density of values (S, …) under independent standard normals."""
    flat = values.flatten(1)
    return -0.5 * flat.square().sum(-1) - 0.5 * flat.shape[1] * math.log(2 * math.pi)


def log_density(posterior: GaussianPosterior | JointPosterior, weights: Tensor) -> Tensor:
    """(S,) the log density of weights (S, D, C), in their own units, under a posterior."""
    deviations = weights - posterior.mean
    if isinstance(posterior, JointPosterior):
        forms = posterior.form(deviations / posterior.scale)
        log_det = posterior.log_det + 2 * float(posterior.scale.log().sum())
    else:
        columns = zip(posterior.covariances, deviations.permute(2, 1, 0), strict=True)
        forms = torch.stack([form(S, x.contiguous()) for S, x in columns]).sum(0)
        log_det = sum(S.log_det for S in posterior.covariances)
    return -0.5 * (forms + log_det + posterior.mean.numel() * math.log(2 * math.pi))


@singledispatch
def form(S: LabelCovariance, x: Tensor) -> Tensor:
    """(n,) xᵀ S⁻¹ x for the columns of x (D, n)."""
    raise TypeError(f"nothing is known of the inverse of a {type(S).__name__}")


@form.register
def _(S: Diagonal, x: Tensor) -> Tensor:
    return (x.square() / S.diagonal.unsqueeze(-1)).sum(0)


@form.register
def _(S: ByColumns, x: Tensor) -> Tensor:
    return torch.linalg.solve_triangular(S._factor, x, upper=False).square().sum(0)


@form.register
def _(S: ByRows, x: Tensor) -> Tensor:
    seen = S.design.times(x).square() * S.curvature.unsqueeze(-1)
    return (x.square() / S.variance.unsqueeze(-1)).sum(0) + seen.sum(0)


@form.register
def _(S: LowRank, x: Tensor) -> Tensor:
    # S = E − W Wᵀ, so S⁻¹ = E⁻¹ + E⁻¹ W (I − Wᵀ E⁻¹ W)⁻¹ Wᵀ E⁻¹.
    scaled = S.EU / S.E.unsqueeze(-1)
    inner = torch.eye(S.EU.shape[1], dtype=x.dtype) - S.EU.T @ scaled
    along = scaled.T @ x
    return (x.square() / S.E.unsqueeze(-1)).sum(0) + (along * torch.linalg.solve(inner, along)).sum(
        0
    )


@form.register
def _(S: Block, x: Tensor) -> Tensor:
    return form(S.first, x[: S.split].contiguous()) + form(S.last, x[S.split :].contiguous())


def _parts(model: WeightModel, draws: int) -> Iterator[int]:
    """How many draws at a time, so that their weights and scores fit into memory."""
    numbers = model.scale.numel() + model.design.shape[0] * model.n_labels**2
    at_once = max(1, _NUMBERS_AT_ONCE // numbers)
    for first in range(0, draws, at_once):
        yield min(at_once, draws - first)


_NUMBERS_AT_ONCE = 2**23
"""Weights and label-pair scores that are in memory at once (64 MB)."""
