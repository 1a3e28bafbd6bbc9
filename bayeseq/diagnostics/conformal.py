"""Sets of labels that hold the true one as often as promised, whatever the model is worth.

What is exchangeable is the sentence: its tokens depend on each other, so they do not count as so
many observations. Calibration therefore goes by whole sentences, none of which the model was
trained on, and one threshold comes out: a label is in a token's set when its nonconformity (how
badly it fits) is at most that threshold. With n calibration sentences exchangeable with the new
one, and m_b(λ) the share of sentence b's labelled tokens whose true label has a nonconformity
above λ, the threshold for tokens is

    λ = inf { λ : (m_1(λ) + … + m_n(λ) + 1) / (n + 1) ≤ alpha },

that of conformal risk control (Angelopoulos et al. 2022), which for this loss is that of
hierarchical conformal prediction (Lee, Barber & Willett 2023), where each sentence weighs 1 and
each of its T tokens 1/T. For whole sentences m_b is 1 when any token is missed, else 0, which is
split conformal prediction with the worst token's nonconformity. Both hold on average over
calibration sets and new sentences, for any model and any distribution. They do not hold for text
of another kind than the calibration sentences.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from bayeseq.data.errors import DataError
from bayeseq.diagnostics.bootstrap import band, sequence_weights
from bayeseq.diagnostics.calibration import Proba, RandomState
from bayeseq.diagnostics.tokens import (
    MISSING,
    UNKNOWN,
    Floats,
    MaybeLabels,
    check_true,
    require_tokens,
    stack,
    token_table,
)

Guarantee = Literal["token", "sentence"]
Nonconformity = Literal["lac", "aps"]
LabelSets = Sequence[Sequence[set[str]]]

# Sums of 1/T are rounded; a threshold must not jump a step for that.
_ROUNDING = 1e-9


def conformal_threshold(
    scores: Sequence[npt.ArrayLike], alpha: float, guarantee: Guarantee = "token"
) -> float:
    """The least nonconformity up to which labels must be taken to miss at most a share `alpha`.

    Args:
        scores: a (T,) array a sentence, the nonconformity of the true label of each token; NaN
            where there is no true label (left out), infinity where no set could hold it.
        alpha: the share of misses allowed, between 0 and 1.
        guarantee: "token", the expected share of a new sentence's tokens that are missed is at most
            `alpha`; "sentence", the probability that any is missed is.

    Returns:
        The threshold; infinity (every label is in every set) with fewer than 1/alpha - 1 sentences.

    >>> conformal_threshold([[0.1], [0.9], [0.2], [0.4]], alpha=0.4)
    0.4
    >>> conformal_threshold([[0.1, 0.9], [0.2]], alpha=0.1)
    inf
    """
    check_alpha(alpha)
    check_guarantee(guarantee)
    rows = [np.asarray(row, dtype=np.float64) for row in scores]
    rows = [row[~np.isnan(row)] for row in rows]
    rows = [row for row in rows if len(row)]
    if guarantee == "sentence":
        rows = [row.max(keepdims=True) for row in rows]
    room = alpha * (len(rows) + 1) - 1 + _ROUNDING
    if room < 0:
        return float("inf")
    values, place = np.unique(np.concatenate(rows), return_inverse=True)
    weights = np.bincount(place, np.concatenate([np.full(len(r), 1 / len(r)) for r in rows]))
    above = np.append(weights[::-1].cumsum()[::-1][1:], 0.0)  # weight of what each value misses
    return float(values[np.argmax(above <= room)])


@dataclass(frozen=True)
class ConformalSets:
    """A threshold, and what is promised of the sets that it makes.

    Attributes:
        classes: the labels, in column order.
        alpha: the share of misses allowed.
        guarantee: of a "token" of a new sentence, or of a whole "sentence".
        score: the nonconformity, "lac" or "aps".
        threshold: labels up to this nonconformity are in the set.
        sentences, tokens: how many the threshold rests on.
    """

    classes: tuple[str, ...]
    alpha: float
    guarantee: Guarantee
    score: Nonconformity
    threshold: float
    sentences: int
    tokens: int

    def __call__(
        self, proba: Proba, *, nonempty: bool = True, random_state: RandomState = None
    ) -> list[list[set[str]]]:
        """The set of labels of each token.

        Args:
            proba: one (T, C) array a sentence, in `classes` order.
            nonempty: also take the most probable label, always. Where `alpha` is above the model's
                error rate, some sets would else be empty: the promise is kept by answering
                nothing. A label more can only raise the coverage.
            random_state: what "aps" draws from.
        """
        lengths = [len(np.asarray(rows)) for rows in proba]
        table = stack("proba", proba, lengths, (len(self.classes),))
        inside = _nonconformity(table, self.score, random_state) <= self.threshold
        if nonempty and len(table):
            inside[np.arange(len(table)), table.argmax(axis=1)] = True
        names = np.array(self.classes, dtype=object)
        sets = iter([set(names[row].tolist()) for row in inside])
        return [[next(sets) for _ in range(length)] for length in lengths]


def calibrate_sets(
    y_true: MaybeLabels,
    proba: Proba,
    classes: Sequence[str],
    *,
    alpha: float = 0.1,
    guarantee: Guarantee = "token",
    score: Nonconformity = "lac",
    random_state: RandomState = None,
) -> ConformalSets:
    """Choose the threshold of label sets on sentences that the model was not trained on.

    Tokens without a true label are left out, and sentences without any; the promise is then of
    tokens as those that have one. A true label that is not among the classes is in no set: such
    tokens count as missed.

    Args:
        y_true, proba, classes: true labels and probabilities of the calibration sentences.
        alpha, guarantee: see `conformal_threshold`.
        score: "lac", 1 - p(label): the smallest sets on average; or "aps", the probability of all
            labels more probable than it, and a random part of its own (Romano et al. 2020): sets
            that grow more where the model is unsure.
        random_state: what "aps" draws from.

    >>> sets = calibrate_sets([["A"], ["B"], ["A"]], [[[0.9, 0.1]], [[0.3, 0.7]], [[0.6, 0.4]]],
    ...                       ["A", "B"], alpha=0.25)
    >>> round(sets.threshold, 3), sets([[[0.65, 0.35], [0.5, 0.5]]])
    (0.4, [[{'A'}, {'A'}]])
    """
    check_alpha(alpha)
    table = token_table(y_true, proba, classes)
    labelled = table.target != MISSING
    require_tokens(int(labelled.sum()), "labelled token to calibrate with")
    every = _nonconformity(table.proba, score, random_state)
    own = every[np.arange(len(every)), np.maximum(table.target, 0)]
    own = np.where(table.target == UNKNOWN, np.inf, np.where(labelled, own, np.nan))
    rows = np.split(own, np.cumsum([len(labels) for labels in y_true])[:-1])
    sentences = len(np.unique(table.sequence[labelled]))
    threshold = conformal_threshold(rows, alpha, guarantee)
    check_reached(threshold, alpha, sentences, "calibration sentences")
    return ConformalSets(
        classes=tuple(classes),
        alpha=alpha,
        guarantee=guarantee,
        score=score,
        threshold=threshold,
        sentences=sentences,
        tokens=int(labelled.sum()),
    )


@dataclass(frozen=True)
class CoverageScores:
    """How often sets hold the truth, and how large they are.

    Attributes:
        guarantee: what `coverage` counts: "token" or "sentence".
        coverage: the mean over sentences of the share of their tokens that are covered, or the
            share of sentences of which every token is.
        lower, upper: its band, by Bayesian bootstrap over sentences with half a covered and half a
            missed sentence more; for whole sentences this is Jeffreys' binomial interval.
        level: the share of bootstrap samples between them.
        pooled: the share of all tokens that are covered, in which long sentences weigh more.
        mean_size: the mean number of labels in a set.
        single: the share of sets with one label.
        empty: the share of sets with none.
        sentences, tokens: how many had a true label.
    """

    guarantee: Guarantee
    coverage: float
    lower: float
    upper: float
    level: float
    pooled: float
    mean_size: float
    single: float
    empty: float
    sentences: int
    tokens: int


def score_sets(
    y_true: MaybeLabels,
    sets: LabelSets,
    *,
    guarantee: Guarantee = "token",
    bootstrap: int = 1000,
    level: float = 0.9,
    random_state: RandomState = 0,
) -> CoverageScores:
    """Judge sets of labels by true ones; tokens whose true label is None are left out.

    >>> found = score_sets([["A", "B"], ["A"]], [[{"A"}, {"A"}], [{"A", "B"}]])
    >>> found.coverage, round(found.pooled, 3), round(found.mean_size, 3)
    (0.75, 0.667, 1.333)
    """
    check_guarantee(guarantee)
    check_true(y_true)
    hits = _hits(y_true, sets)
    require_tokens(len(hits), "labelled token")
    part = [min(row) if guarantee == "sentence" else sum(row) / len(row) for row in hits]
    sizes = np.array(
        [
            len(found)
            for labels, row in zip(y_true, sets, strict=True)
            for label, found in zip(labels, row, strict=True)
            if label is not None
        ]
    )
    lower, upper = coverage_band(np.array(part, float), bootstrap, level, random_state)
    return CoverageScores(
        guarantee=guarantee,
        coverage=float(np.mean(part)),
        lower=lower,
        upper=upper,
        level=level,
        pooled=float(np.mean([hit for row in hits for hit in row])),
        mean_size=float(sizes.mean()),
        single=float((sizes == 1).mean()),
        empty=float((sizes == 0).mean()),
        sentences=len(hits),
        tokens=len(sizes),
    )


def coverage_band(
    covered: Floats, bootstrap: int, level: float, random_state: RandomState
) -> tuple[float, float]:
    """The band of the mean of `covered` (B,), a share a sentence: NaN without bootstrap."""
    rng = np.random.default_rng(random_state)
    weights = sequence_weights(len(covered), bootstrap, rng)
    half, other = rng.standard_gamma(0.5, size=(2, bootstrap))
    samples = (weights @ covered + half) / (weights.sum(axis=1) + half + other)
    lower, upper = band(samples[:, None], level)
    mean = covered.mean()  # Jeffreys' interval stops just short of a coverage of 0 or 1
    return float(np.minimum(lower[0], mean)), float(np.maximum(upper[0], mean))


def check_alpha(alpha: float) -> None:
    """Refuse what is no share of misses."""
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must lie between 0 and 1, not {alpha!r}; 0.1 misses at most 10 %")


def check_guarantee(guarantee: str) -> None:
    """Refuse a unit of which nothing can be promised."""
    if guarantee not in get_args(Guarantee):
        raise ValueError(f'guarantee must be "token" or "sentence", not {guarantee!r}')


def check_reached(threshold: float, alpha: float, sentences: int, what: str) -> None:
    """Refuse an infinite threshold, and say why it is one."""
    if np.isfinite(threshold):
        return
    if alpha * (sentences + 1) - 1 + _ROUNDING < 0:
        needed = int(np.ceil(1 / alpha - 1 - _ROUNDING))
        raise DataError(
            f"alpha={alpha} needs at least {needed} {what}, and there are {sentences}; label more, "
            "or allow more misses"
        )
    raise DataError(
        f"alpha={alpha} cannot be reached: what is not among the candidates alone is missed more "
        "often; allow more misses, train with all labels, or take more candidates"
    )


def _nonconformity(proba: Floats, score: str, random_state: RandomState) -> Floats:
    """How badly each label fits each token: (N, C)."""
    if score not in get_args(Nonconformity):
        raise ValueError(f'score must be "lac" or "aps", not {score!r}')
    if score == "lac":
        return 1 - proba
    order = np.argsort(-proba, axis=1, kind="stable")
    falling = np.take_along_axis(proba, order, axis=1)
    part = np.random.default_rng(random_state).random((len(proba), 1))
    found = np.empty_like(proba)
    np.put_along_axis(found, order, falling.cumsum(axis=1) - (1 - part) * falling, axis=1)
    return found


def _hits(y_true: MaybeLabels, sets: LabelSets) -> list[list[bool]]:
    """Whether each labelled token's label is in its set, for sentences that have any."""
    if len(sets) != len(y_true):
        raise DataError(f"sets has {len(sets)} sequences but y_true has {len(y_true)}")
    found = []
    for number, (labels, row) in enumerate(zip(y_true, sets, strict=True)):
        if len(row) != len(labels):
            raise DataError(
                f"sets: sequence {number} (from 0) has {len(row)} tokens but y_true has "
                f"{len(labels)} there"
            )
        hits = [label in s for label, s in zip(labels, row, strict=True) if label is not None]
        if hits:
            found.append(hits)
    return found
