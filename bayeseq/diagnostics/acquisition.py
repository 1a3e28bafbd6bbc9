"""What a label would teach: scores of doubt, and a choice by them that does not repeat itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from bayeseq.data.errors import DataError
from bayeseq.diagnostics.tokens import Floats
from bayeseq.diagnostics.uncertainty import uncertainty


def least_confidence(log_best: npt.ArrayLike) -> Floats:
    """(B,) 1 − P(best labelling), from the logarithm of that probability.

    >>> least_confidence(np.log([0.75, 0.5])).round(3)
    array([0.25, 0.5 ])
    """
    return -np.expm1(_log_probabilities(log_best))


def mnlp(log_best: npt.ArrayLike, lengths: npt.ArrayLike) -> Floats:
    """(B,) −log P(best labelling) / T: Shen et al.'s maximum normalised log-probability (2018),
    with the sign that ranks the most doubtful sentence first; 0 where there is no token.

    >>> mnlp(np.log([0.25, 0.25]), [2, 1]).round(3)
    array([0.693, 1.386])
    """
    return -_log_probabilities(log_best) / np.maximum(np.asarray(lengths, dtype=np.float64), 1.0)


def token_doubt(proba: npt.ArrayLike, strategy: str) -> Floats:
    """(T,) how doubtful each token is, from its label probabilities (T, C): "least_confidence" is
    1 − max p, "mnlp" is −log max p, "entropy" is −Σ p log p.

    >>> token_doubt([[0.5, 0.5], [1.0, 0.0]], "entropy").round(3)
    array([0.693, 0.   ])
    """
    p = np.asarray(proba, dtype=np.float64)
    if strategy == "entropy":
        return uncertainty([p[None]]).total[0] + 0.0  # no −0
    best = p.max(-1, initial=0.0)
    if strategy == "least_confidence":
        return np.maximum(1.0 - best, 0.0)
    if strategy == "mnlp":
        return np.maximum(-np.log(best), 0.0)
    raise ValueError(
        f"strategy is {strategy!r}; of single probabilities there are 'least_confidence', 'mnlp' "
        "and 'entropy'"
    )


def _log_probabilities(values: npt.ArrayLike) -> Floats:
    """Logarithms of probabilities; above 0 by rounding only."""
    array = np.asarray(values, dtype=np.float64)
    if not (array <= 1e-6).all():  # written so that NaN fails too
        bad = int(np.flatnonzero(~(array <= 1e-6))[0])
        raise DataError(f"sequence {bad}: {array[bad]} is no logarithm of a probability")
    return np.minimum(array, 0.0)


def unit_rows(counts: sp.csr_matrix) -> sp.csr_matrix:
    """Rows of feature sums as vectors of length one, rare features weighing more (tf-idf).

    A value v counts as sign(v) · log(1 + |v|), and a feature that is in b of B rows
    log((1 + B) / (1 + b)) + 1 times. Rows without any feature stay zero.

    >>> rows = unit_rows(sp.csr_matrix([[1.0, 1.0], [1.0, 0.0]]))
    >>> (rows @ rows.T).toarray().round(3)
    array([[1.  , 0.58],
           [0.58, 1.  ]])
    """
    rows = sp.csr_matrix(counts, dtype=np.float64, copy=True)
    rows.eliminate_zeros()
    held = np.bincount(rows.indices, minlength=rows.shape[1])
    idf = np.log((1 + rows.shape[0]) / (1 + held)) + 1
    rows.data = np.sign(rows.data) * np.log1p(np.abs(rows.data)) * idf[rows.indices]
    length = np.sqrt(np.asarray(rows.multiply(rows).sum(1)).ravel())
    return sp.csr_matrix(sp.diags_array(1 / np.where(length > 0, length, 1.0)) @ rows)


class Choice(NamedTuple):
    """One that was chosen."""

    number: int
    gain: float
    """Its score, less what those chosen before it would teach already"""
    similarity: float
    """Its largest similarity to one chosen before, 0 for the first"""
    nearest: int
    """Which one that is, −1 for the first and where nothing is similar"""


def choose(
    scores: npt.ArrayLike,
    costs: npt.ArrayLike,
    n: int | None = None,
    budget: float | None = None,
    similar: Callable[[int], Floats] | None = None,
    diversity: float = 0.0,
) -> list[Choice]:
    """Choose one after the other, the largest gain first, until `n` are chosen or no other fits.

    The gain of i is score_i · (1 − diversity · s_i), where s_i is its largest similarity to one
    chosen already; `similar(j)` gives the similarities (U,) of all to j, which count between 0 and
    1. Costs (U,) together stay within `budget`; what costs more than is left is passed over. Of
    equal gains the first wins.

    >>> twins = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> [c.number for c in choose([3, 2.9, 1], [1, 1, 1], 2)]
    [0, 1]
    >>> [c.number for c in choose([3, 2.9, 1], [1, 1, 1], 2, None, twins.__getitem__, 1.0)]
    [0, 2]
    """
    score, cost = _finite("scores", scores), _finite("costs", costs)
    if score.shape != cost.shape:
        raise DataError(f"{len(score)} scores are given and {len(cost)} costs")
    if not 0 <= diversity <= 1:
        raise ValueError(f"diversity is {diversity}; it must lie between 0 and 1")
    left = np.inf if budget is None else float(budget)
    similarity, nearest = np.zeros(len(score)), np.full(len(score), -1)
    free = np.ones(len(score), dtype=bool)
    found: list[Choice] = []
    while n is None or len(found) < n:
        possible = np.flatnonzero(free & (cost <= left))
        if len(possible) == 0:
            break
        gain = score[possible] * (1 - diversity * similarity[possible])
        place = int(np.argmax(gain))
        i = int(possible[place])
        found.append(Choice(i, float(gain[place]), float(similarity[i]), int(nearest[i])))
        free[i] = False
        left -= float(cost[i])
        if similar is not None and diversity > 0:
            new = np.clip(similar(i), 0.0, 1.0)
            nearer = new > similarity
            similarity[nearer], nearest[nearer] = new[nearer], i
    return found


def contenders(
    scores: npt.ArrayLike,
    costs: npt.ArrayLike,
    n: int | None,
    budget: float | None,
    diversity: float,
) -> npt.NDArray[np.intp]:
    """The numbers of those that `choose` could choose; where costs differ, or there is no end, all.

    Of k things to choose, whatever was chosen before, one of the k best scores is free and gains at
    least 1 − diversity of its score. So what scores less than that share of the k-th best is out.

    >>> contenders([5, 1, 4, 3, 2], [1] * 5, 2, None, 0.5)
    array([0, 2, 3, 4])
    """
    score, cost = _finite("scores", scores), _finite("costs", costs)
    everything = np.arange(len(score))
    if len(score) == 0 or cost.min() != cost.max() or cost[0] == 0:
        return everything
    k = min(len(score) if n is None else n, np.inf if budget is None else budget // cost[0])
    if not 1 <= k < len(score):
        return everything
    least = np.partition(score, -int(k))[-int(k)]
    return np.flatnonzero(score >= (1 - diversity) * least)


def _finite(name: str, values: npt.ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    bad = ~(np.isfinite(array) & (array >= 0))
    if array.ndim != 1 or bad.any():
        what = f"number {int(np.flatnonzero(bad)[0])}" if array.ndim == 1 else f"{array.shape}"
        raise DataError(f"{name}: {what} is not one finite number of at least 0")
    return array


def cosine_to(rows: sp.csr_matrix) -> Callable[[int], Floats]:
    """`similar` of `choose`: inner products of all `rows` (U, D), of length one, with row j."""
    return lambda j: np.asarray((rows @ rows[[j]].T).todense(), dtype=np.float64).ravel()
