"""Accuracy against confidence: of the most probable label, of one label, of entities."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bayeseq.diagnostics.binning import (
    BINS,
    Binning,
    Proba,
    RandomState,
    bin_by_confidence,
    column_of,
    columns_of,
    events,
    scored,
)
from bayeseq.diagnostics.bootstrap import band, sequence_weights, weighted_sums
from bayeseq.diagnostics.calibration import absolute_error
from bayeseq.diagnostics.entity_claims import ScoredEntities, entity_claims
from bayeseq.diagnostics.tokens import Bools, Floats, Ints, MaybeLabels, token_table

TOP_LABEL = "top label"
ENTITIES = "entities"


@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """Accuracy against confidence in K bins, lowest confidence first.

    Attributes:
        label: the label whose probability is the confidence, or "top label", or "entities".
        edges: (K + 1,), bin k holds confidences above edges[k], up to edges[k + 1].
        confidence: (K,), the mean confidence in each bin; NaN where the bin is empty.
        accuracy: (K,), the share of tokens there that are right, or that bear `label`; NaN alike.
        counts: (K,), the number of tokens in each bin.
        lower, upper: (K,), the band of the accuracy; NaN in empty bins, or without bootstrap.
        level: the share of bootstrap samples between lower and upper.
        ece: the mean over tokens of |accuracy - confidence| of their bin.
    """

    label: str
    edges: Floats
    confidence: Floats
    accuracy: Floats
    counts: Ints
    lower: Floats
    upper: Floats
    level: float
    ece: float


def reliability(
    y_true: MaybeLabels,
    proba: Proba,
    classes: Sequence[str],
    *,
    label: str | None = None,
    bins: int = BINS,
    adaptive: bool = False,
    exclude: Sequence[str] = (),
    bootstrap: int = 200,
    level: float = 0.9,
    random_state: RandomState = 0,
) -> ReliabilityCurve:
    """The reliability curve of the most probable label, or of one label against the rest.

    The band comes from a Bayesian bootstrap over sequences, for tokens of one sequence depend on
    each other. Where every token is a sequence of its own it is Jeffreys' interval; in a bin fed by
    a handful of sequences it is somewhat too narrow.

    Args:
        y_true, proba, classes: as in `bayeseq.diagnostics.calibration`.
        label: None, or the label whose probability is judged at every token.
        bins: the number of bins; equal adaptive edges are merged, so there can be fewer.
        adaptive: bins of equal token count instead of equal width.
        exclude: labels, such as ("O",); tokens that the model takes for one of them are left out.
        bootstrap: the number of bootstrap samples; 0 for no band.
        level: the share of samples that the band holds.
        random_state: seed or numpy Generator of the bootstrap.

    >>> curve = reliability([["O", "B"]], [[[0.2, 0.8], [0.9, 0.1]]], ["B", "O"], bins=2)
    >>> curve.confidence, curve.accuracy, curve.counts
    (array([ nan, 0.85]), array([nan,  1.]), array([0, 2]))
    """
    tokens = scored(token_table(y_true, proba, classes), columns_of(classes, exclude))
    column = None if label is None else column_of(classes, label)
    claims = {TOP_LABEL if label is None else label: events(tokens, column)}
    return _curves(claims, tokens.sequence, bins, adaptive, bootstrap, level, random_state)[0]


def reliability_by_label(
    y_true: MaybeLabels,
    proba: Proba,
    classes: Sequence[str],
    *,
    labels: Sequence[str] | None = None,
    bins: int = BINS,
    adaptive: bool = False,
    exclude: Sequence[str] = (),
    bootstrap: int = 200,
    level: float = 0.9,
    random_state: RandomState = 0,
) -> dict[str, ReliabilityCurve]:
    """One curve a label, each against the rest; `labels` picks some, all classes by default.

    Equal to `reliability(..., label=label)` for each label, without repeating the common work.

    >>> sorted(reliability_by_label([["O", "B"]], [[[0.2, 0.8], [0.9, 0.1]]], ["B", "O"]))
    ['B', 'O']
    """
    tokens = scored(token_table(y_true, proba, classes), columns_of(classes, exclude))
    claims = {
        label: events(tokens, column_of(classes, label))
        for label in (classes if labels is None else labels)
    }
    curves = _curves(claims, tokens.sequence, bins, adaptive, bootstrap, level, random_state)
    return {curve.label: curve for curve in curves}


def entity_reliability(
    y_true: MaybeLabels,
    entities: ScoredEntities,
    *,
    label: str | None = None,
    bins: int = BINS,
    adaptive: bool = False,
    bootstrap: int = 200,
    level: float = 0.9,
    random_state: RandomState = 0,
) -> ReliabilityCurve:
    """The reliability curve of predicted entities: are those given 80 % right 80 times in 100?

    An entity is right when the truth, read as conlleval reads it, has one with the same start, end
    and type. True entities that were not predicted have no confidence, so they do not count: a
    curve on the diagonal says nothing about recall.

    Args:
        y_true: the true tags, none of them missing.
        entities: for each sequence (start, end, type, probability), as `predict_entities` gives.
        label: only entities of this type.
        bins, adaptive, bootstrap, level, random_state: as in `reliability`.

    >>> curve = entity_reliability([["B-PER", "I-PER", "O"]], [[(0, 2, "PER", 0.9)]], bins=2)
    >>> curve.confidence, curve.accuracy
    (array([nan, 0.9]), array([nan,  1.]))
    """
    claims = entity_claims(entities, y_true, label)
    assert claims.right is not None
    named = {ENTITIES if label is None else label: (claims.score, claims.right)}
    return _curves(named, claims.sequence, bins, adaptive, bootstrap, level, random_state)[0]


def _curves(
    claims: Mapping[str, tuple[Floats, Bools]],
    sequence: Ints,
    bins: int,
    adaptive: bool,
    bootstrap: int,
    level: float,
    random_state: RandomState,
) -> list[ReliabilityCurve]:
    """One curve for each name, of confidences (N,) and what was right (N,); all share the draws of
    the bootstrap, and `sequence` (N,), the number of the sequence."""
    numbers, own = np.unique(sequence, return_inverse=True)
    rng = np.random.default_rng(random_state)
    weights = sequence_weights(len(numbers), bootstrap, rng)
    halves = rng.standard_gamma(0.5, size=(2, bootstrap, bins))
    curves = []
    for name, (confidence, right) in claims.items():
        binning = bin_by_confidence(confidence, bins, adaptive)
        samples = _accuracy_samples(binning, right, own, weights, halves)
        curves.append(_curve(name, confidence, right, binning, band(samples, level), level))
    return curves


def _curve(
    label: str,
    confidence: Floats,
    right: Bools,
    binning: Binning,
    limits: tuple[Floats, Floats],
    level: float,
) -> ReliabilityCurve:
    counts = binning.sums(np.ones(len(right)))
    with np.errstate(invalid="ignore"):  # 0 / 0 in empty bins is the NaN we want
        mean_confidence = binning.sums(confidence) / counts
        accuracy = binning.sums(right) / counts
    return ReliabilityCurve(
        label=label,
        edges=binning.edges,
        confidence=mean_confidence,
        accuracy=accuracy,
        counts=counts.astype(np.int64),
        # Jeffreys' interval stops just short of an accuracy of 0 or 1; NaN stays NaN.
        lower=np.minimum(limits[0], accuracy),
        upper=np.maximum(limits[1], accuracy),
        level=level,
        ece=absolute_error(confidence, right, binning),
    )


def _accuracy_samples(
    binning: Binning, right: Bools, sequence: Ints, weights: Floats, halves: Floats
) -> Floats:
    """Draws of the accuracy in each bin: (S, K).

    For independent tokens, exponential weights make the weighted accuracy Beta(right, wrong). Half
    a right and half a wrong token more, whose weights `halves` (2, S, at least K) are Gamma(1/2),
    make it Beta(right + 1/2, wrong + 1/2): Jeffreys' interval, honest in small bins too.
    """
    bins = len(binning.edges) - 1
    hits, misses = (
        half[:, :bins]
        + weighted_sums(weights, sequence[part], binning.index[part], bins, np.ones(part.sum()))
        for half, part in zip(halves, (right, ~right), strict=True)
    )
    return hits / (hits + misses)
