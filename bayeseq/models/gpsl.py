"""The Gaussian-process pseudo-likelihood model of [gpsl].

Every token's label is a softmax given its features and the labels at fixed offsets from it (eqs.
4, 5):

    p(y_n | rest) = softmax_c( f[n, c] + Σ_{o ∈ S} g_o[y_{n+o}, c] )  at c = y_n.

Both terms are linear in Gaussian weights: f = Φ W by a feature map Φ of the kernel, and g_o[a, c]
is the weight of an indicator column "the token at offset o has label a". So the whole model is one
softmax regression on the columns Ψ = [Φ, indicators], with a prior variance for each group of
columns (eq. 6: those of the g_o are 1 there, here they may be learned).

A neighbour outside the sequence, or with no known label, has no indicator. A token with no known
label has no likelihood of its own. A token of which only a set of labels is known has the
likelihood of the set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from bayeseq.kernels.design import Design
from bayeseq.models.latent import WeightModel
from bayeseq.shapes import Layout


def dependency_columns(
    layout: Layout, beliefs: np.ndarray, offsets: Sequence[int]
) -> sp.csr_matrix:
    """(N, R·C) for each offset, what is believed of the label there; nothing outside the sequence.

    `beliefs` (N, C) holds an indicator row for a known label, a distribution, or zeros.
    """
    N, C = beliefs.shape
    blocks = [sp.csr_matrix((N, 0))]
    for offset in offsets:
        rows, others = (index.numpy() for index in layout.neighbours(offset))
        there = sp.csr_matrix(beliefs[others]).tocoo()
        entries = (there.data, (rows[there.row], there.col))
        blocks.append(sp.csr_matrix(entries, shape=(N, C)))
    return sp.hstack(blocks, format="csr")


def known_labels(allowed: np.ndarray) -> np.ndarray:
    """(N, C) indicator rows of the labels that are known, zeros where one is missing or a set."""
    single = allowed.sum(-1, keepdims=True) == 1
    return (allowed & single).astype(np.float64)


@dataclass(frozen=True, eq=False)
class GPSLModel(WeightModel):
    """The rows that have a likelihood, their columns, and the prior of the weights."""

    design: Design
    """Ψ (n, D)"""
    rows: np.ndarray
    """(n,) which tokens the rows are"""
    allowed: Tensor
    """(n, C) the labels that each row may have"""
    weights: Tensor
    """(n,) how much each row counts"""
    groups: Tensor
    """(D,) the prior-variance group of each column"""
    n_dependent: int
    """How many of the last columns are label dependencies"""
    log_variance: Tensor
    """(G, C) log prior variances"""
    residual: Tensor | None = None
    """(n,) prior variance that the feature map leaves out, in units of group 0's: part of the
    variational bound, not of the program"""

    @classmethod
    def of(
        cls,
        features: sp.csr_matrix | np.ndarray,
        groups: np.ndarray,
        layout: Layout,
        allowed: np.ndarray,
        offsets: Sequence[int],
        *,
        beliefs: np.ndarray | None = None,
        weights: np.ndarray | None = None,
        residual: np.ndarray | None = None,
    ) -> GPSLModel:
        """The model of packed tokens with features (N, D), allowed labels (N, C) and row weights.

        `beliefs` stand for the labels of neighbours; those that are known, if not given. All prior
        variances are 1.
        """
        N, C = allowed.shape
        beliefs = known_labels(allowed) if beliefs is None else beliefs
        weights = np.ones(N) if weights is None else weights
        informative = ~allowed.all(-1) if C > 1 else np.ones(N, dtype=bool)
        rows = np.flatnonzero(informative & (weights > 0))
        columns = with_dependencies(features, dependency_columns(layout, beliefs, offsets))
        n_groups = int(groups.max(initial=-1)) + 1
        of_offset = n_groups + np.repeat(np.arange(len(offsets)), C)
        return cls(
            Design(columns[rows]),
            rows,
            torch.from_numpy(allowed[rows]),
            torch.from_numpy(weights[rows]),
            torch.from_numpy(np.concatenate([groups, of_offset]).astype(np.int64)),
            len(offsets) * C,
            torch.zeros(n_groups + len(offsets), C, dtype=torch.float64),
            None if residual is None else torch.from_numpy(residual[rows]),
        )

    def seen(self, whitened: Tensor) -> tuple[Tensor, ...]:
        """(…, n, C) the scores of the rows."""
        return (self.design.product(self.scaled(whitened)),)

    def log_likelihood_of(self, seen: tuple[Tensor, ...]) -> Tensor:
        """(…, n) each row's log p(y_n | rest), times its weight."""
        (scores,) = seen
        allowed = scores.masked_fill(~self.allowed, -torch.inf)
        return self.weights * (torch.logsumexp(allowed, -1) - torch.logsumexp(scores, -1))


def with_dependencies(
    features: sp.csr_matrix | np.ndarray, dependencies: sp.csr_matrix
) -> sp.csr_matrix | np.ndarray:
    """[Φ, indicators], sparse if Φ is."""
    if sp.issparse(features):
        return sp.hstack([features, dependencies], format="csr")
    return np.hstack([features, dependencies.toarray()])


def without_dependencies(
    features: sp.csr_matrix | np.ndarray, n_dependent: int
) -> sp.csr_matrix | np.ndarray:
    """Features with empty columns in place of the dependencies."""
    return with_dependencies(features, sp.csr_matrix((features.shape[0], n_dependent)))


def dependency_rows(weights: Tensor, offsets: tuple[int, ...]) -> Tensor:
    """(…, R, C, C) the rows of (…, D, C) that belong to the dependencies."""
    C = weights.shape[-1]
    rows = weights[..., weights.shape[-2] - len(offsets) * C :, :]
    return rows.reshape(*rows.shape[:-2], len(offsets), C, C)
