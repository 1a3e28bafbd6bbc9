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

    n = 2 if offsets else 1
    steps = _STEP * np.vstack([np.zeros(n), np.eye(n), -np.eye(n)])

    def loss_and_gradient(logs: np.ndarray) -> tuple[float, np.ndarray]:
        # Several scales go along the chain together, for little more than the price of one.
        points = logs + steps
        scales = torch.from_numpy(np.exp(points)).reshape(-1, n, 1, 1)
        proba = dependencies.marginals(held_out * scales[:, 0], g * scales[:, -1:])
        p = proba[:, known, labels].clamp_min(1e-12)
        values = (-(p.log() @ weights) / weights.sum()).numpy()
        values = values + 1e-3 * np.square(points).sum(-1)
        return float(values[0]), (values[1 : n + 1] - values[n + 1 :]) / (2 * _STEP)

    found = minimize(
        loss_and_gradient,
        np.zeros(n),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-3.0, 2.0)] * n,
        options={"maxiter": 30, "ftol": 1e-9, "gtol": 1e-5},
    )
    local, dependency = np.exp(found.x[0]), np.exp(found.x[-1])
    return Scales(float(local), float(dependency) if offsets else 1.0)


_STEP = 1e-3
"""Of the differences of the log loss that stand for its gradient."""
