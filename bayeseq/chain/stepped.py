"""Σ_i w_i log Z_i by steps along all sequences at once, in single precision.

Scores are taken relative to those of one labelling of each sequence, the known one: the sum of its
scores is then 0 up to every step, and Z_i = 1 / p(labels). So nothing that counts underflows: from
the largest entry of a vector one step leads to the known labelling, which costs two transitions at
most, and from there nothing is lost. What overflows shows in the result, and is left to others.
Where the known labelling is likely, what counts are small numbers, which a float32 has with an
error of some 1e−7 a token; that adds up to 1e−4 for thousands of tokens. Sums over sequences are
float64.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from bayeseq.chain.sums import factor_weights, factors
from bayeseq.shapes import Layout

_STEPS = 8
"""Steps between scalings. A float32 has room for 88 nats, 11 a token: more than scores drawn from a
prior with a standard deviation of 4 take with a dozen labels."""
_LARGEST_TRANSITION = 10.0
"""Beyond it what underflows in a float32 may count."""


class Stepped:
    """Sequences of a layout, with a labelling of each to which scores are relative.

    `base` (N,) are its labels by packed row, `weights` (B,) what sequences count.

    >>> one = torch.ones(2, dtype=torch.float64)
    >>> stepped = Stepped(Layout.of([3, 1]), torch.zeros(4, dtype=torch.long), one)
    >>> odds = stepped.odds(torch.zeros(1, 4, 2).double(), torch.zeros(1, 2, 2).double())
    >>> stepped.total(odds, torch.zeros(1, 2, 2).double()).exp()    # 8 labellings times 2
    tensor([16.0000], dtype=torch.float64)
    """

    def __init__(self, layout: Layout, base: Tensor, weights: Tensor) -> None:
        self.layout, self.base, self.weights = layout, base, weights
        self.first = layout.sizes[0] if layout.sizes else 0
        self._psi: Tensor | None = None
        self.pairs = (base[layout.previous], base[self.first :])
        """The base's transitions into all tokens that are not first"""

    @cached_property
    def _factor_weights(self) -> Tensor:
        return factor_weights(self.weights, self.layout, _STEPS)

    def odds(self, scores: Tensor, transitions: Tensor) -> Tensor:
        """(S, N, C) float32: scores (S, N, C) relative to the base labelling's, transitions into
        it included."""
        index = self.base.view(1, -1, 1).expand(len(scores), -1, 1)
        own = scores.gather(-1, index)
        own[:, self.first :, 0] += transitions[:, self.pairs[0], self.pairs[1]]
        found = torch.empty(scores.shape, dtype=torch.float32)  # draws first in memory too
        return torch.sub(scores, own, out=found)

    def scores(self, odds: Tensor) -> Tensor:
        """(S, N, C) float64 scores that have these odds."""
        return odds.double()

    def total(self, odds: Tensor, transitions: Tensor, allowed: Tensor | None = None) -> Tensor:
        """(S,) Σ_i w_i log Z_i; labels that are not among `allowed` (N, C) do not count. Not finite
        where scores are too large for this way."""
        if self._psi is None or self._psi.shape[0] < len(odds):
            self._psi = torch.empty_like(odds)  # kept: new memory costs more than the arithmetic
        psi, E = torch.exp(odds, out=self._psi[: len(odds)]), transitions.float().exp()
        if allowed is not None:
            psi *= allowed
        found = factors(psi, E, self.layout, _STEPS).double().log_() @ self._factor_weights
        large = transitions.abs().amax((1, 2)) > _LARGEST_TRANSITION
        return found.masked_fill_(large, torch.nan)
