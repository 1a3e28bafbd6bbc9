"""Sums over labellings: log Z, marginals, their derivatives, entropy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bayeseq.chain.potentials import Chain
from bayeseq.chain.recursions import (
    Scaled,
    exponentials,
    log_backward,
    log_forward,
    lost_sequences,
    never_underflows,
    require_labelling,
    scaled_forward,
    scaled_recursion,
)
from bayeseq.shapes import Layout

Pairs = Literal["none", "sum", "each"]


@dataclass(frozen=True, eq=False)
class Marginals:
    """What forward–backward finds."""

    log_partition: Tensor
    """(…, B) log Z"""
    unary: Tensor
    """(…, N, C) p(y_t = c), packed"""
    pairs: Tensor | None
    """(…, C, C) the sum over all neighbours of p(y_t = a, y_{t+1} = b), or (…, N − B, C, C) each"""


def forward_backward(
    chain: Chain, pairs: Pairs = "none", weights: Tensor | None = None
) -> Marginals:
    """log Z and the marginals of labels and of neighbouring label pairs.

    `weights` (…, B) weighs the sequences in the pair sum (1 each by default).

    >>> from bayeseq.chain import chain_from_padded
    >>> chain = chain_from_padded(torch.zeros(1, 3, 2), torch.zeros(2, 2), torch.tensor([3]))
    >>> forward_backward(chain, pairs="sum").pairs
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]])
    """
    scaled = scaled_recursion(chain)
    lost = lost_sequences(chain, scaled)
    log_partition = scaled.log_partition
    unary = scaled.forward * scaled.backward
    if len(lost) == 0:
        return Marginals(log_partition, unary, _scaled_pairs(chain, scaled, pairs, weights))

    part, rows = chain.select(lost)
    some = _log_forward_backward(part, pairs, None if weights is None else weights[..., lost])
    require_labelling(some.log_partition, lost)
    log_partition[..., lost] = some.log_partition
    unary[..., rows, :] = some.unary
    for wrong in (scaled.forward, scaled.ratio):
        wrong[..., rows, :] = 0
    found = _scaled_pairs(chain, scaled, pairs, weights)
    if found is not None and some.pairs is not None:
        if pairs == "sum":
            found = found + some.pairs
        else:
            found[..., chain.layout.select(lost)[2], :, :] = some.pairs
    return Marginals(log_partition, unary, found)


def _scaled_pairs(
    chain: Chain, scaled: Scaled, pairs: Pairs, weights: Tensor | None
) -> Tensor | None:
    if pairs == "none":
        return None
    layout, first = chain.layout, chain.layout.n_tokens - chain.layout.n_pairs
    after = scaled.psi[..., first:, :] * scaled.ratio[..., first:, :]
    if weights is not None:
        after *= weights[..., layout.sequence[first:]].unsqueeze(-1)
    if chain.varies or pairs == "each":
        before = scaled.forward.index_select(-2, layout.previous)
        E = scaled.E if chain.varies else scaled.E.unsqueeze(-3)
        each = before.unsqueeze(-1) * E * after.unsqueeze(-2)
        return each if pairs == "each" else each.sum(-3)
    before = scaled.forward.index_select(-2, layout.previous)
    return (before.transpose(-1, -2) @ after) * scaled.E


def _log_forward_backward(chain: Chain, pairs: Pairs, weights: Tensor | None) -> Marginals:
    layout = chain.layout
    forward, log_partition = log_forward(chain)
    backward = log_backward(chain)
    unary = torch.softmax(forward + backward, -1)
    if pairs == "none":
        return Marginals(log_partition, unary, None)
    found = []
    for t, rows in enumerate(layout.steps[1:], start=1):
        a, n = layout.starts[t - 1], layout.sizes[t]
        after = (chain.unary[..., rows, :] + backward[..., rows, :]).unsqueeze(-2)
        scores = forward[..., a : a + n, :, None] + chain.into(t) + after
        each = torch.softmax(scores.flatten(-2), -1).unflatten(-1, (chain.n_labels, -1))
        if weights is not None:
            each = each * weights[..., layout.sequence[rows], None, None]
        found.append(each if pairs == "each" else each.sum(-3, keepdim=True))
    if not found:
        found = [unary.new_zeros((*unary.shape[:-2], 0, chain.n_labels, chain.n_labels))]
    joined = torch.cat(found, -3)
    return Marginals(log_partition, unary, joined if pairs == "each" else joined.sum(-3))


class _LogPartition(torch.autograd.Function):
    """log Z, whose gradient is the marginals: one backward pass, no graph over T steps."""

    @staticmethod
    def forward(ctx: Any, unary: Tensor, transitions: Tensor, layout: Layout) -> Tensor:
        chain = Chain(unary, transitions, layout)
        ctx.save_for_backward(unary, transitions)
        ctx.layout = layout
        if never_underflows(chain):
            return scaled_forward(chain, *exponentials(chain))[2]
        return log_forward(chain)[1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        unary, transitions = ctx.saved_tensors
        chain = Chain(unary, transitions, ctx.layout)
        (weights,) = grads
        found = forward_backward(chain, "each" if chain.varies else "sum", weights)
        assert found.pairs is not None
        return found.unary * weights[..., ctx.layout.sequence].unsqueeze(-1), found.pairs, None


def log_partition(chain: Chain) -> Tensor:
    """(…, B) log Z = log Σ_y exp score(y), differentiable; −inf where no labelling is allowed.

    >>> from bayeseq.chain import chain_from_padded
    >>> chain = chain_from_padded(torch.zeros(1, 3, 2), torch.zeros(2, 2), torch.tensor([3]))
    >>> log_partition(chain).exp()    # eight labellings of three tokens with two labels
    tensor([8.])
    """
    transitions = chain.transitions
    lead = chain.unary.shape[:-2]
    core = transitions.shape[-3:] if chain.varies else transitions.shape[-2:]
    return _LogPartition.apply(chain.unary, transitions.expand(*lead, *core), chain.layout)


def score(chain: Chain, labels: Tensor) -> Tensor:
    """(…, B) the score of given labellings; labels (…, N) packed label numbers."""
    layout = chain.layout
    labels = labels.expand(*chain.unary.shape[:-2], -1)
    local = chain.unary.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    first = layout.n_tokens - layout.n_pairs
    before, after = labels[..., layout.previous], labels[..., first:]
    C = chain.n_labels
    if chain.varies:
        flat = chain.transitions.flatten(-2).expand(*before.shape, C * C)
        steps = flat.gather(-1, (before * C + after).unsqueeze(-1)).squeeze(-1)
    else:
        flat = chain.transitions.flatten(-2).expand(*before.shape[:-1], C * C)
        steps = flat.gather(-1, before * C + after)
    return layout.sum_by_sequence(torch.cat([local[..., :first], local[..., first:] + steps], -1))


def entropy(chain: Chain) -> Tensor:
    """(…, B) the entropy in nats of each chain's distribution over labellings.

    H(b) at step t is the entropy of the labels before t given y_t = b, a running average of the
    one before, so no score of −inf is ever multiplied.
    """
    layout = chain.layout
    forward, log_partition = log_forward(chain)
    require_labelling(log_partition)
    inside = torch.zeros_like(forward)
    for t, rows in enumerate(layout.steps[1:], start=1):
        a, n = layout.starts[t - 1], layout.sizes[t]
        p, log_p = _softmax(forward[..., a : a + n, :, None] + chain.into(t), -2)
        inside[..., rows, :] = (p * (inside[..., a : a + n, :, None] - log_p)).sum(-2)
    p, log_p = _softmax(forward.index_select(-2, layout.last), -1)
    total = forward.new_zeros((*forward.shape[:-2], layout.n_sequences))
    of_last = (p * (inside.index_select(-2, layout.last) - log_p)).sum(-1)
    total[..., layout.order[: len(layout.last)]] = of_last
    return total


def _softmax(scores: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Softmax and its logarithm, both 0 where the probability is 0 or nothing is possible."""
    log_p = scores - torch.logsumexp(scores, dim, keepdim=True)
    log_p = torch.where(torch.isneginf(scores), torch.zeros_like(scores), log_p)
    return torch.where(torch.isneginf(scores), torch.zeros_like(scores), log_p.exp()), log_p


def covariance(chain: Chain, direction: Tensor, pairs: Pairs = "none") -> Marginals:
    """How the marginals move when the unary scores move in a direction (…, N, C).

    With R(y) = Σ_t direction[t, y_t] this is the covariance of R with the indicators of labels and
    of label pairs: the product of the Hessian of log Z with the direction. `log_partition` holds
    the derivative of log Z, E[R]. It stands on two conditional means, averages along the pair
    marginals: F_t(b) = E[R up to t | y_t = b] and G_t(a) = E[R after t | y_t = a].
    Needs (N − B) · C² numbers.
    """
    layout = chain.layout
    found = forward_backward(chain, "each")
    p, xi = found.unary, found.pairs
    assert xi is not None
    first = layout.n_tokens - layout.n_pairs
    F, G = direction.expand_as(p).clone(), torch.zeros_like(p)
    for t, rows in enumerate(layout.steps[1:], start=1):
        a, n = layout.starts[t - 1], layout.sizes[t]
        into = xi[..., rows.start - first : rows.stop - first, :, :]
        mean = (F[..., a : a + n, :].unsqueeze(-2) @ into).squeeze(-2)
        F[..., rows, :] += _ratio(mean, p[..., rows, :])
    for t in range(len(layout.sizes) - 1, 0, -1):
        rows, a, n = layout.steps[t], layout.starts[t - 1], layout.sizes[t]
        into = xi[..., rows.start - first : rows.stop - first, :, :]
        later = direction[..., rows, :] + G[..., rows, :]
        mean = (into @ later.unsqueeze(-1)).squeeze(-1)
        G[..., a : a + n, :] = _ratio(mean, p[..., a : a + n, :])

    expected = layout.sum_by_sequence((p * direction).sum(-1))
    of_row = expected[..., layout.sequence].unsqueeze(-1)
    unary = p * (F + G - of_row)
    if pairs == "none":
        return Marginals(expected, unary, None)
    before = F.index_select(-2, layout.previous)
    after = (direction + G - of_row)[..., first:, :]
    each = xi * (before.unsqueeze(-1) + after.unsqueeze(-2))
    return Marginals(expected, unary, each if pairs == "each" else each.sum(-3))


def _ratio(part: Tensor, whole: Tensor) -> Tensor:
    """part / whole, 0 where whole is 0 (a label that cannot occur has no weight anywhere)."""
    return torch.where(whole > 0, part / whole, torch.zeros_like(part))
