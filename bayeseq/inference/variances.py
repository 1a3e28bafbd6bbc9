"""Prior variances of weight groups as unknowns of a sampler.

Two moves take turns (Yu & Meng 2011). With the whitened weights held, the weights of a group grow
and shrink with its variance, and the likelihood decides: univariate slice sampling, for each group
one after another. With the weights themselves held, the likelihood does not change and a variance
depends only on the sum of their squares: slice sampling again, at no price. Where the data say much
of the weights the second moves farther, where they say little the first does.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bayeseq.inference.ensemble import Ensemble
from bayeseq.inference.slices import slice_move
from bayeseq.models.latent import WeightModel

WIDTH = 1.0
"""The first bracket of a log variance, and by how much it is widened."""


@dataclass(frozen=True)
class VariancePrior:
    """log σ² ~ N(mean, sd²), for each group by itself.

    The default is broad: 95 % of it lies between 0.02 and 50.
    """

    mean: float = 0.0
    sd: float = 2.0

    def __post_init__(self) -> None:
        if not self.sd > 0:
            raise ValueError(f"sd is {self.sd}; it must be above 0")

    def log_density(self, log_variance: Tensor) -> Tensor:
        """Up to a constant."""
        return -0.5 * ((log_variance - self.mean) / self.sd) ** 2


class VarianceMoves:
    """Moves of the log prior variances of an ensemble's model, one a group, shared by labels."""

    def __init__(self, ensemble: Ensemble, prior: VariancePrior) -> None:
        model = ensemble.model
        if not isinstance(model, WeightModel):
            raise TypeError(f"{type(model).__name__} has no prior variances by group")
        if bool((model.log_variance != model.log_variance[..., :1]).any()):
            raise ValueError("prior variances differ between labels; only shared ones are sampled")
        ensemble.own_variances()
        assert isinstance(ensemble.model, WeightModel)
        model = ensemble.model
        self.ensemble, self.model, self.prior = ensemble, model, prior
        G = model.log_variance.shape[-2]
        self.counts = torch.bincount(model.groups, minlength=G) * model.n_labels

    @torch.no_grad()
    def sweep(self) -> None:
        """Both moves, of every group in every chain."""
        weights = self._whitened_held()
        self.ensemble.set_weights(self._weights_held(weights))

    def _whitened_held(self) -> Tensor:
        """(S, D, C) the whitened weights, which do not change."""
        ensemble, log_variance = self.ensemble, self.ensemble.log_variance
        weights, summary = ensemble.weights, ensemble.summary
        log_likelihood = ensemble.log_likelihood
        for group in range(len(self.counts)):
            part = self.model.group_summary(weights, group)
            rest = tuple(x - y for x, y in zip(summary, part, strict=True))
            at = log_variance[:, group, 0].clone()
            line = _Line(self.model, rest, part, at, self.prior)
            value = log_likelihood + self.prior.log_density(at)
            moved = slice_move(line, at, value, WIDTH, ensemble.rng)
            ensemble.evaluations += moved.evaluations
            log_likelihood = moved.value - self.prior.log_density(moved.point)
            summary = line.summary(ensemble.every, moved.point)
            log_variance[:, group] = moved.point.unsqueeze(-1)
        return weights

    def _weights_held(self, whitened: Tensor) -> Tensor:
        """(S, D, C) the whitened weights after the variances have moved beneath the weights."""
        log_variance = self.ensemble.log_variance
        S, G, _ = log_variance.shape
        squares = whitened.new_zeros(S, G)
        squares.index_add_(1, self.model.groups, whitened.square().sum(-1))
        at = log_variance[..., 0].flatten()
        sums = squares.flatten() * at.exp()  # Σ w²
        half = self.counts.repeat(S) / 2

        def density(chains: Tensor, point: Tensor) -> Tensor:
            own = -half[chains] * point - sums[chains] * torch.exp(-point) / 2
            return own + self.prior.log_density(point)

        every = torch.arange(S * G)
        moved = slice_move(density, at, density(every, at), WIDTH, self.ensemble.rng)
        factor = torch.exp((at - moved.point) / 2).reshape(S, G)
        log_variance[:] = moved.point.reshape(S, G, 1)
        return whitened * factor.index_select(1, self.model.groups).unsqueeze(-1)


@dataclass(frozen=True, eq=False)
class _Line:
    """The posterior of one group's log variance in each chain, the whitened weights held."""

    model: WeightModel
    rest: tuple[Tensor, ...]
    """What the likelihood sees of the other groups"""
    part: tuple[Tensor, ...]
    """What it sees of this one"""
    at: Tensor
    """(S,) the log variance for which that is so"""
    prior: VariancePrior

    def summary(self, chains: Tensor, point: Tensor) -> tuple[Tensor, ...]:
        """What the likelihood sees of all groups when the log variances are these."""
        factor = torch.exp((point - self.at[chains]) / 2)
        found = []
        for x, y in zip(self.rest, self.part, strict=True):
            shape = (-1, *[1] * (x.dim() - 1))
            found.append(x[chains].addcmul_(y[chains], factor.reshape(shape)))
        return tuple(found)

    def __call__(self, chains: Tensor, point: Tensor) -> Tensor:
        """(n,) log densities."""
        found = self.model.total_of(self.summary(chains, point))
        return found + self.prior.log_density(point)
