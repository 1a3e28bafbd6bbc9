"""The negative log-likelihood of labels along chains and its gradient, as functions of scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bayeseq.chain import Chain, constrain, forward_backward, score
from bayeseq.chain.marginals import Marginals
from bayeseq.shapes import Layout


class Loss(NamedTuple):
    """−log p(y) and its gradient."""

    value: float
    by_label: np.ndarray
    """(N, C) E¹ − O¹"""
    by_pair: np.ndarray
    """(C, C) E² − O²"""


@dataclass(frozen=True, eq=False)
class ChainLoss:
    """−Σ_i w_i log p(y_i) of packed sequences as a function of their scores; missing labels and
    label sets are summed over."""

    layout: Layout
    allowed: Tensor
    """(N, C) the labels that each token may have"""
    weights: Tensor
    """(B,) how much each sequence counts"""
    rules: Callable[[Chain], Chain] = field(default=lambda chain: chain)
    """Forbids what a tag scheme forbids"""

    def __call__(self, f: np.ndarray, A: np.ndarray) -> Loss:
        """The loss of scores f (N, C) and A (C, C)."""
        chain = self.rules(Chain(torch.from_numpy(f), torch.from_numpy(A), self.layout))
        free = forward_backward(chain, "sum", self.weights)
        known, labels = self._complete or (self._given(chain), None)
        log_known = known.log_partition if labels is None else score(chain, labels)
        assert free.pairs is not None
        assert known.pairs is not None
        of_row = self.weights[self.layout.sequence].unsqueeze(-1)
        return Loss(
            float(self.weights @ (free.log_partition - log_known)),
            ((free.unary - known.unary) * of_row).numpy(),
            (free.pairs - known.pairs).numpy(),
        )

    def _given(self, chain: Chain) -> Marginals:
        """The counts that agree with what is known of the labels."""
        return forward_backward(constrain(chain, allowed=self.allowed), "sum", self.weights)

    @cached_property
    def _complete(self) -> tuple[Marginals, Tensor] | None:
        """The counts and the labels (N,) where all are known: they are the same for all scores."""
        if not bool((self.allowed.sum(-1) == 1).all()):
            return None
        N, C = self.allowed.shape
        zeros = torch.zeros(N, C, dtype=torch.float64)
        observed = self._given(Chain(zeros, zeros.new_zeros(C, C), self.layout))
        return observed, self.allowed.to(torch.uint8).argmax(-1)
