"""The expectation of log Σ_c exp f_c under independent Gaussians: three ways, one interface.

For f_c ~ N(m_c, v_c), c = 1 … C, every rule gives a value h(m, v) for E[log Σ exp f] and the two
derivatives that the variational solver lives on: p = ∂h/∂m, a probability vector, and λ = 2 ∂h/∂v,
the curvature that each label's precision receives.

- "exact": the expectation itself, by quadrature: Gauss–Hermite on f_1 − f_0 for two labels, where
  it is exact to rounding, else a fixed set of scrambled quasi-Monte Carlo points, so that the
  value is a smooth deterministic function of m and v. p = E[π], λ = E[π (1 − π)] for π =
  softmax(f).
- "tilted": the upper bound of Knowles & Minka (2011), in closed form but for a small fixed point.
- "jensen": log Σ exp(m + v / 2), the bound of [gpsl] eq. 9; the loosest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
import torch
from scipy.stats import norm, qmc
from torch import Tensor


class LogSumExp(NamedTuple):
    """E[log Σ exp f] for each row, or a bound on it, and its derivatives."""

    value: Tensor
    """(N,)"""
    probability: Tensor
    """(N, C) ∂value/∂m"""
    curvature: Tensor
    """(N, C) 2 ∂value/∂v"""


class Expectation(ABC):
    """A rule for E[log Σ exp f]."""

    @abstractmethod
    def __call__(self, mean: Tensor, variance: Tensor) -> LogSumExp:
        """The value and its derivatives for means and variances (N, C)."""

    def softmax(self, mean: Tensor, variance: Tensor) -> Tensor:
        """(N, C) what the rule holds for E[softmax f]."""
        return self(mean, variance).probability


class Jensen(Expectation):
    """log E[Σ exp f] ≥ E[log Σ exp f]  ([gpsl] eq. 9).

    >>> Jensen()(torch.zeros(1, 2), torch.zeros(1, 2)).value       # log 2
    tensor([0.6931])
    """

    def __call__(self, mean: Tensor, variance: Tensor) -> LogSumExp:
        """The value and its derivatives for means and variances (N, C)."""
        eta = mean + variance / 2
        value = torch.logsumexp(eta, -1)
        probability = torch.exp(eta - value.unsqueeze(-1))
        return LogSumExp(value, probability, probability)


class Tilted(Expectation):
    """Σ_c a_c² v_c / 2 + log Σ_c exp(m_c + (1 − 2 a_c) v_c / 2), least over the tilts a.

    The least value is where a is the softmax inside (`tilt`); there p = a and λ = a (1 − a), as if
    the label were drawn with probability a.
    """

    def __init__(self, steps: int = 100, tol: float = 1e-12) -> None:
        self.steps, self.tol = steps, tol

    def __call__(self, mean: Tensor, variance: Tensor) -> LogSumExp:
        """The value and its derivatives for means and variances (N, C)."""
        a = tilt(mean, variance, self.steps, self.tol)
        inner = torch.logsumexp(mean + (0.5 - a) * variance, -1)
        value = (a.square() * variance).sum(-1) / 2 + inner
        return LogSumExp(value, a, a * (1 - a))


def tilt(mean: Tensor, variance: Tensor, steps: int = 4, tol: float = 0.0) -> Tensor:
    """(N, C) the fixed point a = softmax(m + (1 − 2a) v / 2).

    With u = log a it says u + v eᵘ = m + v / 2 − z and Σ eᵘ = 1, where z is one number a row. Both
    are solved together by Newton steps, which hold for any variance: where v is large, an iteration
    of the softmax itself would swing from one label to another.
    """
    middle = mean + variance / 2
    u = torch.log_softmax(mean / (1 + variance.amax(-1, keepdim=True) / 4), -1).clamp_(-_FAR, 0)
    for _ in range(steps):
        a = u.exp()
        va = variance * a
        slope = 1 / (1 + va)
        z_each = middle - u - va  # the same number for all labels of a row, once solved
        weight = a * slope
        excess = a.sum(-1, keepdim=True) - 1
        z = (weight * z_each).sum(-1, keepdim=True).add_(excess) / weight.sum(-1, keepdim=True)
        change = z_each.sub_(z).mul_(slope).clamp_max_(1.0)
        u = u.add_(change).clamp_(-_FAR, 0)
        if not bool((a.mul_(change).abs_() > tol).any()):
            break
    a = u.exp_()
    return a / a.sum(-1, keepdim=True)


_FAR = 700.0
"""No probability is below exp of minus this."""


class GaussHermite(Expectation):
    """The expectation for two labels: a one-dimensional integral over d = f_1 − f_0."""

    def __init__(self, points: int = 48) -> None:
        nodes, weights = np.polynomial.hermite_e.hermegauss(points)
        self.nodes = torch.from_numpy(nodes)
        self.weights = torch.from_numpy(weights / weights.sum())

    def __call__(self, mean: Tensor, variance: Tensor) -> LogSumExp:
        """The value and its derivatives for means and variances (N, 2)."""
        d = mean[:, 1] - mean[:, 0]
        z = d.unsqueeze(-1) + variance.sum(-1).sqrt().unsqueeze(-1) * self.nodes
        value = mean[:, 0] + torch.nn.functional.softplus(z) @ self.weights
        s = torch.sigmoid(z)
        p, curvature = s @ self.weights, (s * (1 - s)) @ self.weights
        return LogSumExp(
            value, torch.stack([1 - p, p], -1), torch.stack([curvature, curvature], -1)
        )


class QuasiMonteCarlo(Expectation):
    """The expectation by averaging over fixed points: scrambled Sobol, mirrored, orthogonal.

    Mirrored points make all odd moments exact, orthogonal columns the second, so that for small
    variances the error is of fourth order. More labels than half the points cannot be orthogonal;
    their columns have unit variance only.
    """

    def __init__(self, n_labels: int, points: int = 64, seed: int = 0) -> None:
        draws = qmc.Sobol(n_labels, scramble=True, rng=np.random.default_rng(seed))
        half = norm.ppf(draws.random(points // 2))
        if n_labels <= len(half):
            basis, upper = np.linalg.qr(half)
            half = basis * np.sign(np.diag(upper))
        both = np.concatenate([half, -half])
        self.points = torch.from_numpy(both / np.sqrt(np.square(both).mean(0)))

    def __call__(self, mean: Tensor, variance: Tensor) -> LogSumExp:
        """The value and its derivatives for means and variances (N, C)."""
        # Labels first: sums over them are then sums of long rows.
        top = mean.amax(-1)
        m, scale = (mean - top.unsqueeze(-1)).T.contiguous(), variance.T.sqrt()
        far = float(scale.amax()) * float(self.points.abs().amax()) if scale.numel() else 0.0
        value, p, square = torch.zeros_like(top), torch.zeros_like(m), torch.zeros_like(m)
        for points in self.points.split(max(1, _AT_ONCE // max(1, mean.numel()))):
            f = torch.addcmul(m.unsqueeze(1), scale.unsqueeze(1), points.T.unsqueeze(-1))
            if far > _NO_OVERFLOW:
                f_max = f.amax(0)
                value += f_max.sum(0)
                f -= f_max
            e = f.exp_()
            z = e.sum(0)
            value += z.log().sum(0)
            e /= z
            p += e.sum(1)
            square += e.square_().sum(1)
        n = len(self.points)
        p /= n
        return LogSumExp(value / n + top, p.T.contiguous(), (p - square / n).T.contiguous())


_NO_OVERFLOW = 300.0
"""A score that no point moves farther than this from its mean needs no guard before exp."""

_AT_ONCE = 2**18
"""Numbers that a block of quasi-Monte Carlo points holds: few enough to stay in the cache."""

RULES = ("exact", "tilted", "jensen")


def expectation(rule: str, n_labels: int, points: int = 64, seed: int = 0) -> Expectation:
    """The rule with this name.

    >>> mean, variance = torch.zeros(1, 2), torch.ones(1, 2)
    >>> [round(expectation(rule, 2)(mean, variance).value.item(), 3) for rule in RULES]
    [0.903, 0.943, 1.193]
    """
    if rule == "jensen":
        return Jensen()
    if rule == "tilted":
        return Tilted()
    if rule == "exact":
        return GaussHermite() if n_labels == 2 else QuasiMonteCarlo(n_labels, points, seed)
    raise ValueError(f"bound is {rule!r}; expected one of {', '.join(map(repr, RULES))}")
