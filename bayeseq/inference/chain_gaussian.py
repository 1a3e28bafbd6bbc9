"""The posterior of a chain model: its mode, Laplace's Gaussian around it, a variational Gaussian.

With whitened weights u ~ N(0, I) and log-likelihood ℓ(u):

- the mode maximises ℓ(u) − ½‖u‖² ([gpsc]'s DGPS), by L-BFGS;
- Laplace: q = N(û, (I + J)⁻¹) with the Fisher information J of the chain at the mode, and the
  evidence ≈ ℓ(û) − ½‖û‖² − ½ log |I + J|;
- variational: q = N(m, S) that maximises E_q[ℓ] − KL(q ‖ p), by natural-gradient steps

      S⁻¹ ← I + E_q[J],    m ← m + S (E_q[∇ℓ] − m),

  the expectations over a fixed set of mirrored draws, so that the bound is one deterministic
  function; E[log Z] has no closed form, since scores are correlated along a chain and a transition
  recurs. A step that would lower the bound is shortened, or not taken.

Prior variances are learned between steps by MacKay's fixed point, t ← Σw² / Σ(1 − S/t) over the
weights of a group, as long as the evidence, or the bound, rises.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayeseq.inference.chain_likelihood import likelihood
from bayeseq.inference.joint import Information, JointFamily, JointPosterior
from bayeseq.inference.optimise import Search, minimise, progress_bar
from bayeseq.inference.variational import LARGEST_VARIANCE, SMALLEST_VARIANCE, Trace


class Mode:
    """−ℓ(u) + ½‖u‖² and its gradient as functions of the flat whitened weights, for a search."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def __call__(self, flat: np.ndarray) -> tuple[float, np.ndarray]:
        """The value and the gradient."""
        u = torch.from_numpy(flat).reshape(self.model.latent_shape)
        found = likelihood(self.model, u)
        value = 0.5 * float(flat @ flat) - float(found.value)
        return value, flat - found.gradient.reshape(-1).numpy()


@dataclass(eq=False)
class ChainSolver:
    """Finds the posterior of a chain model (a dataclass with a `log_variance`).

    Parameters
    ----------
    learned : (G,) which groups' prior variances are learned; the others stay.
    draws : how many draws stand for q in the variational bound; even.
    tol : stop when a sweep raises the evidence, or the bound, by less than this share of it.
    """

    model: Any
    family: JointFamily
    learned: Tensor
    draws: int = 16
    max_sweeps: int = 50
    tol: float = 1e-4
    seed: int = 0
    progress: bool = False
    name: str = "Gaussian"
    _white: Tensor = field(init=False)

    def mode(
        self, start: Tensor | None = None, *, max_iter: int = 500, tol: float = 1e-6
    ) -> tuple[Tensor, Search]:
        """The whitened weights (D, C) of the largest posterior density."""
        flat = np.zeros(int(np.prod(self.model.latent_shape)))
        if start is not None:
            flat = np.ascontiguousarray(start.reshape(-1).numpy())
        found, search = minimise(
            Mode(self.model),
            flat,
            max_iter=max_iter,
            tol=tol,
            progress=self.progress,
            name=self.name,
        )
        return torch.from_numpy(found).reshape(self.model.latent_shape), search

    # ---- Laplace --------------------------------------------------------------------------------

    def laplace(self) -> tuple[JointPosterior, Trace]:
        """The Gaussian around the mode, and the evidence by round of prior variances."""
        state, trace = self._laplace()
        return state.posterior, trace

    def _laplace(self) -> tuple[_State, Trace]:
        u, search = self.mode(tol=1e-3)
        if search.interrupted:
            raise KeyboardInterrupt
        return self._climb(self._at_mode(self.model, u), self._next_laplace)

    def _at_mode(self, model: Any, start: Tensor) -> _State:
        self.model = model
        u, search = replace(self, progress=False).mode(start, tol=min(1e-5, self.tol))
        if search.interrupted:
            raise KeyboardInterrupt
        information = self.family.information(model, model.chain(model.seen(u)))
        posterior = information.posterior(model, u)
        value = float(likelihood(model, u).value)
        evidence = value - 0.5 * float(u.square().sum()) + 0.5 * posterior.log_det
        return _State(model, posterior, evidence, information)

    def _next_laplace(self, state: _State, stretch: float) -> _State | None:
        if not bool(self.learned.any()):
            return None
        for factor in (stretch, 1.0, 0.5, 0.1):
            if factor <= stretch:
                model = self._with_variances(state, factor)
                found = self._at_mode(model, state.posterior.mean / model.scale)
                if found.bound > state.bound:
                    return found
        return None

    # ---- variational ----------------------------------------------------------------------------

    def variational(self) -> tuple[JointPosterior, Trace]:
        """The variational Gaussian, and the bound by sweep."""
        start, trace = replace(self, tol=max(1e-2, self.tol))._laplace()
        if trace.interrupted:
            raise KeyboardInterrupt
        self.model, u = start.model, start.posterior.whitened_mean
        self._white = mirrored_draws(self.draws, u.numel(), self.seed)
        first = self._expected(self.model, start.posterior, start.information)
        state, trace = self._climb(first, self._next_variational)
        return state.posterior, trace

    def _expected(self, model: Any, posterior: JointPosterior, information: Information) -> _State:
        """A state of the variational search: the bound, and the gradient for the next step."""
        u = posterior.whitened_mean + posterior.coloured(self._white)
        found = likelihood(model, u)
        mean, S = posterior.whitened_mean, posterior.whitened_variances
        divergence = 0.5 * float((S + mean.square() - 1).sum()) - 0.5 * posterior.log_det
        bound = float(found.value.mean()) - divergence
        return _State(model, posterior, bound, information, found.gradient.mean(0))

    def _next_variational(self, state: _State, stretch: float) -> _State | None:
        posterior, model = state.posterior, state.model
        chain = model.chain(model.seen(posterior.whitened_mean + posterior.coloured(self._white)))
        information = self.family.information(model, chain)
        factors = [stretch, 1.0, 0.3] if bool(self.learned.any()) else []
        for factor in [*(f for f in factors if f <= stretch), 0.0]:
            found = self._moved(state, information, factor, (1.0, 0.3))
            if found is not None:
                return found
        # Shorter steps: precisions between the old and the new ones.
        information = self.family.information(model, chain, state.information.places)
        for share in (0.5, 0.2, 0.05):
            between = state.information.towards(information, share)
            found = self._moved(state, between, 0.0, (share,))
            if found is not None:
                return found
        return None

    def _moved(
        self, state: _State, information: Information, factor: float, steps: tuple[float, ...]
    ) -> _State | None:
        """The state after prior variances moved by a factor, a precision, and a step of the means,
        if that raises the bound."""
        model = self._with_variances(state, factor) if factor else state.model
        mean = state.posterior.mean / model.scale
        posterior = information.posterior(model, mean)
        gradient = state.gradient / state.model.scale * model.scale
        towards = posterior.times(gradient - mean)
        for step in steps:
            there = replace(posterior, whitened_mean=mean + step * towards)
            found = self._expected(model, there, information)
            if found.bound > state.bound:
                return found
        return None

    # ---- both -----------------------------------------------------------------------------------

    def _climb(self, state: _State, following: Any) -> tuple[_State, Trace]:
        """Follow from state to state while the bound rises."""
        began = time.perf_counter()
        bounds, elapsed = [state.bound], [0.0]
        converged, interrupted, stretch = False, False, 1.0
        bar = progress_bar(self.name, "sweep", self.progress)
        with bar:
            try:
                while not converged and len(bounds) < self.max_sweeps:
                    found = following(state, stretch)
                    if found is None:
                        converged = True
                        break
                    gain, state = found.bound - state.bound, found
                    bounds.append(state.bound)
                    elapsed.append(time.perf_counter() - began)
                    converged = gain <= self.tol * abs(state.bound)
                    stretch = min(1.5 * stretch, 3.0)
                    bar.update()
                    bar.set_postfix_str(f"bound {state.bound:.6g}", refresh=False)
            except KeyboardInterrupt:
                interrupted = True
        self.model = state.model
        return state, Trace(tuple(bounds), tuple(elapsed), converged, interrupted)

    def _with_variances(self, state: _State, factor: float) -> Any:
        """The model with its learned prior variances moved towards MacKay's fixed point, or beyond
        it for a factor above 1."""
        model, posterior = state.model, state.posterior
        G = len(model.log_variance)
        sums = torch.zeros(2, G, dtype=torch.float64)
        squares = posterior.whitened_mean.square().sum(-1)
        determined = (1 - posterior.whitened_variances).sum(-1)
        sums[0].index_add_(0, model.groups, squares)
        sums[1].index_add_(0, model.groups, determined)
        move = (sums[0] / sums[1].clamp_min(1e-9)).clamp_min(1e-300).log().clamp(-2, 2)
        moved = model.log_variance + factor * (move * self.learned).unsqueeze(-1)
        moved = moved.clamp(np.log(SMALLEST_VARIANCE), np.log(LARGEST_VARIANCE))
        return replace(model, log_variance=moved)


def mirrored_draws(draws: int, size: int, seed: int) -> Tensor:
    """(S, size) the standard normal draws that stand for q in the variational bound."""
    generator = torch.Generator().manual_seed(seed)
    half = torch.randn(max(1, draws // 2), size, generator=generator, dtype=torch.float64)
    return torch.cat([half, -half])


@dataclass(frozen=True, eq=False)
class _State:
    """A model with its prior variances, a posterior, and the evidence or bound there."""

    model: Any
    posterior: JointPosterior
    bound: float
    information: Information
    gradient: Tensor = field(default_factory=lambda: torch.zeros(0))
