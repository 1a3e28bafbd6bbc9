"""The shape letters of the library, and the one place that says how ragged sequences lie in memory.

B sequences, T positions, N tokens in all (N = ΣT), C labels, D features, S draws (always leftmost).
Axes of label pairs are [from, to].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Layout:
    """The packed order of the tokens of B ragged sequences: time-major, longest sequence first.

    Packed rows hold the first token of every sequence, then the second token of every sequence
    that has one, and so on. Sorted by falling length, the sequences alive at step t are a prefix
    of those alive at step t − 1, so a recursion over time works on plain slices: nothing is
    padded and nothing is masked.

    >>> layout = Layout.of([1, 3])
    >>> layout.sizes                  # two sequences have a first token, one has a second, a third
    (2, 1, 1)
    >>> layout.rows.tolist()          # token 0 of sequence 1, then of sequence 0, ...
    [1, 0, 2, 3]
    """

    lengths: Tensor
    """(B,) tokens of each sequence, in the caller's order; 0 is legal."""
    order: Tensor
    """(B,) sequence numbers by falling length (equal lengths keep their order)."""
    rows: Tensor
    """(N,) for each packed row, its token's place when the sequences are laid end to end."""
    sizes: tuple[int, ...]
    """How many sequences have a token at step t, for each t."""

    @classmethod
    def of(cls, lengths: Sequence[int] | Tensor, device: torch.device | str = "cpu") -> Layout:
        """The layout of sequences with these lengths."""
        lengths = torch.as_tensor(lengths, dtype=torch.long, device=device).reshape(-1)
        if lengths.numel() and int(lengths.min()) < 0:
            raise ValueError("a sequence cannot have a negative length")
        order = torch.argsort(lengths, descending=True, stable=True)
        falling = lengths[order]
        first = (torch.cumsum(lengths, 0) - lengths)[order]
        longest = int(falling[0]) if len(falling) else 0
        steps = torch.arange(longest, device=device)
        alive = steps[:, None] < falling[None, :]
        rows = (steps[:, None] + first[None, :])[alive]
        return cls(lengths, order, rows, tuple(alive.sum(1).tolist()))

    @property
    def n_sequences(self) -> int:
        """B, empty sequences included."""
        return self.lengths.numel()

    @property
    def n_tokens(self) -> int:
        """N."""
        return self.rows.numel()

    @property
    def n_pairs(self) -> int:
        """Neighbouring tokens: N less the number of sequences that have any token."""
        return self.n_tokens - (self.sizes[0] if self.sizes else 0)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The packed row at which each step begins."""
        starts, row = [], 0
        for size in self.sizes:
            starts.append(row)
            row += size
        return tuple(starts)

    @cached_property
    def steps(self) -> tuple[slice, ...]:
        """The packed rows of each step."""
        return tuple(slice(a, a + n) for a, n in zip(self.starts, self.sizes, strict=True))

    @cached_property
    def previous(self) -> Tensor:
        """(N − B,) for the packed rows that have a left neighbour, that neighbour's packed row."""
        pieces = [
            torch.arange(a, a + n, device=self.rows.device)
            for a, n in zip(self.starts[:-1], self.sizes[1:], strict=True)
        ]
        return torch.cat(pieces) if pieces else self.rows[:0]

    def neighbours(self, offset: int) -> tuple[Tensor, Tensor]:
        """The packed rows that have a token `offset` positions further on, and those tokens' rows.

        >>> rows, others = Layout.of([3]).neighbours(-1)
        >>> rows.tolist(), others.tolist()
        ([1, 2], [0, 1])
        """
        sequence, position = self.token_index
        there = position + offset
        rows = ((there >= 0) & (there < self.lengths[sequence])).nonzero().squeeze(-1)
        return rows, self._row_of(sequence[rows], there[rows])

    @cached_property
    def reversal(self) -> Tensor:
        """(N,) for each packed row, the row of the token as far from the other end."""
        sequence, position = self.token_index
        return self._row_of(sequence, self.lengths[sequence] - 1 - position)

    def _row_of(self, sequence: Tensor, position: Tensor) -> Tensor:
        rank = torch.empty_like(self.order)
        rank[self.order] = torch.arange(self.n_sequences, device=self.rows.device)
        starts = torch.tensor(self.starts, dtype=torch.long, device=self.rows.device)
        return starts[position] + rank[sequence]

    @cached_property
    def sequence(self) -> Tensor:
        """(N,) the sequence number of each packed row."""
        pieces = [self.order[:n] for n in self.sizes]
        return torch.cat(pieces) if pieces else self.rows

    @cached_property
    def last(self) -> Tensor:
        """The packed row of the last token of each non-empty sequence, in `order`."""
        alive = self.sizes[0] if self.sizes else 0
        starts = torch.tensor(self.starts, dtype=torch.long, device=self.rows.device)
        ranks = torch.arange(alive, device=self.rows.device)
        return starts[self.lengths[self.order[:alive]] - 1] + ranks

    @cached_property
    def unpacked_rows(self) -> Tensor:
        """(N,) the inverse of `rows`: for each token laid end to end, its packed row."""
        inverse = torch.empty_like(self.rows)
        inverse[self.rows] = torch.arange(self.n_tokens, device=self.rows.device)
        return inverse

    def pack(self, flat: Tensor, dim: int = 0) -> Tensor:
        """Values of the tokens laid end to end → packed rows."""
        return flat.index_select(dim, self.rows)

    def unpack(self, packed: Tensor, dim: int = 0) -> Tensor:
        """Packed rows → values of the tokens laid end to end."""
        return packed.index_select(dim, self.unpacked_rows)

    def split(self, packed: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
        """Packed rows → one tensor for each sequence, in the caller's order."""
        return self.unpack(packed, dim).split(self.lengths.tolist(), dim)

    def pad(self, packed: Tensor, fill: float = 0.0) -> Tensor:
        """(N, …) packed rows → (B, T, …) with `fill` after the end of each sequence."""
        shape = (self.n_sequences, len(self.sizes), *packed.shape[1:])
        padded = packed.new_full(shape, fill)
        padded[self.token_index] = packed
        return padded

    def from_padded(self, padded: Tensor) -> Tensor:
        """(B, T, …) → (N, …) packed rows; what lies after the end of a sequence is dropped."""
        return padded[self.token_index]

    @cached_property
    def token_index(self) -> tuple[Tensor, Tensor]:
        """The sequence number and the position of each packed row."""
        device = self.rows.device
        sizes = torch.tensor(self.sizes, dtype=torch.long, device=device)
        position = torch.repeat_interleave(torch.arange(len(self.sizes), device=device), sizes)
        return self.sequence, position

    def sum_by_sequence(self, packed: Tensor) -> Tensor:
        """(…, N) values of packed rows → (…, B) sums, 0 for an empty sequence."""
        total = packed.new_zeros((*packed.shape[:-1], self.n_sequences))
        return total.index_add_(-1, self.sequence, packed)

    def select(self, sequences: Tensor) -> tuple[Layout, Tensor, Tensor]:
        """The layout of some of the sequences, their packed rows, and their rows with a left
        neighbour counted from the first such row, both in the order of the new layout."""
        part = Layout.of(self.lengths[sequences], self.rows.device)
        first = torch.cumsum(self.lengths, 0) - self.lengths
        offset = torch.cumsum(part.lengths, 0) - part.lengths
        in_flat = part.rows + (first[sequences] - offset)[part.sequence]
        rows = self.unpacked_rows[in_flat]
        return part, rows, rows[part.n_tokens - part.n_pairs :] - (self.n_tokens - self.n_pairs)


def bucket(lengths: Sequence[int], max_tokens: int) -> list[int]:
    """Bounds that cut a run of sequences into pieces of at most `max_tokens` tokens.

    >>> bucket([5, 4, 3, 2, 1], 6)
    [0, 1, 2, 5]
    """
    bounds, tokens = [0], 0
    for i, n in enumerate(lengths):
        if tokens and tokens + n > max_tokens:
            bounds.append(i)
            tokens = 0
        tokens += n
    return [*bounds, len(lengths)] if len(lengths) else bounds
