"""Where the mean of a Gaussian over the weights of a chain model belongs, its covariance given."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayeseq.inference.chain_likelihood import mean_likelihood
from bayeseq.inference.joint import JointPosterior
from bayeseq.inference.optimise import minimise

_MOST_STEPS = 20
"""In which a mean is searched, from one nearby."""


class Centre:
    """−E[ℓ(m + deviation)] + ½‖m‖² and its gradient as functions of z, with m = m₀ + R z.

    m₀ is the mean of a Gaussian near the posterior and R Rᵀ its covariance, so that the surface is
    about as curved in all directions of z. `deviations` (S, D, C) stand for those of the Gaussian
    whose mean is searched; those of a point are 0.
    """

    def __init__(self, model: Any, near: JointPosterior, deviations: Tensor) -> None:
        self.model, self.near = model, near
        self.start, self.scale = near.mean / model.scale, near.scale / model.scale
        self.deviations = model.seen(deviations)

    def mean(self, z: np.ndarray) -> Tensor:
        """(D, C) m."""
        return self.start + self.near.coloured(torch.from_numpy(z)) * self.scale

    def __call__(self, z: np.ndarray) -> tuple[float, np.ndarray]:
        """The value and the gradient."""
        mean = self.mean(z)
        found = mean_likelihood(self.model, mean, self.deviations)
        value = 0.5 * float(mean.square().sum()) - float(found.value)
        return value, self.near.gathered((mean - found.gradient) * self.scale).numpy()


def centred(
    model: Any, near: JointPosterior, deviations: Tensor, tol: float
) -> tuple[Tensor, float]:
    """The whitened mean m (D, C) that maximises E[ℓ(m + deviation)] − ½‖m‖², searched from that of
    a Gaussian nearby until a step gains less than `tol` of it; and E[ℓ] there."""
    centre = Centre(model, near, deviations)
    start = np.zeros(len(near.alone))
    found, search = minimise(centre, start, max_iter=_MOST_STEPS, tol=tol, period=1)
    if search.interrupted:
        raise KeyboardInterrupt
    mean = centre.mean(found)
    return mean, 0.5 * float(mean.square().sum()) - centre(found)[0]
