"""The log-likelihood of a chain model and its gradient by whitened weights, for many at once.

The gradient is observed less expected counts ([gpsc] eq. 15), both from forward–backward passes;
where labels are missing, "observed" is what a pass that keeps to the known ones expects.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from bayeseq.chain import Chain, Marginals, constrain, forward_backward, score
from bayeseq.kernels.design import Design
from bayeseq.shapes import Layout


class ChainModel(Protocol):
    """What inference needs to know of a chain model."""

    @property
    def design(self) -> Design:
        """Φ (N, D), packed"""

    @property
    def layout(self) -> Layout:
        """How the tokens lie"""

    @property
    def allowed(self) -> Tensor:
        """(N, C) the labels that each token may have"""

    @property
    def weights(self) -> Tensor:
        """(B,) how much each sequence counts"""

    @property
    def groups(self) -> Tensor:
        """(D + C,) the prior-variance group of each row of the weights"""

    @property
    def log_variance(self) -> Tensor:
        """(G, C)"""

    @property
    def scale(self) -> Tensor:
        """(D + C, C) prior standard deviations"""

    @property
    def n_dependent(self) -> int:
        """C: the rows of the transitions, the last ones"""

    def seen(self, whitened: Tensor) -> tuple[Tensor, ...]:
        """f (…, N, C) and A (…, C, C)"""

    def chain(self, seen: tuple[Tensor, ...]) -> Chain:
        """The chains of these scores"""


class Likelihood(NamedTuple):
    """The log-likelihood of all sequences together, and its gradient."""

    value: Tensor
    """(…)"""
    gradient: Tensor
    """(…, D + C, C) by the whitened weights"""


def likelihood(model: ChainModel, whitened: Tensor) -> Likelihood:
    """The log-likelihood and its gradient for weights (…, D + C, C)."""
    value, unary, pairs = _differences(model, model.seen(whitened))
    return Likelihood(value, _by_weights(model, unary, pairs))


def mean_likelihood(
    model: ChainModel, whitened: Tensor, deviations: tuple[Tensor, ...]
) -> Likelihood:
    """The mean log-likelihood of weights (D + C, C) moved by S deviations, and its gradient; the
    deviations are given by what is seen of them, (S, …) each. Only the chains are S."""
    seen = tuple(m + d for m, d in zip(model.seen(whitened), deviations, strict=True))
    value, unary, pairs = _differences(model, seen)
    return Likelihood(value.mean(), _by_weights(model, unary.mean(0), pairs.mean(0)))


def _differences(model: ChainModel, seen: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """The log-likelihood (…), and observed less expected counts of labels (…, N, C) and of label
    pairs (…, C, C)."""
    chain = model.chain(seen)
    free = forward_backward(chain, "sum", model.weights)
    held = _held(model, chain)
    assert free.pairs is not None
    assert held.pairs is not None
    value = (held.log_partition - free.log_partition) @ model.weights
    omega = model.weights[model.layout.sequence].unsqueeze(-1)
    return value, (held.unary - free.unary).mul_(omega), held.pairs - free.pairs


def _by_weights(model: ChainModel, unary: Tensor, pairs: Tensor) -> Tensor:
    """(…, D + C, C) the gradient by whitened weights, from that by scores."""
    by_label = model.design.transposed().product(unary)
    return torch.cat([by_label, pairs], -2) * model.scale


def _held(model: ChainModel, chain: Chain) -> Marginals:
    """What is expected of labellings that agree with what is known: counted, where all is."""
    labels = model.allowed.to(torch.uint8).argmax(-1)
    if not bool((model.allowed.sum(-1) == 1).all()):
        return forward_backward(constrain(chain, allowed=model.allowed), "sum", model.weights)
    layout, C = model.layout, model.allowed.shape[1]
    first = layout.n_tokens - layout.n_pairs
    pairs = torch.zeros(C * C, dtype=torch.float64)
    places = labels[layout.previous] * C + labels[first:]
    pairs.index_add_(0, places, model.weights[layout.sequence[first:]])
    return Marginals(score(chain, labels), model.allowed.to(torch.float64), pairs.reshape(C, C))
