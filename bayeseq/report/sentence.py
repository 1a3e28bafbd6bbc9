"""One sentence with everything that a model says of it: labels, probabilities, draws of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from bayeseq.data.errors import DataError
from bayeseq.data.schemes import entity_types, tags_to_entities
from bayeseq.diagnostics.tokens import Floats, check_predicted, check_true, token_table
from bayeseq.diagnostics.uncertainty import Uncertainty, uncertainty


class Stretch(NamedTuple):
    """Neighbouring tokens that are shown as one thing: an entity, or a single token."""

    start: int
    end: int
    label: str | None
    """The type of an entity, the label of a token; None for a token outside of any entity"""
    probability: float | None
    """Of exactly this stretch and type, or of the token's label; None where nobody computed it"""
    interval: tuple[float, float] | None
    """Of the probability over draws from a posterior"""
    epistemic: float | None
    """The share of its tokens' uncertainty that is epistemic; None without a posterior"""
    truth: tuple[str | None, ...]
    """The true labels of its tokens where any of them is wrong, otherwise ()"""


class Guess(NamedTuple):
    """A label that a token may have, its probability, and the interval of that over draws."""

    label: str
    probability: float
    interval: tuple[float, float] | None


@dataclass(frozen=True, eq=False)
class TaggedSentence:
    """A sentence with its predicted labels and what is known of how sure they are.

    Attributes:
        words: the T tokens as a reader should see them.
        labels: the T predicted labels.
        classes: the C labels there are; needed with `proba`.
        proba: (T, C) label probabilities; None for a model that has none.
        draws: (S, T, C) label probabilities under draws from a posterior; None without one.
        entity_proba: the probability of each entity of `tags_to_entities(labels)`, in that order;
            None where nobody computed it, and tokens then stand for themselves.
        entity_draws: (S, entities) the same under draws from a posterior.
        uncertainty: of the tokens of this one sentence; None takes it from `draws`.
        truth: the T true labels, None where one is missing; or None.
        level: the share of draws in credible intervals.

    >>> sentence = TaggedSentence(["Ann", "ran"], ["B-PER", "O"])
    >>> [stretch.label for stretch in sentence.stretches]
    ['PER', None]
    """

    words: Sequence[str]
    labels: Sequence[str]
    classes: Sequence[str] = ()
    proba: Any = None
    draws: Any = None
    entity_proba: Any = None
    entity_draws: Any = None
    uncertainty: Uncertainty | None = None
    truth: Sequence[str | None] | None = None
    level: float = 0.9

    def __post_init__(self) -> None:
        if isinstance(self.words, str) or not all(isinstance(word, str) for word in self.words):
            raise DataError(f"a list of words is expected, and {self.words!r} is found")
        T, C = len(self.words), len(self.classes)
        check_predicted([self.labels], [T])
        if self.truth is not None:
            check_true([self.truth])
            if len(self.truth) != T:
                raise DataError(f"{T} words have {len(self.truth)} true labels")
        if not 0 < self.level < 1:
            raise ValueError(f"level is {self.level}; it must be between 0 and 1")
        if self.proba is not None:
            found = token_table([[None] * T], [self.proba], self.classes).proba
            object.__setattr__(self, "proba", found)
            strange = sorted(set(self.labels) - set(self.classes))
            if strange:
                raise DataError(f"labels: {strange[0]!r} is not among the classes")
        for name, shape in (("draws", (T, C)), ("entity_draws", (len(self._entities),))):
            self._keep_draws(name, shape)
        if self.uncertainty is not None and [len(x) for x in self.uncertainty.total] != [T]:
            raise DataError(f"uncertainty: expected that of one sentence of {T} tokens")
        if self.entity_proba is not None:
            p = np.asarray(self.entity_proba, dtype=np.float64)
            if p.shape != (len(self._entities),) or not ((p >= 0) & (p <= 1)).all():
                raise DataError(
                    f"entity_proba: expected {len(self._entities)} probabilities, one for each "
                    "entity of the labels"
                )
            object.__setattr__(self, "entity_proba", p)

    def _keep_draws(self, name: str, shape: tuple[int, ...]) -> None:
        """Check draws (S, *shape), and keep them as an array."""
        if getattr(self, name) is None:
            return
        array = np.asarray(getattr(self, name), dtype=np.float64)
        if self.proba is None:
            raise DataError(f"{name} come with the probabilities that they vary around: pass proba")
        if array.ndim != 1 + len(shape) or array.shape[1:] != shape or not len(array):
            raise DataError(f"{name} has shape {array.shape}, expected (draws, *{shape})")
        object.__setattr__(self, name, array)

    @cached_property
    def has_entities(self) -> bool:
        """Whether the labels spell entities: tags with an O among them, or with types. A scheme of
        letters alone that leaves nothing outside (B and I) only cuts text into pieces."""
        labels = {*self.labels, *self.classes, *(x for x in self.truth or () if x is not None)}
        try:
            types = set(entity_types(sorted(labels)))
        except DataError:
            return False
        return None in types or types != {""}

    @property
    def is_exact(self) -> bool:
        """Whether all its entities, if any, come with the probability of the whole entity."""
        return self.entity_proba is not None or not self._entities

    @cached_property
    def kinds(self) -> list[str]:
        """What there is to tell apart: the types of entities, or the labels, in one order."""
        labels = list(self.classes) or sorted({*self.labels})
        if not self.has_entities:
            return labels
        return sorted({kind for kind in entity_types(labels) if kind is not None})

    @cached_property
    def doubt(self) -> Uncertainty | None:
        """The uncertainty of each token, by kind; None without a posterior."""
        if self.uncertainty is not None or self.draws is None:
            return self.uncertainty
        return uncertainty([self.draws])

    @cached_property
    def confidence(self) -> Floats | None:
        """(T,) the probability of each predicted label."""
        if self.proba is None:
            return None
        column = {label: c for c, label in enumerate(self.classes)}
        return np.array([self.proba[t, column[label]] for t, label in enumerate(self.labels)])

    @cached_property
    def wrong(self) -> list[bool]:
        """Whether each token's label is another than the true one; not where that is missing."""
        truth = self.truth or [None] * len(self.words)
        return [
            true is not None and true != label
            for true, label in zip(truth, self.labels, strict=True)
        ]

    @cached_property
    def _entities(self) -> list[Any]:
        return list(tags_to_entities(self.labels)) if self.has_entities else []

    @cached_property
    def stretches(self) -> list[Stretch]:
        """The sentence from left to right, without a gap."""
        found: list[Stretch] = []
        for k, (start, end, label) in enumerate(self._entities):
            found += [self._token(t) for t in range(found[-1].end if found else 0, start)]
            probability = None if self.entity_proba is None else float(self.entity_proba[k])
            draws = None if self.entity_draws is None else self.entity_draws[:, k]
            found.append(
                Stretch(
                    start,
                    end,
                    label,
                    probability,
                    self._interval(draws),
                    self._epistemic(start, end),
                    self._corrected(start, end),
                )
            )
        last = found[-1].end if found else 0
        return found + [self._token(t) for t in range(last, len(self.words))]

    @cached_property
    def corrections(self) -> list[tuple[str | None, ...]]:
        """For each stretch the true labels to tell after it, () for none: those of neighbouring
        tokens outside of any entity are told together, after the last of them."""
        found: list[tuple[str | None, ...]] = []
        waiting: tuple[str | None, ...] = ()
        for stretch, after in itertools.zip_longest(self.stretches, self.stretches[1:]):
            waiting += stretch.truth
            goes_on = after is not None and after.label is None and after.truth
            if stretch.label is None and stretch.truth and goes_on:
                found.append(())
            else:
                found.append(waiting)
                waiting = ()
        return found

    def guesses(self, t: int, most: int = 3) -> list[Guess]:
        """The most probable labels of a token, best first; none without probabilities. Those of
        less than half a per cent are left out, but for the best."""
        if self.proba is None:
            return []
        order = np.argsort(-self.proba[t], kind="stable")[:most].tolist()
        return [
            Guess(
                self.classes[c],
                float(self.proba[t, c]),
                self._interval(None if self.draws is None else self.draws[:, t, c]),
            )
            for rank, c in enumerate(order)
            if rank == 0 or self.proba[t, c] >= 0.005
        ]

    def _token(self, t: int) -> Stretch:
        """A token that is no part of an entity."""
        probability, draws = None, None
        if self.confidence is not None:
            probability = float(self.confidence[t])
            if self.draws is not None:
                draws = self.draws[:, t, list(self.classes).index(self.labels[t])]
        label = None if self.has_entities else self.labels[t]
        epistemic, truth = self._epistemic(t, t + 1), self._corrected(t, t + 1)
        return Stretch(t, t + 1, label, probability, self._interval(draws), epistemic, truth)

    def _epistemic(self, start: int, end: int) -> float | None:
        if self.doubt is None:
            return None
        total = float(self.doubt.total[0][start:end].sum())
        return float(self.doubt.epistemic[0][start:end].sum()) / total if total > 0 else 0.0

    def _corrected(self, start: int, end: int) -> tuple[str | None, ...]:
        if self.truth is None or not any(self.wrong[start:end]):
            return ()
        return tuple(self.truth[start:end])

    def _interval(self, draws: Floats | None) -> tuple[float, float] | None:
        if draws is None:
            return None
        low, high = np.quantile(draws, [(1 - self.level) / 2, (1 + self.level) / 2])
        return float(low), float(high)


def runs(labels: Sequence[str | None]) -> list[tuple[str, int]]:
    """Labels with how many of them follow each other, "?" for a missing one.

    >>> runs(["B", "I", "I", None])
    [('B', 1), ('I', 2), ('?', 1)]
    """
    names = ("?" if label is None else label for label in labels)
    return [(name, len(list(same))) for name, same in itertools.groupby(names)]
