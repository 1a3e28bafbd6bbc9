"""The model that a labeler was fitted to, made again from its training data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from bayeseq.data.batch import SequenceBatch
from bayeseq.data.errors import DataError
from bayeseq.data.labels import Labels
from bayeseq.inference.dependencies import check_offsets
from bayeseq.inference.joint import JointPosterior
from bayeseq.inference.variational import GaussianPosterior
from bayeseq.labelers.base import SequenceLabeler, TrainingData, _check_weights
from bayeseq.labelers.gpsc import GPSC, chain_model
from bayeseq.labelers.gpsl import GPSL
from bayeseq.labelers.gpsl_training import Training
from bayeseq.labelers.gpstruct import GPStruct
from bayeseq.labelers.guards import NoPosteriorError
from bayeseq.labelers.sampled import KeptDraws
from bayeseq.models.gpsc import GPSCModel
from bayeseq.models.gpsl import GPSLModel

BAYESIAN = "GPSL, GPSC with inference='laplace' or 'vg', or GPStruct"


def has_posterior(labeler: SequenceLabeler) -> bool:
    """Whether a fitted labeler has a posterior of its weights to draw from."""
    kinds = (GaussianPosterior, JointPosterior, KeptDraws)
    return isinstance(getattr(labeler, "posterior_", None), kinds)


def require_posterior(labeler: SequenceLabeler) -> None:
    """Refuse a labeler that is not fitted, or has no posterior of its weights."""
    check_is_fitted(labeler, "classes_")
    if has_posterior(labeler):
        return
    raise NoPosteriorError(
        f"{type(labeler).__name__} has no posterior of its weights to check; use {BAYESIAN}"
    )


def training_data(
    labeler: SequenceLabeler,
    X: Iterable[Any],
    y: Labels,
    sample_weight: Sequence[float] | None = None,
) -> TrainingData:
    """Sequences in the features and labels that a fitted labeler knows."""
    matrix, lengths = labeler.feature_space_.matrix(X)
    allowed = labeler.label_space_.allowed(list(y), lengths)
    weights = _check_weights(sample_weight, len(lengths))
    batch = SequenceBatch.of(matrix, lengths, allowed, weights)
    return TrainingData(batch, labeler.feature_space_, labeler.label_space_)


def fitted_model(
    labeler: GPSL | GPSC | GPStruct, data: TrainingData
) -> tuple[GPSCModel | GPSLModel, np.ndarray]:
    """The model with the prior variances that were learned, and the sequence (n,) of each of its
    observations."""
    if isinstance(labeler, GPSL):
        return _fitted_gpsl(labeler, data)
    model = chain_model(labeler, data, labeler.feature_map_)
    model = replace(model, log_variance=labeler.posterior_.log_variance.contiguous())
    return model, np.arange(data.batch.layout.n_sequences)


def _fitted_gpsl(labeler: GPSL, data: TrainingData) -> tuple[GPSLModel, np.ndarray]:
    training = Training(labeler, data, check_offsets(labeler.dependencies))
    found = training._model(labeler.feature_map_)
    kept = labeler._model_.design  # with what was believed of missing labels in the end
    if not _same_features(found, kept.matrix):
        raise DataError(
            "X and y are not what this GPSL was fitted to: its training tokens have other features "
            "or other labels are missing; give the data that went into fit, in the same order"
        )
    model = replace(found, design=kept, log_variance=labeler.posterior_.log_variance)
    return model, data.batch.layout.sequence.numpy()[found.rows]


def _same_features(model: GPSLModel, kept: Any) -> bool:
    """Whether a model's rows have the features (not the neighbours) of rows that were kept."""
    if model.design.shape != kept.shape:
        return False
    D = kept.shape[1] - model.n_dependent
    here, there = model.design.matrix[:, :D], kept[:, :D]
    difference = abs(here - there)
    return difference.size == 0 or float(difference.max()) < 1e-9


def by_sequence(values: torch.Tensor, sequence: np.ndarray, n_sequences: int) -> np.ndarray:
    """(S, B) the sums of values (S, n) over the observations of each sequence."""
    found = np.zeros((values.shape[0], n_sequences))
    np.add.at(found.T, sequence, values.numpy().T)
    return found
