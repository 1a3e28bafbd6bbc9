"""The Gaussian-process chain of [gpsc] and GPstruct.

A labelling has the score Σ_t f[t, y_t] + Σ_t A[y_t, y_{t+1}], and its probability is the softmax
over all labellings. The kernel of [gpsc] eq. 7 is a Gaussian-process prior on f and independent
Gaussians on A: with a feature map Φ, f = Φ W, and the rows of one weight matrix (D + C, C) are W
and, after it, A as [from, to], with a prior variance for each group of rows.

[gpsc] writes its penalty without the usual ½ (eqs. 6, 8, 12), a prior variance of ½; here all
variances are what they say.

Labels that are missing, or of which only a set is known, are summed over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from bayeseq.chain import (
    Chain,
    constrain,
    log_partition,
    score,
    total_log_partition,
)
from bayeseq.chain.joined import MOST_LABELS, Joined
from bayeseq.chain.stepped import Stepped
from bayeseq.kernels.design import Design
from bayeseq.models.latent import WeightModel
from bayeseq.shapes import Layout


@dataclass(frozen=True, eq=False)
class Rules:
    """Label pairs and ends that a tag scheme allows; None allows all."""

    pairs: Tensor | None = None
    """(C, C) [from, to]"""
    start: Tensor | None = None
    """(C,)"""
    end: Tensor | None = None
    """(C,)"""

    def on(self, chain: Chain) -> Chain:
        """The chain with everything else forbidden."""
        if self.pairs is None and self.start is None and self.end is None:
            return chain
        return constrain(chain, pairs=self.pairs, start=self.start, end=self.end)


@dataclass(frozen=True, eq=False)
class GPSCModel(WeightModel):
    """Sequences with features and what is known of their labels, and the prior of the weights."""

    design: Design
    """Φ (N, D), packed"""
    layout: Layout
    allowed: Tensor
    """(N, C) the labels that each token may have"""
    weights: Tensor
    """(B,) how much each sequence counts"""
    groups: Tensor
    """(D + C,) the prior-variance group of each row of the weights"""
    log_variance: Tensor
    """(G, C) log prior variances; the last group's are those of the transitions"""
    rules: Rules = Rules()

    @classmethod
    def of(
        cls,
        features: sp.csr_matrix | np.ndarray,
        groups: np.ndarray,
        layout: Layout,
        allowed: np.ndarray | Tensor,
        *,
        weights: Tensor | None = None,
        rules: Rules | None = None,
    ) -> GPSCModel:
        """The model of packed tokens with features (N, D) and allowed labels (N, C); all prior
        variances are 1."""
        allowed = torch.as_tensor(allowed)
        C = allowed.shape[1]
        n_groups = int(groups.max(initial=-1)) + 1
        every = np.concatenate([groups, np.full(C, n_groups)]).astype(np.int64)
        return cls(
            Design(features),
            layout,
            allowed,
            torch.ones(layout.n_sequences, dtype=torch.float64) if weights is None else weights,
            torch.from_numpy(every),
            torch.zeros(n_groups + 1, C, dtype=torch.float64),
            Rules() if rules is None else rules,
        )

    def select(self, sequences: Tensor) -> GPSCModel:
        """The model of some of the sequences, its prior as it is."""
        layout, rows, _ = self.layout.select(sequences)
        return replace(
            self,
            design=self.design.select(rows.numpy()),
            layout=layout,
            allowed=self.allowed[rows],
            weights=self.weights[sequences],
        )

    @property
    def n_dependent(self) -> int:  # type: ignore[override]
        """C: the rows of the transitions."""
        return self.allowed.shape[1]

    def seen(self, whitened: Tensor) -> tuple[Tensor, ...]:
        """f (…, N, C) and A (…, C, C)."""
        W = self.scaled(whitened)
        D = self.design.shape[1]
        return self.design.product(W[..., :D, :]), W[..., D:, :]

    def summary(self, whitened: Tensor) -> tuple[Tensor, ...]:
        """f, A and, where all labels are known, their total weighted score (S,), for weights
        (S, D + C, C). Scores f are relative to some label's where `_sums` wants them so."""
        W = self.scaled(whitened)
        D = self.design.shape[1]
        return self._summary_of(self._summary_design, W[..., :D, :], W[..., D:, :])

    def group_summary(self, whitened: Tensor, group: int) -> tuple[Tensor, ...]:
        """What the weights of one group add to the summary of weights (…, D + C, C)."""
        D = self.design.shape[1]
        members, design = self._group_designs[group]
        scale = torch.exp(self.log_variance[..., group, :] / 2).unsqueeze(-2)
        W = whitened.index_select(-2, members) * scale
        local = int((members < D).sum())
        A = W.new_zeros(*W.shape[:-2], self.n_labels, self.n_labels)
        A = A.index_add(-2, members[local:] - D, W[..., local:, :])
        return self._summary_of(design, W[..., :local, :], A)

    def _summary_of(self, design: Design, W: Tensor, A: Tensor) -> tuple[Tensor, ...]:
        """The summary of the weights of a design's columns and of transitions."""
        if isinstance(self._sums, Joined):
            f = design.product(W[..., 1:] - W[..., :1]).transpose(-2, -1).contiguous()
        else:
            f = design.product(W)
        if isinstance(self._sums, Stepped):
            return self._sums.odds(f, A), A  # relative to the labels, whose score is then 0
        if self._known is None:
            return f, A
        local, pairs = self._known
        return f, A, f.flatten(-2) @ local.flatten() + A.flatten(-2) @ pairs.flatten()

    def total_of(self, summary: tuple[Tensor, ...]) -> Tensor:
        """(S,) Σ_i w_i log p(y_i | x_i), by forward passes alone."""
        f, A = summary[:2]
        total = self._total_log_partition(f, A)
        if len(summary) == 3:
            return summary[2] - total
        if isinstance(self._sums, Stepped) and self._known is not None:
            return -total
        return self._total_log_partition(f, A, self.allowed) - total

    def _total_log_partition(self, f: Tensor, A: Tensor, allowed: Tensor | None = None) -> Tensor:
        """(S,) Σ_i w_i log Z_i of the scores of a summary, relative as they are."""
        if self._sums is None:
            return self._slow_total(f, A, allowed)
        total = self._sums.total(f, A, allowed)
        left = (~total.isfinite()).nonzero().squeeze(-1)
        if len(left):
            total[left] = self._slow_total(self._sums.scores(f[left]), A[left], allowed)
        return total

    def _slow_total(self, f: Tensor, A: Tensor, allowed: Tensor | None) -> Tensor:
        """The same for scores of any size, and with rules."""
        chain = self.chain((f, A))
        if allowed is not None:
            chain = constrain(chain, allowed=allowed)
        return total_log_partition(chain, self.weights)

    @cached_property
    def _sums(self) -> Joined | Stepped | None:
        """The fast way to sum over labellings; None where there are rules."""
        rules, C = self.rules, self.n_labels
        if rules.pairs is not None or rules.start is not None or rules.end is not None:
            return None
        alike = len(self.weights) > 0 and bool((self.weights == self.weights[0]).all())
        if 1 < C <= MOST_LABELS and alike:
            return Joined(self.layout, C, float(self.weights[0]))
        return Stepped(self.layout, self.allowed.to(torch.uint8).argmax(-1), self.weights)

    @cached_property
    def _summary_design(self) -> Design:
        """Φ with its rows in the order of a summary."""
        if isinstance(self._sums, Joined):
            return self.design.select(self._sums.rows.numpy())
        return self.design

    @cached_property
    def _group_designs(self) -> list[tuple[Tensor, Design]]:
        """For each group, its rows of the weights and the columns of Φ that belong to them."""
        found = []
        for group in range(self.log_variance.shape[-2]):
            members = (self.groups == group).nonzero().squeeze(-1)
            columns = members[members < self.design.shape[1]].numpy()
            found.append((members, Design(self._summary_design.matrix[:, columns])))
        return found

    @cached_property
    def _known(self) -> tuple[Tensor, Tensor] | None:
        """What the scores of a summary, and the transitions (C, C), count in the total weighted
        score of the labels; None where one is not known, or where a rule forbids them."""
        Y = self.allowed.to(torch.float64)
        if bool((Y.sum(-1) != 1).any()):
            return None
        free = Chain(torch.zeros_like(Y), Y.new_zeros(Y.shape[1], Y.shape[1]), self.layout)
        if not bool(score(self.rules.on(free), Y.argmax(-1)).isfinite().all()):
            return None
        weighted = Y * self.weights[self.layout.sequence].unsqueeze(-1)
        pairs = Y[self.layout.previous].T @ weighted[self.layout.n_tokens - self.layout.n_pairs :]
        if isinstance(self._sums, Joined):
            weighted = weighted[self._sums.rows, 1:].T.contiguous()
        return weighted, pairs

    def chain(self, seen: tuple[Tensor, ...]) -> Chain:
        """The chains of scores f and A, with nothing known of the labels."""
        f, A = seen
        return self.rules.on(Chain(f, A, self.layout))

    def log_likelihood_of(self, seen: tuple[Tensor, ...]) -> Tensor:
        """(…, B) log p(y | x) of each sequence, times its weight."""
        chain = self.chain(seen)
        return self.weights * (self._known_score(chain) - log_partition(chain))

    def _known_score(self, chain: Chain) -> Tensor:
        """(…, B) the log-sum of the scores of all labellings that agree with what is known."""
        if bool((self.allowed.sum(-1) == 1).all()):
            return score(chain, self.allowed.to(torch.uint8).argmax(-1))
        return log_partition(constrain(chain, allowed=self.allowed))
