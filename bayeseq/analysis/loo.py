"""How well a model would predict each training sentence from the others, without fitting anew."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bayeseq.analysis.fitted import by_sequence, fitted_model, require_posterior, training_data
from bayeseq.chain import one_thread
from bayeseq.data.errors import DataError
from bayeseq.data.labels import Labels
from bayeseq.diagnostics.arviz import convergence_of, leave_one_out
from bayeseq.diagnostics.tables import aligned
from bayeseq.inference.density import densities
from bayeseq.labelers.base import SequenceLabeler, TrainingData
from bayeseq.labelers.chain import require_positive
from bayeseq.labelers.gpsl import GPSL
from bayeseq.labelers.gpstruct import GPStruct
from bayeseq.models.latent import WeightModel


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """The expected log predictive density by sentence, each left out in turn.

    Attributes:
        sentences: (B,) the places in X of the sentences with a known label.
        elpd_by_sentence: (B,) log p(yᵢ | the other sentences), in nats.
        pareto_k: (B,) how far each can be trusted: above `good_k`, it cannot.
        p_by_sentence: (B,) effective numbers of parameters.
        good_k: 0.7, and less where there are few draws.
        draws: how many draws were weighed.
        corrected: whether the draws of an approximation were corrected towards the posterior.
        likelihood: what kind of likelihood log p is.
    """

    sentences: np.ndarray
    elpd_by_sentence: np.ndarray
    pareto_k: np.ndarray
    p_by_sentence: np.ndarray
    good_k: float
    draws: int
    corrected: bool
    likelihood: str

    @property
    def elpd(self) -> float:
        """The sum over sentences; higher is better."""
        return float(self.elpd_by_sentence.sum())

    @property
    def se(self) -> float:
        """The standard error of `elpd`: how much another sample of sentences would change it."""
        n = len(self.elpd_by_sentence)
        return float(np.sqrt(n) * self.elpd_by_sentence.std(ddof=1)) if n > 1 else float("nan")

    @property
    def p(self) -> float:
        """The effective number of parameters."""
        return float(self.p_by_sentence.sum())

    @property
    def doubtful(self) -> np.ndarray:
        """The places in X of sentences whose estimate cannot be trusted."""
        return self.sentences[~(self.pareto_k <= self.good_k)]

    def minus(self, other: LeaveOneOut) -> tuple[float, float]:
        """The difference of two models' elpd on the same sentences, and its standard error."""
        if not np.array_equal(self.sentences, other.sentences):
            raise DataError("the two leave-one-out scores are of different sentences")
        each = self.elpd_by_sentence - other.elpd_by_sentence
        n = len(each)
        se = float(np.sqrt(n) * each.std(ddof=1)) if n > 1 else float("nan")
        return float(each.sum()), se

    def table(self) -> str:
        """The numbers as text."""
        n = len(self.sentences)
        rows = [
            ["elpd (sum over sentences)", f"{self.elpd:.2f}"],
            ["standard error", f"{self.se:.2f}"],
            ["effective parameters", f"{self.p:.2f}"],
            ["sentences", str(n)],
            [f"doubtful sentences (k > {self.good_k:.2f})", str(len(self.doubtful))],
        ]
        how = "corrected for the approximation" if self.corrected else "draws taken as they are"
        text = f"{aligned(rows)}\n{self.likelihood}; {self.draws} draws, {how}"
        if len(self.doubtful):
            text += (
                "\nThe doubtful ones can be far off: score held-out sentences with bayeseq.compare"
            )
        return text

    def __str__(self) -> str:
        return self.table()


@one_thread()
def loo(
    model: SequenceLabeler,
    X: Iterable[Any],
    y: Labels,
    draws: int = 2000,
    *,
    corrected: bool | None = None,
    random_state: int | np.random.Generator | None = 0,
) -> LeaveOneOut:
    """PSIS-LOO by sentence of a labeler with a posterior, on the data that it was fitted to.

    A sentence is left out whole: its tokens depend on each other. Draws from a Gaussian that
    approximates the posterior (GPSL, GPSC) are corrected by their importance weights; draws of
    GPStruct are from the posterior itself, and all that were kept are used. What is judged is the
    model with its learned prior variances held, not the calibration of its predictions (`scales_`,
    `spread_`).

    Args:
        model: a fitted GPSL, GPSC (inference "laplace" or "vg") or GPStruct.
        X, y: the training data, as `fit` had them, without sample weights.
        draws: how many to draw from a Gaussian posterior.
        corrected: False takes the draws of an approximation as they are; None and True correct
            them.
        random_state: seed or numpy Generator of the draws.

    Needs arviz-stats: `pip install 'bayeseq[loo]'`.

    >>> from bayeseq import GPSC
    >>> X, y = [[["a"], ["b"]], [["b"], ["a"]]] * 3, [["A", "B"], ["B", "A"]] * 3
    >>> found = loo(GPSC(inference="laplace", learn=False, progress=False).fit(X, y), X, y)
    >>> found.corrected, len(found.sentences), bool(found.se < -found.elpd / 6)
    (True, 6, True)
    """
    require_positive("draws", draws)
    require_posterior(model)
    data = training_data(model, X, y)
    told = _told(data)
    if len(told) < 2:
        raise DataError("fewer than two sentences of y have a label; there is none to leave out")
    fitted, sequence = fitted_model(model, data)
    log_ratios, r_eff = None, 1.0
    if isinstance(model, GPStruct):
        likelihood = _sampled(model, fitted, told)
        n = likelihood.shape[0] * likelihood.shape[1]
        r_eff = min(1.0, float(convergence_of(likelihood)[1].mean()) / n)
        corrected = False
    else:
        seed = int(np.random.default_rng(random_state).integers(2**62))
        found = densities(
            fitted,
            model.posterior_,
            draws,
            torch.Generator().manual_seed(seed),
        )
        each = by_sequence(found.log_likelihood, sequence, data.batch.layout.n_sequences)
        likelihood = each[None, :, told]
        corrected = corrected is not False
        log_ratios = found.log_ratios.numpy()[None] if corrected else None
    n = likelihood.shape[0] * likelihood.shape[1]
    elpd, k, p = leave_one_out(likelihood, log_ratios, r_eff)
    good_k = min(1 - 1 / np.log10(n), 0.7) if n > 10 else 0.0
    return LeaveOneOut(told, elpd, k, p, float(good_k), n, corrected, _likelihood_of(model))


def _told(data: TrainingData) -> np.ndarray:
    """The sequences of which something is known."""
    assert data.batch.allowed is not None
    known = (~data.batch.allowed.all(-1)).numpy()
    return np.unique(data.batch.layout.sequence.numpy()[known])


def _sampled(model: GPStruct, fitted: WeightModel, told: np.ndarray) -> np.ndarray:
    """(chain, draw, B) the log-likelihoods of sentences under the draws that were kept."""
    weights = model.posterior_.weights
    chains = [
        fitted.log_likelihood(chain.to(torch.float64) / fitted.scale).numpy() for chain in weights
    ]
    return np.stack(chains)[..., told]


def _likelihood_of(model: Any) -> str:
    if isinstance(model, GPSL) and len({o > 0 for o in model._offsets}) == 2:
        return "pseudo-likelihood: each label given those around it"
    return "log p(y | x) of whole sentences"
