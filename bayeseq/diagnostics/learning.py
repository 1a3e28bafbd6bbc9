"""Learning curves: error against labels, and how many labels a given error needs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bayeseq.data.errors import DataError
from bayeseq.diagnostics.tokens import Floats


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """The errors of R runs as labels are added.

    Attributes:
        share: (K,) rising shares of the labels, or numbers of them.
        errors: (R, K) the error of each run with so many labels.

    >>> curve = learning_curve([0.1, 0.5, 1.0], [[0.3, 0.1, 0.1], [0.1, 0.1, 0.2]])
    >>> curve.mean
    array([0.2 , 0.1 , 0.15])
    >>> curve.reaches(0.15)
    0.5
    """

    share: Floats
    errors: Floats

    @property
    def mean(self) -> Floats:
        """(K,) the mean error over runs."""
        return self.errors.mean(0)

    @property
    def smooth_mean(self) -> Floats:
        """(K,) the mean error of each point and its neighbours (two at the ends)."""
        padded = np.concatenate([[np.nan], self.mean, [np.nan]])
        return np.nanmean(np.stack([padded[:-2], padded[1:-1], padded[2:]]), axis=0)

    @property
    def standard_error(self) -> Floats:
        """(K,) the standard error of the mean over runs; 0 where there is one run."""
        runs = len(self.errors)
        return self.errors.std(0, ddof=1) / np.sqrt(runs) if runs > 1 else np.zeros(len(self.share))

    def reaches(self, target: float, smooth: bool = False) -> float | None:
        """The first share at which the mean error is at most `target`; None where it never is.
        `smooth` reads the mean error of three neighbouring points, and single dips count less."""
        reached = np.flatnonzero((self.smooth_mean if smooth else self.mean) <= target)
        return float(self.share[reached[0]]) if len(reached) else None

    def labels_for(self, target: float) -> float | None:
        """The share at which the mean error, on straight lines between the points, first is
        `target`: the first of all where it already is less there; None where it never is.

        >>> learning_curve([0.2, 0.4], [[0.3, 0.1]]).labels_for(0.2)
        0.3
        """
        mean = self.mean
        reached = np.flatnonzero(mean <= target)
        if not len(reached):
            return None
        k = int(reached[0])
        if k == 0:
            return float(self.share[0])
        along = (mean[k - 1] - target) / (mean[k - 1] - mean[k])
        return float(self.share[k - 1] + along * (self.share[k] - self.share[k - 1]))


def learning_curve(share: npt.ArrayLike, errors: npt.ArrayLike) -> LearningCurve:
    """A checked `LearningCurve` of shares (K,) and errors (R, K)."""
    x, y = np.asarray(share, dtype=np.float64), np.asarray(errors, dtype=np.float64)
    if x.ndim != 1 or y.ndim != 2 or y.shape[1] != len(x) or not y.size:
        raise DataError(
            f"share has shape {x.shape} and errors {y.shape}; expected (points,) and (runs, points)"
        )
    if not (np.isfinite(x).all() and np.isfinite(y).all() and (np.diff(x) > 0).all()):
        raise DataError("shares must rise, and shares and errors be finite")
    return LearningCurve(x, y)
