"""A Gaussian over all weights of a chain model together, across labels and label pairs.

Its precision is the prior's plus the chain's Fisher information, which ties the labels of a token
to each other, neighbours to each other, and both to the transitions. All of that is kept for the
weights of which the data says something; those of which it says next to nothing are independent.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from bayeseq.chain import Chain, forward_backward, label_covariances, pair_covariances
from bayeseq.inference.chain_likelihood import ChainModel
from bayeseq.linalg import inverse_root
from bayeseq.shapes import bucket

FAMILIES = ("full", "diagonal")

NEGLIGIBLE = 1e-3
"""What the data may add to a weight's prior precision, as a share of it, and be passed over."""


@dataclass(frozen=True, eq=False)
class JointPosterior:
    """q(W) over weights (D, C), in whitened units inside: the prior is N(0, I)."""

    whitened_mean: Tensor
    """(D, C)"""
    log_variance: Tensor
    """(G, C) log prior variances"""
    scale: Tensor
    """(D, C) prior standard deviations"""
    places: Tensor
    """(n,) the flat places k · C + c of the weights that depend on each other, rising"""
    root: Tensor
    """(n, n) F, whose Fᵀ F is their covariance"""
    alone: Tensor
    """(D · C,) the variance of each of the others"""

    @property
    def mean(self) -> Tensor:
        """(D, C) in the weights' own units."""
        return self.whitened_mean * self.scale

    @property
    def variances(self) -> Tensor:
        """(D, C) in the weights' own units."""
        return self.whitened_variances * self.scale.square()

    @cached_property
    def whitened_variances(self) -> Tensor:
        """(D, C)."""
        found = self.alone.clone()
        found[self.places] = self.root.square().sum(0)
        return found.reshape(self.scale.shape)

    @cached_property
    def log_det(self) -> float:
        """log |S| of the whitened weights."""
        rest = torch.ones(len(self.alone), dtype=torch.bool)
        rest[self.places] = False
        return 2 * float(self.root.diagonal().log().sum()) + float(self.alone[rest].log().sum())

    def coloured(self, white: Tensor) -> Tensor:
        """(S, D, C) whitened deviations from the mean, made of standard normal (S, D · C)."""
        found = white * self.alone.sqrt()
        found[:, self.places] = white[:, self.places] @ self.root
        return found.reshape(-1, *self.scale.shape)

    def times(self, vector: Tensor) -> Tensor:
        """(D, C) the whitened covariance times a whitened vector."""
        flat = vector.reshape(-1)
        found = flat * self.alone
        found[self.places] = self.root.T @ (self.root @ flat[self.places])
        return found.reshape(vector.shape)

    def form(self, deviations: Tensor) -> Tensor:
        """(S,) xᵀ S⁻¹ x of whitened deviations (S, D, C)."""
        flat = deviations.reshape(len(deviations), -1)
        each = flat.square() / self.alone
        inside = torch.linalg.solve_triangular(self.root.T, flat[:, self.places].T, upper=True)
        whole = each.sum(-1) - each[:, self.places].sum(-1)
        return whole + inside.square().sum(0)

    def draws(self, n: int, generator: torch.Generator) -> Tensor:
        """(S, D, C) draws of the weights in their own units."""
        white = torch.randn(n, len(self.alone), generator=generator, dtype=self.scale.dtype)
        return (self.whitened_mean + self.coloured(white)) * self.scale


@dataclass(frozen=True, eq=False)
class Information:
    """What data says of weights in their own units, whatever their prior: Fisher's information."""

    places: Tensor
    """(n,) the flat places k · C + c of the weights that are looked at together, rising"""
    matrix: Tensor
    """(n, n)"""
    alone: Tensor
    """(D · C,) of each weight, roughly, as if every token stood alone"""

    def towards(self, other: Information, share: float) -> Information:
        """Between this and another one of the same places."""
        return replace(
            self,
            matrix=torch.lerp(self.matrix, other.matrix, share),
            alone=torch.lerp(self.alone, other.alone, share),
        )

    def __add__(self, other: Information) -> Information:
        """What two sets of sequences say together, of the same places."""
        return replace(self, matrix=self.matrix + other.matrix, alone=self.alone + other.alone)

    def posterior(self, model: ChainModel, whitened_mean: Tensor) -> JointPosterior:
        """The Gaussian with this mean whose precision is the prior's and this."""
        flat = model.scale.reshape(-1)
        scale = flat[self.places]
        precision = self.matrix * scale * scale.unsqueeze(-1)
        precision.diagonal().add_(1.0)
        root, _ = inverse_root(precision, "the precision of a chain's weights")
        alone = 1 / (1 + self.alone * flat.square())
        return JointPosterior(
            whitened_mean, model.log_variance, model.scale, self.places, root, alone
        )


@dataclass(frozen=True)
class JointFamily:
    """Which weights depend on each other: with "full", those of which the data says something, up
    to `most`, and all transitions; with "diagonal", none."""

    kind: str = "full"
    most: int = 3000

    def __post_init__(self) -> None:
        if self.kind not in FAMILIES:
            raise ValueError(
                f"covariance is {self.kind!r}; expected one of {', '.join(map(repr, FAMILIES))}"
            )

    def information(
        self, model: ChainModel, chain: Chain, places: Tensor | None = None
    ) -> Information:
        """The mean information of chains, one for each draw of the scores; of given places, or of
        those that matter under the model's prior variances."""
        alone = _information_alone(model, chain)
        if places is None:
            places = self._places(alone * model.scale.reshape(-1).square(), model.n_dependent)
        if len(places) == 0:
            return Information(places, alone.new_zeros(0, 0), alone)
        return Information(places, _information(model, chain, places), alone)

    def _places(self, gained: Tensor, n_labels: int) -> Tensor:
        if self.kind == "diagonal":
            return torch.zeros(0, dtype=torch.long)
        n_pairs = n_labels**2
        unary = gained[: len(gained) - n_pairs]
        most = min(max(self.most - n_pairs, 0), int((unary > NEGLIGIBLE).sum()))
        chosen = torch.topk(unary, most).indices
        pairs = torch.arange(len(gained) - n_pairs, len(gained))
        return torch.cat([chosen.sort().values, pairs])


def _known(model: ChainModel) -> Tensor:
    """(N,) the tokens whose label is known: the others tell nothing of the weights."""
    return model.allowed.sum(-1) == 1


def _information_alone(model: ChainModel, chain: Chain) -> Tensor:
    """(D · C,) the information of each weight with every token as if it stood alone."""
    C = chain.n_labels
    found = forward_backward(chain, "sum", model.weights)
    assert found.pairs is not None
    p = found.unary.reshape(-1, *chain.unary.shape[-2:])
    omega = model.weights[model.layout.sequence] * _known(model)
    curvature = (p * (1 - p)).mean(0) * omega.unsqueeze(-1)
    by_label = model.design.squared_transpose_times(curvature)
    pairs = found.pairs.reshape(-1, C, C).mean(0)
    return torch.cat([by_label, pairs]).reshape(-1)


def _information(model: ChainModel, chain: Chain, places: Tensor) -> Tensor:
    """(n, n) the Fisher information of some weights, all transitions last."""
    C = chain.n_labels
    columns = _columns(model.design.matrix, places[: -C * C].numpy(), C)
    scores = _score_information(model, chain)
    n = columns.shape[1]
    found = np.empty((n + C * C, n + C * C))
    corner = (columns.T @ (scores.labels @ columns)).toarray()
    found[:n, :n] = corner + corner.T
    found[:n, n:] = columns.T @ scores.with_pairs
    found[n:, :n] = found[:n, n:].T
    found[n:, n:] = scores.pairs
    return torch.from_numpy(found)


class _ScoreInformation(NamedTuple):
    """The Fisher information of the scores of tokens and label pairs, places t · C + c and
    a · C + b."""

    labels: sp.csr_matrix
    """(N · C, N · C) half of it: with its transpose added it is the whole"""
    with_pairs: np.ndarray
    """(N · C, C²)"""
    pairs: np.ndarray
    """(C², C²)"""


def _score_information(model: ChainModel, chain: Chain) -> _ScoreInformation:
    """The mean information of chains, one for each draw of the scores."""
    C, N = chain.n_labels, chain.layout.n_tokens
    known = _known(model)
    nothing = torch.zeros(0, dtype=torch.long)
    left, right, values = [nothing], [nothing], [torch.zeros(0, dtype=torch.float64)]
    with_pairs, among = np.zeros((N * C, C * C)), np.zeros((C * C, C * C))
    for rows, sequences, part in _parts(chain):
        omega = model.weights[sequences]
        for a, b, covariance in label_covariances(part, known[rows], omega):
            left.append(_flat(rows[a], C).unsqueeze(-1).expand_as(covariance).reshape(-1))
            right.append(_flat(rows[b], C).unsqueeze(-2).expand_as(covariance).reshape(-1))
            distant = (a != b).to(covariance.dtype).view(-1, 1, 1)
            values.append((covariance * (0.5 + 0.5 * distant)).reshape(-1))
        pairs = pair_covariances(part, known[rows], omega)
        with_pairs[_flat(rows, C).reshape(-1).numpy()] = pairs.with_labels.reshape(-1, C * C)
        among += pairs.among.numpy()
    places = torch.cat(left).numpy(), torch.cat(right).numpy()
    half = sp.csr_matrix((torch.cat(values).numpy(), places), shape=(N * C, N * C))
    return _ScoreInformation(half, with_pairs, among)


def _flat(rows: Tensor, n_labels: int) -> Tensor:
    """(n, C) the places n · C + c of rows and all labels."""
    return rows.unsqueeze(-1) * n_labels + torch.arange(n_labels)


def _columns(
    matrix: sp.csr_matrix | np.ndarray, places: np.ndarray, n_labels: int
) -> sp.csr_matrix:
    """(N · C, n) where weights add to scores: the weight at place d · C + c adds its value times
    feature d of token t to score t · C + c."""
    N, D = matrix.shape
    n = len(places)
    feature, label = np.divmod(places, n_labels)
    select = sp.csr_matrix((np.ones(n), (feature, np.arange(n))), shape=(D, n))
    active = (sp.csr_matrix(matrix) @ select).tocoo()
    rows = active.row.astype(np.int64) * n_labels + label[active.col]
    return sp.csr_matrix((active.data, (rows, active.col)), shape=(N * n_labels, n))


def _parts(chain: Chain) -> Iterator[tuple[Tensor, Tensor, Chain]]:
    """Sequences of like length, so few at a time that their covariances fit into memory: packed
    rows, sequence numbers, chain."""
    C, layout = chain.n_labels, chain.layout
    draws = max(1, chain.unary.shape[:-2].numel())
    at_once = max(1, _NUMBERS_AT_ONCE // (draws * C**3))
    bounds = bucket(layout.lengths[layout.order].tolist(), at_once)
    for first, last in itertools.pairwise(bounds):
        sequences = layout.order[first:last]
        part, rows = chain.select(sequences)
        yield rows, sequences, part


_NUMBERS_AT_ONCE = 2**20
"""Numbers that the covariances of one part may take."""
