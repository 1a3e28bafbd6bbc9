"""A label score as a sum over training tokens.

At the optimum of a model with Gaussian weights, W = t ∘ Φᵀα with the prior variances t and, for
each training token n and label c, α[n, c] = observed − expected: whether the token has the label,
less how probable the model finds that (MATHS section 2; along a chain, the marginal). So the score
of a new token is f*[c] = Σ_n k_c(x*, x_n) α[n, c], with k_c(x, x') = Σ_d t[d, c] φ_d(x) φ_d(x').

- A mode has this exactly, as far as the search went; a variational mean too, with the expectation
  of the marginals under q; and the mean of a sampled posterior, since the gradient of its log
  density is 0 on average.
- Labelers that are kept as points and coefficients are such sums as they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from bayeseq.analysis.fitted import fitted_model
from bayeseq.baselines.crf import CRF
from bayeseq.baselines.margin import MarginLabeler
from bayeseq.chain import Chain, constrain, forward_backward, one_thread
from bayeseq.data.batch import SequenceBatch
from bayeseq.data.errors import DataError
from bayeseq.inference.expectations import expectation
from bayeseq.inference.joint import JointPosterior, mirrored_draws
from bayeseq.kernels import Kernel
from bayeseq.labelers.base import SequenceLabeler, TrainingData
from bayeseq.labelers.chain import obey_scheme
from bayeseq.labelers.gpsc import GPSC
from bayeseq.labelers.gpsl import GPSL
from bayeseq.labelers.gpstruct import GPStruct
from bayeseq.labelers.posterior import PosteriorLabeler
from bayeseq.labelers.sampled import KeptDraws
from bayeseq.labelers.sparse_gpsc import SparseGPSC
from bayeseq.models.gpsl import GPSLModel

EXPLAINED = "GPSL, GPSC, GPStruct, SparseGPSC, CRF, or HMSVM and HMPerceptron with dual=True"


@dataclass(frozen=True, eq=False)
class Representers(ABC):
    """Training tokens, and what each says of a new token's label."""

    rows: np.ndarray
    """(M,) their packed rows in the training data"""
    alpha: np.ndarray
    """(M, C) by how much each counts for each label"""

    @abstractmethod
    def similarity(self, row: sp.csr_matrix, label: int) -> np.ndarray:
        """(M,) k_c(x*, x_n) of a new token (1, D) and each training token."""

    @abstractmethod
    def score(self, row: sp.csr_matrix, label: int) -> float:
        """f*[c] as predictions have it."""


@dataclass(frozen=True, eq=False)
class WeightRepresenters(Representers):
    """Those of a model with weights W and a feature map."""

    phi: Any
    """(M, D) the training tokens' columns"""
    variance: np.ndarray
    """(D, C) prior variances; 0 where there is no weight"""
    weights: np.ndarray
    """(D, C)"""
    columns: Any
    """a new token's row (1, D') → its columns (1, D)"""

    def similarity(self, row: sp.csr_matrix, label: int) -> np.ndarray:
        """(M,) through the columns."""
        new = _dense(self.columns(row)).ravel()
        return np.asarray(self.phi @ (new * self.variance[:, label])).ravel()

    def score(self, row: sp.csr_matrix, label: int) -> float:
        """φ*·W[:, c]."""
        return float(_dense(self.columns(row)).ravel() @ self.weights[:, label])


@dataclass(frozen=True, eq=False)
class PointRepresenters(Representers):
    """Those of a model that is kept as points and coefficients."""

    kernel: Kernel
    points: sp.csr_matrix
    """(M, D)"""

    def similarity(self, row: sp.csr_matrix, label: int) -> np.ndarray:
        """(M,) the kernel."""
        return np.asarray(self.kernel(row, self.points)).ravel()

    def score(self, row: sp.csr_matrix, label: int) -> float:
        """Σ_m k(x*, z_m) α[m, c]."""
        return float(self.similarity(row, label) @ self.alpha[:, label])


@one_thread()
def representers(model: SequenceLabeler, data: TrainingData) -> Representers:
    """The training tokens of a fitted labeler, and how much each counts."""
    if isinstance(model, GPSL):
        return _of_gpsl(model, data)
    if isinstance(model, PosteriorLabeler):
        return _of_chain(model, data)
    if isinstance(model, CRF):
        return _of_crf(model, data)
    if isinstance(model, SparseGPSC):
        rows = _found(model.points_, model.coefficients_, data.batch)
        return PointRepresenters(rows, model.coefficients_, model._kernel(), model.points_)
    if isinstance(model, MarginLabeler):
        if model.points_ is None or model.alpha_ is None or model.kernel_ is None:
            raise TypeError(
                f"this {type(model).__name__} keeps weights and no training tokens; fit it with "
                "dual=True"
            )
        rows = _found(model.points_, model.alpha_, data.batch)
        return PointRepresenters(rows, model.alpha_, model.kernel_, model.points_)
    raise TypeError(
        f"the scores of {type(model).__name__} are no sum over training tokens; use {EXPLAINED}"
    )


# ---- α = observed − expected --------------------------------------------------------------------


def _of_gpsl(model: GPSL, data: TrainingData) -> Representers:
    fitted, _ = fitted_model(model, data)
    assert isinstance(fitted, GPSLModel)
    posterior, D = model.posterior_, model.feature_map_.n_columns
    scores, variance = posterior.scores(fitted.design, fitted.residual)
    rule = expectation(model.bound, len(model.classes_), model.points, model.random_state)
    expected = rule(scores, variance.clamp_min(0.0)).probability
    observed = torch.softmax(scores.masked_fill(~fitted.allowed, -torch.inf), -1)
    alpha = fitted.weights.unsqueeze(-1) * (observed - expected)
    scale = model.scales_.local
    return WeightRepresenters(
        fitted.rows,
        alpha.numpy(),
        fitted.design.matrix[:, :D],
        fitted.scale.square().numpy()[:D] * scale,
        posterior.mean.numpy()[:D] * scale,
        lambda row: model.feature_map_.features(row)[0],
    )


def _of_chain(model: PosteriorLabeler, data: TrainingData) -> Representers:
    assert isinstance(model, GPSC | GPStruct)
    if isinstance(model, GPStruct) and model.learn == "sample":
        raise TypeError(
            "learn='sample' has other prior variances in each draw, and no sum over training "
            "tokens; fit GPStruct with learn=True"
        )
    fitted, _ = fitted_model(model, data)
    D = model.feature_map_.n_columns
    weights = _weights(model)
    alpha = np.zeros((data.batch.layout.n_tokens, len(model.classes_)))
    at_once = max(1, _SCORES_AT_ONCE // (len(weights) * alpha.shape[1] ** 2))
    for rows, part in data.batch.split(at_once):
        alpha[rows] = _residuals(model._chain_of(part, weights), part, model)
    return WeightRepresenters(
        np.arange(len(alpha)),
        alpha,
        model.feature_map_.features(data.batch.features)[0],
        fitted.scale.square().numpy()[:D],
        model.posterior_.mean.numpy()[:D],
        lambda row: model.feature_map_.features(row)[0],
    )


def _weights(model: GPSC | GPStruct) -> Tensor:
    """(S, D + C, C) the weights that stand for the posterior in the condition of its mean."""
    posterior: Any = model.posterior_
    if isinstance(posterior, KeptDraws):
        return posterior.weights.flatten(0, 1).to(torch.float64)
    if (
        isinstance(posterior, JointPosterior)
        and isinstance(model, GPSC)
        and model.inference == "vg"
    ):
        white = mirrored_draws(model._training_draws, posterior.mean.numel(), model.random_state)
        return (posterior.whitened_mean + posterior.coloured(white)) * posterior.scale
    return posterior.mean.unsqueeze(0)


def _of_crf(model: CRF, data: TrainingData) -> Representers:
    if model.l2 == 0 or model.objective != "likelihood":
        raise TypeError(
            "a CRF is a sum over training tokens where it has a penalty and maximises the "
            f"likelihood, and this one has l2={model.l2} and objective={model.objective!r}"
        )
    index, batch = model.weight_index_, data.batch
    variance = np.zeros(index.n_features * index.n_labels)
    variance[index.states] = 1 / (2 * model.l2)
    chain = model._scores(batch)
    return WeightRepresenters(
        np.arange(batch.layout.n_tokens),
        _residuals(chain, batch, model),
        batch.features,
        variance.reshape(-1, index.n_labels),
        model._state_matrix,
        lambda row: row,
    )


def _residuals(chain: Chain, batch: SequenceBatch, model: Any) -> np.ndarray:
    """(N, C) observed less expected marginals of training sequences, times their weights, on
    average over draws; what is not known of labels is expected too."""
    free = obey_scheme(chain, model.scheme, model.label_space_.classes)
    assert batch.allowed is not None
    held = constrain(free, allowed=batch.allowed)
    found = forward_backward(held).unary - forward_backward(free).unary
    found = found.mean(0) if found.dim() == 3 else found
    return (found * batch.weights[batch.layout.sequence].unsqueeze(-1)).numpy()


_SCORES_AT_ONCE = 2**24
"""Label-pair scores held in memory at once (128 MB)."""


# ---- points -------------------------------------------------------------------------------------


def _found(points: sp.csr_matrix, alpha: np.ndarray, batch: SequenceBatch) -> np.ndarray:
    """(M,) a training token with the features of each point. Of several, one that has a label which
    the point speaks for; which of equal ones it was makes no difference to any score."""
    candidates: dict[tuple[bytes, bytes], list[int]] = defaultdict(list)
    for row in batch.layout.unpacked_rows.tolist():
        candidates[_key(batch.features, row)].append(row)
    labels = batch.labels.numpy()
    found = np.zeros(points.shape[0], dtype=np.int64)
    for m in range(points.shape[0]):
        rows = candidates[_key(points, m)]
        if not rows:
            raise DataError(
                "X_train is not what this labeler was fitted to: a token that it keeps is not "
                "there; give the data that went into fit"
            )
        spoken = [row for row in rows if labels[row] >= 0 and alpha[m, labels[row]] > 0]
        found[m] = (spoken or rows)[0]
        rows.remove(found[m])
    return found


def _key(matrix: sp.csr_matrix, row: int) -> tuple[bytes, bytes]:
    entries = slice(matrix.indptr[row], matrix.indptr[row + 1])
    columns, values = matrix.indices[entries], matrix.data[entries]
    order = np.argsort(columns)
    keep = order[values[order] != 0]
    return columns[keep].astype(np.int64).tobytes(), values[keep].astype(np.float64).tobytes()


def _dense(matrix: Any) -> np.ndarray:
    return matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)
