"""Two kinds of not knowing: text that is ambiguous, and text unlike anything seen in training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bayeseq.data.errors import DataError
from bayeseq.diagnostics.tokens import Floats


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """How unsure a model is of each token, in nats, and of what kind that is.

    Attributes:
        total: a (T,) array a sequence: the entropy of the mean probabilities over draws.
        aleatoric: a (T,) array a sequence: the mean entropy of the draws, which more training
            labels would leave, since each draw is a model that is sure of itself.
        epistemic: a (T,) array a sequence: the rest, the mutual information between label and
            weights (BALD): how far draws disagree, which more training labels would lower.
    """

    total: list[Floats]
    aleatoric: list[Floats]
    epistemic: list[Floats]

    @property
    def epistemic_share(self) -> float:
        """The share of all tokens' uncertainty that is epistemic; 0 where nothing is unsure."""
        total = sum(float(row.sum()) for row in self.total)
        return sum(float(row.sum()) for row in self.epistemic) / total if total > 0 else 0.0

    def by_sequence(self) -> tuple[Floats, Floats, Floats]:
        """(B,) total, aleatoric and epistemic: means over the tokens of each sequence, 0 where it
        has none."""
        total, aleatoric, epistemic = (
            np.array([float(row.mean()) if len(row) else 0.0 for row in rows])
            for rows in (self.total, self.aleatoric, self.epistemic)
        )
        return total, aleatoric, epistemic


def uncertainty(draws: Sequence[npt.ArrayLike]) -> Uncertainty:
    """Total, aleatoric and epistemic uncertainty of each token, from draws of its probabilities.

    `draws` holds an array (S, T, C) a sequence, as `posterior_predict` gives them. One draw, or a
    model with one answer, has no epistemic part.

    >>> agreed = uncertainty([[[[0.5, 0.5]], [[0.5, 0.5]]]])
    >>> agreed.total[0].round(3), agreed.epistemic[0].round(3)
    (array([0.693]), array([0.]))
    >>> uncertainty([[[[1.0, 0.0]], [[0.0, 1.0]]]]).epistemic[0].round(3)
    array([0.693])
    """
    total, aleatoric, epistemic = [], [], []
    for i, rows in enumerate(draws):
        proba = np.asarray(rows, dtype=np.float64)
        if proba.ndim != 3 or proba.shape[0] == 0:
            raise DataError(
                f"draws: sequence {i} has shape {proba.shape}, expected (draws, tokens, labels); "
                "posterior_predict gives such arrays"
            )
        if not ((proba >= 0).all() and np.allclose(proba.sum(-1), 1, atol=1e-6)):
            raise DataError(f"draws: sequence {i} holds rows that are no probabilities")
        whole, each = _entropy(proba.mean(0)), _entropy(proba).mean(0)
        total.append(whole)
        aleatoric.append(each)
        epistemic.append(np.maximum(whole - each, 0.0))  # never below 0 but for rounding
    return Uncertainty(total, aleatoric, epistemic)


def _entropy(proba: Floats) -> Floats:
    """The entropy in nats along the last axis; 0 log 0 is 0."""
    return -np.where(proba > 0, proba * np.log(np.where(proba > 0, proba, 1.0)), 0.0).sum(-1)
