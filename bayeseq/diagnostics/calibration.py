"""How good the label probabilities are: do tokens given 80 % turn out right 80 times in 100?

All functions take `y_true` (lists of str, None where missing), `proba` (one (T, C) array a
sequence) and `classes` (the C labels, in column order). Two kinds of token are left out, for no
column could be the right one: those without a true label, and those whose true label is not among
the classes. `probability_scores` counts both.

Where most tokens are O, and easily so, they hide the rest. `exclude=("O",)` leaves out the tokens
whose most probable label is O. Those whose true label is O stay: who chooses tokens by the truth
makes perfect probabilities look wrong.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bayeseq.data.errors import DataError
from bayeseq.diagnostics.binning import (
    BINS,
    Binning,
    Proba,
    RandomState,
    bin_by_confidence,
    columns_of,
    events,
    scored,
)
from bayeseq.diagnostics.tokens import (
    MISSING,
    UNKNOWN,
    Bools,
    Floats,
    Ints,
    MaybeLabels,
    TokenTable,
    token_table,
)


def log_loss(y_true: MaybeLabels, proba: Proba, classes: Sequence[str]) -> float:
    """The mean over tokens of -log p(true label), in nats.

    Nothing is clipped: a single token whose true label has probability 0 makes it infinite.

    >>> round(log_loss([["O", "B"]], [[[0.5, 0.5], [1.0, 0.0]]], ["B", "O"]), 4)
    0.3466
    """
    return _log_loss(scored(token_table(y_true, proba, classes)))


def brier(y_true: MaybeLabels, proba: Proba, classes: Sequence[str]) -> float:
    """The multi-class Brier score: squared error summed over labels, averaged over tokens; 0 to 2.

    >>> brier([["O", "B"]], [[[0.5, 0.5], [1.0, 0.0]]], ["B", "O"])
    0.25
    """
    return _brier(scored(token_table(y_true, proba, classes)))


def ece(
    y_true: MaybeLabels,
    proba: Proba,
    classes: Sequence[str],
    *,
    bins: int = BINS,
    adaptive: bool = False,
    exclude: Sequence[str] = (),
) -> float:
    """The expected calibration error of the most probable label.

    Tokens are binned by confidence, the probability of their most probable label; the error is the
    mean over tokens of |accuracy - mean confidence| of their bin. Small samples have a large one
    even when the probabilities are perfect: compare with `ece_floor`, or take `calibration_error`.

    Args:
        y_true, proba, classes: as everywhere in this module.
        bins: the number of bins.
        adaptive: bins of equal token count instead of equal width.
        exclude: labels, such as ("O",); tokens that the model takes for one of them are left out.

    >>> ece([["O", "B"]], [[[0.25, 0.75], [1.0, 0.0]]], ["B", "O"])
    0.125
    """
    tokens = scored(token_table(y_true, proba, classes), columns_of(classes, exclude))
    confidence, right = events(tokens, None)
    return absolute_error(confidence, right, bin_by_confidence(confidence, bins, adaptive))


def ece_floor(
    y_true: MaybeLabels,
    proba: Proba,
    classes: Sequence[str],
    *,
    bins: int = BINS,
    adaptive: bool = False,
    exclude: Sequence[str] = (),
    draws: int = 20,
    random_state: RandomState = 0,
) -> float:
    """The ECE that perfect probabilities would show on these tokens, from sampling noise alone.

    Labels are drawn from the model's own probabilities, independently for each token, `draws`
    times, and the ECE of the draws is averaged. An ECE near its floor is no sign of miscalibration.

    >>> ece_floor([["O", "B"]], [[[0.0, 1.0], [1.0, 0.0]]], ["B", "O"])
    0.0
    """
    tokens = scored(token_table(y_true, proba, classes), columns_of(classes, exclude))
    confidence, _ = events(tokens, None)
    return _ece_floor(
        confidence, bin_by_confidence(confidence, bins, adaptive), draws, random_state
    )


def calibration_error(
    y_true: MaybeLabels,
    proba: Proba,
    classes: Sequence[str],
    *,
    squared: bool = False,
    bins: int = BINS,
    adaptive: bool = False,
    exclude: Sequence[str] = (),
) -> float:
    """The root mean square calibration error of the most probable label, freed of sampling noise.

    With d = [right] - confidence of each token, the squared gap of a bin is estimated by the mean
    of d_i d_j over pairs of its tokens from different sequences,

        (D² - Σ_b D_b²) / (n² - Σ_b n_b²),

    where D and n are the sum and the number of d in the bin and D_b, n_b those of sequence b. The
    bins' estimates are averaged by their tokens. As sequences are independent, E d_i d_j is the
    product of the two gaps: nothing is added by noise, and perfect probabilities have an
    expectation of exactly 0, where D² / n² alone would have the variance of the bin's accuracy.
    Where each token is a sequence of its own, this is the estimator of Bröcker (2012) and Kumar et
    al. (2019). Bins fed by a single sequence are left out; NaN when all are.

    Args:
        y_true, proba, classes: as everywhere in this module.
        squared: the unbiased estimate of the squared error, which can be below 0, in place of the
            root of its positive part.
        bins, adaptive, exclude: as in `ece`.

    >>> perfect = [[[0.5, 0.5]]] * 4
    >>> calibration_error([["B"], ["O"], ["B"], ["O"]], perfect, ["B", "O"])
    0.0
    >>> round(calibration_error([["O"], ["O"], ["O"], ["O"]], perfect, ["B", "O"]), 3)
    0.5
    """
    tokens = scored(token_table(y_true, proba, classes), columns_of(classes, exclude))
    confidence, right = events(tokens, None)
    binning = bin_by_confidence(confidence, bins, adaptive)
    error = _squared_error(confidence, right, binning, tokens.sequence)
    return error if squared else _root(error)


def sharpness(proba: Proba) -> float:
    """The mean over tokens of Σ p²: 1 where the model is certain, 1/C where it knows nothing.

    It needs no truth, and says nothing about being right. A model whose probabilities are
    calibrated has, on average, a Brier score of 1 - sharpness.

    >>> sharpness([[[0.5, 0.5], [1.0, 0.0]]])
    0.75
    """
    rows = [np.asarray(row, dtype=np.float64) for row in proba]
    total = sum(float((row**2).sum()) for row in rows)
    count = sum(map(len, rows))
    if count == 0:
        raise DataError("nothing to score: proba has no token")
    return total / count


@dataclass(frozen=True)
class ProbabilityScores:
    """Scores of label probabilities, and how many tokens they rest on.

    Attributes:
        log_loss, brier, ece, ece_floor: see the functions of the same names.
        calibration_error, sharpness: alike, the latter over the tokens scored.
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
    calibration_error: float
    sharpness: float


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
    tokens = scored(table)
    confidence, right = events(tokens, None)
    binning = bin_by_confidence(confidence, bins, adaptive)
    return ProbabilityScores(
        log_loss=_log_loss(tokens),
        brier=_brier(tokens),
        ece=absolute_error(confidence, right, binning),
        ece_floor=_ece_floor(confidence, binning, draws, random_state),
        tokens=len(tokens.target),
        missing=int(np.count_nonzero(table.target == MISSING)),
        unknown=int(np.count_nonzero(table.target == UNKNOWN)),
        calibration_error=_root(_squared_error(confidence, right, binning, tokens.sequence)),
        sharpness=sharpness([tokens.proba]),
    )


def _log_loss(tokens: TokenTable) -> float:
    of_true = tokens.proba[np.arange(len(tokens.target)), tokens.target]
    with np.errstate(divide="ignore"):
        return float(-np.log(of_true).mean())


def _brier(tokens: TokenTable) -> float:
    # sum_c (p_c - [c = true])^2 = sum_c p_c^2 - 2 p_true + 1
    squares = np.einsum("nc,nc->n", tokens.proba, tokens.proba)
    of_true = tokens.proba[np.arange(len(tokens.target)), tokens.target]
    return float((squares - 2 * of_true + 1).mean())


def absolute_error(confidence: Floats, right: Bools, binning: Binning) -> float:
    """The mean over tokens of |accuracy - mean confidence| of their bin."""
    # The bin's token count cancels: n_k |accuracy_k - confidence_k| = |sum right - sum confidence|.
    return float(np.abs(binning.sums(right - confidence)).sum() / len(confidence))


def _ece_floor(
    confidence: Floats, binning: Binning, draws: int, random_state: RandomState
) -> float:
    if draws < 1:
        raise ValueError(f"draws must be at least 1, not {draws}")
    rng = np.random.default_rng(random_state)
    # A label drawn from the probabilities is the most probable one with its probability.
    simulated = [
        absolute_error(confidence, rng.random(len(confidence)) < confidence, binning)
        for _ in range(draws)
    ]
    return float(np.mean(simulated))


def _squared_error(confidence: Floats, right: Bools, binning: Binning, sequence: Ints) -> float:
    bins = len(binning.edges) - 1
    gap = right - confidence
    pairs, own = np.unique(
        np.stack([binning.index, sequence]), axis=1, return_inverse=True
    )  # each bin with each sequence that feeds it
    own = own.reshape(-1)
    sums, counts = np.bincount(own, gap), np.bincount(own, np.ones(len(own)))

    def between(values: npt.NDArray[Any]) -> Floats:
        """(K,) the sum of products over pairs of different sequences."""
        whole = np.bincount(pairs[0], weights=values, minlength=bins)
        squares = np.bincount(pairs[0], weights=values**2, minlength=bins)
        return np.asarray(whole**2 - squares, dtype=np.float64)

    usable = between(counts) > 0
    if not usable.any():
        return float("nan")
    error = between(sums)[usable] / between(counts)[usable]
    return float(np.average(error, weights=binning.sums(np.ones(len(gap)))[usable]))


def _root(squared: float) -> float:
    return float(np.sqrt(np.maximum(squared, 0.0)))
