"""What draws from a posterior over the weights say of tokens, entities and sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from bayeseq.chain import Chain, entropy, one_thread
from bayeseq.data.batch import SequenceBatch
from bayeseq.data.groups import column_groups
from bayeseq.data.labels import Labels
from bayeseq.data.schemes import Entity
from bayeseq.diagnostics.uncertainty import Uncertainty, uncertainty
from bayeseq.inference.unseen import name_keys, weights_of_names
from bayeseq.kernels.maps import LinearMap
from bayeseq.labelers.entities import EntityQuestion
from bayeseq.labelers.guards import numbered, require_positive
from bayeseq.labelers.mixture import information
from bayeseq.shapes import Layout

if TYPE_CHECKING:
    from bayeseq.labelers.chain import ChainLabeler

Seed = int | np.random.Generator | None


@dataclass(frozen=True, eq=False)
class SentenceUncertainty:
    """How unsure a model is of the whole labelling of each sequence, in nats, and of what kind.

    >>> from bayeseq import GPSL
    >>> X, y = [[["a"], ["b"]], [["b"], ["a"]]] * 3, [["A", "B"], ["B", "A"]] * 3
    >>> model = GPSL(progress=False).fit(X, y)
    >>> found = model.sentence_uncertainty([[["a"], ["c"]]], random_state=0)
    >>> bool((found.total >= found.aleatoric).all())
    True
    """

    total: np.ndarray
    """(B,) the entropy of the mean distribution over draws: aleatoric + epistemic"""
    aleatoric: np.ndarray
    """(B,) the mean entropy of the draws, exact: what each of them finds ambiguous"""
    epistemic: np.ndarray
    """(B,) the mutual information between labelling and weights: how far draws disagree. Estimated
    from one labelling of each draw, and at most log S with S draws"""
    standard_error: np.ndarray
    """(B,) of `epistemic` and of `total`, for these draws of the weights"""


class Draws:
    """Draws of a labeler's weights, and sequences to ask of them, part by part; with `unseen`, the
    weights of features that training never showed are drawn from their prior."""

    def __init__(
        self,
        model: ChainLabeler,
        X: Iterable[Any],
        draws: int | None,
        given: Labels | None,
        random_state: Seed,
        unseen: bool = False,
    ) -> None:
        model._require_posterior()
        X = list(X)
        self.model, self.batch = model, model._batch(X, given)
        self.n = model._default_draws if draws is None else draws
        require_positive("draws", self.n)
        self.seed = int(np.random.default_rng(random_state).integers(2**62))
        self.weights = model._drawn_weights(self.n, self.seed)
        self.unseen = _Unseen.of(model, X, self.batch) if unseen else None

    def parts(self) -> Iterator[tuple[np.ndarray, SequenceBatch]]:
        """Pieces for which all draws fit into memory, with their packed rows."""
        yield from self.model._parts(self.batch, max(1, self.n // self.model._copies))

    def marginals(self, rows: np.ndarray, part: SequenceBatch) -> Tensor:
        """(S, N, C) label probabilities of a part under each draw."""
        with numbered(part):
            return self.model._drawn_marginals(part, self.weights, self.seed, self._noise(rows))

    def chain(self, rows: np.ndarray, part: SequenceBatch) -> Chain:
        """The chain of a part under each draw."""
        return self.model._drawn_chain(part, self.weights, self.seed, self._noise(rows))

    def _noise(self, rows: np.ndarray) -> Tensor | None:
        return None if self.unseen is None else self.unseen.scores(rows, self.n, self.seed)


@dataclass(frozen=True, eq=False)
class _Unseen:
    """Features that training never showed, in the packed rows of a batch."""

    values: sp.csr_matrix
    """(N, J)"""
    keys: np.ndarray
    """(J,)"""
    sd: np.ndarray
    """(J, C) of their weights, by the prior"""

    @classmethod
    def of(cls, model: ChainLabeler, X: Sequence[Any], batch: SequenceBatch) -> _Unseen | None:
        """None where the prior gives them no weight."""
        names, values = model.feature_space_.unseen(X)
        sd = model._prior_sd(names)
        if not sd.any():
            return None
        return cls(values[batch.layout.rows.numpy()], name_keys(names), sd)

    def scores(self, rows: np.ndarray, draws: int, seed: int) -> Tensor:
        """(S, n, C) what they add to the local scores of some rows."""
        values = self.values[rows]
        there = np.unique(values.indices)
        sd = self.sd[there]
        weights = weights_of_names(self.keys[there], draws, sd.shape[1], seed) * sd[:, None]
        found = values[:, there] @ weights.reshape(len(there), draws * sd.shape[1])
        return torch.from_numpy(found.reshape(len(rows), draws, -1).transpose(1, 0, 2).copy())


@one_thread()
def token_draws(draws: Draws) -> list[np.ndarray]:
    """See `posterior_predict`."""
    batch, C = draws.batch, len(draws.model.classes_)
    found = np.zeros((batch.layout.n_tokens, draws.n, C))
    for rows, part in draws.parts():
        found[rows] = draws.marginals(rows, part).transpose(0, 1).numpy()
    ragged = draws.model._ragged(batch, found)
    return [np.ascontiguousarray(x.transpose(1, 0, 2)) for x in ragged]


@one_thread()
def token_uncertainty(draws: Draws) -> Uncertainty:
    """See `ChainLabeler.predict_uncertainty`."""
    B = draws.batch.layout.n_sequences
    total, aleatoric, epistemic = ([np.zeros(0)] * B for _ in range(3))
    for rows, part in draws.parts():
        proba = part.layout.split(draws.marginals(rows, part), dim=1)
        found = uncertainty([each.numpy() for each in proba])
        for b, i in enumerate(part.numbers.tolist()):
            total[i], aleatoric[i] = found.total[b], found.aleatoric[b]
            epistemic[i] = found.epistemic[b]
    return Uncertainty(total, aleatoric, epistemic)


@one_thread()
def entity_draws(
    draws: Draws, entities: Sequence[Sequence[Entity]], meaning: str
) -> list[np.ndarray]:
    """See `ChainLabeler.entity_draws`."""
    question = EntityQuestion(entities, meaning, draws.model.label_space_.classes)
    question.check(draws.batch)
    found = [np.zeros((draws.n, len(row))) for row in entities]
    for rows, part in draws.parts():
        places = question.places(part)
        if places:
            proba = question.proba(draws.chain(rows, part), part).numpy()
            for column, (i, k) in enumerate(places):
                found[i][:, k] = proba[:, column]
    return found


def yes_or_no(draws: Sequence[np.ndarray]) -> Uncertainty:
    """The uncertainty of questions answered yes with probabilities (S, K)."""
    return uncertainty([np.stack([p, 1 - p], -1) for p in draws])


@one_thread()
def sentence_uncertainty(draws: Draws) -> SentenceUncertainty:
    """See `ChainLabeler.sentence_uncertainty`."""
    aleatoric, epistemic, error = np.zeros((3, draws.batch.layout.n_sequences))
    generator = torch.Generator().manual_seed(draws.seed)
    for rows, part in draws.parts():
        chain = draws.chain(rows, part)
        with numbered(part):
            aleatoric[part.numbers] = entropy(chain).mean(0)
            epistemic[part.numbers], error[part.numbers] = information(chain, generator)
    return SentenceUncertainty(aleatoric + epistemic, aleatoric, epistemic, error)


def prior_sd(model: Any, names: Sequence[str]) -> np.ndarray:
    """(J, C) prior standard deviations of the weights of features by name, under a linear kernel
    whose groups go by name; 0 for names of a group that training never showed."""
    log_variance = model.posterior_.log_variance.numpy()
    found = np.zeros((len(names), log_variance.shape[1]))
    known = model.feature_space_.names
    if not names or not isinstance(model.feature_map_, LinearMap) or not _by_name(model.groups):
        return found
    _, old = column_groups(model.groups, known, len(known))
    number = {group: g for g, group in enumerate(old)}
    own, groups = column_groups(model.groups, names, len(names))
    places = np.array([number.get(group, -1) for group in groups])[own]
    found[places >= 0] = np.exp(log_variance[places[places >= 0]] / 2)
    return found


def _by_name(groups: Any) -> bool:
    return groups is None or isinstance(groups, str)


def position_noise(layout: Layout, draws: int, n_labels: int, seed: int) -> Tensor:
    """(S, N, C) standard normal numbers, the same for all tokens at one position, so that a
    sequence gets the same answer whatever else is asked."""
    _, position = layout.token_index
    shape = (len(layout.sizes), draws, n_labels)
    noise = torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))
    return noise[position].transpose(0, 1)
