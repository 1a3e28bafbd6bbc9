"""How good the label probabilities are: do tokens given 80 % turn out right 80 times in 100?

All functions take `y_true` (lists of str, None where missing), `proba` (one (T, C) array a
sequence) and `classes` (the C labels, in column order). Two kinds of token are left out, for no
column could be the right one: those without a true label, and those whose true label is not among
the classes. `probability_scores` counts both.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bayeseq.data.errors import DataError
from bayeseq.diagnostics.bootstrap import band, sequence_weights, weighted_sums
from bayeseq.diagnostics.tokens import (
    MISSING,
    UNKNOWN,
    Bools,
    Floats,
    Ints,
    MaybeLabels,
    TokenTable,
    class_codes,
    require_tokens,
    token_table,
)

Proba = Sequence[npt.ArrayLike]
RandomState = int | np.random.Generator | None

BINS = 15
TOP_LABEL = "top label"


def log_loss(y_true: MaybeLabels, proba: Proba, classes: Sequence[str]) -> float:
    """The mean over tokens of -log p(true label), in nats.

    Nothing is clipped: a single token whose true label has probability 0 makes it infinite.

    >>> round(log_loss([["O", "B"]], [[[0.5, 0.5], [1.0, 0.0]]], ["B", "O"]), 4)
    0.3466
    """
    return _log_loss(_scored(token_table(y_true, proba, classes)))


def brier(y_true: MaybeLabels, proba: Proba, classes: Sequence[str]) -> float:
    """The multi-class Brier score: squared error summed over labels, averaged over tokens; 0 to 2.

    >>> brier([["O", "B"]], [[[0.5, 0.5], [1.0, 0.0]]], ["B", "O"])
    0.25
    """
    return _brier(_scored(token_table(y_true, proba, classes)))


def ece(
    y_true: MaybeLabels,
    proba: Proba,
    classes: Sequence[str],
    *,
    bins: int = BINS,
    adaptive: bool = False,
) -> float:
    """The expected calibration error of the most probable label.

    Tokens are binned by confidence, the probability of their most probable label; the error is the
    mean over tokens of |accuracy - mean confidence| of their bin. Small samples have a large one
    even when the probabilities are perfect: compare with `ece_floor`.

    Args:
        y_true, proba, classes: as everywhere in this module.
        bins: the number of bins.
        adaptive: bins of equal token count instead of equal width.

    >>> ece([["O", "B"]], [[[0.25, 0.75], [1.0, 0.0]]], ["B", "O"])
    0.125
    """
    tokens = _scored(token_table(y_true, proba, classes))
    confidence, right = _events(tokens, None)
    return _ece(confidence, right, _bin(confidence, bins, adaptive))


def ece_floor(
    y_true: MaybeLabels,
    proba: Proba,
    classes: Sequence[str],
    *,
    bins: int = BINS,
    adaptive: bool = False,
    draws: int = 20,
    random_state: RandomState = 0,
) -> float:
    """The ECE that perfect probabilities would show on these tokens, from sampling noise alone.

    Labels are drawn from the model's own probabilities, independently for each token, `draws`
    times, and the ECE of the draws is averaged. An ECE near its floor is no sign of miscalibration.

    >>> ece_floor([["O", "B"]], [[[0.0, 1.0], [1.0, 0.0]]], ["B", "O"])
    0.0
    """
    tokens = _scored(token_table(y_true, proba, classes))
    confidence, _ = _events(tokens, None)
    return _ece_floor(confidence, _bin(confidence, bins, adaptive), draws, random_state)


@dataclass(frozen=True)
class ProbabilityScores:
    """Scores of label probabilities, and how many tokens they rest on.

    Attributes:
        log_loss, brier, ece, ece_floor: see the functions of the same names.
        tokens: the number of tokens scored.
        missing: tokens left out because they have no true label.
        unknown: tokens left out because their true label is not among the classes.
    """

    log_loss: float
    brier: float
    ece: float
    ece_floor: float
    tokens: int
    missing: int
    unknown: int


def probability_scores(
    y_true: MaybeLabels,
    proba: Proba,
    classes: Sequence[str],
    *,
    bins: int = BINS,
    adaptive: bool = False,
    draws: int = 20,
    random_state: RandomState = 0,
) -> ProbabilityScores:
    """All scores of this module in one record.

    >>> scores = probability_scores([["O", None, "X"]], [np.full((3, 2), 0.5)], ["B", "O"])
    >>> scores.tokens, scores.missing, scores.unknown
    (1, 1, 1)
    """
    table = token_table(y_true, proba, classes)
    tokens = _scored(table)
    confidence, right = _events(tokens, None)
    binning = _bin(confidence, bins, adaptive)
    return ProbabilityScores(
        log_loss=_log_loss(tokens),
        brier=_brier(tokens),
        ece=_ece(confidence, right, binning),
        ece_floor=_ece_floor(confidence, binning, draws, random_state),
        tokens=len(tokens.target),
        missing=int(np.count_nonzero(table.target == MISSING)),
        unknown=int(np.count_nonzero(table.target == UNKNOWN)),
    )


@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """Accuracy against confidence in K bins, lowest confidence first.

    Attributes:
        label: the label whose probability is the confidence, or "top label".
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
    bootstrap: int = 200,
    level: float = 0.9,
    random_state: RandomState = 0,
) -> ReliabilityCurve:
    """The reliability curve of the most probable label, or of one label against the rest.

    The band comes from a Bayesian bootstrap over sequences, for tokens of one sequence depend on
    each other. Where every token is a sequence of its own it is Jeffreys' interval; in a bin fed by
    a handful of sequences it is somewhat too narrow.

    Args:
        y_true, proba, classes: as everywhere in this module.
        label: None, or the label whose probability is judged at every token.
        bins: the number of bins; equal adaptive edges are merged, so there can be fewer.
        adaptive: bins of equal token count instead of equal width.
        bootstrap: the number of bootstrap samples; 0 for no band.
        level: the share of samples that the band holds.
        random_state: seed or numpy Generator of the bootstrap.

    >>> curve = reliability([["O", "B"]], [[[0.2, 0.8], [0.9, 0.1]]], ["B", "O"], bins=2)
    >>> curve.confidence, curve.accuracy, curve.counts
    (array([ nan, 0.85]), array([nan,  1.]), array([0, 2]))
    """
    tokens = _scored(token_table(y_true, proba, classes))
    wanted = (TOP_LABEL, None) if label is None else (label, _column(classes, label))
    return _curves(tokens, [wanted], bins, adaptive, bootstrap, level, random_state)[0]


def reliability_by_label(
    y_true: MaybeLabels,
    proba: Proba,
    classes: Sequence[str],
    *,
    labels: Sequence[str] | None = None,
    bins: int = BINS,
    adaptive: bool = False,
    bootstrap: int = 200,
    level: float = 0.9,
    random_state: RandomState = 0,
) -> dict[str, ReliabilityCurve]:
    """One curve a label, each against the rest; `labels` picks some, all classes by default.

    Equal to `reliability(..., label=label)` for each label, without repeating the common work.

    >>> sorted(reliability_by_label([["O", "B"]], [[[0.2, 0.8], [0.9, 0.1]]], ["B", "O"]))
    ['B', 'O']
    """
    tokens = _scored(token_table(y_true, proba, classes))
    wanted = [(label, _column(classes, label)) for label in (classes if labels is None else labels)]
    curves = _curves(tokens, wanted, bins, adaptive, bootstrap, level, random_state)
    return {curve.label: curve for curve in curves}


@dataclass(frozen=True, eq=False)
class _Binning:
    """Bin edges (K + 1,) and the bin of each token (N,)."""

    edges: Floats
    index: Ints

    def sums(self, values: npt.NDArray[np.generic]) -> Floats:
        """`values` (N,) summed within each bin: (K,)."""
        bins = len(self.edges) - 1
        return np.bincount(self.index, weights=values, minlength=bins).astype(np.float64)


def _scored(table: TokenTable) -> TokenTable:
    """The tokens with a true label among the classes."""
    tokens = table.where(table.target >= 0)
    require_tokens(len(tokens.target), "token whose label is among the classes")
    return tokens


def _log_loss(tokens: TokenTable) -> float:
    of_true = tokens.proba[np.arange(len(tokens.target)), tokens.target]
    with np.errstate(divide="ignore"):
        return float(-np.log(of_true).mean())


def _brier(tokens: TokenTable) -> float:
    # sum_c (p_c - [c = true])^2 = sum_c p_c^2 - 2 p_true + 1
    squares = np.einsum("nc,nc->n", tokens.proba, tokens.proba)
    of_true = tokens.proba[np.arange(len(tokens.target)), tokens.target]
    return float((squares - 2 * of_true + 1).mean())


def _events(tokens: TokenTable, column: int | None) -> tuple[Floats, Bools]:
    """What is claimed with which confidence (N,), and whether it is true (N,)."""
    if column is not None:
        return tokens.proba[:, column], tokens.target == column
    top = tokens.proba.argmax(axis=1)
    return tokens.proba[np.arange(len(top)), top], tokens.target == top


def _bin(confidence: Floats, bins: int, adaptive: bool) -> _Binning:
    if bins < 1:
        raise ValueError(f"bins must be at least 1, not {bins}")
    edges = np.linspace(0, 1, bins + 1)
    if adaptive:
        # Many tokens with one confidence (often exactly 1) make equal quantiles: one bin for them.
        inner = np.unique(np.quantile(confidence, edges[1:-1]))
        edges = np.concatenate([[0.0], inner[(inner > 0) & (inner < 1)], [1.0]])
    return _Binning(edges, np.searchsorted(edges[1:-1], confidence, side="left"))


def _ece(confidence: Floats, right: Bools, binning: _Binning) -> float:
    # The bin's token count cancels: n_k |accuracy_k - confidence_k| = |sum right - sum confidence|.
    return float(np.abs(binning.sums(right - confidence)).sum() / len(confidence))


def _ece_floor(
    confidence: Floats, binning: _Binning, draws: int, random_state: RandomState
) -> float:
    if draws < 1:
        raise ValueError(f"draws must be at least 1, not {draws}")
    rng = np.random.default_rng(random_state)
    # A label drawn from the probabilities is the most probable one with its probability.
    simulated = [
        _ece(confidence, rng.random(len(confidence)) < confidence, binning) for _ in range(draws)
    ]
    return float(np.mean(simulated))


def _column(classes: Sequence[str], label: str) -> int:
    codes = class_codes(classes)
    if label not in codes:
        raise DataError(f"label {label!r} is not among the classes {list(classes)}")
    return codes[label]


def _curves(
    tokens: TokenTable,
    names_and_columns: Sequence[tuple[str, int | None]],
    bins: int,
    adaptive: bool,
    bootstrap: int,
    level: float,
    random_state: RandomState,
) -> list[ReliabilityCurve]:
    """One curve for each name; all share the draws of the bootstrap."""
    numbers, sequence = np.unique(tokens.sequence, return_inverse=True)
    rng = np.random.default_rng(random_state)
    weights = sequence_weights(len(numbers), bootstrap, rng)
    halves = rng.standard_gamma(0.5, size=(2, bootstrap, bins))
    curves = []
    for name, column in names_and_columns:
        confidence, right = _events(tokens, column)
        binning = _bin(confidence, bins, adaptive)
        samples = _accuracy_samples(binning, right, sequence, weights, halves)
        curves.append(_curve(name, confidence, right, binning, band(samples, level), level))
    return curves


def _curve(
    label: str,
    confidence: Floats,
    right: Bools,
    binning: _Binning,
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
        ece=_ece(confidence, right, binning),
    )


def _accuracy_samples(
    binning: _Binning, right: Bools, sequence: Ints, weights: Floats, halves: Floats
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
