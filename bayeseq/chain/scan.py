"""Forward and backward vectors of long chains with few labels, in log T rounds in place of T steps.

A forward vector is the first one times a product of matrices, and products of all beginnings (and
of all ends) of a list of matrices take ⌈log₂ T⌉ rounds in which neighbours are multiplied that lie
1, 2, 4, … apart. That is more arithmetic than T steps need, C³ log T in place of C² a token, and
far fewer calls: for a few long sequences with two or three labels the calls are what costs. Label
axes come first here, so that every operation runs along whole sequences.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bayeseq.chain.potentials import Chain

MOST_LABELS = 3
_SHORTEST, _LARGEST = 32, 2**15


def pays(chain: Chain) -> bool:
    """Whether rounds are the faster way: long sequences, few of them, few labels."""
    layout = chain.layout
    steps = len(layout.sizes)
    padded = chain.unary.shape[:-2].numel() * layout.n_sequences * steps * chain.n_labels**2
    return chain.n_labels <= MOST_LABELS and steps >= _SHORTEST and padded <= _LARGEST


def scanned_vectors(chain: Chain, psi: Tensor, E: Tensor) -> tuple[Tensor, Tensor]:
    """(…, N, C) forward vectors that sum to 1, and backward vectors of any length, packed; of
    chains that cannot underflow."""
    layout, C = chain.layout, chain.n_labels
    lead, steps, B = psi.shape[:-2], len(layout.sizes), layout.n_sequences
    first = layout.n_tokens - layout.n_pairs
    into = (E if chain.varies else E.unsqueeze(-3)) * psi[..., first:, :].unsqueeze(-2)
    sequence, position = layout.token_index
    place = sequence * steps + position
    one = torch.eye(C, dtype=psi.dtype).view(C, C, *(1 for _ in lead), 1)
    M = one.repeat(1, 1, *lead, B * steps)
    M[..., place[first:]] = into.movedim((-2, -1), (0, 1))
    start = psi.new_ones(C, 1, *lead, B, 1)
    start[:, 0, ..., sequence[:first], 0] = psi[..., :first, :].movedim(-1, 0)
    M = M.unflatten(-1, (B, steps))
    # The product of an end is, transposed, that of a beginning of the same list read backwards.
    ends = torch.cat([one.unsqueeze(-1).expand_as(M[..., :1]), M[..., 1:].flip(-1)], -1)
    whole = _products(torch.cat([M, ends.transpose(0, 1)], -2))
    forward = (start * whole[..., :B, :]).sum(0)
    backward = whole[..., B:, :].sum(0).flip(-1)
    forward, backward = (
        v.flatten(-2).index_select(-1, place).movedim(0, -1).contiguous()
        for v in (forward, backward)
    )
    return forward / forward.sum(-1, keepdim=True), backward


def _products(M: Tensor) -> Tensor:
    """(C, C, …, T) M_0 ⋯ M_t for all t, each but for its size."""
    distance, T = 1, M.shape[-1]
    while distance < T:
        left, right = M[..., : T - distance], M[..., distance:]
        product = (left.unsqueeze(2) * right.unsqueeze(0)).sum(1)
        product /= product.amax((0, 1))
        M = torch.cat([M[..., :distance], product], -1)
        distance *= 2
    return M
