"""Labelers whose scores form a chain: everything exact that a chain can answer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bayeseq.chain import (
    Chain,
    constrain,
    entropy,
    forward_backward,
    kbest,
    log_partition,
    one_thread,
    score,
    viterbi,
)
from bayeseq.data.batch import SequenceBatch
from bayeseq.data.errors import DataError
from bayeseq.data.labels import Labels
from bayeseq.data.schemes import Entity, scheme_constraints, tags_to_entities
from bayeseq.diagnostics.uncertainty import Uncertainty
from bayeseq.labelers.base import SequenceLabeler, TrainingData
from bayeseq.labelers.entities import EntityQuestion
from bayeseq.labelers.guards import check_choice, numbered, require_positive
from bayeseq.labelers.mixture import log_mean, mean_chain, mean_of, mixture_entropy, sampled
from bayeseq.labelers.uncertain import (
    Draws,
    Seed,
    SentenceUncertainty,
    entity_draws,
    sentence_uncertainty,
    token_uncertainty,
    yes_or_no,
)


class ScoredLabelling(NamedTuple):
    """A labelling of one sequence and its probability."""

    labels: list[str]
    probability: float


class RankedLabelling(NamedTuple):
    """A labelling of one sequence and its score."""

    labels: list[str]
    score: float


class ScoredEntity(NamedTuple):
    """An entity at [start, end) and its probability: of exactly these boundaries and this label,
    unless another meaning was asked for."""

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
            return mean_of(forward_backward(self._chain(batch)).unary, 2).numpy()

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
            proba = mean_of(forward_backward(chain).unary, 2).numpy()
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
                p = mean_of((score(chain, labels) - log_z).exp(), 1)
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
        self, X: Iterable[Any], given: Labels | None = None, meaning: str = "exact"
    ) -> list[list[ScoredEntity]]:
        """The entities of the predicted labels, each with its probability; see `entity_proba` for
        what it means: by default that exactly this stretch of tokens is an entity of exactly this
        type."""
        X = list(X)
        entities = [tags_to_entities(labels) for labels in self.predict(X, given)]
        scores = self.entity_proba(X, entities, given, meaning)
        return [
            [ScoredEntity(*entity, p) for entity, p in zip(row, proba.tolist(), strict=True)]
            for row, proba in zip(entities, scores, strict=True)
        ]

    @one_thread()
    def entity_proba(
        self,
        X: Iterable[Any],
        entities: Sequence[Sequence[Entity]],
        given: Labels | None = None,
        meaning: str = "exact",
    ) -> list[np.ndarray]:
        """The probability of each candidate entity (start, end, label), on the best path or not.

        `meaning` says of what: "exact", that an entity has exactly these boundaries and this label;
        "boundaries", that one has exactly these boundaries, whatever its label; "overlap", that one
        with this label has at least one token in the span. Each is the sum over all labellings that
        say so, in the reading of `tags_to_entities`, and exact. A label that training never saw has
        probability 0.
        """
        batch = self._batch(X, given)
        question = EntityQuestion(entities, meaning, self.label_space_.classes)
        question.check(batch)
        proba = [np.zeros(len(row)) for row in entities]
        for _, part in self._parts(batch):
            places = question.places(part)
            if places:
                found = mean_of(question.proba(self._chain(part), part), 1)
                for (i, k), p in zip(places, found.tolist(), strict=True):
                    proba[i][k] = p
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
            found[part.numbers] = log_mean(each)
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
                found[part.numbers] = mixture_entropy(chain) if mixed else entropy(chain)
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
                drawn = sampled(self._chain(part), draws, generator)
            for b, rows in enumerate(part.layout.split(drawn, dim=-1)):
                found[part.numbers[b]] = self.classes_[rows.numpy()].tolist()
        return found

    # ---- draws from a posterior -----------------------------------------------------------------

    def predict_uncertainty(
        self,
        X: Iterable[Any],
        draws: int | None = None,
        given: Labels | None = None,
        random_state: Seed = None,
        unseen: bool = True,
    ) -> Uncertainty:
        """How unsure each token's label is, and of what kind: `total`, `aleatoric` and `epistemic`,
        a (T,) array of nats a sequence, from draws of the weights.

        100 draws, or all that were kept, unless `draws` says how many. A feature that training
        never showed has a weight too, of which its prior is all that is known: with a linear kernel
        it is drawn from there. Probabilities leave such features out, and so does
        `unseen=False`, which takes the draws of `posterior_predict` as they are. A labeler without
        a posterior raises `NoPosteriorError`.
        """
        return token_uncertainty(Draws(self, X, draws, given, random_state, unseen))

    def sentence_uncertainty(
        self,
        X: Iterable[Any],
        draws: int | None = None,
        given: Labels | None = None,
        random_state: Seed = None,
        unseen: bool = True,
    ) -> SentenceUncertainty:
        """The same of whole labellings: (B,) arrays of nats, from chains of drawn weights."""
        return sentence_uncertainty(Draws(self, X, draws, given, random_state, unseen))

    def entity_draws(
        self,
        X: Iterable[Any],
        entities: Sequence[Sequence[Entity]],
        draws: int | None = None,
        given: Labels | None = None,
        random_state: Seed = None,
        meaning: str = "exact",
        unseen: bool = False,
    ) -> list[np.ndarray]:
        """(S, K) the probability of each candidate entity under each draw of the weights, for each
        sequence; `meaning` as in `entity_proba`. Quantiles over draws are an interval."""
        asked = Draws(self, X, draws, given, random_state, unseen)
        return entity_draws(asked, entities, meaning)

    def entity_uncertainty(
        self,
        X: Iterable[Any],
        entities: Sequence[Sequence[Entity]],
        draws: int | None = None,
        given: Labels | None = None,
        random_state: Seed = None,
        meaning: str = "exact",
        unseen: bool = True,
    ) -> Uncertainty:
        """How unsure it is whether each candidate is an entity, yes or no, and of what kind: a (K,)
        array of nats a sequence, from `entity_draws` with the same arguments."""
        args = entities, draws, given, random_state, meaning, unseen
        return yes_or_no(self.entity_draws(X, *args))

    @property
    def _default_draws(self) -> int:
        return 100

    def _drawn_weights(self, draws: int, seed: int) -> Tensor:
        """(S, …) draws of the weights."""
        raise NotImplementedError

    def _drawn_chain(
        self, part: SequenceBatch, weights: Tensor, seed: int, noise: Tensor | None
    ) -> Chain:
        """The chain of a part under each draw, with all that is known and forbidden; `noise`
        (S, N, C) is what else the draws add to the local scores."""
        raise NotImplementedError

    def _drawn_marginals(
        self, part: SequenceBatch, weights: Tensor, seed: int, noise: Tensor | None
    ) -> Tensor:
        """(S, N, C) label probabilities of a part under each draw."""
        return forward_backward(self._drawn_chain(part, weights, seed, noise)).unary

    def _prior_sd(self, names: Sequence[str]) -> np.ndarray:
        """(J, C) the prior standard deviations of the weights of features by name; 0 where the
        labeler's prior says nothing of them, as by itself."""
        return np.zeros((len(names), len(self.classes_)))


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
