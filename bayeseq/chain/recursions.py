"""The two recursions over time on which the chain algorithms stand, scaled and in log space.

The scaled recursion keeps each forward vector a probability vector and costs one matrix product a
step. The log-space recursion costs C² logarithms a row and never loses anything. Underflow in the
scaled one is judged afterwards, by `lost_sequences`: a value flushed to zero changes a marginal by
less than the smallest number times the row's largest backward ratio, so where that product is far
below the rounding error nothing was lost. The few sequences that fail are done in log space.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bayeseq.chain.potentials import Chain
from bayeseq.chain.scan import pays, scanned_vectors


@dataclass(frozen=True, eq=False)
class Scaled:
    """Forward and backward vectors in the probability domain, packed.

    With ψ = exp(unary − row_max) and E = exp(transitions − pair_max):
    forward[t] = (forward[t−1] E) ∘ ψ[t] / scale[t] sums to 1; forward ∘ backward is the marginal.
    `ratio` is backward / scale: the pair marginal into t is E ∘ forward[t−1]ᵀ (ψ ∘ ratio)[t].
    """

    psi: Tensor
    """(…, N, C)"""
    E: Tensor
    """as the chain's transitions"""
    forward: Tensor
    """(…, N, C)"""
    scale: Tensor
    """(…, N, 1)"""
    backward: Tensor
    """(…, N, C)"""
    ratio: Tensor
    """(…, N, C)"""
    log_partition: Tensor
    """(…, B)"""


def finite_max(values: Tensor, dim: int | tuple[int, ...]) -> Tensor:
    """The maximum along axes, kept, with 0 in place of an infinite one."""
    top = values.amax(dim, keepdim=True)
    return torch.where(torch.isfinite(top), top, torch.zeros_like(top))


def exponentials(chain: Chain) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """ψ, E and the maxima that were taken out: row_max (…, N, 1), pair_max (…, [N − B,] 1, 1)."""
    row_max = finite_max(chain.unary, -1)
    pair_max = finite_max(chain.transitions, (-2, -1))
    psi = (chain.unary - row_max).exp_()
    E = (chain.transitions - pair_max).exp_()
    return psi, E, row_max, pair_max


def step_matrix(E: Tensor, chain: Chain, step: int) -> Tensor:
    """E for the transitions into a step, shaped for `times`."""
    if not chain.varies:
        return E
    rows, first = chain.layout.steps[step], chain.layout.sizes[0]
    return E[..., rows.start - first : rows.stop - first, :, :]


def times(rows: Tensor, E: Tensor, varies: bool) -> Tensor:
    """Row vectors (…, n, C) times one matrix (…, C, C), or each its own (…, n, C, C)."""
    if varies:
        return (rows.unsqueeze(-2) @ E).squeeze(-2)
    return rows @ E


def scaled_forward(
    chain: Chain, psi: Tensor, E: Tensor, row_max: Tensor, pair_max: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """forward (…, N, C), scale (…, N, 1) and log Z (…, B)."""
    layout = chain.layout
    forward = torch.empty_like(psi)
    scale = torch.empty_like(psi[..., :1])
    for t, rows in enumerate(layout.steps):
        now = psi[..., rows, :]
        if t:
            a, n = layout.starts[t - 1], layout.sizes[t]
            now = times(forward[..., a : a + n, :], step_matrix(E, chain, t), chain.varies) * now
        total = now.sum(-1, keepdim=True)
        scale[..., rows, :] = total
        torch.div(now, total, out=forward[..., rows, :])
    return forward, scale, _log_partition(chain, scale, row_max, pair_max)


def scaled_recursion(chain: Chain) -> Scaled:
    """The forward and backward passes in the probability domain; nothing is checked."""
    if pays(chain) and never_underflows(chain):
        return _scanned_recursion(chain)
    psi, E, row_max, pair_max = exponentials(chain)
    forward, scale, log_partition = scaled_forward(chain, psi, E, row_max, pair_max)
    layout = chain.layout
    backward = torch.ones_like(psi)
    ratio = torch.empty_like(psi)
    ET = E.transpose(-1, -2)
    for t in range(len(layout.sizes) - 1, -1, -1):
        rows = layout.steps[t]
        torch.div(backward[..., rows, :], scale[..., rows, :], out=ratio[..., rows, :])
        if t:
            a, n = layout.starts[t - 1], layout.sizes[t]
            message = psi[..., rows, :] * ratio[..., rows, :]
            backward[..., a : a + n, :] = times(message, step_matrix(ET, chain, t), chain.varies)
    return Scaled(psi, E, forward, scale, backward, ratio, log_partition)


def _scanned_recursion(chain: Chain) -> Scaled:
    """The same for a few long chains with few labels; see `scan`."""
    psi, E, row_max, pair_max = exponentials(chain)
    forward, backward = scanned_vectors(chain, psi, E)
    layout = chain.layout
    first = layout.n_tokens - layout.n_pairs
    before = times(forward.index_select(-2, layout.previous), E, chain.varies)
    now = torch.cat([psi[..., :first, :], before * psi[..., first:, :]], -2)
    scale = now.sum(-1, keepdim=True)
    backward = backward / (forward * backward).sum(-1, keepdim=True)
    log_partition = _log_partition(chain, scale, row_max, pair_max)
    return Scaled(psi, E, forward, scale, backward, backward / scale, log_partition)


def _log_partition(chain: Chain, scale: Tensor, row_max: Tensor, pair_max: Tensor) -> Tensor:
    """(…, B) log Z from the scales of the forward vectors and the maxima that were taken out."""
    layout = chain.layout
    log_factor = (scale.log() + row_max).squeeze(-1)
    inner = log_factor[..., layout.n_tokens - layout.n_pairs :]
    inner += pair_max.squeeze(-1).squeeze(-1) if chain.varies else pair_max.squeeze(-1)
    return layout.sum_by_sequence(log_factor)


def lost_sequences(chain: Chain, scaled: Scaled) -> Tensor:
    """The numbers of the sequences for which the scaled recursion cannot be trusted."""
    info = torch.finfo(scaled.ratio.dtype)
    limit = info.eps**2 / info.tiny
    top = scaled.ratio.amax(-1)
    sound = (top < limit) & (scaled.scale.squeeze(-1) > 0)
    if bool(sound.all()):
        return chain.layout.order[:0]
    row_is_lost = ~sound.reshape(-1, chain.layout.n_tokens).all(0)
    return torch.unique(chain.layout.sequence[row_is_lost])


def never_underflows(chain: Chain) -> bool:
    """Whether no value of the scaled forward recursion can underflow, whatever the chain's length.

    With finite scores two entries of one forward vector differ at most by the spread of the row's
    unary scores plus the spread of the transitions.
    """
    unary, transitions = chain.unary, chain.transitions
    if unary.numel() == 0:
        return True
    spread = (unary.amax(-1) - unary.amin(-1)).amax()
    if transitions.numel():
        spread = spread + (transitions.amax((-2, -1)) - transitions.amin((-2, -1))).amax()
    return bool(spread < -0.85 * math.log(torch.finfo(unary.dtype).tiny))


def log_forward(chain: Chain) -> tuple[Tensor, Tensor]:
    """The forward pass in log space: log p(y_t | scores up to t) (…, N, C), and log Z (…, B).

    Each row is normalised as it is made, so that long chains with large scores keep their digits.
    """
    layout = chain.layout
    forward = chain.unary.clone()
    log_factor = torch.empty_like(forward[..., 0])
    for t, rows in enumerate(layout.steps):
        now = forward[..., rows, :]
        if t:
            a, n = layout.starts[t - 1], layout.sizes[t]
            now += torch.logsumexp(forward[..., a : a + n, :, None] + chain.into(t), -2)
        total = torch.logsumexp(now, -1, keepdim=True)
        log_factor[..., rows] = total.squeeze(-1)
        now -= torch.where(torch.isneginf(total), torch.zeros_like(total), total)
    return forward, layout.sum_by_sequence(log_factor)


def log_backward(chain: Chain) -> Tensor:
    """(…, N, C) log Σ over the labellings after each row, given each label there; the largest
    of each row is 0."""
    layout = chain.layout
    backward = torch.zeros_like(chain.unary)
    for t in range(len(layout.sizes) - 1, 0, -1):
        rows = layout.steps[t]
        a, n = layout.starts[t - 1], layout.sizes[t]
        after = (chain.unary[..., rows, :] + backward[..., rows, :]).unsqueeze(-2)
        now = torch.logsumexp(chain.into(t) + after, -1)
        backward[..., a : a + n, :] = now - finite_max(now, -1)
    return backward


class ImpossibleSequenceError(ValueError):
    """A sequence for which no labelling is possible, or whose scores are not numbers."""

    def __init__(self, sequence: int, reason: str) -> None:
        super().__init__(f"sequence {sequence}{reason}")
        self.sequence = sequence
        self.reason = reason


def require_labelling(log_partition: Tensor, numbers: Tensor | None = None) -> None:
    """Refuse chains in which every labelling is forbidden, by the number of the sequence.

    `numbers` (B,) are the sequences' numbers where they are not 0, 1, 2, …
    """
    if bool(torch.isfinite(log_partition).all()):
        return
    bad = (~torch.isfinite(log_partition)).reshape(-1, log_partition.shape[-1]).any(0)
    first = int(bad.nonzero()[0])
    number = first if numbers is None else int(numbers[first])
    if bool(torch.isneginf(log_partition[..., first]).any()):
        raise ImpossibleSequenceError(
            number,
            ": no labelling satisfies the constraints; "
            "check the labels given as known and the forbidden transitions",
        )
    raise ImpossibleSequenceError(number, " has a score that is infinite or not a number")
