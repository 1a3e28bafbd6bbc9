"""Best labellings and random labellings: Viterbi, exact k-best, loss-augmented, sampling."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from bayeseq.chain.potentials import Chain
from bayeseq.chain.recursions import finite_max, log_forward, require_labelling


class Decoded(NamedTuple):
    """A labelling of every sequence and its score."""

    labels: Tensor
    """(…, N) label numbers, packed"""
    score: Tensor
    """(…, B)"""


def viterbi(chain: Chain) -> Decoded:
    """The labelling with the highest score.

    >>> from bayeseq.chain import chain_from_padded
    >>> unary = torch.tensor([[[0.0, 1.0], [0.0, 0.5]]])
    >>> stay = torch.tensor([[0.0, -2.0], [-2.0, 0.0]])
    >>> viterbi(chain_from_padded(unary, stay, torch.tensor([2])))
    Decoded(labels=tensor([1, 1]), score=tensor([1.5000]))
    """
    layout = chain.layout
    prefix = chain.unary.clone()
    taken_out = torch.empty_like(prefix[..., 0])
    for t, rows in enumerate(layout.steps):
        now = prefix[..., rows, :]
        if t:
            a, n = layout.starts[t - 1], layout.sizes[t]
            now += (prefix[..., a : a + n, :, None] + chain.into(t)).amax(-2)
        best = finite_max(now, -1)
        taken_out[..., rows] = best.squeeze(-1)
        now -= best
    ends = prefix.index_select(-2, layout.last)
    scores = layout.sum_by_sequence(taken_out)
    scores[..., layout.order[: len(layout.last)]] += ends.amax(-1)
    require_labelling(scores)
    # going back, the best label on the left of a known one costs C sums: none were kept
    labels = torch.empty(prefix.shape[:-1], dtype=torch.long, device=prefix.device)
    for t in range(len(layout.sizes) - 1, -1, -1):
        left = prefix[..., layout.steps[t], :]
        if t + 1 < len(layout.sizes):
            left = _with_right(left.clone(), chain, t, labels[..., layout.steps[t + 1]])
        labels[..., layout.steps[t]] = left.argmax(-1)
    return Decoded(labels, scores)


def _with_right(scores: Tensor, chain: Chain, t: int, right: Tensor) -> Tensor:
    """Scores (…, n, C) of the labels at step t, plus in place the transitions into the labels
    `right` that the sequences still alive have at the next step."""
    columns = chain.into(t + 1).transpose(-1, -2)
    columns = columns.expand(*right.shape, *columns.shape[-2:])
    index = right[..., None, None].expand(*right.shape, 1, chain.n_labels)
    scores[..., : right.shape[-1], :] += columns.gather(-2, index).squeeze(-2)
    return scores


def kbest(chain: Chain, k: int) -> Decoded:
    """The k highest-scoring labellings, best first: labels (k, …, N), scores (k, …, B).

    Exact: every label of every position keeps its k best prefixes, with the row's best score taken
    out so that long chains keep their digits. A sequence with fewer than k possible labellings has
    score −inf in the places that are left over.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    layout = chain.layout
    prefix = chain.unary.new_full((*chain.unary.shape, k), -torch.inf)
    prefix[..., 0] = chain.unary
    back = torch.zeros(prefix.shape, dtype=torch.long, device=prefix.device)
    taken_out = torch.empty_like(chain.unary[..., 0])
    for t, rows in enumerate(layout.steps):
        now = prefix[..., rows, :, :]
        if t:
            a, n = layout.starts[t - 1], layout.sizes[t]
            # candidates (…, n, to, from, k)
            into = chain.into(t).transpose(-1, -2).unsqueeze(-1)
            scores = prefix[..., a : a + n, None, :, :] + into
            top, back[..., rows, :, :] = _top(scores.flatten(-2), k)
            torch.add(top, chain.unary[..., rows, :, None], out=now)
        best = finite_max(now, (-2, -1))
        taken_out[..., rows] = best.squeeze(-1).squeeze(-1)
        now -= best

    score, state = _top(prefix.index_select(-3, layout.last).flatten(-2), k)
    states = torch.empty((*chain.unary.shape[:-1], k), dtype=torch.long, device=prefix.device)
    for t in range(len(layout.sizes) - 1, -1, -1):
        rows, n = layout.steps[t], layout.sizes[t]
        alive = layout.sizes[t + 1] if t + 1 < len(layout.sizes) else 0
        states[..., rows, :] = state[..., :n, :]
        if alive:
            after = layout.steps[t + 1]
            flat = back[..., after, :, :].flatten(-2)
            states[..., rows.start : rows.start + alive, :] = flat.gather(-1, states[..., after, :])
    scores = score.new_full((*score.shape[:-2], layout.n_sequences, k), -torch.inf)
    scores[..., 0] = 0  # an empty sequence has one labelling, the empty one
    scores[..., layout.order[: len(layout.last)], :] = score
    scores += layout.sum_by_sequence(taken_out).unsqueeze(-1)
    require_labelling(scores[..., 0])
    labels = torch.div(states, k, rounding_mode="floor")
    return Decoded(labels.movedim(-1, 0), scores.movedim(-1, 0))


def _top(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best along the last axis, with −inf where there are fewer."""
    few = min(k, scores.shape[-1])
    top, index = scores.topk(few, -1)
    if few < k:
        pad = (0, k - few)
        top = torch.nn.functional.pad(top, pad, value=-torch.inf)
        index = torch.nn.functional.pad(index, pad)
    return top, index


def max_marginals(chain: Chain) -> Tensor:
    """(…, N, C) the best score of a labelling that has label c at a row, less the best of all.

    Zero at the labels of a best labelling, below zero elsewhere, −inf where a label is impossible.

    >>> from bayeseq.chain import chain_from_padded
    >>> unary = torch.tensor([[[0.0, 1.0], [0.0, 0.5]]])
    >>> stay = torch.tensor([[0.0, -2.0], [-2.0, 0.0]])
    >>> max_marginals(chain_from_padded(unary, stay, torch.tensor([2]))).tolist()
    [[-1.5, 0.0], [-1.5, 0.0]]
    """
    layout = chain.layout
    prefix = chain.unary.clone()
    for t, rows in enumerate(layout.steps):
        now = prefix[..., rows, :]
        if t:
            a, n = layout.starts[t - 1], layout.sizes[t]
            now += (prefix[..., a : a + n, :, None] + chain.into(t)).amax(-2)
        now -= finite_max(now, -1)
    suffix = torch.zeros_like(prefix)
    for t in range(len(layout.sizes) - 1, 0, -1):
        rows, a, n = layout.steps[t], layout.starts[t - 1], layout.sizes[t]
        after = chain.unary[..., rows, None, :] + suffix[..., rows, None, :]
        left = suffix[..., a : a + n, :]
        left += (after + chain.into(t)).amax(-1)
        left -= finite_max(left, -1)
    both = prefix + suffix
    best = both.amax(-1)
    require_labelling(layout.sum_by_sequence(torch.where(torch.isfinite(best), 0.0, -torch.inf)))
    return both - best.unsqueeze(-1)


def loss_augmented(chain: Chain, labels: Tensor, cost: float | Tensor = 1.0) -> Decoded:
    """The labelling with the highest score plus cost against the given one.

    cost is paid for each wrong position (Hamming loss), or is a matrix (C, C) [given, decoded].
    A given label of −1 is missing and costs nothing. The returned score includes the cost.
    """
    C = chain.n_labels
    table = torch.as_tensor(cost, dtype=chain.unary.dtype, device=chain.unary.device)
    if table.dim() == 0:
        table = table * (1 - torch.eye(C, dtype=chain.unary.dtype, device=chain.unary.device))
    paid = torch.where((labels >= 0).unsqueeze(-1), table[labels.clamp(min=0)], 0.0)
    return viterbi(replace(chain, unary=chain.unary + paid))


def sample(chain: Chain, draws: int, generator: torch.Generator | None = None) -> Tensor:
    """(S, …, N) labellings drawn from the chain's distribution, packed.

    The last label is drawn from its marginal, each one before it given its right neighbour.
    """
    layout = chain.layout
    forward, log_partition = log_forward(chain)
    require_labelling(log_partition)
    drawn = torch.empty(
        (draws, *chain.unary.shape[:-1]), dtype=torch.long, device=chain.unary.device
    )
    for t in range(len(layout.sizes) - 1, -1, -1):
        rows = layout.steps[t]
        scores = forward[..., rows, :].expand(draws, *forward[..., rows, :].shape).clone()
        if t + 1 < len(layout.sizes):
            scores = _with_right(scores, chain, t, drawn[..., layout.steps[t + 1]])
        p = torch.softmax(scores, -1)
        picked = torch.multinomial(p.reshape(-1, chain.n_labels), 1, generator=generator)
        drawn[..., rows] = picked.reshape(p.shape[:-1])
    return drawn
