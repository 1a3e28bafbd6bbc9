"""Chains with a leading axis of draws, taken for a mixture of distributions over labellings."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from bayeseq.chain import Chain, entropy, log_partition, sample, score


def mean_chain(chain: Chain) -> Chain:
    """The chain of the mean scores over draws, or the chain itself where there are none."""
    if chain.unary.dim() == 2:
        return chain
    return Chain(chain.unary.mean(0), chain.transitions.mean(0), chain.layout)


def mean_of(values: Tensor, dims: int) -> Tensor:
    """The mean over draws of values with so many axes besides."""
    return values.mean(0) if values.dim() > dims else values


def log_mean(values: Tensor) -> Tensor:
    """(B,) the logarithm of the mean over draws of exp(values)."""
    if values.dim() == 1:
        return values
    return torch.logsumexp(values, 0) - np.log(len(values))


def sampled(chain: Chain, draws: int, generator: torch.Generator) -> Tensor:
    """(draws, N) labellings of a chain, or of a mixture: each from one of its chains by lot."""
    if chain.unary.dim() == 2:
        return sample(chain, draws, generator)
    which = torch.randint(len(chain.unary), (draws,), generator=generator)
    picked = Chain(chain.unary[which], chain.transitions[which], chain.layout)
    return sample(picked, 1, generator)[0]


def mixture_entropy(chain: Chain) -> Tensor:
    """(B,) the entropy of a mixture: the mean entropy of its S chains, which is exact, and what
    tells them apart (`information`), from the same labellings each time."""
    apart, _ = information(chain, torch.Generator().manual_seed(0))
    return entropy(chain).mean(0) + apart


def information(
    chain: Chain, generator: torch.Generator, labellings: int = 1
) -> tuple[Tensor, Tensor]:
    """(B,) the mutual information in nats between a labelling and which of S chains it is from,
    and its standard error.

    It is the mean of log p_s(y) − log p(y) over chains s and labellings y drawn from them, with p
    the mixture; so many labellings are drawn from each chain. It is never below 0, and where the
    estimate is, 0 is given; it is at most log S, whatever the chains.
    """
    log_z = log_partition(chain)
    S = len(log_z)
    gains = []
    for drawn in sample(chain, labellings, generator):
        for s, labels in enumerate(drawn):
            log_p = score(chain, labels) - log_z
            gains.append(log_p[s] - log_mean(log_p))
    gain = torch.stack(gains)
    error = gain.std(0) / np.sqrt(len(gain)) if len(gain) > 1 else torch.full_like(gain[0], np.nan)
    return gain.mean(0).clamp(0.0, float(np.log(S))), error
