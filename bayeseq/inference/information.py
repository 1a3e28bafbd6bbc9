"""What data says of the weights of a chain model: Fisher's information, and the Gaussian it gives.

The chain's information ties the labels of a token to each other, neighbours to each other, and both
to the transitions. All of that is kept for the weights of which the data says something; those of
which it says next to nothing are independent.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from bayeseq.chain import Chain, forward_backward, label_covariances, pair_covariances
from bayeseq.inference.chain_likelihood import ChainModel
from bayeseq.inference.joint import Basis, JointPosterior, contrasts
from bayeseq.linalg import inverse_root
from bayeseq.shapes import bucket

FAMILIES = ("full", "diagonal")

NEGLIGIBLE = 1e-3
"""What the data may add to a weight's prior precision, as a share of it, and be passed over."""


@dataclass(frozen=True, eq=False)
class Information:
    """What data says of weights in their own units, whatever their prior."""

    basis: Basis
    """in which the weights are looked at"""
    matrix: Tensor
    """(n, n) of those that are looked at together"""
    alone: Tensor
    """((D + C) · C,) of each, roughly, as if every token stood alone"""

    def towards(self, other: Information, share: float) -> Information:
        """Between this and another one in the same basis."""
        return replace(
            self,
            matrix=torch.lerp(self.matrix, other.matrix, share),
            alone=torch.lerp(self.alone, other.alone, share),
        )

    def __add__(self, other: Information) -> Information:
        """What two sets of sequences say together, in the same basis."""
        return replace(self, matrix=self.matrix + other.matrix, alone=self.alone + other.alone)

    def posterior(self, model: ChainModel, whitened_mean: Tensor) -> JointPosterior:
        """The Gaussian with this mean whose precision is the prior's and this."""
        flat = model.scale.reshape(-1)
        scale = flat[self.basis.places]
        precision = self.matrix * scale * scale.unsqueeze(-1)
        precision.diagonal().add_(1.0)
        root, _ = inverse_root(precision, "the precision of a chain's weights")
        alone = 1 / (1 + self.alone * flat.square())
        return JointPosterior(
            whitened_mean, model.log_variance, model.scale, self.basis, root, alone
        )


@dataclass(frozen=True)
class JointFamily:
    """Which weights depend on each other: with "full", those transitions and, up to `most` in
    all, contrasts of labels of which the data says something; with "diagonal", none."""

    kind: str = "full"
    most: int = 1200

    def __post_init__(self) -> None:
        if self.kind not in FAMILIES:
            raise ValueError(
                f"covariance is {self.kind!r}; expected one of {', '.join(map(repr, FAMILIES))}"
            )

    def information(
        self, model: ChainModel, chain: Chain, basis: Basis | None = None
    ) -> Information:
        """The mean information of chains, one for each draw of the scores; in a given basis, or of
        the weights that matter under the model's prior variances."""
        C = model.n_dependent
        if basis is None:
            turn = torch.eye(C, dtype=torch.float64)
            if self.kind == "full":
                turn = contrasts(model.allowed[_known(model)].sum(0))
            alone = _information_alone(model, chain, turn)
            places = self._places(alone * model.scale.reshape(-1).square(), C)
            basis = Basis(turn, places)
        else:
            alone = _information_alone(model, chain, basis.turn)
        if len(basis.places) == 0:
            return Information(basis, alone.new_zeros(0, 0), alone)
        return Information(basis, _information(model, chain, basis), alone)

    def _places(self, gained: Tensor, n_labels: int) -> Tensor:
        if self.kind == "diagonal":
            return torch.zeros(0, dtype=torch.long)
        first = len(gained) - n_labels**2
        said = gained > NEGLIGIBLE
        said[:first:n_labels] = False  # the common part of all labels, of which nothing is said
        pairs = first + said[first:].nonzero().squeeze(-1)
        most = min(max(self.most - len(pairs), 0), int(said[:first].sum()))
        chosen = torch.topk(torch.where(said, gained, 0.0)[:first], most).indices
        return torch.cat([chosen.sort().values, pairs])


def _known(model: ChainModel) -> Tensor:
    """(N,) the tokens whose label is known: the others tell nothing of the weights."""
    return model.allowed.sum(-1) == 1


def _information_alone(model: ChainModel, chain: Chain, turn: Tensor) -> Tensor:
    """((D + C) · C,) the information of each weight with every token as if it stood alone."""
    C = chain.n_labels
    found = forward_backward(chain, "sum", model.weights)
    assert found.pairs is not None
    p = found.unary.reshape(-1, *chain.unary.shape[-2:])
    omega = model.weights[model.layout.sequence] * _known(model)
    # The variance of turn[y, k] over labels y.
    curvature = (p.mean(0) @ turn.square() - (p @ turn).square().mean(0)).clamp_min(0)
    by_label = model.design.squared_transpose_times(curvature * omega.unsqueeze(-1))
    pairs = found.pairs.reshape(-1, C, C).mean(0)
    return torch.cat([by_label, pairs]).reshape(-1)


def _information(model: ChainModel, chain: Chain, basis: Basis) -> Tensor:
    """(n, n) the Fisher information of some contrasts of features and, last, some transitions."""
    C = chain.n_labels
    first = model.design.shape[1] * C
    places = basis.places
    columns = _columns(model.design.matrix, places[places < first].numpy(), C)
    pairs = places[places >= first] - first
    scores = _score_information(model, chain, basis.turn[:, 1:], pairs)
    n = columns.shape[1]
    found = np.empty((len(places), len(places)))
    corner = (columns.T @ (scores.labels @ columns)).toarray()
    found[:n, :n] = corner + corner.T
    found[:n, n:] = columns.T @ scores.with_pairs
    found[n:, :n] = found[:n, n:].T
    found[n:, n:] = scores.pairs
    return torch.from_numpy(found)


class _ScoreInformation(NamedTuple):
    """The Fisher information of the scores of tokens, by K = C − 1 contrasts at places t · K + k,
    and of P label pairs."""

    labels: sp.csr_matrix
    """(N · K, N · K) half of it: with its transpose added it is the whole"""
    with_pairs: np.ndarray
    """(N · K, P)"""
    pairs: np.ndarray
    """(P, P)"""


def _score_information(
    model: ChainModel, chain: Chain, turn: Tensor, pairs: Tensor
) -> _ScoreInformation:
    """The mean information of chains, one for each draw of the scores."""
    K, N, P = turn.shape[1], chain.layout.n_tokens, len(pairs)
    known = _known(model)
    nothing = torch.zeros(0, dtype=torch.long)
    left, right, values = [nothing], [nothing], [torch.zeros(0, dtype=torch.float64)]
    with_pairs, among = np.zeros((N * K, P)), np.zeros((P, P))
    for rows, sequences, part in _parts(chain, P):
        omega = model.weights[sequences]
        for a, b, of_labels in label_covariances(part, known[rows], omega):
            covariance = turn.T @ of_labels @ turn
            left.append(_flat(rows[a], K).unsqueeze(-1).expand_as(covariance).reshape(-1))
            right.append(_flat(rows[b], K).unsqueeze(-2).expand_as(covariance).reshape(-1))
            distant = (a != b).to(covariance.dtype).view(-1, 1, 1)
            values.append((covariance * (0.5 + 0.5 * distant)).reshape(-1))
        found = pair_covariances(part, known[rows], omega, pairs)
        of_contrasts = (turn.T @ found.with_labels).flatten(0, 1)
        with_pairs[_flat(rows, K).reshape(-1).numpy()] = of_contrasts
        among += found.among.numpy()
    places = torch.cat(left).numpy(), torch.cat(right).numpy()
    half = sp.csr_matrix((torch.cat(values).numpy(), places), shape=(N * K, N * K))
    return _ScoreInformation(half, with_pairs, among)


def _flat(rows: Tensor, n: int) -> Tensor:
    """(…, n) the places t · n + k of rows t and all k."""
    return rows.unsqueeze(-1) * n + torch.arange(n)


def _columns(
    matrix: sp.csr_matrix | np.ndarray, places: np.ndarray, n_labels: int
) -> sp.csr_matrix:
    """(N · K, n) where weights add to scores: the weight at place d · C + k adds its value times
    feature d of token t to score t · K + k − 1."""
    N, D = matrix.shape
    n = len(places)
    feature, contrast = np.divmod(places, n_labels)
    select = sp.csr_matrix((np.ones(n), (feature, np.arange(n))), shape=(D, n))
    active = (sp.csr_matrix(matrix) @ select).tocoo()
    K = n_labels - 1
    rows = active.row.astype(np.int64) * K + contrast[active.col] - 1
    return sp.csr_matrix((active.data, (rows, active.col)), shape=(N * K, n))


def _parts(chain: Chain, n_pairs: int) -> Iterator[tuple[Tensor, Tensor, Chain]]:
    """Sequences of like length, so few at a time that their covariances with so many label pairs
    fit into memory: packed rows, sequence numbers, chain."""
    C, layout = chain.n_labels, chain.layout
    draws = max(1, chain.unary.shape[:-2].numel())
    at_once = max(1, _NUMBERS_AT_ONCE // (draws * C * max(C, n_pairs)))
    bounds = bucket(layout.lengths[layout.order].tolist(), at_once)
    for first, last in itertools.pairwise(bounds):
        sequences = layout.order[first:last]
        part, rows = chain.select(sequences)
        yield rows, sequences, part


_NUMBERS_AT_ONCE = 2**20
"""Numbers that the covariances of one part may take."""
