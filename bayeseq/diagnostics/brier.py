"""The Brier score in parts: how far from calibrated, how far from knowing nothing."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bayeseq.diagnostics.binning import (
    BINS,
    Proba,
    bin_by_confidence,
    column_of,
    events,
    scored,
)
from bayeseq.diagnostics.tokens import Bools, Floats, MaybeLabels, token_table


@dataclass(frozen=True)
class BrierDecomposition:
    """score = reliability - resolution + uncertainty + within_bin_variance - within_bin_covariance.

    With K bins of n_k tokens, p the probability of a label, o whether it is true, bars for means in
    a bin, and ō the label's share of all N tokens:

    Attributes:
        label: the label, or None for the sum over all of them.
        score: the mean of (p - o)².
        reliability: Σ n_k (p̄_k - ō_k)² / N; 0 is calibrated.
        resolution: Σ n_k (ō_k - ō)² / N: how far bins differ from the base rate; more is better.
        uncertainty: ō (1 - ō): the score of who knows the base rate and nothing else.
        within_bin_variance: Σ Σ (p - p̄_k)² / N: what binning hides of the forecasts.
        within_bin_covariance: 2 Σ Σ (p - p̄_k)(o - ō_k) / N: what of that was to the point.
    """

    label: str | None
    score: float
    reliability: float
    resolution: float
    uncertainty: float
    within_bin_variance: float
    within_bin_covariance: float


def brier_decomposition(
    y_true: MaybeLabels,
    proba: Proba,
    classes: Sequence[str],
    *,
    label: str | None = None,
    bins: int = BINS,
    adaptive: bool = False,
) -> BrierDecomposition:
    """Murphy's decomposition of the Brier score, exact for forecasts that vary within bins too.

    The two parts within bins are those of Stephenson et al. (2008). Tokens without a true label, or
    with one that is not among the classes, are left out.

    Args:
        y_true, proba, classes: as in `brier`.
        label: one label against the rest; None for the sum over labels, the multi-class score.
        bins, adaptive: as in `ece`; each label has bins of its own.

    >>> parts = brier_decomposition([["O", "B"]], [[[0.5, 0.5], [1.0, 0.0]]], ["B", "O"])
    >>> parts.score, parts.reliability, parts.resolution, parts.uncertainty
    (0.25, 0.25, 0.5, 0.5)
    """
    tokens = scored(token_table(y_true, proba, classes))
    columns = range(len(classes)) if label is None else [column_of(classes, label)]
    parts = np.array([_parts(*events(tokens, c), bins, adaptive) for c in columns])
    return BrierDecomposition(label, *parts.sum(axis=0).tolist())


def _parts(p: Floats, true: Bools, bins: int, adaptive: bool) -> list[float]:
    """The score and its parts, in the order of the record."""
    o = true.astype(np.float64)
    binning = bin_by_confidence(p, bins, adaptive)
    counts = np.maximum(binning.sums(np.ones(len(p))), 1)  # empty bins hold no token to look up
    p_bar = (binning.sums(p) / counts)[binning.index]
    o_bar = (binning.sums(o) / counts)[binning.index]
    base = o.mean()
    return [
        np.mean((p - o) ** 2),
        np.mean((p_bar - o_bar) ** 2),
        np.mean((o_bar - base) ** 2),
        base * (1 - base),
        np.mean((p - p_bar) ** 2),
        2 * np.mean((p - p_bar) * (o - o_bar)),
    ]
