"""What reading the most doubtful cases buys: errors found, and the error rate of the rest.

Where labels exist, errors are counted. Where there are none yet, the model's own probabilities
stand in: an answer of probability p is expected to be wrong 1 - p times. A plan of the second kind
is as good as the probabilities are calibrated, which `reliability` tells on labelled text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from bayeseq.data.errors import DataError
from bayeseq.diagnostics.abstention import (
    Unit,
    _risk,
    _risk_band,
    _sequence_cases,
    _token_cases,
    answer_columns,
)
from bayeseq.diagnostics.binning import Proba, RandomState
from bayeseq.diagnostics.entity_claims import ScoredEntities, entity_claims
from bayeseq.diagnostics.tables import aligned, percent
from bayeseq.diagnostics.tokens import (
    Floats,
    Ints,
    Labels,
    MaybeLabels,
    TokenTable,
    require_tokens,
    token_table,
)

BUDGETS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
_UNITS = {"token": "tokens", "sequence": "sequences", "entity": "entities"}


@dataclass(frozen=True, eq=False)
class ReviewBudget:
    """What reading the least confident share of cases buys, for G shares.

    Among cases of equal confidence those to read are taken at random: all numbers are expected
    values under that.

    Attributes:
        unit: "token", "sequence" or "entity": what is read.
        labelled: whether errors were counted, or expected from the model's own probabilities.
        total: the number of cases.
        error: the share of them that is wrong.
        share: (G,), the share of cases that is read.
        threshold: (G,), the confidence below which cases are read.
        errors_found: (G,), the number of errors among those read.
        error_left: (G,), the share of wrong ones among the rest.
        lower, upper: (G,), the band of `error_left`, by Bayesian bootstrap over sequences; NaN
            without labels, without bootstrap, or with one sequence.
        level: the share of bootstrap samples between lower and upper.
    """

    unit: Literal["token", "sequence", "entity"]
    labelled: bool
    total: int
    error: float
    share: Floats
    threshold: Floats
    errors_found: Floats
    error_left: Floats
    lower: Floats
    upper: Floats
    level: float

    @property
    def read(self) -> Floats:
        """(G,) the number of cases read."""
        return self.share * self.total

    @property
    def found_share(self) -> Floats:
        """(G,) the share of all errors that is found; 1 where there is none."""
        errors = self.error * self.total
        return self.errors_found / errors if errors > 0 else np.ones_like(self.share)

    def share_for_error(self, error: float) -> float:
        """The least share of those here that leaves at most this error rate; infinity where none
        does."""
        enough = self.share[self.error_left <= error]
        return float(enough.min()) if len(enough) else float("inf")

    def table(self) -> str:
        """One line a share."""
        names = _UNITS[self.unit]
        banded = not np.isnan(self.lower).all()
        header = [
            f"{names} read %",
            names,
            "errors found",
            "of all errors %",
            "error % of the rest",
        ]
        rows = [header + ([f"{self.level:.0%} band"] if banded else [])]
        for g, share in enumerate(self.share):
            row = [percent(share, 1), f"{self.read[g]:.0f}", f"{self.errors_found[g]:.1f}"]
            row += [percent(self.found_share[g], 1), percent(self.error_left[g])]
            if banded:
                row.append(f"{percent(self.lower[g])}–{percent(self.upper[g])}")
            rows.append(row)
        source = "counted" if self.labelled else "expected from the model's own probabilities"
        return f"errors {source}, {self.total} {names}\n{aligned(rows)}"

    def __str__(self) -> str:
        return self.table()


def review_budget(
    y_true: MaybeLabels | None,
    proba: Proba,
    classes: Sequence[str],
    *,
    budget: Sequence[float] = BUDGETS,
    y_pred: Labels | None = None,
    unit: Unit = "token",
    confidence: Sequence[Any] | None = None,
    sequence_proba: npt.ArrayLike | None = None,
    bootstrap: int = 200,
    level: float = 0.9,
    random_state: RandomState = 0,
) -> ReviewBudget:
    """Read 5 % of the tokens: how many errors are found, and what is the error of the rest?

    Args:
        y_true: labels of a validation set (None where missing); or None where no label exists.
        proba, classes, y_pred, unit, confidence: as in `risk_coverage`.
        budget: the shares of cases to read, each at least 0 and below 1.
        sequence_proba: without labels and with unit="sequence", the probability (B,) that the whole
            answer is right: `predict_nbest(X, 1)` gives it, or exp of `log_likelihood(X, y_pred)`.
            Probabilities of tokens do not tell it.
        bootstrap, level, random_state: the band, with labels.

    >>> proba = [[[0.9, 0.1], [0.6, 0.4]], [[0.2, 0.8], [0.3, 0.7]]]
    >>> plan = review_budget(None, proba, ["B", "O"], budget=[0, 0.25])
    >>> plan.errors_found.round(3), plan.error_left.round(3)
    (array([0. , 0.4]), array([0.25, 0.2 ]))
    >>> real = review_budget([["B", "O"], ["O", "O"]], proba, ["B", "O"], budget=[0, 0.25])
    >>> real.errors_found, real.error_left
    (array([0., 1.]), array([0.25, 0.  ]))
    """
    if unit not in ("token", "sequence"):
        raise ValueError(
            f'unit must be "token" or "sequence", not {unit!r}; entities: entity_review_budget'
        )
    if y_true is not None and sequence_proba is not None:
        raise ValueError("sequence_proba has no use where labels are given; leave one of them out")
    hidden = [[None] * len(np.asarray(rows)) for rows in proba] if y_true is None else y_true
    lengths = [len(labels) for labels in hidden]
    table = token_table(hidden, proba, classes)
    answer = answer_columns(table, y_pred, lengths, classes)
    if y_true is None:  # take the answers for the truth, to get at the cases
        table = TokenTable(table.proba, answer, table.sequence)
    cases = _token_cases if unit == "token" else _sequence_cases
    trust, wrong, sequence = cases(table, answer, lengths, confidence)
    require_tokens(len(trust), "labelled token")
    errors = wrong.astype(np.float64)
    if y_true is None:
        if unit == "token":
            errors = 1 - table.proba[np.arange(len(answer)), answer]
        else:
            errors = 1 - _whole_proba(sequence_proba, len(lengths))[sequence]
    return _budget(
        unit, y_true is not None, trust, errors, sequence, budget, bootstrap, level, random_state
    )


def entity_review_budget(
    y_true: MaybeLabels | None,
    entities: ScoredEntities,
    *,
    budget: Sequence[float] = BUDGETS,
    bootstrap: int = 200,
    level: float = 0.9,
    random_state: RandomState = 0,
) -> ReviewBudget:
    """The same for predicted entities, read from the least probable one on.

    True entities that were not predicted are not found by reading those that were, and are not
    counted here.

    Args:
        y_true: complete true tags, or None where no label exists.
        entities: for each sequence (start, end, type, probability), as `predict_entities` gives.
        budget, bootstrap, level, random_state: as in `review_budget`.

    >>> plan = entity_review_budget(None, [[(0, 2, "PER", 0.9), (3, 4, "LOC", 0.6)]], budget=[0.5])
    >>> plan.errors_found.round(3), plan.error_left.round(3)
    (array([0.4]), array([0.1]))
    """
    claims = entity_claims(entities, y_true)
    errors = 1 - claims.score if claims.right is None else (~claims.right).astype(np.float64)
    return _budget(
        "entity",
        claims.right is not None,
        claims.score,
        errors,
        claims.sequence,
        budget,
        bootstrap,
        level,
        random_state,
    )


def _whole_proba(sequence_proba: npt.ArrayLike | None, sequences: int) -> Floats:
    if sequence_proba is None:
        raise ValueError(
            'unit="sequence" without labels needs sequence_proba, the probability that each whole '
            "answer is right; predict_nbest(X, 1) gives it"
        )
    proba = np.asarray(sequence_proba, dtype=np.float64)
    if proba.shape != (sequences,) or not ((proba >= 0) & (proba <= 1)).all():
        raise DataError(
            f"sequence_proba must hold one probability for each of the {sequences} sequences"
        )
    return proba


def _budget(
    unit: Literal["token", "sequence", "entity"],
    labelled: bool,
    trust: Floats,
    errors: Floats,
    sequence: Ints,
    budget: Sequence[float],
    bootstrap: int,
    level: float,
    random_state: RandomState,
) -> ReviewBudget:
    """The record of cases with a confidence, an (expected) error and a sequence each: (N,)."""
    share = np.asarray(budget, dtype=np.float64)
    if share.ndim != 1 or not ((share >= 0) & (share < 1)).all():
        raise ValueError(f"budget must hold shares of at least 0 and below 1, not {budget!r}")
    total = len(trust)
    _, step, sizes = np.unique(-trust, return_inverse=True, return_counts=True)
    kept = np.cumsum(sizes)
    wrong = np.cumsum(np.bincount(step, weights=errors, minlength=len(sizes)))
    rest = (1 - share) * total
    error_left = _risk(kept, wrong, rest)
    first = (kept - sizes)[step]
    lower, upper = _risk_band(
        step, first, errors, sequence, bootstrap if labelled else 0, level, random_state, 1 - share
    )
    place = np.minimum((share * total + 1e-9).astype(int), total - 1)
    return ReviewBudget(
        unit=unit,
        labelled=labelled,
        total=total,
        error=float(wrong[-1] / total),
        share=share,
        threshold=np.sort(trust)[place],
        errors_found=wrong[-1] - error_left * rest,
        error_left=error_left,
        lower=lower,
        upper=upper,
        level=level,
    )
