"""Simulation-based calibration: does an inference find again what data were drawn from?"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor
from tqdm import tqdm

from bayeseq.analysis.fitted import fitted_model
from bayeseq.analysis.priors import sampled_labels
from bayeseq.chain import one_thread, sample
from bayeseq.data.batch import SequenceBatch
from bayeseq.data.features import FeatureSpace
from bayeseq.data.labels import LabelSpace
from bayeseq.diagnostics.sbc import SBC
from bayeseq.inference.dependencies import Dependencies, check_offsets
from bayeseq.kernels.design import Design
from bayeseq.kernels.maps import FeatureMap, LinearMap
from bayeseq.labelers.base import TrainingData
from bayeseq.labelers.gpsc import GPSC, chain_model, feature_map_of
from bayeseq.labelers.gpsl import GPSL
from bayeseq.labelers.gpsl_training import Training
from bayeseq.labelers.gpstruct import GPStruct
from bayeseq.labelers.guards import NoPosteriorError, require_positive
from bayeseq.models.gpsc import GPSCModel
from bayeseq.models.gpsl import GPSLModel, dependency_rows, without_dependencies

Labeler = GPSL | GPSC | GPStruct
FEATURES = 3
"""Features whose weights are looked at: those of the most tokens."""
PAIRS = 9
"""Weights of label pairs that are looked at, at most."""


@one_thread()
def sbc(
    labeler: Labeler,
    X: Iterable[Any],
    labels: Sequence[str],
    simulations: int = 100,
    draws: int = 99,
    *,
    random_state: int | np.random.Generator | None = 0,
    progress: bool = False,
) -> SBC:
    """Simulation-based calibration of a labeler's inference, on sentences without labels.

    Each simulation draws weights from the prior and labels of X from the weights, fits the labeler
    to them, and counts how many posterior draws lie below the true weights. If the inference is
    right, these ranks are uniform; a posterior that is too narrow has too many at both ends.
    Looked at are weights of label pairs and of frequent features, and the log-likelihood, which
    sees all weights. Judged is `posterior_`, without the calibration of predictions.

    Args:
        labeler: an unfitted GPSC (inference "laplace" or "vg"), GPStruct, or GPSL with all
            dependencies on one side, whose `learn` is False: prior variances are held.
        X: a few short sentences; every simulation is a fit.
        labels: the labels to draw.
        simulations: how many; a hundred find gross errors, a thousand small ones.
        draws: posterior draws of each simulation, of which GPStruct must keep as many.
        random_state: seed or numpy Generator of weights, labels and draws.
        progress: show a bar.

    >>> from bayeseq import GPSC
    >>> X = [[["a"], ["b"]], [["b"], ["a"], ["a"]]]
    >>> model = GPSC(inference="laplace", learn=False, progress=False)
    >>> found = sbc(model, X, ["A", "B"], simulations=5)
    >>> found.ranks.shape, found.names[0]
    ((5, 9), 'log-likelihood')
    """
    for name, count in (("simulations", simulations), ("draws", draws)):
        require_positive(name, count)
    _check(labeler, draws)
    data = _unlabelled(labeler, list(X), labels)
    rng = np.random.default_rng(random_state)
    names: tuple[str, ...] = ()
    ranks, unconverged = [], 0
    bar = range(simulations)
    for _ in tqdm(bar, desc="simulating", delay=2, leave=False, disable=None if progress else True):
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        true, told = _simulated(labeler, data, generator)
        fitted, warned = _fit(labeler, told, int(rng.integers(2**31)))
        unconverged += warned
        model, _ = fitted_model(fitted, told)
        drawn = torch.cat([true.unsqueeze(0), fitted.posterior_.draws(draws, generator)])
        names, values = _quantities(fitted, model, drawn)
        ranks.append((values[1:] < values[0]).sum(0))
    return SBC(names, np.array(ranks, dtype=np.int64), draws, unconverged)


def _check(labeler: Labeler, draws: int) -> None:
    if not isinstance(labeler, Labeler) or getattr(labeler, "inference", "") == "map":
        raise NoPosteriorError(
            "sbc judges a posterior; give GPSL, GPSC with inference='laplace' or 'vg', or GPStruct"
        )
    if labeler.learn is not False:
        raise ValueError(
            "sbc draws weights from a prior that is held; give a labeler with learn=False"
        )
    if isinstance(labeler, GPStruct) and labeler.chains * labeler.draws < draws:
        raise ValueError(
            f"draws is {draws}, and the labeler keeps {labeler.chains * labeler.draws}; raise its "
            "chains or draws"
        )
    if isinstance(labeler, GPSL):
        offsets = check_offsets(labeler.dependencies)
        if len({offset > 0 for offset in offsets}) > 1 or max(map(abs, offsets), default=0) > 2:
            raise ValueError(
                f"dependencies {offsets} have no labels to draw: the pseudo-likelihood is a model "
                "of labels only where all dependencies lie on one side, up to two labels away"
            )
        if labeler.hidden or labeler.scheme is not None:
            raise ValueError("sbc fits the model that it draws from: leave out hidden and scheme")


def _unlabelled(labeler: Labeler, X: list[Any], labels: Sequence[str]) -> TrainingData:
    """The sentences with all labels allowed everywhere."""
    space = LabelSpace.learn([list(labels)])
    features, matrix, lengths = FeatureSpace.learn(X, labeler.min_count)
    allowed = np.ones((matrix.shape[0], len(space.classes)), dtype=bool)
    return TrainingData(SequenceBatch.of(matrix, lengths, allowed), features, space)


def _simulated(
    labeler: Labeler, data: TrainingData, generator: torch.Generator
) -> tuple[Tensor, TrainingData]:
    """Weights (D, C) from the prior, and the data with labels drawn from them."""
    C = len(data.labels.classes)
    feature_map = _feature_map(labeler, data)
    model = _model(labeler, data, feature_map)
    white = torch.randn(model.latent_shape, generator=generator, dtype=torch.float64)
    true = model.scaled(white)
    if isinstance(model, GPSCModel):
        drawn = sample(model.chain(model.seen(white)), 1, generator)[0]
    else:
        deps = Dependencies(check_offsets(labeler.dependencies), data.batch.layout)
        features, _ = feature_map.features(data.batch.features)
        f = Design(without_dependencies(features, model.n_dependent)).product(true)
        g = dependency_rows(true, deps.offsets)
        drawn = sampled_labels(deps, f.unsqueeze(0), g.unsqueeze(0), generator)[0]
    told = torch.nn.functional.one_hot(drawn, C).to(torch.bool)
    return true, replace(data, batch=replace(data.batch, allowed=told))


def _feature_map(labeler: Labeler, data: TrainingData) -> FeatureMap:
    if isinstance(labeler, GPSL):
        return Training(labeler, data, check_offsets(labeler.dependencies))._feature_map()
    return feature_map_of(labeler, data)[0]


def _model(labeler: Labeler, data: TrainingData, feature_map: FeatureMap) -> GPSCModel | GPSLModel:
    if isinstance(labeler, GPSL):
        offsets = check_offsets(labeler.dependencies)
        return Training(labeler, data, offsets)._model(feature_map)
    return chain_model(labeler, data, feature_map)


def _fit(labeler: Labeler, data: TrainingData, seed: int) -> tuple[Labeler, bool]:
    """The labeler fitted, without calibrating predictions; whether it warned."""
    fresh = clone(labeler).set_params(random_state=seed, progress=False)
    if "calibrate" in fresh.get_params(deep=False):
        fresh.set_params(calibrate=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        fresh._fit_on(data)
    return fresh, any(issubclass(found.category, ConvergenceWarning) for found in caught)


def _quantities(
    labeler: Labeler, model: GPSCModel | GPSLModel, weights: Tensor
) -> tuple[tuple[str, ...], np.ndarray]:
    """The names of what is looked at, and its values (S, Q) for weights (S, D, C)."""
    likelihood = model.log_likelihood(weights / model.scale).sum(-1)
    names, columns = ["log-likelihood"], [likelihood]
    D, C = model.latent_shape
    classes, offsets = labeler.classes_, getattr(labeler, "_offsets", (-1,))
    first = D - len(offsets) * C
    for k in range(min(PAIRS, len(offsets) * C * C)):
        r, a, b = k // C**2, k // C % C, k % C
        names.append(f"{classes[b]} with {classes[a]} at {offsets[r]}")
        columns.append(weights[:, first + r * C + a, b])
    counts = np.asarray((model.design.matrix[:, :first] != 0).sum(0)).ravel()
    for column in np.argsort(-counts, kind="stable")[:FEATURES]:
        for c in range(min(C, 2)):
            names.append(f"{_name(labeler, int(column))} for {classes[c]}")
            columns.append(weights[:, int(column), c])
    return tuple(names), torch.stack(columns, -1).numpy()


def _name(labeler: Any, column: int) -> str:
    names = labeler.feature_space_.names
    if not isinstance(labeler.feature_map_, LinearMap) or names is None:
        return f"column {column}"
    return names[column]
