"""How far draws should spread around the posterior mean, by what they say of unseen sequences.

Averaging over draws from a Gaussian posterior can be under-confident: weights of which the data
says little keep their prior's variance, and many small doubts add up. The mean alone is
over-confident. So draws are taken at mean + κ (draw − mean), with the κ of the least log loss of
the training labels, each fold of the sequences predicted from the other folds.

That takes little more than one sweep: what the folds say of the weights (their Fisher
information) adds up, so the posterior without a fold needs no new pass over the data, and its mean
a few natural-gradient steps. A feature that occurs in one fold alone is unknown to the others, and
is left out of what they say of it.
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from bayeseq.chain import forward_backward
from bayeseq.inference.centre import centred
from bayeseq.inference.information import Information, JointFamily
from bayeseq.inference.joint import JointPosterior, mirrored_draws

FOLDS = 4
_TOLERANCE = 1e-4
"""What the last step in the search for the mean without a fold may gain."""

_DOUBT = 0.25
"""The posterior's own spread, 1, is believed in to within this: a few sequences change little."""


def choose_spread(
    model: Any, posterior: JointPosterior, family: JointFamily, draws: int = 16, seed: int = 0
) -> float:
    """The spread κ between 0 and 1 with the least log loss of the known labels, each fold of the
    sequences predicted from the others; 1 where there are no others, or nothing is known."""
    n = model.layout.n_sequences
    folds = [torch.arange(k, n, FOLDS) for k in range(min(FOLDS, n))]
    known = (model.allowed.sum(-1) == 1).to(torch.float64)
    if n < 2 or model.n_labels < 2 or not float(known @ model.weights[model.layout.sequence]) > 0:
        return 1.0
    white = mirrored_draws(draws, len(posterior.alone), seed)
    parts = [model.select(fold) for fold in folds]
    u = posterior.whitened_mean + posterior.coloured(white)
    told = [family.information(p, p.chain(p.seen(u)), posterior.basis) for p in parts]
    losses = []
    for k, part in enumerate(parts):
        others = model.select(torch.cat([fold for j, fold in enumerate(folds) if j != k]))
        information = reduce(add, [found for j, found in enumerate(told) if j != k])
        losses.append(_HeldOut.of(part, others, information, posterior, white))

    def loss(spread: float) -> float:
        doubt = 0.5 * ((1 - spread) / _DOUBT) ** 2
        return doubt + sum(part.loss(spread) for part in losses)

    found = minimize_scalar(
        loss, bounds=(0.0, 1.0), method="bounded", options={"xatol": 0.02, "maxiter": 20}
    )
    tried = {0.0: loss(0.0), 1.0: loss(1.0), float(found.x): float(found.fun)}
    return min(tried, key=lambda spread: tried[spread])


class _HeldOut:
    """One fold as the others see it: mean scores and how draws deviate from them."""

    def __init__(self, part: Any, mean: tuple[Tensor, ...], deviation: tuple[Tensor, ...]) -> None:
        self.part, self.mean, self.deviation = part, mean, deviation
        self.known = (part.allowed.sum(-1) == 1).nonzero().squeeze(-1)
        self.labels = part.allowed[self.known].to(torch.uint8).argmax(-1)
        self.omega = part.weights[part.layout.sequence[self.known]]

    @classmethod
    def of(
        cls,
        part: Any,
        others: Any,
        information: Information,
        posterior: JointPosterior,
        white: Tensor,
    ) -> _HeldOut:
        there = information.posterior(others, posterior.whitened_mean)
        deviations = there.coloured(white)
        mean, _ = centred(others, there, deviations, _TOLERANCE)
        D = others.design.shape[1]
        unknown = others.design.squared_transpose_times(torch.ones(others.layout.n_tokens, 1)) == 0
        deviations[:, :D].masked_fill_(unknown, 0.0)
        return cls(part, part.seen(mean), part.seen(deviations))

    def loss(self, spread: float) -> float:
        """−Σ log p of the known labels under draws with this spread."""
        f, A = (m + spread * d for m, d in zip(self.mean, self.deviation, strict=True))
        p = forward_backward(self.part.chain((f, A))).unary[:, self.known, self.labels].mean(0)
        return -float(self.omega @ p.clamp_min(1e-12).log())
