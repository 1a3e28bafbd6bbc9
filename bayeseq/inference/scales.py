"""How much features and label dependencies count when neither neighbour is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from bayeseq.inference.dependencies import Dependencies


@dataclass(frozen=True)
class Scales:
    """What the scores are multiplied with before labellings are summed over.

    Pseudo-likelihood learns every label next to its true neighbours; a prediction has none. So the
    two kinds of scores, right for the one, are weighed anew for the other: by the log loss of the
    training labels, each sequence predicted from all the others.
    """

    local: float = 1.0
    dependency: float = 1.0


def choose_scales(
    held_out: Tensor, g: Tensor, dependencies: Dependencies, allowed: Tensor, weights: Tensor
) -> Scales:
    """The scales with the least log loss of the labels that are known, for held-out scores (N, C),
    allowed labels (N, C) and sequence weights (B,).

    With fewer than two sequences nothing is held out, and the scales are 1; so they are where no
    label is known that counts.
    """
    layout, offsets = dependencies.layout, dependencies.offsets
    if layout.n_sequences < 2 or held_out.shape[-1] < 2:
        return Scales()
    known = (allowed.sum(-1) == 1).nonzero().squeeze(-1)
    labels = allowed[known].to(torch.int64).argmax(-1)
    weights = weights[layout.sequence[known]]
    if not float(weights.sum()) > 0:
        return Scales()

    def loss(logs: np.ndarray) -> float:
        local, dependency = np.exp(logs[0]), np.exp(logs[-1])
        proba = dependencies.marginals(held_out * local, g * dependency)
        p = proba[known, labels].clamp_min(1e-12)
        return -float(weights @ p.log()) / float(weights.sum()) + 1e-3 * float(logs @ logs)

    n = 2 if offsets else 1
    simplex = np.vstack([np.zeros(n), -0.4 * np.eye(n)])
    found = minimize(
        loss,
        np.zeros(n),
        method="Nelder-Mead",
        bounds=[(-3.0, 2.0)] * n,
        options={"initial_simplex": simplex, "maxfev": 60, "xatol": 0.01, "fatol": 1e-5},
    )
    local, dependency = np.exp(found.x[0]), np.exp(found.x[-1])
    return Scales(float(local), float(dependency) if offsets else 1.0)
