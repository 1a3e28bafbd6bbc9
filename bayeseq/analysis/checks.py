"""Is the approximate posterior near the one it approximates, and are labels as the model says?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bayeseq.analysis.fitted import fitted_model, require_posterior, training_data
from bayeseq.chain import one_thread
from bayeseq.data.labels import Labels
from bayeseq.diagnostics.arviz import pareto_k
from bayeseq.inference.density import densities
from bayeseq.labelers.base import SequenceLabeler
from bayeseq.labelers.gpstruct import GPStruct


@dataclass(frozen=True, eq=False)
class KHat:
    """How heavy the tail of the importance weights p / q of draws from a guide q is.

    Attributes:
        k: the Pareto tail index; −∞ where all weights are equal, so that q is the posterior.
        draws: how many draws were weighed.
        effective_draws: how many draws from the posterior itself they are worth.
        log_ratios: (draws,) log p(y, w) − log q(w). Their mean is the evidence bound.
        weights: (draws,) the smoothed weights, which sum to 1.
    """

    k: float
    draws: int
    effective_draws: float
    log_ratios: np.ndarray
    weights: np.ndarray

    @property
    def verdict(self) -> str:
        """ "good" up to 0.5, "usable" up to 0.7, otherwise "do not trust"."""
        return "good" if self.k < 0.5 else "usable" if self.k <= 0.7 else "do not trust"

    def __str__(self) -> str:
        return (
            f"k-hat {self.k:.2f} ({self.verdict}): {self.draws} draws of the fitted posterior are "
            f"worth {self.effective_draws:.0f} of the exact one"
        )


@one_thread()
def khat(
    model: SequenceLabeler,
    X: Iterable[Any],
    y: Labels,
    draws: int = 2000,
    *,
    sample_weight: Sequence[float] | None = None,
    random_state: int | np.random.Generator | None = 0,
) -> KHat:
    """PSIS k̂ of the Gaussian posterior of a fitted GPSL or GPSC, on its training data.

    Draws from the Gaussian q are weighed by the model's unnormalised posterior, prior times
    likelihood at the learned prior variances. A k̂ below 0.5 says that q is near the posterior, up
    to 0.7 that weighing makes up for the difference, above that neither: draws should not be taken
    for draws from the posterior. Judged is `posterior_`, all weights together. Predictions need
    less, and are calibrated besides (`scales_` of GPSL, `spread_` of GPSC): they can be good where
    k̂ is not.

    Args:
        model: a fitted GPSL, or GPSC with inference "laplace" or "vg".
        X, y, sample_weight: the training data, as `fit` had them.
        draws: how many draws are weighed.
        random_state: seed or numpy Generator of the draws.

    >>> from bayeseq import GPSC
    >>> X, y = [[["a"], ["b"]], [["b"], ["a"]]] * 3, [["A", "B"], ["B", "A"]] * 3
    >>> khat(GPSC(learn=False, progress=False).fit(X, y), X, y).verdict
    'good'
    """
    require_posterior(model)
    if isinstance(model, GPStruct):
        raise TypeError(
            "GPStruct draws from the posterior itself, so there is no guide to judge; look at "
            "model.result_.hyperparameters['r_hat'] and ['ess']"
        )
    data = training_data(model, X, y, sample_weight)
    fitted, _ = fitted_model(model, data)
    seed = int(np.random.default_rng(random_state).integers(2**62))
    generator = torch.Generator().manual_seed(seed)
    found = densities(fitted, model.posterior_, draws, generator)
    return khat_of(found.log_ratios.numpy())


def khat_of(log_ratios: np.ndarray) -> KHat:
    """The record of log importance ratios (S,)."""
    k, log_weights = pareto_k(log_ratios)
    weights = np.exp(log_weights)
    effective = float(1 / np.square(weights).sum())
    return KHat(k, len(log_ratios), effective, log_ratios, weights)
