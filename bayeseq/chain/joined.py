"""Σ_i log Z_i of all sequences as the product of one matrix a token, for few labels.

log Z of a sequence is that of a product of matrices, one a token: the transitions into the token
times its own scores. No transition leads into the first token of a sequence, so the rows of its
matrix are equal, and in the product of the matrices of all sequences, laid end to end, every row
has the sum Π_i Z_i. So the sequences are one list, whatever their lengths, and neighbours in it are
multiplied, then neighbours among the products: log₂ N rounds of a few calls each. That takes C³
multiplications a token where steps along the sequences take C², and pays with two or three labels,
where calls cost more than arithmetic.

Scores are taken relative to the first label's, which leaves C − 1 exponentials a token.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from bayeseq.shapes import Layout

MOST_LABELS = 3
_ROOM = 600.0
"""How far a logarithm may run before a float64 over- or underflows, with some to spare."""
_FEWEST_FREE = 8
"""Tokens between two scalings for which there must be room. The entries of a scaled product of any
number of tokens differ by less than four of the largest scores, and those of two such multiplied by
less than eight."""
_SHORT = 64
"""Factors below which draws lie side by side in memory in place of factors."""
_FEWEST_DRAWS, _MOST_DRAWS = 8, 64
_FEW_NUMBERS = 2**15
"""Draws that are computed together: the larger number where a draw has few numbers, so that all of
them fit the cache."""


class Joined:
    """The tokens of a layout as one list.

    Tokens have places such that in every round the left factors come first and the right ones
    after them. What is computed lies in memory that is kept, since new memory costs more than the
    arithmetic; so one object serves one thread.

    `weight` is what every sequence counts.

    >>> joined = Joined(Layout.of([3, 1]), 2)
    >>> odds, transitions = torch.zeros(1, 1, 4).double(), torch.zeros(1, 2, 2).double()
    >>> joined.total(odds, transitions).exp()    # 8 labellings times 2
    tensor([16.0000], dtype=torch.float64)
    """

    def __init__(self, layout: Layout, n_labels: int, weight: float = 1.0) -> None:
        self.n_labels, self.weight = n_labels, weight
        self.rows = layout.unpacked_rows[_order(layout.n_tokens)]
        """(N,) the packed row of each place"""
        first = self.rows < (layout.sizes[0] if layout.sizes else 0)
        half = layout.n_tokens // 2
        pairs = (first[:half] | first[half : 2 * half]).nonzero().squeeze(-1)
        self._touched = pairs
        """The pairs in which there is the first token of a sequence"""
        self._single = torch.cat([pairs, pairs + half, torch.arange(2 * half, layout.n_tokens)])
        """The places whose matrices are written down in the first round: those in such pairs, and
        one that is left over"""
        self._single_first = first[self._single]
        small = layout.n_tokens * n_labels**2 <= _FEW_NUMBERS
        self._at_once = _MOST_DRAWS if small else _FEWEST_DRAWS
        self._work: dict[int, _Work] = {}

    def scores(self, odds: Tensor) -> Tensor:
        """(S, N, C) scores by packed row that have these log odds."""
        by_place = torch.cat([torch.zeros_like(odds[:, :1]), odds], 1).transpose(1, 2)
        found = torch.empty_like(by_place)
        found[:, self.rows] = by_place
        return found

    def total(self, odds: Tensor, transitions: Tensor, allowed: Tensor | None = None) -> Tensor:
        """(S,) Σ_i w log Z_i, for log odds (S, C − 1, N) of the other labels against the first, by
        place, and transitions (S, C, C). Labels that are not among `allowed` (N, C), by packed row,
        do not count.

        Not a number where scores are too large for this way, or where nothing is allowed.
        """
        found = odds.new_zeros(odds.shape[0])
        if self.rows.shape[0] == 0:
            return found
        if allowed is not None:
            allowed = allowed[self.rows].T
        for a in range(0, odds.shape[0], self._at_once):
            some = slice(a, a + self._at_once)
            found[some] = self._total(odds[some], transitions[some], allowed)
        return found.mul_(self.weight)

    def _total(self, odds: Tensor, transitions: Tensor, allowed: Tensor | None) -> Tensor:
        n = odds.shape[0]
        free = _tokens_between_scalings(odds, transitions)
        if free < _FEWEST_FREE:
            return odds.new_full((n,), math.nan)
        size = max(_FEWEST_DRAWS, 2 ** (n - 1).bit_length())
        if size not in self._work:
            self._work[size] = _Work.of(size, self.rows.shape[0], self.n_labels)
        work = self._work[size]
        torch.exp(odds, out=work.psi[:n, 1:])
        torch.exp(transitions.permute(1, 2, 0), out=work.E[..., :n])
        if allowed is not None:
            work.psi[:n, 1:] *= allowed[1:]
            work.psi[:n, 0] = allowed[0].to(odds.dtype)
        self._first_round(work, allowed is not None)
        if allowed is not None:
            work.psi[:, 0] = 1.0
        return work.rounds_of(free)[:n]

    def _first_round(self, work: _Work, masked: bool) -> None:
        """Multiply pairs of tokens, without writing down their matrices: a label a leads to c,
        which depends on the left token, and that to b, which depends on the right one."""
        E, pairs = work.E, work.pairs
        through = (E.unsqueeze(2) * E).unsqueeze(-1)  # (a, c, b, S, 1)
        torch.mul(through[:, 0], work.left[0], out=pairs)
        for c in range(1, self.n_labels):
            pairs.addcmul_(work.left[c], through[:, c])
        kept = 0 if masked else 1  # the first label's psi is 1
        pairs[:, kept:] *= work.right[kept:]
        # where a sequence begins, there is no way through
        own = work.psi.index_select(2, self._single).transpose(0, 1)
        single = torch.where(self._single_first, own, E.unsqueeze(-1) * own)
        k = self._touched.shape[0]
        left, right, rest = single.split([k, k, self._single.shape[0] - 2 * k], -1)
        pairs.index_copy_(3, self._touched, (left.unsqueeze(2) * right).sum(1))
        if rest.shape[-1]:
            work.start[..., -1:] = rest


class _Round(NamedTuple):
    factors: list[tuple[Tensor, Tensor]]
    """For each label in the middle, the left and the right ones, so that they broadcast"""
    products: Tensor
    left_over: tuple[Tensor, Tensor] | None
    """Where it goes, and where it is"""
    whole: Tensor
    """What is there after the round: the products and what is left over"""

    @classmethod
    def of(cls, now: Tensor, dim: int) -> _Round:
        n, C = now.shape[dim], len(now)
        half = n // 2
        shape = list(now.shape)
        shape[dim] = n - half
        whole = now.new_empty(shape)
        left, right, rest = now.split([half, half, n % 2], dim)
        factors = [(left[:, c : c + 1], right[c : c + 1]) for c in range(C)]
        products, place = whole.split([half, n % 2], dim)
        return cls(factors, products, (place, rest) if n % 2 else None, whole)

    def run(self) -> None:
        torch.mul(*self.factors[0], out=self.products)
        for left, right in self.factors[1:]:
            self.products.addcmul_(left, right)
        if self.left_over is not None:
            self.left_over[0].copy_(self.left_over[1])


class _Work(NamedTuple):
    """Memory for a number of draws S, and the rounds in it. Loops run along the last axis: along
    the factors while there are many, then along the draws."""

    psi: Tensor
    """(S, C, N) the exponential of scores relative to the first label's"""
    E: Tensor
    """(C, C, S) the exponential of transitions"""
    left: Tensor
    """(C, S, ⌊N/2⌋) psi of the left tokens of pairs"""
    right: Tensor
    """(C, S, ⌊N/2⌋) and of the right ones"""
    start: Tensor
    """(C, C, S, ⌈N/2⌉) what is there after the first round"""
    pairs: Tensor
    """(C, C, S, ⌊N/2⌋) the products in it"""
    long: list[_Round]
    turned: tuple[Tensor, Tensor]
    """Where what the long rounds leave goes, with the draws last, and where it is"""
    short: list[_Round]

    @classmethod
    def of(cls, S: int, N: int, C: int) -> _Work:
        psi = torch.ones(S, C, N, dtype=torch.float64)
        half = N // 2
        left, right, _ = psi.transpose(0, 1).split([half, half, N % 2], 2)
        start = psi.new_empty(C, C, S, N - half)
        long: list[_Round] = []
        short: list[_Round] = []
        now = start
        while now.shape[3] > _SHORT:
            long.append(_Round.of(now, 3))
            now = long[-1].whole
        turned = (now.new_empty(C, C, now.shape[3], S), now.transpose(2, 3))
        now = turned[0]
        while now.shape[2] > 1:
            short.append(_Round.of(now, 2))
            now = short[-1].whole
        E = psi.new_ones(C, C, S)
        return cls(psi, E, left, right, start, start[..., :half], long, turned, short)

    def rounds_of(self, free: int) -> Tensor:
        """(S,) the log of what the rows of the whole product sum to, from the pairs; `free` tokens
        may be multiplied without scaling."""
        tokens, logs = 2, []
        for round in (*self.long, None, *self.short):
            if round is None:
                self.turned[0].copy_(self.turned[1])
                continue
            round.run()
            tokens *= 2
            if 2 * tokens > free:
                scale = round.whole.sum((0, 1))
                round.whole.div_(scale)
                logs.append(scale if scale.shape[-1] == self.psi.shape[0] else scale.T)
                tokens = 1
        last = self.short[-1].whole if self.short else self.turned[0]
        logs.append(last[0].sum(0))
        return torch.cat(logs).log_().sum(0)


def _order(n: int) -> Tensor:
    """(n,) the factor at each place: in every round the left ones come first, then the right ones,
    then one that is left over."""
    sizes = [n]
    while sizes[-1] > 1:
        sizes.append((sizes[-1] + 1) // 2)
    order = torch.zeros(min(n, 1), dtype=torch.long)
    for size in reversed(sizes[:-1]):  # the last factor has the last place in every round
        left = 2 * order[: size // 2]
        order = torch.cat([left, left + 1, 2 * order[size // 2 :]])
    return order


def _tokens_between_scalings(odds: Tensor, transitions: Tensor) -> int:
    """How many tokens may be multiplied without scaling; 0 where scores are not numbers."""
    low, high = torch.aminmax(odds) if odds.numel() else (odds.new_zeros(()),) * 2
    pairs = float(transitions.abs().amax())
    step = max(-float(low), float(high)) + pairs + math.log(transitions.shape[-1])
    return int(_ROOM / max(step, 1.0)) if math.isfinite(step) else 0
