"""The covariance of what a chain counts: labels at tokens, and label pairs in all.

The score of a labelling is linear in its unary scores and transitions, so the Hessian of log Z is
the covariance of the indicators that they multiply, the chain's Fisher information. Between two
tokens of a sequence it dies away with their distance, and is followed only as far as it matters.

Where labels are drawn from several chains at once (leading axes), the mean over them is given.
`known` (N,) marks the tokens that count, and `weights` (B,) weighs the sequences.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from bayeseq.chain.marginals import forward_backward
from bayeseq.chain.potentials import Chain


class LabelCovariance(NamedTuple):
    """Cov([y_s = a], [y_t = b]) for pairs of packed rows s, t of one sequence, s first."""

    left: Tensor
    """(n,)"""
    right: Tensor
    """(n,)"""
    covariance: Tensor
    """(n, C, C)"""


class PairCovariance(NamedTuple):
    """Covariances of n_ab, how often label b follows a, for P of the pairs ab."""

    with_labels: Tensor
    """(N, C, P) Cov([y_t = c], n_ab)"""
    among: Tensor
    """(P, P)"""


def label_covariances(
    chain: Chain, known: Tensor, weights: Tensor, tol: float = 1e-7
) -> Iterator[LabelCovariance]:
    """The covariances of labels at a distance of 0, 1, 2, … tokens, as long as one is above `tol`.

    >>> from bayeseq.chain import chain_from_padded
    >>> chain = chain_from_padded(torch.zeros(1, 2, 2), torch.zeros(2, 2), torch.tensor([2]))
    >>> each = label_covariances(chain, torch.ones(2, dtype=torch.bool), torch.ones(1))
    >>> [found.covariance[0].tolist() for found in each]    # the two tokens are independent
    [[[0.25, -0.25], [-0.25, 0.25]]]
    """
    layout = chain.layout
    p, xi = _marginals(chain)
    onward = _conditional(xi, p.index_select(-2, layout.previous).unsqueeze(-1))
    leads = torch.full((layout.n_tokens,), -1)
    leads[layout.previous] = torch.arange(layout.n_pairs)
    first = layout.n_tokens - layout.n_pairs
    left = right = torch.arange(layout.n_tokens)
    joint = torch.diag_embed(p)
    while len(left):
        product = p[:, left].unsqueeze(-1) * p[:, right].unsqueeze(-2)
        covariance = (joint - product).mean(0)
        counts = known[left] & known[right]
        strong = covariance.abs().amax((-2, -1)) > tol
        keep = (counts & strong).nonzero().squeeze(-1)
        if len(keep):
            omega = weights[layout.sequence[left[keep]]].view(-1, 1, 1)
            yield LabelCovariance(left[keep], right[keep], covariance[keep] * omega)
        pair = leads[right]
        go_on = ((pair >= 0) & strong).nonzero().squeeze(-1)
        pair = pair[go_on]
        joint = joint[:, go_on] @ onward[:, pair]
        left, right = left[go_on], first + pair


def pair_covariances(
    chain: Chain, known: Tensor, weights: Tensor, pairs: Tensor | None = None
) -> PairCovariance:
    """The covariances of label-pair counts with labels and among each other.

    `pairs` (P,) are the numbers a · C + b of the pairs that are counted; all by default. They stand
    on two conditional means: F_t(c) = E[n up to t | y_t = c] and G_t(c) = E[n after t | y_t = c],
    each for all P counts at once. Needs N · C · P numbers for each draw.
    """
    layout, C = chain.layout, chain.n_labels
    counted = torch.arange(C * C) if pairs is None else pairs
    a, b, every = counted // C, counted % C, torch.arange(len(counted))
    first = layout.n_tokens - layout.n_pairs
    p, xi = _marginals(chain)
    counts = (known[layout.previous] & known[first:]).to(p.dtype).view(-1, 1, 1)
    backward = _conditional(xi, p[:, first:].unsqueeze(-2)).transpose(-1, -2)  # [to, from]
    onward = _conditional(xi, p.index_select(-2, layout.previous).unsqueeze(-1))
    F, G = (p.new_zeros(*p.shape, len(counted)) for _ in range(2))
    own = (backward * counts)[..., b, a]
    for t, rows in enumerate(layout.steps[1:], start=1):
        start, n = layout.starts[t - 1], layout.sizes[t]
        into = slice(rows.start - first, rows.stop - first)
        torch.matmul(backward[:, into], F[:, start : start + n], out=F[:, rows])
        F[:, rows][..., b, every] += own[:, into]
    own = (onward * counts)[..., a, b]
    for t in range(len(layout.sizes) - 1, 0, -1):
        rows, start, n = layout.steps[t], layout.starts[t - 1], layout.sizes[t]
        into = slice(rows.start - first, rows.stop - first)
        torch.matmul(onward[:, into], G[:, rows], out=G[:, start : start + n])
        G[:, start : start + n][..., a, every] += own[:, into]
    weighed = xi * counts
    expected = p.new_zeros(len(p), layout.n_sequences, len(counted))
    expected.index_add_(1, layout.sequence[first:], weighed[..., a, b])
    omega = weights[layout.sequence]
    of_row = expected[:, layout.sequence].unsqueeze(-2)
    weighed = weighed * omega[first:].view(-1, 1, 1)
    ahead = F[:, layout.previous] - of_row[:, first:]
    among = torch.einsum("snab,snak->abk", weighed, ahead)
    among += torch.einsum("snab,snbk->abk", weighed, G[:, first:])
    among = among[a, b]
    among.diagonal().add_(weighed.sum((0, 1))[a, b])
    by_label = F.add_(G).sub_(of_row).mul_(p.unsqueeze(-1)).mean(0)
    by_label *= (omega * known).view(-1, 1, 1)
    return PairCovariance(by_label, among / len(p))


def _marginals(chain: Chain) -> tuple[Tensor, Tensor]:
    """(S, N, C) of labels and (S, N − B, C, C) of neighbouring pairs, S draws even if it is one."""
    found = forward_backward(chain, "each")
    assert found.pairs is not None
    draws = found.unary.shape[:-2].numel()
    p, xi = found.unary, found.pairs
    return p.reshape(draws, *p.shape[-2:]), xi.reshape(draws, *xi.shape[-3:])


def _conditional(joint: Tensor, given: Tensor) -> Tensor:
    """joint / given, 0 where what is given cannot be."""
    return torch.where(given > 0, joint / given, torch.zeros_like(joint))
