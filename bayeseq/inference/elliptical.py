"""Elliptical slice sampling as a kernel of Pyro's MCMC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from pyro.infer.mcmc.mcmc_kernel import MCMCKernel
from torch import Tensor

from bayeseq.inference.ensemble import Ensemble, Reference
from bayeseq.models.latent import LatentModel


class EllipticalSlice(MCMCKernel):
    """Elliptical slice sampling as a kernel of `pyro.infer.MCMC`, for the site "weights".

    Randomness follows `pyro.set_rng_seed`. The bracket is tuned in the warm-up and fixed after it.
    For many chains at once in one process use `Ensemble`, for long runs `sampling.sample`.

    >>> import pyro
    >>> from pyro.infer import MCMC
    >>> class Toy(LatentModel):                      # u ~ N(0, 1) and 1 ~ N(u, 1): u | 1 ~ N(½, ½)
    ...     latent_shape = (1,)
    ...     def log_likelihood(self, whitened):
    ...         return -0.5 * (1.0 - whitened) ** 2
    >>> pyro.set_rng_seed(0)
    >>> run = MCMC(EllipticalSlice(Toy()), num_samples=2000, warmup_steps=100, disable_progbar=True)
    >>> run.run()
    >>> round(float(run.get_samples()["weights"].mean()), 1)
    0.5
    """

    transforms: dict[str, Any] = {}  # noqa: RUF012 (weights are not transformed)

    def __init__(self, model: LatentModel, reference: Reference | None = None) -> None:
        self.model, self.reference = model, reference
        self._ensemble: Ensemble | None = None
        self._initial: dict[str, Tensor] | None = None
        self._warmup = self._count = 0

    def setup(self, warmup_steps: int, *args: Any, **kwargs: Any) -> None:
        """Place the chain; the program takes no arguments."""
        rng = np.random.default_rng(int(torch.randint(2**62, ())))
        latent = None if self._initial is None else self._initial["weights"].unsqueeze(0)
        self._ensemble = Ensemble(self.model, 1, rng, reference=self.reference, latent=latent)
        self._initial = {"weights": self._ensemble.weights[0].clone()}
        self._warmup, self._count = warmup_steps, 0

    def cleanup(self) -> None:
        """Forget the run."""
        self._ensemble = None

    @property
    def initial_params(self) -> dict[str, Tensor]:
        """Where the chain starts."""
        return self._initial or {}

    @initial_params.setter
    def initial_params(self, params: Mapping[str, Tensor]) -> None:
        self._initial = dict(params)

    def logging(self) -> dict[str, str]:
        """What the progress bar shows."""
        if self._ensemble is None:
            return {}
        return {"log likelihood": f"{float(self._ensemble.log_likelihood[0]):.2f}"}

    def diagnostics(self) -> dict[str, Any]:
        """Evaluations of the likelihood a sweep."""
        if self._ensemble is None:
            return {}
        return {"evaluations": self._ensemble.evaluations / max(1, self._ensemble.sweeps)}

    def sample(self, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The next state after this one."""
        assert self._ensemble is not None
        if not torch.equal(params["weights"], self._ensemble.weights[0]):
            self._ensemble.set_weights(params["weights"].unsqueeze(0))
        if self._count == self._warmup // 2 and self._warmup >= 2 * _FEWEST_TO_TUNE:
            self._ensemble.tune(True)
        if self._count == self._warmup:
            self._ensemble.tune(False)
        self._count += 1
        self._ensemble.sweep()
        return {"weights": self._ensemble.weights[0].clone()}


_FEWEST_TO_TUNE = 20
"""Sweeps that a tuned bracket must rest on."""
