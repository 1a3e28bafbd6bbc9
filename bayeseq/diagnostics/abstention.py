"""What is gained by leaving the doubtful cases to a person: error rate against share kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from bayeseq.data.errors import DataError
from bayeseq.diagnostics.binning import Proba, RandomState
from bayeseq.diagnostics.bootstrap import band, sequence_weights, weighted_sums
from bayeseq.diagnostics.tokens import (
    MISSING,
    Bools,
    Floats,
    Ints,
    Labels,
    MaybeLabels,
    TokenTable,
    check_predicted,
    class_codes,
    first_place,
    require_tokens,
    stack,
    token_table,
)

Unit = Literal["token", "sequence"]
Numbers = Floats | Ints

# Coverages at which the band is computed.
BAND_COVERAGE = np.linspace(0.02, 1, 50)

# The band sorts cases into at most this many steps of falling confidence, so that its cost does not
# grow with their number; the curve itself uses every distinct confidence.
BAND_STEPS = 1000


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """The error rate of what is kept, when cases are kept from the most confident downwards.

    Entry k keeps every case with confidence at least threshold[k]; there is one entry for each of
    the K distinct confidences, highest first.

    Attributes:
        unit: "token" or "sequence", what is kept or left to a person.
        threshold: (K,), falling.
        coverage: (K,), the share of cases kept, rising to 1.
        risk: (K,), the share of wrong ones among those kept.
        total: the number of cases.
        error: the risk at full coverage.
        aurc: the area under the curve: the mean risk over keeping 1, 2, ..., all cases.
        aurc_oracle: the same when all right cases come before all wrong ones, the least possible
            with this `error`. A random order has, on average, an area of `error`.
        band_coverage: (G,), the coverages of the band.
        lower, upper: (G,), the band of the risk there; NaN without bootstrap or with one sequence.
        level: the share of bootstrap samples between lower and upper.
    """

    unit: Unit
    threshold: Floats
    coverage: Floats
    risk: Floats
    total: int
    error: float
    aurc: float
    aurc_oracle: float
    band_coverage: Floats
    lower: Floats
    upper: Floats
    level: float

    @property
    def excess_aurc(self) -> float:
        """How far the area is from the least possible: the fault of the ranking alone."""
        return self.aurc - self.aurc_oracle

    @property
    def precision(self) -> Floats:
        """(K,) the share of right ones among the cases kept, by threshold ([gpsc], figure 1c)."""
        return 1 - self.risk

    @property
    def recall(self) -> Floats:
        """(K,) the share of the right cases that is kept, by threshold; 1 where none is right."""
        right = self.coverage * self.precision
        return right / right[-1] if right[-1] > 0 else np.ones_like(right)

    def at_threshold(self, threshold: float) -> tuple[float, float]:
        """The share of cases with at least this confidence, and the error rate among them; (0, 0)
        where there is none."""
        kept = np.flatnonzero(self.threshold >= threshold)
        if len(kept) == 0:
            return 0.0, 0.0
        return float(self.coverage[kept[-1]]), float(self.risk[kept[-1]])

    def at_coverage(self, coverage: float) -> float:
        """The risk when this share of cases is kept.

        Among cases of equal confidence the kept ones are taken at random: the expected risk.
        """
        if not 0 < coverage <= 1:
            raise ValueError(f"coverage must be above 0 and at most 1, not {coverage!r}")
        return float(_risk(self.coverage, self.coverage * self.risk, np.array([coverage]))[0])

    def oracle_risk(self, coverage: Floats) -> Floats:
        """The least possible risk at each coverage (G,): all wrong cases are left to the end."""
        return np.maximum(0.0, coverage - (1 - self.error)) / coverage

    def threshold_for_risk(self, risk: float) -> float:
        """The confidence from which on cases must be kept to have at most this risk.

        Of all thresholds that reach it on these cases the one that keeps most is taken; infinity,
        which keeps nothing, when there is none. It fits these cases: choose it on data that will
        not be used to judge it.
        """
        reached = np.flatnonzero(self.risk <= risk)
        return float(self.threshold[reached[-1]]) if len(reached) else float("inf")


def risk_coverage(
    y_true: MaybeLabels,
    proba: Proba,
    classes: Sequence[str],
    *,
    y_pred: Labels | None = None,
    unit: Unit = "token",
    confidence: Sequence[Any] | None = None,
    bootstrap: int = 200,
    level: float = 0.9,
    random_state: RandomState = 0,
) -> RiskCoverage:
    """Rank tokens or sequences by confidence, and follow the error rate as more are kept.

    Cases of equal confidence have no order among themselves, so every number is the expected value
    under a random one. Tokens whose true label is None are left out; a true label that is not among
    the classes is an error like any other, since the answer given there is wrong.

    Args:
        y_true: lists of str, None where missing.
        proba: one (T, C) array a sequence, in `classes` order.
        classes: the C labels.
        y_pred: the answers to judge, when they are not the most probable label of each token.
        unit: keep or leave single "token"s, or whole "sequence"s; a sequence is wrong when any of
            its labelled tokens is, and left out when it has none.
        confidence: what to rank by. Tokens: one (T,) array a sequence, by default the probability
            of the answer. Sequences: one number each, by default the mean over all tokens of the
            sequence of the log probability of the answer.
        bootstrap: the number of bootstrap samples (of sequences) for the band; 0 for no band.
        level: the share of samples that the band holds.
        random_state: seed or numpy Generator of the bootstrap.

    >>> curve = risk_coverage([["O", "B"]], [[[0.2, 0.8], [0.4, 0.6]]], ["B", "O"])
    >>> curve.coverage, curve.risk
    (array([0.5, 1. ]), array([0. , 0.5]))
    >>> curve.threshold_for_risk(0.1)
    0.8
    """
    if unit not in ("token", "sequence"):
        raise ValueError(f'unit must be "token" or "sequence", not {unit!r}')
    lengths = [len(labels) for labels in y_true]
    table = token_table(y_true, proba, classes)
    answer = answer_columns(table, y_pred, lengths, classes)
    cases = _token_cases if unit == "token" else _sequence_cases
    trust, wrong, sequence = cases(table, answer, lengths, confidence)
    require_tokens(len(trust), "labelled token")

    negated, step, sizes = np.unique(-trust, return_inverse=True, return_counts=True)
    kept = np.cumsum(sizes)
    errors = np.cumsum(np.bincount(step[wrong], minlength=len(sizes)))
    first = (kept - sizes)[step]
    lower, upper = _risk_band(step, first, wrong, sequence, bootstrap, level, random_state)
    return RiskCoverage(
        unit=unit,
        threshold=-negated,
        coverage=kept / kept[-1],
        risk=errors / kept,
        total=len(trust),
        error=float(errors[-1] / kept[-1]),
        aurc=_area(kept, errors),
        aurc_oracle=_least_area(len(trust), int(errors[-1])),
        band_coverage=BAND_COVERAGE.copy(),
        lower=lower,
        upper=upper,
        level=level,
    )


def answer_columns(
    table: TokenTable, y_pred: Labels | None, lengths: Sequence[int], classes: Sequence[str]
) -> Ints:
    """The column of the answer at each token (N,)."""
    if y_pred is None:
        return table.proba.argmax(axis=1)
    check_predicted(y_pred, lengths)
    codes = class_codes(classes)
    answer = np.array([codes.get(label, -1) for labels in y_pred for label in labels], dtype=int)
    if (answer < 0).any():
        raise DataError(
            f"y_pred: {first_place(answer < 0, lengths)} has a label that is not among the classes"
        )
    return answer


def _token_cases(
    table: TokenTable, answer: Ints, lengths: Sequence[int], confidence: Sequence[Any] | None
) -> tuple[Floats, Bools, Ints]:
    """Confidence, error and sequence of each labelled token."""
    if confidence is None:
        trust = table.proba[np.arange(len(answer)), answer]
    else:
        trust = stack("confidence", confidence, lengths, ())
        if np.isnan(trust).any():
            raise DataError(f"confidence: {first_place(np.isnan(trust), lengths)} is NaN")
    labelled = table.target != MISSING
    wrong = table.target != answer
    return trust[labelled], wrong[labelled], table.sequence[labelled]


def _sequence_cases(
    table: TokenTable, answer: Ints, lengths: Sequence[int], confidence: Sequence[Any] | None
) -> tuple[Floats, Bools, Ints]:
    """Confidence, error and number of each sequence that has a labelled token."""
    sequences = len(lengths)
    labelled = table.target != MISSING
    number = np.unique(table.sequence[labelled])
    mistakes = np.bincount(table.sequence[labelled & (table.target != answer)], minlength=sequences)
    if confidence is None:
        with np.errstate(divide="ignore"):
            log_p = np.log(table.proba[np.arange(len(answer)), answer])
        total = np.bincount(table.sequence, weights=log_p, minlength=sequences)
        return total[number] / np.asarray(lengths)[number], mistakes[number] > 0, number
    trust = np.asarray(confidence, dtype=np.float64)
    if trust.shape != (sequences,):
        raise DataError(
            f"confidence has shape {trust.shape}; unit='sequence' needs one number for each of the "
            f"{sequences} sequences"
        )
    if np.isnan(trust).any():
        raise DataError(
            f"confidence: sequence {int(np.isnan(trust).argmax())} (from 0) has the confidence NaN"
        )
    return trust[number], mistakes[number] > 0, number


def _risk(kept: Numbers, errors: Numbers, at: Numbers) -> Floats:
    """Expected errors / kept when `at` (G,) cases are kept; between two steps, a random part.

    `kept` and `errors` (K,) are cumulative over steps of falling confidence, in any common unit.
    """
    return np.interp(at, np.append(0, kept), np.append(0, errors)) / at


def _area(kept: Ints, errors: Ints) -> float:
    every = np.arange(1, kept[-1] + 1)
    return float(_risk(kept, errors, every).mean())


def _least_area(total: int, errors: int) -> float:
    return _area(np.array([total - errors, total]), np.array([0, errors]))


def _risk_band(
    step: Ints,
    first: Ints,
    wrong: Bools | Floats,
    sequence: Ints,
    bootstrap: int,
    level: float,
    random_state: RandomState,
    coverage: Floats = BAND_COVERAGE,
) -> tuple[Floats, Floats]:
    """The band of the risk at each `coverage` (G,).

    `step` (N,) numbers the distinct confidences, highest first, and `first` (N,) counts the cases
    with a higher one.
    """
    numbers, own = np.unique(sequence, return_inverse=True)
    if len(numbers) < 2:  # one sequence alone says nothing about how sequences differ
        bootstrap = 0
    steps = int(step.max()) + 1
    if steps > BAND_STEPS:
        step, steps = first * BAND_STEPS // len(first), BAND_STEPS
    rng = np.random.default_rng(random_state)
    weights = sequence_weights(len(numbers), bootstrap, rng)
    kept = weighted_sums(weights, own, step, steps, np.ones(len(step))).cumsum(axis=1)
    errors = weighted_sums(weights, own, step, steps, wrong.astype(np.float64)).cumsum(axis=1)
    samples = np.empty((bootstrap, len(coverage)))
    for row in range(bootstrap):
        samples[row] = _risk(kept[row], errors[row], coverage * kept[row, -1])
    return band(samples, level)
