"""Labels that models make up: weights from the prior, labellings from the weights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayeseq.chain import one_thread, sample
from bayeseq.inference.dependencies import Dependencies
from bayeseq.labelers.base import SequenceLabeler
from bayeseq.labelers.chain import obey_scheme
from bayeseq.labelers.gpsc import row_groups
from bayeseq.labelers.gpsl import GPSL
from bayeseq.models.gpsl import dependency_rows


@one_thread()
def prior_labellings(
    model: SequenceLabeler, X: Iterable[Any], draws: int, seed: int
) -> list[list[np.ndarray]]:
    """`draws` labellings of all sequences as label numbers, each under weights of its own from the
    prior of a fitted labeler, at its prior variances."""
    batch = model._batch(X, None)
    generator = torch.Generator().manual_seed(seed)
    weights = _prior_weights(model, draws, generator)
    found = np.zeros((draws, batch.layout.n_tokens), dtype=np.int64)
    for rows, part in model._parts(batch, draws):
        if isinstance(model, GPSL):
            deps = Dependencies(model._offsets, part.layout)
            local, _ = model._local(part)
            f, g = local.product(weights), dependency_rows(weights, deps.offsets)
            if model.scheme is None:
                found[:, rows] = sampled_labels(deps, f, g, generator).numpy()
                continue
            chain = deps.chain(f, g)
        else:
            chain = model._chain_of(part, weights)
        chain = obey_scheme(chain, model.scheme, model.label_space_.classes)
        found[:, rows] = sample(chain, 1, generator)[0].numpy()
    flat = found[:, batch.layout.unpacked_rows.numpy()]
    bounds = np.cumsum(batch.layout.lengths.numpy())[:-1]
    return [np.split(row, bounds) for row in flat]


def sampled_labels(deps: Dependencies, f: Tensor, g: Tensor, generator: torch.Generator) -> Tensor:
    """(S, N) a labelling for each draw of the scores f (S, N, C) and g (S, R, C, C)."""
    drawn = sample(deps.chain(f, g), 1, generator)[0] % f.shape[-1]
    return drawn[..., deps.layout.reversal] if deps.is_backwards else drawn


def _prior_weights(model: Any, draws: int, generator: torch.Generator) -> Tensor:
    """(S, D, C)."""
    if isinstance(model, GPSL):
        groups = model._model_.groups
    else:
        groups = row_groups(model.feature_map_, len(model.classes_))
    scale = torch.exp(model.posterior_.log_variance / 2)[groups]
    return scale * torch.randn(draws, *scale.shape, generator=generator, dtype=torch.float64)
