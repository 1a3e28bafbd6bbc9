"""Chains of draws as a posterior, and whether they agree."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bayeseq.diagnostics.arviz import convergence_of
from bayeseq.inference.sampling import Run

WORST_R_HAT = 1.05
_TRANSITIONS_SHOWN = 20


def convergence(run: Run, log_likelihood: Tensor) -> dict[str, dict[str, float]]:
    """`r_hat` and `ess` (bulk) of the log-likelihood (sweeps, S) after the warm-up, of the log
    prior variances where they were sampled, and of the transitions: the worst of each kind."""
    C = run.weights.shape[-1]
    transitions = run.weights[..., -C:, :].flatten(2)
    chosen = torch.linspace(0, C * C - 1, min(C * C, _TRANSITIONS_SHOWN)).long()
    traces = {
        "log_likelihood": log_likelihood.T.unsqueeze(-1),
        "transitions": transitions[..., chosen],
    }
    if run.log_variance is not None:
        traces["log_variance"] = run.log_variance
    found: dict[str, dict[str, float]] = {"r_hat": {}, "ess": {}, "largest_r_hat": {}}
    for name, trace in traces.items():
        if trace.shape[1] >= 4:
            r_hat, ess = convergence_of(trace.numpy())
            found["r_hat"][name], found["ess"][name] = float(r_hat.max()), float(ess.min())
            found["largest_r_hat"][name] = largest_r_hat(*trace.shape[:2])
    return found


def largest_r_hat(chains: int, draws: int) -> float:
    """The R-hat up to which chains are taken to agree: 1.05, and what the mean of so few draws may
    stray by itself. With m split chains of n independent draws R-hat² is 1 + (F − 1) / n, and F has
    a standard deviation of about √(2 / (m − 1)); three of them are let pass."""
    m, n = 2 * chains, max(draws // 2, 1)
    return float(np.sqrt(WORST_R_HAT**2 + 3 * np.sqrt(2 / (m - 1)) / n))


@dataclass(frozen=True, eq=False)
class KeptDraws:
    """A posterior of weights by draws of it, n in each of S chains."""

    weights: Tensor
    """(S, n, D + C, C) float32"""
    log_variances: Tensor
    """(S, n, G) log prior variances"""

    @property
    def n_chains(self) -> int:
        """S."""
        return self.weights.shape[0]

    @property
    def n_draws(self) -> int:
        """S · n."""
        return self.weights.shape[0] * self.weights.shape[1]

    @property
    def mean(self) -> Tensor:
        """(D + C, C)."""
        return self.weights.mean((0, 1), dtype=torch.float64)

    @property
    def log_variance(self) -> Tensor:
        """(G, C) the means of the log prior variances."""
        mean = self.log_variances.mean((0, 1)).unsqueeze(-1)
        return mean.expand(-1, self.weights.shape[-1])

    def draws(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """(n, D + C, C) of the draws, chain after chain, as many of each as can be and as far apart
        as can be; the generator is not used."""
        if n > self.n_draws:
            raise ValueError(f"draws is {n}, and {self.n_draws} were kept; fit with more")
        S, kept = self.weights.shape[:2]
        each = torch.linspace(0, kept - 1, -(-n // S)).round().long()
        places = (torch.arange(S).unsqueeze(-1) * kept + each).flatten()
        some = torch.linspace(0, len(places) - 1, n).round().long()
        return self.weights.flatten(0, 1)[places[some]].to(torch.float64)
