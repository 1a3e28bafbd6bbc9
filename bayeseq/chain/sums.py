"""Σ_i w_i log Z_i of all sequences at once: the forward pass alone, for those who ask it often.

A sampler asks for one number a chain of draws, thousands of times, and never for a derivative. So
nothing is kept by token, no maximum is taken out of a row, and vectors are scaled only as often as
the scores' size demands.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bayeseq.chain.marginals import log_partition
from bayeseq.chain.potentials import Chain
from bayeseq.shapes import Layout

_ROOM = 600.0
"""How far a logarithm may run before a float64 over- or underflows, with some to spare."""


def total_log_partition(chain: Chain, weights: Tensor | None = None) -> Tensor:
    """(…) Σ_i w_i log Z_i, the same as `(weights * log_partition(chain)).sum(-1)`, much faster with
    many leading axes; not differentiable. `weights` (B,) are 1 if not given.

    −inf in the unary scores (labels that are not allowed) is honoured here as well; −inf in the
    transitions, or transitions that vary by position, are left to `log_partition`.

    >>> from bayeseq.chain import chain_from_padded
    >>> chain = chain_from_padded(torch.zeros(2, 3, 2), torch.zeros(2, 2), torch.tensor([3, 1]))
    >>> total_log_partition(chain).exp()    # 8 labellings times 2
    tensor(16.)
    """
    every = _steps_between_scalings(chain)
    if every > 0:
        found = _forward(chain, weights, every)
        if not bool(found.isnan().any()):  # 0 / 0 where a token may have no label at all
            return found
    each = log_partition(chain)
    return (each if weights is None else each * weights).sum(-1)


def _steps_between_scalings(chain: Chain) -> int:
    """How many steps are safe without scaling; 0 where even one is not.

    With m the largest finite |unary| and a the largest |transition|, a step multiplies the sum of a
    vector by a number within exp ±(m + a + log C), and the largest and smallest entries of it that
    are allowed differ at most by 2 (m + a): every label may follow every other.
    """
    unary, transitions = chain.unary, chain.transitions
    if chain.varies or unary.numel() == 0 or unary.dtype != torch.float64:
        return 0
    low, high = (float(x) for x in torch.aminmax(unary))
    if low == -math.inf:
        low = float(unary.masked_fill(unary == -math.inf, math.inf).amin())
    if not math.isfinite(low) or not math.isfinite(high):
        return 0
    pairs = float(transitions.abs().amax())
    step = max(abs(low), abs(high)) + pairs + math.log(chain.n_labels)
    return int(_ROOM / max(step, 1.0)) - 3 if math.isfinite(pairs) else 0


def _forward(chain: Chain, weights: Tensor | None, every: int) -> Tensor:
    layout, C = chain.layout, chain.n_labels
    lead = chain.unary.shape[:-2]
    psi = chain.unary.exp().reshape(-1, layout.n_tokens, C)
    E = chain.transitions.exp().expand(*lead, C, C).reshape(-1, C, C)
    log_factors = factors(psi, E, layout, every).log_()
    if weights is None:
        return log_factors.sum(-1).reshape(lead)
    return (log_factors @ factor_weights(weights, layout, every)).reshape(lead)


def factors(psi: Tensor, E: Tensor, layout: Layout, every: int) -> Tensor:
    """(S, n) factors of the Z of all sequences: what vectors are scaled by, after so many steps
    each time, and what they sum to at the end; for exponentials of scores (S, N, C) and of
    transitions (S, C, C)."""
    sizes = layout.sizes
    pieces = psi.split(sizes, 1)
    alive = sizes[0] if sizes else 0
    found, now = [], psi[:, :alive]
    for t in range(1, len(sizes)):
        n = sizes[t]
        if n < alive:
            found.append(now[:, n:].sum(-1))
            now, alive = now[:, :n], n
        now = torch.bmm(now, E).mul_(pieces[t])
        if t % every == 0:
            scale = now.sum(-1, keepdim=True)
            now /= scale
            found.append(scale.squeeze(-1))
    return torch.cat([*found, now.sum(-1)], -1)


def factor_weights(weights: Tensor, layout: Layout, every: int) -> Tensor:
    """(n,) what the sequences of these factors count, of weights (B,)."""
    sizes, by_rank = layout.sizes, weights[layout.order]
    found, alive = [], sizes[0] if sizes else 0
    for t in range(1, len(sizes)):
        found.append(by_rank[sizes[t] : alive])
        alive = sizes[t]
        if t % every == 0:
            found.append(by_rank[:alive])
    return torch.cat([*found, by_rank[:alive]])
