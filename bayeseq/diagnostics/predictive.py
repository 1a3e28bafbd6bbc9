"""Do labels that a model makes up look like the real ones? Counts of labels, pairs and entities.

A statistic is a number of a whole corpus of labels. A model that fits gives, over many corpora
drawn from it, a distribution in which the real corpus is not out of place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np

from bayeseq.data.errors import DataError
from bayeseq.data.schemes import tags_to_entities
from bayeseq.diagnostics.bootstrap import band
from bayeseq.diagnostics.evaluation import _are_tags
from bayeseq.diagnostics.tables import aligned
from bayeseq.diagnostics.tokens import Floats, Labels, MaybeLabels, check_true

Statistic = Callable[[MaybeLabels], float]

LONGEST = 4
"""Entities at least so long are counted together."""


def label_statistics(
    y: MaybeLabels, classes: Sequence[str] | None = None, *, entities: bool | None = None
) -> dict[str, float]:
    """Numbers that describe labels: how often each stands, which follow each other, entities.

    Shares of tokens by label, shares of neighbouring pairs, and, where labels are tags of entities,
    how many entities of each type and of each length there are to a sentence. Tokens without a
    label are left out, and entities are read in sentences without such tokens only.

    Args:
        y: lists of str, None where missing.
        classes: the labels to count; those that occur, if None.
        entities: whether labels are tags with entities; None looks.

    >>> label_statistics([["B-X", "I-X", "O"]])["B-X, then I-X"]
    0.5
    >>> label_statistics([["B-X", "I-X", "O"]])["entities of 2 tokens"]
    1.0
    """
    check_true(y)
    known = [label for row in y for label in row if label is not None]
    if not known:
        raise DataError("y has no label to count")
    classes = sorted(set(known)) if classes is None else list(classes)
    entities = _are_tags(classes) and set(classes) != {"O"} if entities is None else entities
    tokens = Counter(known)
    pairs = Counter(
        pair for row in y for pair in pairwise(row) if pair[0] is not None and pair[1] is not None
    )
    n, m = len(known), max(1, pairs.total())
    found = {f"share of {label}": tokens[label] / n for label in classes}
    found |= {f"{a}, then {b}": pairs[a, b] / m for a in classes for b in classes}
    return found | _entity_statistics(y, classes) if entities else found


def _entity_statistics(y: MaybeLabels, classes: Sequence[str]) -> dict[str, float]:
    whole = [[str(label) for label in row] for row in y if None not in row]
    every = [entity for row in whole for entity in tags_to_entities(row)]
    n = max(1, len(whole))
    kinds = sorted({entity.label for tag in classes for entity in tags_to_entities([tag])})
    types = Counter(entity.label for entity in every)
    lengths = Counter(min(entity.end - entity.start, LONGEST) for entity in every)
    found = {f"{kind or 'untyped'} entities": types[kind] / n for kind in kinds}
    for length in range(1, LONGEST + 1):
        more = " or more" if length == LONGEST else ""
        name = f"entities of {length}{more} token{'s' * (length > 1)}"
        found[name] = lengths[length] / n
    return found


@dataclass(frozen=True, eq=False)
class PredictiveCheck:
    """Statistics of real labels beside those of labels that a model made up.

    Attributes:
        kind: "prior", "posterior" or what else the labels were drawn from.
        names: the K statistics.
        observed: (K,) of the real labels.
        replicated: (S, K) of S corpora of made-up labels.
        level: the share of replicates in the intervals.
    """

    kind: str
    names: tuple[str, ...]
    observed: Floats
    replicated: Floats
    level: float

    @property
    def lower(self) -> Floats:
        """(K,) the lower end of the interval of the replicates."""
        return band(self.replicated, self.level)[0]

    @property
    def upper(self) -> Floats:
        """(K,) the upper end."""
        return band(self.replicated, self.level)[1]

    @property
    def p_values(self) -> Floats:
        """(K,) twice the share of replicates beyond the observed number, on the side where fewer
        are; equal ones count half. Small: the model does not make up labels like these."""
        equal = (self.replicated == self.observed).mean(0) / 2
        below = (self.replicated < self.observed).mean(0) + equal
        return np.minimum(2 * np.minimum(below, 1 - below), 1.0)

    @property
    def surprising(self) -> tuple[str, ...]:
        """The statistics whose observed number is outside its interval, the oddest first."""
        p, low, high = self.p_values, self.lower, self.upper
        out = np.flatnonzero((self.observed < low) | (self.observed > high))
        return tuple(self.names[k] for k in out[np.argsort(p[out], kind="stable")])

    def of(self, name: str) -> tuple[float, Floats]:
        """The observed number of one statistic and its replicates (S,), for a picture."""
        if name not in self.names:
            raise KeyError(f"{name!r} is none of the statistics: {', '.join(self.names)}")
        k = self.names.index(name)
        return float(self.observed[k]), self.replicated[:, k]

    def table(self, most: int | None = 20) -> str:
        """The statistics as text, the oddest first, at most so many."""
        order = np.argsort(self.p_values, kind="stable")[:most]
        p, low, high = self.p_values, self.lower, self.upper
        rows = [["statistic", "observed", f"{self.level:.0%} of replicates", "p"]]
        rows += [
            [self.names[k], f"{self.observed[k]:.4f}", f"{low[k]:.4f} to {high[k]:.4f}", _p(p[k])]
            for k in order
        ]
        count = f"{len(self.surprising)} of {len(self.names)} statistics are outside their interval"
        return f"{self.kind} predictive check\n{aligned(rows)}\n{count}"

    def __str__(self) -> str:
        return self.table()


def check_labels(
    y: MaybeLabels,
    replicated: Sequence[Labels],
    *,
    classes: Sequence[str] | None = None,
    statistics: Mapping[str, Statistic] | None = None,
    kind: str = "posterior",
    level: float = 0.9,
) -> PredictiveCheck:
    """Compare statistics of real labels with those of made-up ones.

    Args:
        y: lists of str, None where missing; missing ones are left out of the replicates too.
        replicated: S labellings of all sentences, in the shape of y.
        classes: the labels to count; those that occur, if None.
        statistics: functions of labels in the shape of y, by name; `label_statistics`, if None.
        kind: what the replicates were drawn from.
        level: the share of replicates in the intervals.

    >>> y = [["A", "B"], ["B", "B"]]
    >>> found = check_labels(y, [[["A", "A"], ["A", "A"]]] * 20)
    >>> found.observed[found.names.index("share of A")], found.surprising[0]
    (np.float64(0.25), 'share of A')
    """
    if not len(replicated):
        raise DataError("there is no replicate to compare with")
    hidden = [_hide(y, labels, number) for number, labels in enumerate(replicated)]
    if statistics is None:
        if classes is None:
            every = chain.from_iterable(chain.from_iterable([y, *hidden]))
            classes = sorted({label for label in every if label is not None})
        rows = [label_statistics(labels, classes) for labels in [y, *hidden]]
    else:
        rows = [
            {name: float(of(labels)) for name, of in statistics.items()} for labels in [y, *hidden]
        ]
    names = tuple(rows[0])
    values = np.array([[row[name] for name in names] for row in rows])
    return PredictiveCheck(kind, names, values[0], values[1:], level)


def _hide(y: MaybeLabels, labels: Labels, number: int) -> MaybeLabels:
    """A replicate, with None where y has it."""
    if [len(row) for row in labels] != [len(row) for row in y]:
        raise DataError(f"replicate {number} (from 0) has not the shape of y")
    return [
        [None if true is None else label for true, label in zip(truth, row, strict=True)]
        for truth, row in zip(y, labels, strict=True)
    ]


def _p(value: Any) -> str:
    return f"{value:.3f}"
