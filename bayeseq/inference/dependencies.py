"""From label dependencies to a distribution over labellings.

Scores of single labels f (N, C) and, for each offset o of a set S, scores g_o[a, c] of label c
where the token o places further on has label a, define conditionals p(y_n | rest) = softmax_c(f[n,
c] + Σ_o g_o[y_{n+o}, c]) ([gpsl] eq. 4). What joint distribution they stand for depends on S:

- all offsets on one side: a directed chain, exactly. Each token is drawn given those before it.
- offsets on both sides: an undirected chain whose conditionals these are, if g_{+o} is the
  transpose of g_{−o}. Pseudo-likelihood learns them apart, so their mean is taken, which is the
  nearest consistent pair. Evidence then passes along the chain once, where iterating the
  conditionals to and fro counts it twice.

Both are answered exactly for offsets up to 2, by chains over labels or over label pairs. For any
other set there is Gibbs sampling of the conditionals as they are, and the paper's own iteration
(`rns`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from bayeseq.chain import Chain, constrain, forward_backward, viterbi
from bayeseq.shapes import Layout


def check_offsets(offsets: Sequence[int]) -> tuple[int, ...]:
    """The offsets in rising order; refuses 0, repetitions and anything that is no whole number.

    >>> check_offsets((1, -1))
    (-1, 1)
    """
    is_list = isinstance(offsets, Iterable) and not isinstance(offsets, str)
    found = tuple(offsets) if is_list else ()
    whole = all(isinstance(o, int) and not isinstance(o, bool) and o != 0 for o in found)
    if not whole or len(set(found)) != len(found) or not is_list:
        raise ValueError(
            f"dependencies is {offsets!r}; expected different whole numbers other than 0, such as "
            "(-1, 1) for the labels before and after"
        )
    return tuple(sorted(found))


@dataclass(frozen=True, eq=False)
class Dependencies:
    """A set of offsets over sequences of a layout."""

    offsets: tuple[int, ...]
    layout: Layout

    @property
    def order(self) -> int:
        """How many labels back the joint distribution looks."""
        return max(map(abs, self.offsets), default=0)

    @property
    def directed(self) -> bool:
        """Whether all offsets lie on one side."""
        return len({o > 0 for o in self.offsets}) == 1

    @property
    def is_chain(self) -> bool:
        """Whether labellings can be summed over exactly."""
        return self.order <= 2

    @cached_property
    def neighbours(self) -> dict[int, tuple[Tensor, Tensor]]:
        """For each offset, the rows that have such a neighbour, and the neighbours."""
        return {o: self.layout.neighbours(o) for o in self.offsets}

    @property
    def is_backwards(self) -> bool:
        """Whether the chain of label pairs is read from the end: all offsets look ahead."""
        return self.order == 2 and self.directed and self.offsets[0] > 0

    # ---- exact, for offsets up to 2 -------------------------------------------------------------

    def marginals(self, f: Tensor, g: Tensor, allowed: Tensor | None = None) -> Tensor:
        """(…, N, C) label probabilities; f (…, N, C), g (…, R, C, C) in the order of the
        offsets."""
        C = f.shape[-1]
        found = forward_backward(self.chain(f, g, allowed)).unary
        if self.order == 2:
            found = found.unflatten(-1, (C, C)).sum(-2)
        return found[..., self.layout.reversal, :] if self.is_backwards else found

    def best(self, f: Tensor, g: Tensor, allowed: Tensor | None = None) -> Tensor:
        """(…, N) the most probable labelling."""
        found = viterbi(self.chain(f, g, allowed)).labels % f.shape[-1]
        return found[..., self.layout.reversal] if self.is_backwards else found

    def chain(self, f: Tensor, g: Tensor, allowed: Tensor | None = None) -> Chain:
        """The chain of labels, or of label pairs (before · C + now) where offsets of 2 ask for it,
        which is read backwards where all of them look ahead."""
        if not self.is_chain:
            raise ValueError(
                f"dependencies {self.offsets} reach farther than two labels; labellings cannot be "
                "summed over exactly, use prediction='gibbs'"
            )
        if self.is_backwards:
            reversal = self.layout.reversal
            mirrored = replace(self, offsets=tuple(-o for o in self.offsets))
            allowed = None if allowed is None else allowed[reversal]
            return mirrored.chain(f[..., reversal, :], g, allowed)
        steps = self._steps(g)
        if self.order < 2:
            return self._first_order(f, steps[0], allowed)
        return self._second_order(f, steps[0], steps[1], allowed)

    def _steps(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """(…, C, C) scores of labels one and two apart, [from, to]."""
        at = {o: g[..., r, :, :] for r, o in enumerate(self.offsets)}
        none = g.new_zeros(*g.shape[:-3], *g.shape[-2:])
        found = []
        for distance in (1, 2):
            sides = [at[-distance]] if -distance in at else []
            sides += [at[distance].transpose(-1, -2)] if distance in at else []
            found.append(sum(sides[1:], sides[0]) / len(sides) if sides else none)
        return found[0], found[1]

    def _first_order(self, f: Tensor, A: Tensor, allowed: Tensor | None) -> Chain:
        layout = self.layout
        unary = f
        if self.directed and layout.n_pairs:
            # A label's local normaliser depends on the neighbour it looks at, and is counted there.
            unary = f.clone()
            if self.offsets[0] < 0:
                unary[..., layout.previous, :] -= _log_sums(f[..., self._inner, :], A)
            else:
                before = f.index_select(-2, layout.previous)
                unary[..., self._inner, :] -= _log_sums(before, A.transpose(-1, -2))
        return constrain(Chain(unary, A, layout), allowed=allowed)

    @cached_property
    def _inner(self) -> slice:
        """The rows that have a left neighbour."""
        return slice(self.layout.n_tokens - self.layout.n_pairs, self.layout.n_tokens)

    def _second_order(self, f: Tensor, A: Tensor, A2: Tensor, allowed: Tensor | None) -> Chain:
        """States (a, b) = (y_{t−1}, y_t); a first token has a = 0, as if label 0 stood before
        it."""
        layout, C = self.layout, f.shape[-1]
        pair = f.unsqueeze(-2).expand(*f.shape[:-1], C, C).clone()  # [a, b]
        pair[..., self._inner, :, :] += A.unsqueeze(-3)
        _, position = layout.token_index
        second = (position == 1).nonzero().squeeze(-1)
        pair[..., second, :, :] -= A2[..., :1, :].unsqueeze(-3)  # what the made-up label 0 adds
        if self.directed:
            pair = self._less_log_sums(pair, f, A, A2)
        first = (position == 0).nonzero().squeeze(-1)
        pair[..., first, 1:, :] = -torch.inf
        states = pair.flatten(-2)
        lead = A2.shape[:-2]
        between = A2.unsqueeze(-2).expand(*lead, C, C, C)  # [a, b, c]: from (a, b) to (b, c)
        full = A2.new_full((*lead, C, C, C, C), -torch.inf)
        same = torch.arange(C)
        full[..., :, same, same, :] = between
        chain = Chain(states, full.reshape(*lead, C * C, C * C), layout)
        if allowed is None:
            return chain
        return constrain(chain, allowed=allowed.repeat(1, C))

    def _less_log_sums(self, pair: Tensor, f: Tensor, A: Tensor, A2: Tensor) -> Tensor:
        """Each state less the logarithm of the sum over the label that comes next."""
        layout, C = self.layout, f.shape[-1]
        if layout.n_pairs == 0:
            return pair
        into = f[..., self._inner, :]
        into_two = (A.unsqueeze(-3) + A2.unsqueeze(-2)).flatten(-3, -2)  # [(a, b), c]
        sums = _log_sums(into, into_two).unflatten(-1, (C, C))
        alone = _log_sums(into, A).unsqueeze(-2).expand_as(sums)
        _, position = layout.token_index
        from_first = (position[layout.previous] == 0).view(-1, 1, 1)
        pair[..., layout.previous, :, :] -= torch.where(from_first, alone, sums)
        return pair

    # ---- sampling, for any set ------------------------------------------------------------------

    def gibbs(
        self,
        f: Tensor,
        g: Tensor,
        generator: torch.Generator,
        allowed: Tensor | None = None,
        warmup: int = 50,
        sweeps: int = 100,
    ) -> Tensor:
        """(S, N, C) label probabilities by Gibbs sampling, one chain for each of S draws of f (S,
        N, C) and g (S, R, C, C). What is averaged are the conditionals, not the labels drawn."""
        if allowed is not None:
            f = f.masked_fill(~allowed, -torch.inf)
        _, position = self.layout.token_index
        colours = [  # tokens of one colour never look at each other
            (position % (self.order + 1) == k).nonzero().squeeze(-1) for k in range(self.order + 1)
        ]
        neighbour_of = torch.full((len(self.offsets), len(position)), -1)
        for r, o in enumerate(self.offsets):
            rows, others = self.neighbours[o]
            neighbour_of[r, rows] = others
        labels = _draw(torch.softmax(f, -1), generator)
        total = torch.zeros_like(f)
        for sweep in range(warmup + sweeps):
            for rows in colours:
                scores = f[:, rows].clone()
                for r in range(len(self.offsets)):
                    there = neighbour_of[r, rows]
                    at = labels[:, there.clamp_min(0)]
                    added = g[:, r].gather(1, at.unsqueeze(-1).expand(*at.shape, f.shape[-1]))
                    scores += torch.where((there >= 0).view(1, -1, 1), added, 0.0)
                p = torch.softmax(scores, -1)
                labels[:, rows] = _draw(p, generator)
                if sweep >= warmup:
                    total[:, rows] += p
        return total / sweeps

    # ---- the paper's iteration ------------------------------------------------------------------

    def neighbour_sum(self, beliefs: Tensor, g: Tensor) -> Tensor:
        """(N, C) Σ_o beliefs[n + o] g_o."""
        found = torch.zeros_like(beliefs)
        for r, o in enumerate(self.offsets):
            rows, others = self.neighbours[o]
            found[rows] += beliefs[others] @ g[r]
        return found


def _draw(p: Tensor, generator: torch.Generator) -> Tensor:
    """(…) a label drawn from each probability vector of p (…, C)."""
    u = torch.rand(*p.shape[:-1], 1, generator=generator, dtype=p.dtype)
    return (p.cumsum(-1) < u).sum(-1).clamp_max(p.shape[-1] - 1)


def _log_sums(f: Tensor, A: Tensor) -> Tensor:
    """(…, n, K) log Σ_c exp(f[n, c] + A[k, c]) for f (…, n, C), A (…, K, C), by a matrix
    product."""
    f_max = f.amax(-1, keepdim=True)
    A_max = A.amax(-1, keepdim=True)
    sums = (f - f_max).exp() @ (A - A_max).exp().transpose(-1, -2)
    if bool((sums < 1e-280).any()):  # f and A at odds by hundreds: terms have been lost
        return torch.logsumexp(f.unsqueeze(-2) + A.unsqueeze(-3), -1)
    return sums.log() + f_max + A_max.transpose(-1, -2)


@dataclass(frozen=True, eq=False)
class RefinedScores:
    """What Algorithm 2 of [gpsl] found."""

    proba: Tensor
    """(N, C) the refined normalised scores"""
    iterations: int
    converged: bool
    damped: bool
    """whether it began to cycle, so that shorter steps were taken"""


def refine(
    dependencies: Dependencies,
    mean: Tensor,
    variance: Tensor,
    g_mean: Tensor,
    g_variance: Tensor,
    *,
    softmax: Callable[[Tensor, Tensor], Tensor] | None = None,
    allowed: Tensor | None = None,
    max_iter: int = 200,
    tol: float = 1e-6,
) -> RefinedScores:
    """Refined normalised scores ([gpsl] Algorithm 2): all tokens at once, until nothing changes.

    Without `softmax`, as the paper: softmax(mean + variance / 2). With it, `softmax(mean,
    variance)` stands for E_q[softmax] inside the iteration, and the variances of the dependencies
    are weighed by the squares of the beliefs. Where the scores swing between two states, steps are
    halved, and again if they go on.
    """

    def answer(mean: Tensor, variance: Tensor) -> Tensor:
        if softmax is not None:
            p = softmax(mean, variance)
            if allowed is None:
                return p
            p = p * allowed
            return p / p.sum(-1, keepdim=True)
        scores = mean + variance / 2
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -torch.inf)
        return torch.softmax(scores, -1)

    now = answer(mean, variance)
    before: Tensor | None = None
    step, iterations, change = 1.0, 0, 0.0
    while iterations < max_iter and dependencies.offsets:
        iterations += 1
        spread = now.square() if softmax is not None else now
        found = answer(
            mean + dependencies.neighbour_sum(now, g_mean),
            variance + dependencies.neighbour_sum(spread, g_variance),
        )
        change = float((found - now).abs().max())
        after = found if step == 1 else torch.lerp(now, found, step)
        if change <= tol:
            now = after
            break
        back = math.inf if before is None else float((after - before).abs().max())
        before, now = now, after
        if iterations > 5 and back < 0.1 * step * change:
            step, before = step / 2, None
    return RefinedScores(now, iterations, change <= tol, step < 1)
