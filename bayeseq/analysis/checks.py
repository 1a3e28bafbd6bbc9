"""Is the approximate posterior near the one it approximates, and are labels as the model says?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bayeseq.analysis.fitted import fitted_model, has_posterior, require_posterior, training_data
from bayeseq.analysis.priors import prior_labellings
from bayeseq.chain import one_thread
from bayeseq.data.labels import Labels
from bayeseq.diagnostics.arviz import pareto_k
from bayeseq.diagnostics.predictive import PredictiveCheck, Statistic, check_labels
from bayeseq.inference.density import densities
from bayeseq.labelers.base import SequenceLabeler
from bayeseq.labelers.draws import draw_labellings
from bayeseq.labelers.gpstruct import GPStruct
from bayeseq.labelers.guards import check_choice, require_positive


@dataclass(frozen=True, eq=False)
class KHat:
    """How heavy the tail of the importance weights p / q of draws from a guide q is.

    Attributes:
        k: the Pareto tail index; −∞ where all weights are equal, so that q is the posterior.
        draws: how many draws were weighed.
        effective_draws: how many draws from the posterior itself they are worth.
        log_ratios: (draws,) log p(y, w) − log q(w), of what scores see of the weights w. Their mean
            is a lower bound on the log evidence, and the log of the mean of their exponentials
            estimates it.
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
    for draws from the posterior. Judged is `posterior_`, all weights together (of GPSL, how those
    of the labels differ: scores see no more). Predictions need less, and are calibrated besides
    (`scales_` of GPSL, `spread_` of GPSC): they can be good where k̂ is not.

    Args:
        model: a fitted GPSL, or GPSC with inference "laplace" or "vg".
        X, y, sample_weight: the training data, as `fit` had them.
        draws: how many draws are weighed.
        random_state: seed or numpy Generator of the draws.

    >>> from bayeseq import GPSC
    >>> X, y = [[["a"], ["b"]], [["b"], ["a"]]] * 3, [["A", "B"], ["B", "A"]] * 3
    >>> khat(GPSC(learn=False, progress=False).fit(X, y), X, y).k < 0.7
    True
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


def predictive_check(
    model: SequenceLabeler,
    X: Iterable[Any],
    y: Labels,
    draws: int = 200,
    *,
    kind: str = "posterior",
    statistics: Mapping[str, Statistic] | None = None,
    level: float = 0.9,
    random_state: int | np.random.Generator | None = 0,
) -> PredictiveCheck:
    """Whether a model makes up labels like the real ones: shares, label pairs, entities.

    The model draws labels for all sentences of X, `draws` times, and the numbers that describe
    them (`diagnostics.label_statistics`) are compared with those of y. With a posterior, each
    corpus is drawn with weights of its own, calibrated as predictions are; a labeler without one,
    such as a CRF, draws with the weights that it has. "prior" draws the weights from the prior, at
    the prior variances that were learned: whether the model could have expected such labels.

    Args:
        model: a fitted labeler that can draw labellings; for "prior", one with a posterior.
        X, y: sentences, seen in training or not, and their labels (None where missing).
        draws: how many corpora are made up; of GPStruct, at most as many as draws were kept.
        kind: "posterior" or "prior".
        statistics: other numbers to compare, functions of labels by name.
        level: the share of made-up corpora in the intervals.
        random_state: seed or numpy Generator of the draws.

    >>> from bayeseq import CRF
    >>> X, y = [[["a"], ["b"]], [["b"], ["a"]]] * 3, [["A", "B"], ["B", "A"]] * 3
    >>> found = predictive_check(CRF(progress=False).fit(X, y), X, y, draws=50)
    >>> found.of("share of A")[0], found.replicated.shape
    (0.5, (50, 6))
    """
    require_positive("draws", draws)
    check_choice("kind", kind, ("posterior", "prior"))
    X, y = list(X), list(y)
    seed = int(np.random.default_rng(random_state).integers(2**62))
    if kind == "prior":
        require_posterior(model)
        drawn: list[Any] = prior_labellings(model, X, draws, seed)
    elif has_posterior(model):
        if isinstance(model, GPStruct):
            draws = min(draws, model.posterior_.n_draws)
        drawn = draw_labellings(model, X, draws, seed)
    elif not hasattr(model, "sample_labels"):
        raise TypeError(
            f"{type(model).__name__} gives probabilities of single labels and cannot draw whole "
            "labellings; use a chain labeler such as CRF, GPSC or GPSL"
        )
    else:
        by_sequence = model.sample_labels(X, draws, random_state=seed)
        return _check(model, y, list(zip(*by_sequence, strict=True)), statistics, kind, level)
    labels = [[model.classes_[row].tolist() for row in rows] for rows in drawn]
    return _check(model, y, labels, statistics, kind, level)


def _check(
    model: SequenceLabeler,
    y: Labels,
    labels: list[Any],
    statistics: Mapping[str, Statistic] | None,
    kind: str,
    level: float,
) -> PredictiveCheck:
    seen = {label for row in y for label in row if isinstance(label, str)}
    classes = sorted({*model.classes_.tolist(), *seen})
    return check_labels(y, labels, classes=classes, statistics=statistics, kind=kind, level=level)
