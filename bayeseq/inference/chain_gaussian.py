"""The posterior of a chain model: its mode, Laplace's Gaussian around it, a variational Gaussian.

With whitened weights u ~ N(0, I) and log-likelihood ℓ(u):

- the mode maximises ℓ(u) − ½‖u‖² ([gpsc]'s DGPS), by L-BFGS;
- Laplace: q = N(û, (I + J)⁻¹) with the Fisher information J of the chain at the mode, and the
  evidence ≈ ℓ(û) − ½‖û‖² − ½ log |I + J|;
- variational: q = N(m, S) that maximises E_q[ℓ] − KL(q ‖ p), in sweeps of

      S⁻¹ ← I + J̄,  J̄ ← (1 − ρ) J̄ + ρ E_q[J],    m ← argmax E_q[ℓ] − ½‖m‖²,

  natural-gradient steps of the precision, each with a few draws and with ρ = 2/3, 1/2, 2/5, …, so
  that J̄ averages over the draws of many sweeps (the noise of a few would cost the bound several
  nats, and full steps go back and forth); and a search for the mean in the directions of S. The
  expectations are over a fixed set of mirrored draws, so that the bound is one deterministic
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

from bayeseq.inference.centre import centred
from bayeseq.inference.chain_likelihood import likelihood
from bayeseq.inference.information import Information, JointFamily
from bayeseq.inference.joint import Basis, JointPosterior, mirrored_draws
from bayeseq.inference.optimise import Search, minimise, progress_bar
from bayeseq.inference.variational import LARGEST_VARIANCE, SMALLEST_VARIANCE, Trace


class Mode:
    """−ℓ(u) + ½‖u‖² and its gradient as functions of z, the whitened weights u = z ∘ step, flat. A
    step is the shorter the more often its feature occurs, since the surface is steeper there."""

    def __init__(self, model: Any) -> None:
        self.model = model
        N, C = model.layout.n_tokens, model.n_labels
        seen = model.design.squared_transpose_times(torch.ones(N, 1, dtype=torch.float64))
        seen = torch.cat([seen.expand(-1, C), torch.full((C, C), float(N)).double() / C])
        self.step = (1 + seen * model.scale.square() / (4 * C)).rsqrt().reshape(-1).numpy()
        self.excess = np.inf
        """By how much the last value was above the least, at most: where all labels are known, the
        curvature of the surface is 1 or more, so it is half the square of the gradient."""

    def weights(self, z: np.ndarray) -> Tensor:
        """(D + C, C) u."""
        return torch.from_numpy(z * self.step).reshape(self.model.latent_shape)

    def __call__(self, z: np.ndarray) -> tuple[float, np.ndarray]:
        """The value and the gradient."""
        u = self.weights(z)
        found = likelihood(self.model, u)
        value = 0.5 * float(u.square().sum()) - float(found.value)
        gradient = (u - found.gradient).reshape(-1).numpy()
        self.excess = 0.5 * float(gradient @ gradient)
        return value, gradient * self.step


_FEW = 2
"""Mirrored pairs of draws that the information of one sweep is averaged over, at least."""

_NUMBERS_AT_ONCE = 2**20
"""Numbers that this may take and be cheap; where there is room for more draws, there are more."""


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
    draws: int = 32
    max_sweeps: int = 50
    tol: float = 1e-3
    seed: int = 0
    progress: bool = False
    name: str = "Gaussian"
    _white: Tensor = field(init=False)

    def __post_init__(self) -> None:
        by_label = self.model.log_variance
        if not bool((by_label == by_label[:, :1]).all()):  # contrasts mix labels
            raise ValueError("prior variances differ between labels; give all labels the same")

    def mode(self, *, max_iter: int = 500, tol: float = 1e-6) -> tuple[Tensor, Search]:
        """The whitened weights (D, C) of the largest posterior density."""
        mode = Mode(self.model)
        found, search = minimise(
            mode,
            np.zeros_like(mode.step),
            max_iter=max_iter,
            tol=tol,
            progress=self.progress,
            name=self.name,
            enough=lambda value: mode.excess <= tol * abs(value),
        )
        return mode.weights(found), search

    # ---- Laplace --------------------------------------------------------------------------------

    def laplace(self) -> tuple[JointPosterior, Trace]:
        """The Gaussian around the mode, and the evidence by round of prior variances."""
        state, trace = self._laplace()
        return state.posterior, trace

    def _laplace(self) -> tuple[_State, Trace]:
        u, search = self.mode(tol=1e-3)
        if search.interrupted:
            raise KeyboardInterrupt
        value = float(likelihood(self.model, u).value)
        first = self._around(self.model, u, value)
        if not bool(self.learned.any()):
            first = self._at_mode(self.model, first.posterior)
        return self._climb(first, self._next_laplace)

    def _at_mode(self, model: Any, near: JointPosterior) -> _State:
        """The state at the mode, searched from the mean of a Gaussian near the posterior."""
        return self._around(
            model, *centred(model, near, torch.zeros_like(near.mean).unsqueeze(0), 0.1 * self.tol)
        )

    def _around(self, model: Any, u: Tensor, value: float) -> _State:
        """The state at a mode with this log-likelihood."""
        information = self._information_at(model, u.unsqueeze(0))
        posterior = information.posterior(model, u)
        evidence = value - 0.5 * float(u.square().sum()) + 0.5 * posterior.log_det
        return _State(model, posterior, evidence, information)

    def _next_laplace(self, state: _State, stretch: float) -> tuple[_State, float] | None:
        if not bool(self.learned.any()):
            return None
        for factor in _shorter(stretch, (1.0, 0.5, 0.1)):
            found = self._at_mode(self._with_variances(state, factor), state.posterior)
            if found.bound > state.bound:
                return found, factor
            if self._level(state, found):
                break
        return None

    # ---- variational ----------------------------------------------------------------------------

    def variational(self) -> tuple[JointPosterior, Trace]:
        """The variational Gaussian, and the bound by sweep."""
        start, trace = replace(self, tol=max(1e-2, self.tol))._laplace()
        if trace.interrupted:
            raise KeyboardInterrupt
        self.model = start.model
        self._white = mirrored_draws(self.draws, start.posterior.mean.numel(), self.seed)
        first = self._moved(start.model, start.posterior, start.information)
        state, trace = self._climb(first, self._next_variational)
        return state.posterior, trace

    def _next_variational(self, state: _State, stretch: float) -> tuple[_State, float] | None:
        posterior, model = state.posterior, state.model
        # Each sweep has other draws, so that the running mean averages over many.
        size = 2 * model.layout.n_tokens * model.n_labels**3
        few = max(_FEW, _NUMBERS_AT_ONCE // max(1, size))
        pairs = self._white.unflatten(0, (2, -1)).roll(-few * state.sweep, 1)
        u = posterior.whitened_mean + posterior.coloured(pairs[:, :few].flatten(0, 1))
        there = self._information_at(model, u, posterior.basis)
        share = 2 / (state.sweep + 3)
        attempts = [(0.0, share), (0.0, share / 2), (0.0, share / 8)]
        if bool(self.learned.any()):
            attempts = [(stretch, share), (min(stretch, 1.0), share / 2), (0.3, 0.0), attempts[-1]]
        for factor, part in attempts:
            information = state.information.towards(there, part)
            moved = self._with_variances(state, factor) if factor else model
            found = self._moved(moved, posterior, information)
            if found.bound > state.bound:
                return replace(found, sweep=state.sweep + 1), factor
        return None

    def _moved(self, model: Any, near: JointPosterior, information: Information) -> _State:
        """The Gaussian with the precision of prior and information, its mean where the bound is
        largest, searched from the mean of one nearby."""
        posterior = information.posterior(model, near.mean / model.scale)
        deviations = posterior.coloured(self._white)
        mean, value = centred(model, posterior, deviations, 0.1 * self.tol)
        posterior = replace(posterior, whitened_mean=mean)
        spread = posterior.turned_variances.sum() + mean.square().sum() - mean.numel()
        bound = value - 0.5 * float(spread) + 0.5 * posterior.log_det
        return _State(model, posterior, bound, information)

    # ---- both -----------------------------------------------------------------------------------

    def _information_at(
        self, model: Any, whitened: Tensor, basis: Basis | None = None
    ) -> Information:
        return self.family.information(model, model.chain(model.seen(whitened)), basis)

    def _level(self, state: _State, found: _State) -> bool:
        """Whether the bound has changed so little that there is nothing more to gain."""
        return abs(found.bound - state.bound) <= self.tol * abs(state.bound)

    def _climb(self, state: _State, following: Any) -> tuple[_State, Trace]:
        """Follow from state to state while the bound rises."""
        began = time.perf_counter()
        bounds, elapsed = [state.bound], [0.0]
        converged, interrupted, stretch = False, False, 1.0
        bar = progress_bar(self.name, "sweep", self.progress)
        with bar:
            try:
                while not converged and len(bounds) < self.max_sweeps:
                    after = following(state, stretch)
                    if after is None:
                        converged = True
                        break
                    found, factor = after
                    converged, state = self._level(state, found), found
                    bounds.append(state.bound)
                    elapsed.append(time.perf_counter() - began)
                    stretch = min(1.5 * max(factor, 0.3), 3.0)
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
        determined = (1 - posterior.turned_variances).sum(-1)
        sums[0].index_add_(0, model.groups, squares)
        sums[1].index_add_(0, model.groups, determined)
        move = (sums[0] / sums[1].clamp_min(1e-9)).clamp_min(1e-300).log().clamp(-2, 2)
        moved = model.log_variance + factor * (move * self.learned).unsqueeze(-1)
        moved = moved.clamp(np.log(SMALLEST_VARIANCE), np.log(LARGEST_VARIANCE))
        return replace(model, log_variance=moved)


@dataclass(frozen=True, eq=False)
class _State:
    """A model with its prior variances, a posterior, and the evidence or bound there."""

    model: Any
    posterior: JointPosterior
    bound: float
    information: Information
    sweep: int = 0


def _shorter(first: float, others: tuple[float, ...]) -> list[float]:
    """A first factor, and those of the others that are smaller."""
    return [first, *(factor for factor in others if factor < first)]
