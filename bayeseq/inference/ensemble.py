"""Elliptical slice sampling of any model with Gaussian weights, many chains at once.

A sweep draws a direction ν from the Gaussian prior, and the next weights lie on the ellipse
u cos θ + ν sin θ, at an angle found by slice sampling of the likelihood (Murray, Adams & MacKay
2010). There is nothing to tune and no gradient. What the likelihood sees is linear in the weights,
so it is computed once a sweep for ν and mixed along the ellipse.

With a reference, a Gaussian N(m, F Fᵀ) near the posterior, the weights are u = m + F a, the
ellipses are those of a, and the likelihood is multiplied by prior / reference (Nishihara, Murray &
Adams 2014 with a normal in place of a t distribution). It is exact for any reference, and the
better the reference the farther a sweep goes.

The first bracket of angles is the whole ellipse, or, after `tune`, an interval of a fixed width
that lies at random around the present angle: as valid (Neal 2003, section 4), and it spares the
evaluations far out that are always rejected.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from bayeseq.inference.slices import FEWEST, level, shrink, uniform
from bayeseq.models.latent import LatentModel, WeightModel

CIRCLE = 2 * math.pi
REFRESH = 200
"""Sweeps after which what is mixed along ellipses is computed anew from the state, so that rounding
errors do not add up."""


_AT_ONCE = 64
"""Points that are evaluated together: more do not fit the cache."""
_NUMBERS = 2**17
"""Weights whose scores are computed together, for the same reason."""


class Reference(Protocol):
    """A Gaussian N(m, F Fᵀ) over whitened weights."""

    @property
    def mean(self) -> Tensor:
        """(*latent_shape) m"""

    def colour(self, white: Tensor) -> Tensor:
        """(S, *latent_shape) F a"""

    def whiten(self, coloured: Tensor) -> Tensor:
        """(S, *latent_shape) F⁻¹ x"""


Summary = tuple[Tensor, ...]


@dataclass
class _Place:
    """A point a of each chain, or a direction: what a sweep needs to know of it."""

    white: Tensor
    """(S, *latent_shape) a"""
    coloured: Tensor
    """(S, *latent_shape) F a; the same tensor as `white` where there is no reference"""
    summary: Summary
    """What the likelihood sees of F a"""


class Ensemble:
    """S chains of elliptical slice sampling of one model, side by side.

    `latent` (S, *latent_shape) is where they start: drawn from the reference, or else from the
    prior, if not given. After `own_variances` a model with prior variances by group has its own in
    every chain: `log_variance` (S, G, C), which other moves may change.
    """

    def __init__(
        self,
        model: LatentModel,
        n_chains: int,
        rng: np.random.Generator,
        *,
        reference: Reference | None = None,
        latent: Tensor | None = None,
        refresh: int = REFRESH,
    ) -> None:
        self.rng, self.n_chains, self.reference, self.refresh = rng, n_chains, reference, refresh
        self.model: LatentModel = model
        self._noise = np.empty((n_chains, *model.latent_shape))  # new memory takes its time
        self.every = torch.arange(n_chains)
        self.width = CIRCLE
        self.sweeps = self.evaluations = 0
        self.tuning: tuple[float, int] | None = None
        """The sum and number of mean angles that sweeps have gone, while they are noted."""
        self.set_weights(self._start() if latent is None else latent)

    # ---- where the chains are -------------------------------------------------------------------

    @property
    def weights(self) -> Tensor:
        """(S, *latent_shape) the whitened weights u."""
        x = self._now.coloured
        return x if self.reference is None else x + self.reference.mean

    @property
    def white(self) -> Tensor:
        """(S, *latent_shape) a, in which the reference is N(0, I)."""
        return self._now.white

    def own_variances(self) -> None:
        """Give every chain prior variances of its own."""
        model = self.model
        assert isinstance(model, WeightModel)
        # changed in place: the model caches what it derives
        lead = (self.n_chains, *model.log_variance.shape[-2:])
        self.model = replace(model, log_variance=model.log_variance.expand(lead).clone())  # type: ignore[type-var]

    @property
    def log_variance(self) -> Tensor:
        """(S, G, C) log prior variances; to be changed in place, and followed by
        `set_weights`."""
        assert isinstance(self.model, WeightModel)
        return self.model.log_variance

    def set_weights(self, weights: Tensor) -> None:
        """Put the chains where their whitened weights are these."""
        if self.reference is None:
            self.set_white(weights)
        else:
            self.set_white(self.reference.whiten(weights - self.reference.mean))

    def set_white(self, white: Tensor) -> None:
        """Put the chains where a is this, and compute what depends on it."""
        shape = (self.n_chains, *self.model.latent_shape)
        if tuple(white.shape) != shape:
            raise ValueError(f"the state has shape {tuple(white.shape)}, expected {shape}")
        self._now = self._place(white.clone())
        n = min(_AT_ONCE, max(self.n_chains, FEWEST))
        self._rooms = [x.new_empty(2, n, *x.shape[1:]) for x in self._now.summary]
        if self.reference is None:
            self._mean: Summary | None = None
        else:
            mean = self.reference.mean.unsqueeze(0)
            self._mean = self.model.summary(mean.expand(shape) if self._variances_differ else mean)
        self.log_likelihood = self.model.total_of(self.summary)
        if not bool(self.log_likelihood.isfinite().all()):
            raise ValueError("the likelihood is not finite where a chain is to start")

    @property
    def summary(self) -> Summary:
        """What the likelihood sees of the weights."""
        if self._mean is None:
            return self._now.summary
        return tuple(x + m for x, m in zip(self._now.summary, self._mean, strict=True))

    def _start(self) -> Tensor:
        white = self._normal()
        if self.reference is None:
            return white
        return self.reference.mean + self.reference.colour(white)

    def _normal(self) -> Tensor:
        # numpy's ziggurat takes half the time of torch's float64 normals
        self.rng.standard_normal(out=self._noise)
        return torch.from_numpy(self._noise)

    def _place(self, white: Tensor) -> _Place:
        coloured = white if self.reference is None else self.reference.colour(white)
        return _Place(white, coloured, self._summary(coloured))

    def _summary(self, coloured: Tensor) -> Summary:
        """What the likelihood sees, a few chains at a time: much new memory costs more than the
        arithmetic in it."""
        if self._variances_differ:
            return self.model.summary(coloured)
        few = max(1, _NUMBERS // math.prod(self.model.latent_shape))
        parts = [self.model.summary(some) for some in coloured.split(few)]
        return tuple(torch.cat(part) for part in zip(*parts, strict=True))

    @property
    def _variances_differ(self) -> bool:
        """Whether chains have prior variances of their own."""
        return isinstance(self.model, WeightModel) and self.model.log_variance.dim() > 2

    # ---- moving ---------------------------------------------------------------------------------

    @torch.no_grad()
    def sweep(self) -> None:
        """One move of every chain."""
        to = self._place(self._normal())
        energy = self._energy(to)
        every = self.every
        at = torch.zeros(self.n_chains, dtype=torch.float64)
        value = self.log_likelihood + energy(every, at)

        def density(chains: Tensor, angle: Tensor) -> Tensor:
            parts = zip(chains.split(_AT_ONCE), angle.split(_AT_ONCE), strict=True)
            found = [self.model.total_of(self._seen(to, *part)) for part in parts]
            return torch.cat(found) + energy(chains, angle)

        low = -self.width * uniform(self.rng, self.n_chains)
        threshold = level(value, self.rng)
        moved = shrink(density, threshold, at, value, low, low + self.width, self.rng)
        self._go(to, moved.point)
        self.log_likelihood = moved.value - energy(every, moved.point)
        self.evaluations += moved.evaluations
        self.sweeps += 1
        if self.tuning is not None:
            total, n = self.tuning
            self.tuning = total + float(moved.point.abs().mean()), n + 1
        if self.sweeps % self.refresh == 0:
            self.set_white(self._now.white)

    def tune(self, on: bool) -> None:
        """Begin to note how far sweeps go; or, at the end of that, take a first bracket of twice
        the width that slices have had on average (their width is three times the mean step)."""
        if not on and self.tuning is not None and self.tuning[1]:
            self.width = min(CIRCLE, 6 * self.tuning[0] / self.tuning[1])
        self.tuning = (0.0, 0) if on else None

    def _seen(self, to: _Place, chains: Tensor, angle: Tensor) -> Summary:
        """The summary of the points at these angles, at most `_AT_ONCE`, for some of the chains; in
        memory that the next call uses again."""
        cos, sin = torch.cos(angle), torch.sin(angle)
        found = []
        for k, (x, y) in enumerate(zip(self._now.summary, to.summary, strict=True)):
            mixed = _mixed(x, y, chains, cos, sin, self._rooms[k][:, : len(chains)])
            if self._mean is not None:
                mixed += self._mean[k] if len(self._mean[k]) == 1 else self._mean[k][chains]
            found.append(mixed)
        return tuple(found)

    def _energy(self, to: _Place) -> Callable[[Tensor, Tensor], Tensor]:
        """log prior / reference along the ellipses, up to a constant: a quadratic in cos and sin
        whose coefficients are a few inner products."""
        if self.reference is None:
            return lambda chains, angle: torch.zeros(len(chains), dtype=torch.float64)
        a, x, b, y = self._now.white, self._now.coloured, to.white, to.coloured
        aa, ab = (_dot(a, a) - _dot(x, x)) / 2, (_dot(a, b) - _dot(x, y)) / 2
        bb = (_dot(b, b) - _dot(y, y)) / 2
        mean = self.reference.mean.unsqueeze(0)
        mx, my = _dot(mean, x), _dot(mean, y)

        def energy(chains: Tensor, angle: Tensor) -> Tensor:
            c, s = torch.cos(angle), torch.sin(angle)
            squares = c * c * aa[chains] + 2 * c * s * ab[chains] + s * s * bb[chains]
            return squares - c * mx[chains] - s * my[chains]

        return energy

    def _go(self, to: _Place, angle: Tensor) -> None:
        """Take the point at these angles for the present one."""
        now = self._now
        pairs = [(now.white, to.white), *zip(now.summary, to.summary, strict=True)]
        if now.coloured is not now.white:
            pairs.append((now.coloured, to.coloured))
        for x, y in pairs:
            shape = (-1, *[1] * (x.dim() - 1))
            c, s = (z.reshape(shape).to(x.dtype) for z in (torch.cos(angle), torch.sin(angle)))
            x.mul_(c).addcmul_(y, s)


def _mixed(x: Tensor, y: Tensor, chains: Tensor, cos: Tensor, sin: Tensor, room: Tensor) -> Tensor:
    """(n, …) x cos θ + y sin θ for n angles, each of one of the chains, in a room (2, n, …)."""
    shape = (-1, *[1] * (x.dim() - 1))
    c, s = (z.reshape(shape).to(x.dtype) for z in (cos, sin))
    found, other = room
    torch.index_select(x, 0, chains, out=found).mul_(c)
    return found.addcmul_(torch.index_select(y, 0, chains, out=other), s)


def _dot(x: Tensor, y: Tensor) -> Tensor:
    """(S,) inner products of whole points."""
    return (x.flatten(1) * y.flatten(1)).sum(-1)
