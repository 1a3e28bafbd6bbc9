"""The record that every chain algorithm takes: scores of labels and of label pairs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bayeseq.shapes import Layout


@dataclass(frozen=True, eq=False)
class Chain:
    """Log-potentials of B labelled chains, packed as `layout` says.

    The score of a labelling is Σ_t unary[t, y_t] + Σ_t transitions[y_t, y_{t+1}]. A score of −inf
    forbids: that is how known labels, label sets and tag schemes enter (`constrain`), and every
    algorithm of this room honours it.

    `transitions` is one matrix, or has one matrix for each packed row that has a left neighbour
    (row r of them belongs to packed row B + r, and leads into that row). It is read by its number
    of axes: one more than `unary` means that it varies by position. Leading axes, if any, are
    draws, and are shared with `unary`.
    """

    unary: Tensor
    """(…, N, C)"""
    transitions: Tensor
    """(…, C, C) or (…, N − B, C, C), [from, to]"""
    layout: Layout

    def __post_init__(self) -> None:
        N, C = self.unary.shape[-2:]
        pairs = (self.layout.n_pairs, C, C) if self.varies else (C, C)
        if self.layout.n_tokens != N:
            raise ValueError(f"unary has {N} rows, the layout has {self.layout.n_tokens} tokens")
        if tuple(self.transitions.shape[-len(pairs) :]) != pairs:
            raise ValueError(
                f"transitions have shape {tuple(self.transitions.shape)}, expected (…, "
                + ", ".join(map(str, pairs))
                + f") beside unary {tuple(self.unary.shape)}"
            )

    @property
    def varies(self) -> bool:
        """Whether the transitions vary by position."""
        return self.transitions.dim() == self.unary.dim() + 1

    @property
    def n_labels(self) -> int:
        """C."""
        return self.unary.shape[-1]

    def into(self, step: int) -> Tensor:
        """The transitions that lead into a step: (…, C, C), or (…, n, C, C) when they vary."""
        if not self.varies:
            return self.transitions.unsqueeze(-3)
        rows = self.layout.steps[step]
        first = self.layout.sizes[0]
        return self.transitions[..., rows.start - first : rows.stop - first, :, :]

    def select(self, sequences: Tensor) -> tuple[Chain, Tensor]:
        """The chain of some of the sequences, and their packed rows in this one."""
        layout, rows, pair_rows = self.layout.select(sequences)
        transitions = self.transitions
        if self.varies:
            transitions = transitions.index_select(-3, pair_rows)
        return Chain(self.unary.index_select(-2, rows), transitions, layout), rows


def chain_from_padded(unary: Tensor, transitions: Tensor, lengths: Tensor) -> Chain:
    """A chain from padded scores: unary (B, T, C), transitions (C, C) or (B, T − 1, C, C).

    >>> chain = chain_from_padded(torch.zeros(2, 3, 4), torch.zeros(4, 4), torch.tensor([3, 1]))
    >>> chain.unary.shape
    torch.Size([4, 4])
    """
    layout = Layout.of(lengths, unary.device)
    if transitions.dim() == 4:
        sequence, position = layout.token_index
        inner = position > 0
        transitions = transitions[sequence[inner], position[inner] - 1]
    return Chain(layout.from_padded(unary), transitions, layout)


def constrain(
    chain: Chain,
    *,
    allowed: Tensor | None = None,
    pairs: Tensor | None = None,
    start: Tensor | None = None,
    end: Tensor | None = None,
) -> Chain:
    """The chain with −inf where a label or a label pair is not allowed.

    allowed (N, C): labels allowed at each packed row; pairs (C, C): label pairs allowed anywhere,
    [from, to]; start, end (C,): labels allowed at the first and at the last position. All boolean.
    """
    unary, transitions, layout = chain.unary, chain.transitions, chain.layout
    mask = torch.ones(unary.shape[-2:], dtype=torch.bool, device=unary.device)
    if allowed is not None:
        mask &= allowed
    if start is not None and layout.sizes:
        mask[: layout.sizes[0]] &= start
    if end is not None:
        mask[layout.last] &= end
    if pairs is not None:
        transitions = transitions.masked_fill(~pairs, -torch.inf)
    return replace(chain, unary=unary.masked_fill(~mask, -torch.inf), transitions=transitions)
