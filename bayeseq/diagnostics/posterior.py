"""What draws from a posterior say of weights and of a sentence: means, spreads and intervals.

Draws are arrays with the draws leftmost, (S, ...), or the named arrays of `to_arviz`, whose axes
`chain` and `draw` are joined and whose coordinates name the rest. Intervals are central: as many
draws lie below as above.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayeseq.data.errors import DataError
from bayeseq.diagnostics.tokens import Bools, Floats, class_codes

OTHERS = "other labels"
"""The name of the labels that `sentence_posterior` puts together."""


@dataclass(frozen=True, eq=False)
class TransitionPosterior:
    """The weight of each label beside each other label, and how well the data pinned it down.

    Attributes:
        labels: the C labels.
        offset: where the neighbour of a row stands: −1 is the label before.
        mean, sd: (C, C), over draws; rows are the neighbour's label, columns the token's own.
        lower, upper: (C, C), the interval that holds `level` of the draws.
        level: the share of draws in the interval.
    """

    labels: tuple[str, ...]
    offset: int
    mean: Floats
    sd: Floats
    lower: Floats
    upper: Floats
    level: float

    @property
    def undecided(self) -> Bools:
        """(C, C) where the interval holds 0, so that not even the sign is known."""
        return (self.lower <= 0) & (self.upper >= 0)


def transition_posterior(
    draws: Any, labels: Sequence[str] | None = None, *, offset: int = -1, level: float = 0.9
) -> TransitionPosterior:
    """Mean, spread and interval of each label pair's weight.

    Args:
        draws: (S, C, C) with axes [draw, neighbour's label, label], or `dependency` of `to_arviz`:
            `model.to_arviz(X, y)["posterior"]["dependency"]`.
        labels: the C labels; a named array brings its own.
        offset: which neighbour of a named array; −1 is the label before.
        level: the share of draws in the interval.

    >>> found = transition_posterior([[[1.0, 0.0]] * 2, [[3.0, 0.0]] * 2], ["B", "O"])
    >>> found.mean[0], found.undecided[0]
    (array([2., 0.]), array([False,  True]))
    """
    if hasattr(draws, "dims"):
        offsets = [int(value) for value in draws.coords["offset"].values]
        if offset not in offsets:
            raise ValueError(f"offset is {offset}; the draws have {offsets}")
        draws = draws.sel(offset=offset)
    array, (rows, names) = _named_draws(draws, ("neighbour_label", "own_label"), (labels, labels))
    if list(rows) != list(names):
        raise DataError("draws: the rows' labels are not those of the columns")
    class_codes(names)
    lower, upper = _interval(array, level)
    return TransitionPosterior(
        tuple(names), offset, array.mean(0), array.std(0, ddof=1), lower, upper, level
    )


@dataclass(frozen=True, eq=False)
class WeightPosterior:
    """The weight of each feature for each label, with its interval.

    Attributes:
        features: the K features.
        labels: the C labels.
        mean, lower, upper: (K, C), the mean of the draws and the interval around most of them.
        level: the share of draws in the interval.
    """

    features: tuple[str, ...]
    labels: tuple[str, ...]
    mean: Floats
    lower: Floats
    upper: Floats
    level: float


def weight_posterior(
    draws: Any,
    features: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    *,
    level: float = 0.9,
) -> WeightPosterior:
    """Mean and interval of each feature's weights.

    Args:
        draws: (S, K, C), or `weight` of `to_arviz`:
            `model.to_arviz(X, y, weights=20)["posterior"]["weight"]`.
        features: the K features; a named array brings its own.
        labels: the C labels; a named array brings its own.
        level: the share of draws in the interval.

    >>> found = weight_posterior([[[1.0, 0.0]], [[3.0, 0.0]]], ["w=the"], ["B", "O"])
    >>> found.mean, found.upper
    (array([[2., 0.]]), array([[2.9, 0. ]]))
    """
    array, (names, columns) = _named_draws(draws, ("feature", "own_label"), (features, labels))
    class_codes(columns)
    lower, upper = _interval(array, level)
    return WeightPosterior(tuple(names), tuple(columns), array.mean(0), lower, upper, level)


@dataclass(frozen=True, eq=False)
class SentencePosterior:
    """The label probabilities along one sentence, with how far draws from the posterior spread.

    Attributes:
        words: the T words.
        labels: the L labels that are shown; the last may be "other labels", a sum.
        classes: all C labels.
        middle, lower, upper: (T, L), the median over draws and the interval around most of them.
        level: the share of draws in the interval.
        draws: the number of draws.
        truth: the T true labels, None where unknown; or None.
    """

    words: tuple[str, ...]
    labels: tuple[str, ...]
    classes: tuple[str, ...]
    middle: Floats
    lower: Floats
    upper: Floats
    level: float
    draws: int
    truth: tuple[str | None, ...] | None


def sentence_posterior(
    draws: Any,
    classes: Sequence[str],
    words: Sequence[str] | None = None,
    y_true: Sequence[str | None] | None = None,
    *,
    level: float = 0.9,
    rare: float = 0.05,
    most: int = 6,
) -> SentencePosterior:
    """Median and interval of each label's probability at each word of one sentence.

    Args:
        draws: (S, T, C), one entry of what `posterior_predict` gives.
        classes: the C labels.
        words: the T words; their numbers from 0 by default.
        y_true: the T true labels, None where unknown.
        level: the share of draws in the interval.
        rare: labels whose mean probability is below this at every word are put together, unless
            they are true somewhere.
        most: of the others, at most so many keep their own line, the most probable first.

    >>> found = sentence_posterior([[[0.7, 0.3]], [[0.9, 0.1]]], ["B", "O"], ["Rome"])
    >>> found.labels, found.middle
    (('B', 'O'), array([[0.8, 0.2]]))
    """
    array = _finite("draws", draws, 3)
    S, T, C = array.shape
    if len(class_codes(classes)) != C:
        raise DataError(f"draws have {C} labels but there are {len(classes)} classes")
    if not ((array >= 0).all() and np.allclose(array.sum(-1), 1, atol=1e-6)):
        raise DataError("draws: not all rows are probabilities that sum to 1")
    for name, texts in (("words", words), ("y_true", y_true)):
        if isinstance(texts, str) or (texts is not None and len(texts) != T):
            raise DataError(f"{name} must be a list of {T}, one for each token of draws")
    known = {label for label in y_true or () if label is not None}
    shown = _worth_showing(array.mean(0).max(0), classes, known, rare, most)
    lines, labels = array[..., shown], [classes[c] for c in shown]
    if len(shown) < C:
        rest = np.delete(array, shown, axis=-1).sum(-1, keepdims=True)
        lines, labels = np.concatenate([lines, rest], axis=-1), [*labels, OTHERS]
    lower, upper = _interval(lines, level)
    return SentencePosterior(
        words=tuple(map(str, range(T) if words is None else words)),
        labels=tuple(labels),
        classes=tuple(classes),
        middle=np.median(lines, axis=0),
        lower=lower,
        upper=upper,
        level=level,
        draws=S,
        truth=None if y_true is None else tuple(y_true),
    )


def _worth_showing(
    highest: Floats, classes: Sequence[str], known: set[str], rare: float, most: int
) -> list[int]:
    """The columns of the labels with a line of their own, in the order of the classes."""
    if most < 1:
        raise ValueError(f"most must be at least 1, not {most}")
    order = [int(c) for c in np.argsort(-highest, kind="stable") if highest[c] >= rare]
    true = {c for c, label in enumerate(classes) if label in known}
    return sorted({*order[:most], *true})


def _named_draws(
    draws: Any, axes: tuple[str, str], names: tuple[Sequence[str] | None, Sequence[str] | None]
) -> tuple[Floats, tuple[list[str], list[str]]]:
    """Draws (S, K, C) and the names of the two axes; a named array brings its own names."""
    if hasattr(draws, "dims"):
        missing = {*axes, "chain", "draw"} - set(draws.dims)
        if missing:
            raise DataError(f"draws: the named array has no axis {', '.join(sorted(missing))}")
        own = tuple([str(name) for name in draws.coords[axis].values] for axis in axes)
        values = draws.transpose("chain", "draw", *axes).values
        draws = values.reshape(-1, *values.shape[2:])
        names = (names[0] or own[0], names[1] or own[1])
    array = _finite("draws", draws, 3)
    if len(array) < 2:
        raise DataError("draws: there is one draw only, which has no spread; take at least 2")
    for axis, given, size in zip(axes, names, array.shape[1:], strict=True):
        if given is None:
            raise ValueError(f"the {axis} axis of draws has no names; pass them")
        if len(given) != size:
            raise DataError(f"draws: {size} on the {axis} axis, but {len(given)} names")
    rows, columns = (list(map(str, given or ())) for given in names)
    return array, (rows, columns)


def _finite(name: str, values: Any, axes: int) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != axes or 0 in array.shape:
        raise DataError(
            f"{name} has shape {array.shape}; expected {axes} axes, draws first, none of them empty"
        )
    if not np.isfinite(array).all():
        raise DataError(f"{name}: not all numbers are finite")
    return array


def _interval(draws: Floats, level: float) -> tuple[Floats, Floats]:
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, not {level!r}")
    lower, upper = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return lower, upper
