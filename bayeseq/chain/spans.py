"""Probabilities of whole spans: is exactly this stretch of tokens an entity of that type?"""

from __future__ import annotations

import torch
from torch import Tensor

from bayeseq.chain.potentials import Chain
from bayeseq.chain.recursions import log_backward, log_forward, require_labelling


def span_log_prob(chain: Chain, spans: Tensor, members: Tensor, continues: Tensor) -> Tensor:
    """(…, K) log-probability that each span is an entity with exactly these boundaries.

    spans (K, 3): sequence number, first position, position after the last. members (K, C) or (C,):
    labels that belong to the entity's type. continues (C, C): whether label b right after label a
    goes on with the same entity. A span is an entity when its labels are members, each continues
    the one before, the first does not continue what stands on its left, and what stands on its
    right does not continue the last. The sum over all such labellings is exact: one constrained
    pass through the span between the chain's forward and backward vectors, over one free pass.
    """
    layout, C = chain.layout, chain.n_labels
    spans = spans.to(layout.rows.device).reshape(-1, 3)
    _check_spans(spans, layout.lengths)
    sequence, start, end = spans.unbind(-1)
    length = layout.lengths[sequence]
    first = (torch.cumsum(layout.lengths, 0) - layout.lengths)[sequence]
    forward, log_partition = log_forward(chain)
    require_labelling(log_partition)
    after = chain.unary + log_backward(chain)

    def row_at(position: Tensor) -> Tensor:
        return layout.unpacked_rows[first + position.clamp(min=0).minimum(length - 1)]

    def into(position: Tensor) -> Tensor:
        """(…, K, C, C) transitions into a position (any at all, where it is a first one)."""
        if not chain.varies:
            return chain.transitions.unsqueeze(-3)
        if layout.n_pairs == 0:
            return chain.unary.new_zeros(1, C, C)
        pair = row_at(position) - (layout.n_tokens - layout.n_pairs)
        return chain.transitions.index_select(-3, pair.clamp(min=0))

    def walk(inside: Tensor, goes_on: Tensor, breaks: Tensor) -> Tensor:
        """The sum over labellings that enter the span, go through it and leave it."""
        before = forward.index_select(-2, row_at(start - 1)).unsqueeze(-1)
        entered = torch.logsumexp(before + into(start) + breaks, -2)
        entered = torch.where((start == 0).unsqueeze(-1), torch.zeros_like(entered), entered)
        now = entered + chain.unary.index_select(-2, row_at(start)) + inside
        for step in range(1, int((end - start).max()) if len(spans) else 0):
            position = start + step
            further = torch.logsumexp(now.unsqueeze(-1) + into(position) + goes_on, -2)
            further = further + chain.unary.index_select(-2, row_at(position)) + inside
            now = torch.where((position < end).unsqueeze(-1), further, now)
        right = after.index_select(-2, row_at(end)).unsqueeze(-2)
        left = torch.logsumexp(into(end) + breaks + right, -1)
        left = torch.where((end == length).unsqueeze(-1), torch.zeros_like(left), left)
        return torch.logsumexp(now + left, -1)

    def log_of(truth: Tensor) -> Tensor:
        return torch.where(truth, 0.0, -torch.inf).to(chain.unary)

    free = chain.unary.new_zeros(C)
    return walk(log_of(members), log_of(continues), log_of(~continues)) - walk(free, free, free)


def inside_probability(unary_marginals: Tensor, outside: Tensor) -> Tensor:
    """(…, N) the probability of standing inside any entity; outside (C,) marks the other labels."""
    return unary_marginals[..., ~outside].sum(-1)


def _check_spans(spans: Tensor, lengths: Tensor) -> None:
    for k, (i, start, end) in enumerate(spans.tolist()):
        if not 0 <= i < len(lengths):
            raise ValueError(f"span {k} names sequence {i}, there are {len(lengths)}")
        if not 0 <= start < end <= int(lengths[i]):
            raise ValueError(
                f"span {k} ({start}, {end}) does not lie in sequence {i}, "
                f"which has {int(lengths[i])} tokens"
            )
