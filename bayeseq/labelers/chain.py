"""Labelers whose scores form a chain: everything exact that a chain can answer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bayeseq.chain import (
    Chain,
    ImpossibleSequenceError,
    constrain,
    entropy,
    forward_backward,
    kbest,
    log_partition,
    one_thread,
    sample,
    score,
    span_log_prob,
    viterbi,
)
from bayeseq.data.batch import SequenceBatch
from bayeseq.data.errors import DataError
from bayeseq.data.labels import Labels
from bayeseq.data.schemes import (
    Entity,
    continues,
    entity_types,
    scheme_constraints,
    tags_to_entities,
)
from bayeseq.labelers.base import SequenceLabeler, TrainingData


class ScoredLabelling(NamedTuple):
    """A labelling of one sequence and its probability."""

    labels: list[str]
    probability: float


class RankedLabelling(NamedTuple):
    """A labelling of one sequence and its score."""

    labels: list[str]
    score: float


class ScoredEntity(NamedTuple):
    """An entity at [start, end) and the probability of exactly these boundaries and this label."""

    start: int
    end: int
    label: str
    score: float


class ChainLabeler(SequenceLabeler):
    """A labeler that scores labels and neighbouring label pairs (a subclass writes `_scores`).

    Two parameters are common to all of them. `decode` says what `predict` returns: "viterbi", the
    one most probable labelling, or "marginal", the most probable label of each token; the two can
    differ, and neither is a mistake. `scheme` names a tag scheme ("IOB2", "BIOES", …) whose
    forbidden label pairs then have probability zero everywhere.

    Scores may have a leading axis of draws from a posterior. Then the labellings' distribution is
    the mean of those of the draws, and every probability here is a probability under that mixture.
    Single labellings ("viterbi", `predict_nbest`) are those of the mean scores, weighed by the
    mixture.
    """

    decode: str
    scheme: str | None

    # the arrays of a chain are too small to share between threads
    predict = one_thread()(SequenceLabeler.predict)
    predict_proba = one_thread()(SequenceLabeler.predict_proba)
    tag = one_thread()(SequenceLabeler.tag)

    @abstractmethod
    def _scores(self, batch: SequenceBatch) -> Chain:
        """The log-potentials of packed sequences."""

    @property
    def _copies(self) -> int:
        """How many chains `_scores` gives for each sequence."""
        return 1

    def _parts(
        self, batch: SequenceBatch, copies: int = 1
    ) -> Iterable[tuple[np.ndarray, SequenceBatch]]:
        return super()._parts(batch, copies * self._copies)

    def _chain(self, batch: SequenceBatch) -> Chain:
        chain = self._scores(batch)
        if batch.allowed is not None:
            chain = constrain(chain, allowed=batch.allowed)
        return obey_scheme(chain, self.scheme, self.label_space_.classes)

    def _marginals(self, batch: SequenceBatch) -> np.ndarray:
        with numbered(batch):
            return _mean(forward_backward(self._chain(batch)).unary, 2).numpy()

    def _decode(self, batch: SequenceBatch) -> np.ndarray:
        check_choice("decode", self.decode, ("viterbi", "marginal"))
        if self.decode == "marginal":
            return self._marginals(batch).argmax(-1)
        with numbered(batch):
            return viterbi(mean_chain(self._chain(batch))).labels.numpy()

    def _answers(self, batch: SequenceBatch) -> tuple[np.ndarray, np.ndarray]:
        check_choice("decode", self.decode, ("viterbi", "marginal"))
        chain = self._chain(batch)
        with numbered(batch):
            proba = _mean(forward_backward(chain).unary, 2).numpy()
            if self.decode == "marginal":
                return proba.argmax(-1), proba
            return viterbi(mean_chain(chain)).labels.numpy(), proba

    @one_thread()
    def predict_nbest(
        self, X: Iterable[Any], n: int, given: Labels | None = None
    ) -> list[list[ScoredLabelling]]:
        """The n most probable labellings of each sequence with their probabilities, best first
        (fewer where a sequence has fewer)."""
        require_positive("n", n)
        batch = self._batch(X, given)
        found: list[list[ScoredLabelling]] = [[] for _ in range(batch.layout.n_sequences)]
        for _, part in self._parts(batch, n):
            with numbered(part):
                chain = self._chain(part)
                best, log_z = kbest(mean_chain(chain), n), log_partition(chain)
            for labels, score_of in zip(best.labels, best.score, strict=True):
                possible = torch.isfinite(score_of)
                p = _mean((score(chain, labels) - log_z).exp(), 1)
                proba = torch.where(possible, p, torch.zeros_like(p)).tolist()
                for b, row in enumerate(part.layout.split(labels)):
                    if proba[b] > 0:
                        names = self.classes_[row.numpy()].tolist()
                        found[part.numbers[b]].append(ScoredLabelling(names, proba[b]))
        return [sorted(rows, key=lambda row: -row.probability) for rows in found]

    @one_thread()
    def rank_labellings(
        self, X: Iterable[Any], n: int, given: Labels | None = None
    ) -> list[list[RankedLabelling]]:
        """The n best labellings of each sequence with their scores, best first (fewer where a
        sequence has fewer): log-probabilities, or the model's own scores where it has none."""
        require_positive("n", n)
        return [
            [RankedLabelling(self.classes_[row].tolist(), s) for row, s in zip(*found, strict=True)]
            for found in self._ranked(self._batch(X, given), n)
        ]

    def _ranked(self, batch: SequenceBatch, n: int) -> list[tuple[np.ndarray, list[float]]]:
        """The labellings (n, T) of each sequence by number, and their scores."""
        found = [(np.zeros((0, 0), np.int64), [0.0])] * batch.layout.n_sequences
        place = {number: i for i, number in enumerate(batch.numbers.tolist())}
        for _, part in self._parts(batch, n):
            with numbered(part):
                chain = self._chain(part)
                best = kbest(chain, n)
            score = best.score - log_partition(chain) if self.has_probabilities else best.score
            for b, labels in enumerate(part.layout.split(best.labels, dim=-1)):
                some = torch.isfinite(score[:, b])
                ranked = (labels[some].numpy(), score[some, b].tolist())
                found[place[int(part.numbers[b])]] = ranked
        return found

    def predict_entities(
        self, X: Iterable[Any], given: Labels | None = None
    ) -> list[list[ScoredEntity]]:
        """The entities of the predicted labels, each with the probability that exactly this
        stretch of tokens is an entity of exactly this type."""
        X = list(X)
        entities = [tags_to_entities(labels) for labels in self.predict(X, given)]
        scores = self.entity_proba(X, entities, given)
        return [
            [ScoredEntity(*entity, p) for entity, p in zip(row, proba.tolist(), strict=True)]
            for row, proba in zip(entities, scores, strict=True)
        ]

    @one_thread()
    def entity_proba(
        self, X: Iterable[Any], entities: Sequence[Sequence[Entity]], given: Labels | None = None
    ) -> list[np.ndarray]:
        """The probability of each candidate entity (start, end, label), on the best path or not:
        exactly these boundaries and this label, summed over all labellings that say so."""
        batch = self._batch(X, given)
        if len(entities) != batch.layout.n_sequences:
            raise DataError(
                f"X has {batch.layout.n_sequences} sequences, entities has {len(entities)}"
            )
        types = entity_types(self.label_space_.classes)
        joins = torch.from_numpy(continues(self.label_space_.classes))
        members = {
            kind: torch.tensor([kind == found for found in types]) for kind in set(types) - {None}
        }
        none = torch.zeros(len(types), dtype=torch.bool)
        proba = [np.zeros(len(row)) for row in entities]
        for _, part in self._parts(batch):
            spans, inside, places = [], [], []
            for b, i in enumerate(part.numbers.tolist()):
                for k, (start, end, label) in enumerate(entities[i]):
                    n = int(part.layout.lengths[b])
                    if not 0 <= start < end <= n:
                        raise DataError(
                            f"sequence {i}: entity ({start}, {end}, {label!r}) does not lie in its "
                            f"{n} tokens"
                        )
                    spans.append((b, start, end))
                    inside.append(members.get(label, none))
                    places.append((i, k))
            if spans:
                with numbered(part):
                    found = span_log_prob(
                        self._chain(part), torch.tensor(spans), torch.stack(inside), joins
                    )
                for (i, k), p in zip(places, _mean(found.exp(), 1).tolist(), strict=True):
                    proba[i][k] = min(p, 1.0)
        return proba

    @one_thread()
    def log_likelihood(self, X: Iterable[Any], y: Labels) -> np.ndarray:
        """(B,) log p(y | x) of each sequence; missing labels and label sets are summed over."""
        batch = self._batch(X, list(y))
        found = np.zeros(batch.layout.n_sequences)
        for _, part in self._parts(batch):
            classes = self.label_space_.classes
            free = obey_scheme(self._scores(part), self.scheme, classes)
            each = log_partition(self._chain(part)) - log_partition(free)
            found[part.numbers] = _log_mean(each)
        return found

    @one_thread()
    def predict_entropy(self, X: Iterable[Any], given: Labels | None = None) -> np.ndarray:
        """(B,) the entropy in nats of each sequence's distribution over whole labellings; that of a
        mixture is estimated from labellings drawn from it, the same ones each time."""
        batch = self._batch(X, given)
        found = np.zeros(batch.layout.n_sequences)
        for _, part in self._parts(batch):
            with numbered(part):
                chain = self._chain(part)
                mixed = chain.unary.dim() > 2
                found[part.numbers] = _mixture_entropy(chain) if mixed else entropy(chain)
        return found

    @one_thread()
    def sample_labels(
        self,
        X: Iterable[Any],
        draws: int,
        given: Labels | None = None,
        random_state: int | np.random.Generator | None = None,
    ) -> list[list[list[str]]]:
        """For each sequence, `draws` labellings drawn from the model's distribution."""
        require_positive("draws", draws)
        batch = self._batch(X, given)
        seed = np.random.default_rng(random_state).integers(2**63)
        generator = torch.Generator().manual_seed(int(seed))
        found: list[list[list[str]]] = [[] for _ in range(batch.layout.n_sequences)]
        for _, part in self._parts(batch, draws):
            with numbered(part):
                drawn = _sampled(self._chain(part), draws, generator)
            for b, rows in enumerate(part.layout.split(drawn, dim=-1)):
                found[part.numbers[b]] = self.classes_[rows.numpy()].tolist()
        return found


def mean_chain(chain: Chain) -> Chain:
    """The chain of the mean scores over draws, or the chain itself where there are none."""
    if chain.unary.dim() == 2:
        return chain
    return Chain(chain.unary.mean(0), chain.transitions.mean(0), chain.layout)


def _mean(values: Tensor, dims: int) -> Tensor:
    """The mean over draws of values with so many axes besides."""
    return values.mean(0) if values.dim() > dims else values


def _log_mean(values: Tensor) -> Tensor:
    """(B,) the logarithm of the mean over draws of exp(values)."""
    if values.dim() == 1:
        return values
    return torch.logsumexp(values, 0) - np.log(len(values))


def _sampled(chain: Chain, draws: int, generator: torch.Generator) -> Tensor:
    """(draws, N) labellings of a chain, or of a mixture: each from one of its chains by lot."""
    if chain.unary.dim() == 2:
        return sample(chain, draws, generator)
    which = torch.randint(len(chain.unary), (draws,), generator=generator)
    picked = Chain(chain.unary[which], chain.transitions[which], chain.layout)
    return sample(picked, 1, generator)[0]


def _mixture_entropy(chain: Chain) -> Tensor:
    """(B,) −log p of labellings drawn from a mixture, on average: one from each of its chains."""
    drawn = sample(chain, 1, torch.Generator().manual_seed(0))[0]
    log_z = log_partition(chain)
    log_p = [_log_mean(score(chain, labels) - log_z) for labels in drawn]
    return -torch.stack(log_p).mean(0)


def obey_scheme(chain: Chain, scheme: str | None, classes: Sequence[str]) -> Chain:
    """The chain with the label pairs that a tag scheme forbids taken out."""
    if scheme is None:
        return chain
    rules = scheme_constraints(classes, scheme)
    return constrain(
        chain,
        pairs=torch.from_numpy(rules.pairs),
        start=torch.from_numpy(rules.start),
        end=torch.from_numpy(rules.end),
    )


def require_scheme(data: TrainingData, scheme: str) -> None:
    """Refuse training labels that a tag scheme forbids, by the number of the sequence."""
    batch, C = data.batch, len(data.labels.classes)
    zeros = torch.zeros((batch.layout.n_tokens, C), dtype=torch.float64)
    chain = constrain(Chain(zeros, zeros.new_zeros(C, C), batch.layout), allowed=batch.allowed)
    possible = torch.isfinite(log_partition(obey_scheme(chain, scheme, data.labels.classes)))
    if not bool(possible.all()):
        raise DataError(
            f"sequence {int((~possible).nonzero()[0])}: its labels are not {scheme}; "
            "convert them with convert_tags, or leave out the scheme"
        )


def possible_labels(data: TrainingData, scheme: str) -> torch.Tensor:
    """(N, C) the labels that each token may have, as far as its neighbours and a scheme leave."""
    batch, C = data.batch, len(data.labels.classes)
    zeros = torch.zeros((batch.layout.n_tokens, C), dtype=torch.float64)
    chain = constrain(Chain(zeros, zeros.new_zeros(C, C), batch.layout), allowed=batch.allowed)
    return forward_backward(obey_scheme(chain, scheme, data.labels.classes)).unary > 0


def require_positive(name: str, value: int) -> None:
    """Refuse a count below one."""
    if value < 1:
        raise ValueError(f"{name} is {value}; it must be at least 1")


def check_choice(name: str, value: Any, choices: Sequence[Any]) -> None:
    """Refuse a parameter that is none of the names it may be."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; expected one of {', '.join(map(repr, choices))}")


@contextmanager
def numbered(batch: SequenceBatch) -> Iterator[None]:
    """Name the caller's sequence, not the batch's, when one is impossible."""
    try:
        yield
    except ImpossibleSequenceError as error:
        number = int(batch.numbers[error.sequence])
        raise ImpossibleSequenceError(number, error.reason) from None
