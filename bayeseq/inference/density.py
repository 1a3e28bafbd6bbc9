"""How well a Gaussian posterior stands for the one it approximates: both log densities at draws.

Whatever the guide, its draws u of the whitened weights have two log densities: log q(u), its own,
and log p(y, u) = ℓ(u) − ½‖u‖² + const, the model's up to a constant. The ratios p / q are the
importance weights of the draws.

A softmax of scores that are linear in weights sees only how the weights of labels differ: adding
the same to those of all labels changes nothing. A guide with independent labels knows too much of
the sum, s = Σ_c u_c / √C, of which the data say nothing, and pays for it in these ratios, though
it matters to no prediction. So the sum is integrated out of both densities: with prior variances
that labels share it is N(0, I) under the prior and independent of the differences, and under q a
Gaussian given them, whose precision is the mean of those of the labels.
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
from bayeseq.linalg import cholesky
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
    log_sum: Tensor
    """(S,) log q(s | differences) − log p(s) of what no score sees; 0 where all is seen"""

    @property
    def log_p(self) -> Tensor:
        """(S,) log p(y, u)."""
        return self.log_likelihood.sum(-1) + self.log_prior

    @property
    def log_ratios(self) -> Tensor:
        """(S,) log p(y, u) − log q(u), of what scores see of u."""
        return self.log_p - self.log_q + self.log_sum


def densities(
    model: WeightModel,
    posterior: GaussianPosterior | JointPosterior,
    draws: int,
    generator: torch.Generator,
) -> Densities:
    """Both densities at draws from a posterior of the model's weights."""
    free = _FreeSum.of(model, posterior)
    parts = [_densities(model, posterior, free, n, generator) for n in _parts(model, draws)]
    return Densities(*(torch.cat(found) for found in zip(*parts, strict=True)))


def _densities(
    model: WeightModel,
    posterior: GaussianPosterior | JointPosterior,
    free: _FreeSum | None,
    draws: int,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    weights = posterior.draws(draws, generator)
    whitened = weights / model.scale
    log_q = log_density(posterior, weights) + float(model.scale.log().sum())
    log_sum = torch.zeros_like(log_q) if free is None else free.log_ratio(whitened)
    return model.log_likelihood(whitened), log_standard_normal(whitened), log_q, log_sum


@dataclass(frozen=True, eq=False)
class _FreeSum:
    """The sum of each column's weights over labels, where no score sees it; all in whitened units.
    Precisions are (D, D), or (D,) where they are diagonal."""

    mean: Tensor
    """(D, C) of the weights"""
    precisions: list[Tensor]
    """of the weights of each label"""
    root: Tensor
    """L, lower triangular, or (D,) √P: of the precision P of the sum given the differences"""

    @classmethod
    def of(
        cls, model: WeightModel, posterior: GaussianPosterior | JointPosterior
    ) -> _FreeSum | None:
        """None where scores see the sum, or where it depends on the differences under the prior."""
        scale = model.scale[:, 0]
        shared = bool((model.scale == scale.unsqueeze(-1)).all()) and model.n_labels > 1
        if not shared or not isinstance(posterior, GaussianPosterior):
            return None
        diagonal = isinstance(posterior.covariances[0], Diagonal)
        if len(scale) > LARGEST_PRECISION and not diagonal:
            raise ValueError(
                f"the covariances of {len(scale)} columns are too large to take apart; use "
                "covariance='diagonal', or leave out rare features with min_count"
            )
        units = scale.square() if diagonal else scale * scale.unsqueeze(-1)
        found = [precision(S) * units for S in posterior.covariances]
        P = torch.stack(found).mean(0)
        root = P.sqrt() if diagonal else cholesky(P, "the mean precision of the labels")
        return cls(posterior.mean / model.scale, found, root)

    def log_ratio(self, whitened: Tensor) -> Tensor:
        """(S,) log q(s | differences) − log p(s) for weights (S, D, C)."""
        D, C = self.mean.shape
        deviations = (whitened - self.mean).permute(2, 1, 0)
        if self.root.dim() == 1:
            terms = [P.unsqueeze(-1) * x for P, x in zip(self.precisions, deviations, strict=True)]
            white = sum(terms[1:], terms[0]) / self.root.unsqueeze(-1)
            log_det = 2 * float(self.root.log().sum())
        else:
            terms = [P @ x for P, x in zip(self.precisions, deviations, strict=True)]
            total = sum(terms[1:], terms[0])
            white = torch.linalg.solve_triangular(self.root, total, upper=False)
            log_det = 2 * float(self.root.diagonal().log().sum())
        forms = white.square().sum(0) / C
        log_q = 0.5 * (log_det - forms - D * math.log(2 * math.pi))
        return log_q - log_standard_normal(whitened.sum(-1) / math.sqrt(C))


LARGEST_PRECISION = 3000
"""Columns whose precision matrices are written out (72 MB a label)."""


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
    scaled, inner = _low_rank_parts(S)
    along = scaled.T @ x
    return (x.square() / S.E.unsqueeze(-1)).sum(0) + (along * torch.linalg.solve(inner, along)).sum(
        0
    )


@form.register
def _(S: Block, x: Tensor) -> Tensor:
    return form(S.first, x[: S.split].contiguous()) + form(S.last, x[S.split :].contiguous())


@singledispatch
def precision(S: LabelCovariance) -> Tensor:
    """S⁻¹ (D, D), or its diagonal (D,) where it is diagonal."""
    raise TypeError(f"nothing is known of the inverse of a {type(S).__name__}")


@precision.register
def _(S: Diagonal) -> Tensor:
    return 1 / S.diagonal


@precision.register
def _(S: ByColumns) -> Tensor:
    return torch.cholesky_inverse(S._factor)


@precision.register
def _(S: ByRows) -> Tensor:
    return S.design.columns_gram(S.curvature) + torch.diag(1 / S.variance)


@precision.register
def _(S: LowRank) -> Tensor:
    scaled, inner = _low_rank_parts(S)
    return torch.diag(1 / S.E) + scaled @ torch.linalg.solve(inner, scaled.T)


@precision.register
def _(S: Block) -> Tensor:
    return torch.block_diag(precision(S.first), torch.diag(precision(S.last)))


def _low_rank_parts(S: LowRank) -> tuple[Tensor, Tensor]:
    """V = E⁻¹ W and A = I − Wᵀ E⁻¹ W of S = E − W Wᵀ, whose inverse is E⁻¹ + V A⁻¹ Vᵀ."""
    scaled = S.EU / S.E.unsqueeze(-1)
    return scaled, torch.eye(S.EU.shape[1], dtype=S.E.dtype) - S.EU.T @ scaled


def _parts(model: WeightModel, draws: int) -> Iterator[int]:
    """How many draws at a time, so that their weights and scores fit into memory."""
    numbers = model.scale.numel() + model.design.shape[0] * model.n_labels**2
    at_once = max(1, _NUMBERS_AT_ONCE // numbers)
    for first in range(0, draws, at_once):
        yield min(at_once, draws - first)


_NUMBERS_AT_ONCE = 2**23
"""Weights and label-pair scores that are in memory at once (64 MB)."""
