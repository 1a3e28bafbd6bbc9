"""Probabilities of whole spans: is exactly this stretch of tokens an entity of that type?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
    goes_on, breaks = (_log_of(truth, chain) for truth in (continues, ~continues))
    free = chain.unary.new_zeros(chain.n_labels)

    def ratio(walk: _Walk, inside: Tensor) -> Tensor:
        def through(inside: Tensor, goes_on: Tensor, breaks: Tensor) -> Tensor:
            """The sum over labellings that enter the span, go through it and leave it."""
            now = walk.entered(breaks) + inside
            for step in range(1, walk.longest):
                now = walk.kept(step, walk.moved(now, step, goes_on) + inside, now)
            return torch.logsumexp(now + walk.left(breaks), -1)

        return through(_log_of(inside, chain), goes_on, breaks) - through(free, free, free)

    return _by_span(chain, spans, members, ratio)


def overlap_log_prob(chain: Chain, spans: Tensor, members: Tensor) -> Tensor:
    """(…, K) log-probability that at least one token of each span has a label among its members.

    spans (K, 3) and members (K, C) or (C,) as in `span_log_prob`. Every label but O stands in an
    entity of its type, so with the labels of a type for members this is the probability that an
    entity of the type has a token in the span. One pass carries two sums, over the labellings with
    and without a member so far: nothing is subtracted from 1, so that small ones keep their digits.
    """
    free = chain.unary.new_zeros(())

    def ratio(walk: _Walk, inside: Tensor) -> Tensor:
        is_member, is_other = _log_of(inside, chain), _log_of(~inside, chain)
        now = walk.entered(free)
        seen, none = now + is_member, now + is_other
        for step in range(1, walk.longest):
            still = walk.moved(none, step, free)
            more = torch.logaddexp(walk.moved(seen, step, free), still + is_member)
            seen, none = walk.kept(step, more, seen), walk.kept(step, still + is_other, none)
        left = walk.left(free)
        total = torch.logsumexp(torch.logaddexp(seen, none) + left, -1)
        return torch.logsumexp(seen + left, -1) - total

    return _by_span(chain, spans, members, ratio)


def inside_probability(unary_marginals: Tensor, outside: Tensor) -> Tensor:
    """(…, N) the probability of standing inside any entity; outside (C,) marks the other labels."""
    return unary_marginals[..., ~outside].sum(-1)


@dataclass(frozen=True, eq=False)
class _Walk:
    """The steps of a pass through K spans of a chain, whatever is added to them."""

    chain: Chain
    forward: Tensor
    """(…, N, C) log-sums over the labellings up to each row"""
    after: Tensor
    """(…, N, C) log-sums over the labellings from each row on"""
    spans: Tensor
    """(K, 3)"""

    @property
    def longest(self) -> int:
        """Tokens of the longest span."""
        return int((self.spans[:, 2] - self.spans[:, 1]).max())

    def entered(self, breaks: Tensor) -> Tensor:
        """(…, K, C) log-sums up to the first token of each span."""
        start = self.spans[:, 1]
        before = self.forward.index_select(-2, self._row(start - 1)).unsqueeze(-1)
        found = torch.logsumexp(before + self._into(start) + breaks, -2)
        found = torch.where((start == 0).unsqueeze(-1), torch.zeros_like(found), found)
        return found + self.chain.unary.index_select(-2, self._row(start))

    def moved(self, now: Tensor, step: int, goes_on: Tensor) -> Tensor:
        """(…, K, C) log-sums one token further on, which is so many after the first."""
        position = self.spans[:, 1] + step
        further = torch.logsumexp(now.unsqueeze(-1) + self._into(position) + goes_on, -2)
        return further + self.chain.unary.index_select(-2, self._row(position))

    def kept(self, step: int, moved: Tensor, now: Tensor) -> Tensor:
        """What was moved, where the span is longer than so many tokens; elsewhere what was."""
        return torch.where((self.spans[:, 1] + step < self.spans[:, 2]).unsqueeze(-1), moved, now)

    def left(self, breaks: Tensor) -> Tensor:
        """(…, K, C) log-sums over what comes after each span, by its last label."""
        end = self.spans[:, 2]
        right = self.after.index_select(-2, self._row(end)).unsqueeze(-2)
        found = torch.logsumexp(self._into(end) + breaks + right, -1)
        is_last = end == self.chain.layout.lengths[self.spans[:, 0]]
        return torch.where(is_last.unsqueeze(-1), torch.zeros_like(found), found)

    def _row(self, position: Tensor) -> Tensor:
        """(K,) packed rows of positions; the nearest, where there is no such position."""
        layout, sequence = self.chain.layout, self.spans[:, 0]
        first = (torch.cumsum(layout.lengths, 0) - layout.lengths)[sequence]
        last = layout.lengths[sequence] - 1
        return layout.unpacked_rows[first + position.clamp(min=0).minimum(last)]

    def _into(self, position: Tensor) -> Tensor:
        """(…, K, C, C) transitions into a position (any at all, where it is a first one)."""
        chain, layout = self.chain, self.chain.layout
        if not chain.varies:
            return chain.transitions.unsqueeze(-3)
        if layout.n_pairs == 0:
            return chain.unary.new_zeros(1, chain.n_labels, chain.n_labels)
        pair = self._row(position) - (layout.n_tokens - layout.n_pairs)
        return chain.transitions.index_select(-3, pair.clamp(min=0))


def _by_span(
    chain: Chain, spans: Tensor, members: Tensor, ratio: Callable[[_Walk, Tensor], Tensor]
) -> Tensor:
    """(…, K) what a walk finds for spans, so many at a time as fit into memory."""
    spans = spans.to(chain.layout.rows.device).reshape(-1, 3)
    _check_spans(spans, chain.layout.lengths)
    forward, log_partition = log_forward(chain)
    require_labelling(log_partition)
    after = chain.unary + log_backward(chain)
    lead = chain.unary.shape[:-2]
    found = chain.unary.new_empty(*lead, len(spans))
    members = members.expand(len(spans), chain.n_labels)
    at_once = max(1, _PAIRS_AT_ONCE // (lead.numel() * chain.n_labels**2))
    for some in (spans[:, 2] - spans[:, 1]).argsort(stable=True).split(at_once):
        if len(some):
            walk = _Walk(chain, forward, after, spans[some])
            found[..., some] = ratio(walk, members[some])
    return found


_PAIRS_AT_ONCE = 2**22
"""Label-pair scores of spans held in memory at once (32 MB)."""


def _log_of(truth: Tensor, chain: Chain) -> Tensor:
    return torch.where(truth, 0.0, -torch.inf).to(chain.unary)


def _check_spans(spans: Tensor, lengths: Tensor) -> None:
    for k, (i, start, end) in enumerate(spans.tolist()):
        if not 0 <= i < len(lengths):
            raise ValueError(f"span {k} names sequence {i}, there are {len(lengths)}")
        if not 0 <= start < end <= int(lengths[i]):
            raise ValueError(
                f"span {k} ({start}, {end}) does not lie in sequence {i}, "
                f"which has {int(lengths[i])} tokens"
            )
