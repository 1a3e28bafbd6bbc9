"""The variational Gaussian posterior of a softmax model that is linear in its weights.

The model: label scores Ψ W with W[k, c] ~ N(0, t[g(k), c]), where g(k) is the group of column k,
and independent softmax likelihoods a row. The guide: independent Gaussians a label, N(w_c, S_c).
The bound ([gpsl] eqs. 8, 9):

    L = Σ_n ω_n ( Σ_c Y[n, c] m[n, c] − h(m_n, v_n) ) − KL(q ‖ p),
    m = Ψ W,  v[n, c] = ψ_nᵀ S_c ψ_n + r_n,

with h the expectation of log Σ exp or a bound on it (`expectations`), Y the labels as indicators
and ω_n row weights. Where only a set of labels is known, Y is the distribution over it that makes
the bound largest, and its entropy is added.

The solver is coordinate ascent (Algorithm 1 of [gpsl]) in three moves, each of which can only
raise L: covariances by their fixed point, a natural-gradient step that is halved where it would
lower L; means by truncated Newton steps, with conjugate gradients through the design; and prior
variances by MacKay's fixed point Σw² / Σ(1 − S/t), or, where that would lower L, by the exact
maximum for the present posterior, (Σw² + ΣS) / count.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from bayeseq.chain.threads import one_thread
from bayeseq.inference.covariance import CovarianceFamily, LabelCovariance
from bayeseq.inference.expectations import Expectation, Jensen, LogSumExp, tilt
from bayeseq.inference.optimise import progress_bar
from bayeseq.kernels.design import Design

LARGEST_VARIANCE, SMALLEST_VARIANCE = 1e4, 1e-8
"""Prior variances stay between these: a group of no use would otherwise go to zero for ever."""


class SoftmaxModel(Protocol):
    """What the solver needs to know of a model."""

    @property
    def design(self) -> Design:
        """Ψ (N, D)"""

    @property
    def allowed(self) -> Tensor:
        """(N, C) the labels that each row may have; one for a known label"""

    @property
    def weights(self) -> Tensor:
        """(N,) how much each row counts"""

    @property
    def groups(self) -> Tensor:
        """(D,) the prior-variance group of each column"""

    @property
    def residual(self) -> Tensor | None:
        """(N,) prior variance that the columns of group 0 leave out, in units of that group's"""


@dataclass(frozen=True, eq=False)
class GaussianPosterior:
    """q(W) = Π_c N(w_c, S_c), and the prior variances it was found with."""

    mean: Tensor
    """(D, C)"""
    covariances: list[LabelCovariance]
    curvature: Tensor
    """(N, C) of the training rows, times their weights: what S is made of"""
    precision: Tensor
    """(D, C) prior precisions that S was made with"""
    log_variance: Tensor
    """(G, C) log prior variances"""

    def scores(self, design: Design, residual: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Means and variances (N, C) of the scores of any rows."""
        variance = torch.stack([S.row_variances(design) for S in self.covariances], -1)
        if residual is not None:
            variance = variance + residual.unsqueeze(-1) * self.log_variance[0].exp()
        return design.times(self.mean), variance

    @property
    def variances(self) -> Tensor:
        """(D, C) posterior variances of the weights."""
        return torch.stack([S.diagonal for S in self.covariances], -1)

    def draws(self, n: int, generator: torch.Generator) -> Tensor:
        """(S, D, C) draws of the weights."""
        D, C = self.mean.shape
        N = len(self.curvature)
        found = torch.empty(n, D, C, dtype=self.mean.dtype)
        for c, S in enumerate(self.covariances):
            noise = torch.randn(D + N, n, generator=generator, dtype=self.mean.dtype)
            found[:, :, c] = S.sample(noise).T
        return found + self.mean


@dataclass(frozen=True)
class Trace:
    """How the search went."""

    bound: tuple[float, ...]
    """after each accepted sweep; never falls"""
    elapsed: tuple[float, ...]
    converged: bool
    interrupted: bool = False


@dataclass(frozen=True, eq=False)
class _State:
    """A posterior, with what follows from it at the training rows."""

    posterior: GaussianPosterior
    curvature: Tensor
    """(N, C) what the covariances should be made of next"""
    bound: float


@dataclass(eq=False)
class Solver:
    """Finds the posterior of a `SoftmaxModel`.

    Parameters
    ----------
    model, family, rule : the model, the covariances' family, the rule for E[log Σ exp].
    learned : (G,) which groups' prior variances are learned; the others stay.
    by_label : whether each label has prior variances of its own ([gpsl]'s θ_j).
    tol : stop when a sweep raises the bound by less than this share of it.
    """

    model: SoftmaxModel
    family: CovarianceFamily
    rule: Expectation
    learned: Tensor
    by_label: bool = False
    max_sweeps: int = 100
    tol: float = 1e-4
    progress: bool = False
    name: str = "variational Gaussian"
    mean_steps: int = field(init=False)
    """Newton steps for the means in a sweep, at most. Where covariances cost little the means may
    lag behind: sweeps are cheap, and each moves everything together."""
    _entropy_rows: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.mean_steps = 2 if self.family.kind == "diagonal" else 20
        self._entropy_rows = self.model.allowed.sum(-1) > 1

    def solve(
        self, log_variance: Tensor, start: GaussianPosterior | None = None
    ) -> tuple[GaussianPosterior, Trace]:
        """The posterior, from prior variances (G, C) and maybe an earlier posterior."""
        with one_thread() as n_threads, threadpool_limits(1, "blas"):
            self.family = replace(self.family, n_threads=n_threads)
            return self._solve(log_variance, start)

    def _solve(
        self, log_variance: Tensor, start: GaussianPosterior | None
    ) -> tuple[GaussianPosterior, Trace]:
        began = time.perf_counter()
        state = self._first(log_variance, start)
        bounds, elapsed = [state.bound], [time.perf_counter() - began]
        converged, interrupted, stretch = False, False, 1.0
        bar = progress_bar(self.name, "sweep", self.progress)
        with bar:
            try:
                while not converged and len(bounds) < self.max_sweeps:
                    learn = len(bounds) > 1 and bool(self.learned.any())
                    found, stretch = self._sweep(state, learn, stretch)
                    if found is None:
                        converged = True
                        break
                    gain, state = found.bound - state.bound, found
                    bounds.append(state.bound)
                    elapsed.append(time.perf_counter() - began)
                    converged = gain <= self.tol * abs(state.bound) and len(bounds) > 3
                    bar.update()
                    bar.set_postfix_str(f"bound {state.bound:.6g}", refresh=False)
            except KeyboardInterrupt:
                interrupted = True
        return state.posterior, Trace(tuple(bounds), tuple(elapsed), converged, interrupted)

    # ---- one sweep ------------------------------------------------------------------------------

    def _first(self, log_variance: Tensor, start: GaussianPosterior | None) -> _State:
        model = self.model
        N, D, C = *model.design.shape, model.allowed.shape[1]
        if start is None:
            share = 1 / C if isinstance(self.rule, Jensen) else (1 - 1 / C) / C
            curvature = (model.weights * share).unsqueeze(-1).repeat(1, C)
            mean = torch.zeros(D, C, dtype=torch.float64)
            precision = torch.exp(-log_variance)[model.groups]
        else:
            curvature, mean = start.curvature, start.mean
            precision = torch.exp(-log_variance)[model.groups]
        assert curvature.shape == (N, C)
        return self._state(curvature, precision, log_variance, mean)

    def _sweep(self, state: _State, learn: bool, stretch: float) -> tuple[_State | None, float]:
        """The next state, or None where nothing raises the bound any more, and how far to stretch
        the next move of the prior variances: their fixed point closes in slowly, always from one
        side, so moves that raise the bound grow longer."""
        old, curvature = state.posterior, state.curvature
        proposals = [old.log_variance]
        if learn:
            mackay = self._mackay(old)
            stretched = old.log_variance + stretch * (mackay - old.log_variance)
            proposals = [mackay, self._maximised(old)]
            if stretch > 1:
                proposals.insert(0, self._learned(old.log_variance, stretched))
        for log_variance in proposals:
            precision = torch.exp(-log_variance)[self.model.groups]
            found = self._state(curvature, precision, log_variance, old.mean)
            if found.bound >= state.bound:
                grown = min(1.5 * stretch, _LONGEST_STRETCH)
                return found, grown if log_variance is proposals[0] else 1.0
        # A shorter natural-gradient step: precisions between the old and the new ones.
        log_variance, step = proposals[-1], 0.5
        while step > 0.05:
            found = self._state(
                torch.lerp(old.curvature, curvature, step),
                torch.lerp(old.precision, torch.exp(-log_variance)[self.model.groups], step),
                log_variance,
                old.mean,
            )
            if found.bound >= state.bound:
                return found, 1.0
            step /= 2
        return None, 1.0

    def _state(
        self, curvature: Tensor, precision: Tensor, log_variance: Tensor, mean: Tensor
    ) -> _State:
        """The state with these covariances and the best means for them."""
        covariances = self.family(curvature, precision)
        posterior = GaussianPosterior(mean, covariances, curvature, precision, log_variance)
        scores, variance = posterior.scores(self.model.design, self.model.residual)
        mean, fit, found = self._means(mean, scores, variance.clamp_min(0.0), log_variance)
        posterior = replace(posterior, mean=mean)
        after = found.curvature * self.model.weights.unsqueeze(-1)
        return _State(posterior, after, fit - self._divergence(posterior))

    # ---- the bound ------------------------------------------------------------------------------

    def _fit(self, scores: Tensor, variance: Tensor) -> tuple[float, Tensor, LogSumExp]:
        """E_q[log p(y | W)], or its bound, the targets Y and what the rule found."""
        targets = self._targets(scores)
        found = self.rule(scores, variance)
        value = (targets * scores).sum(-1) - found.value + torch.special.entr(targets).sum(-1)
        return float(self.model.weights @ value), targets, found

    def _divergence(self, posterior: GaussianPosterior) -> float:
        """KL(q ‖ p)."""
        prior = posterior.log_variance[self.model.groups]
        ratio = (posterior.variances + posterior.mean.square()) * torch.exp(-prior)
        log_det = sum(S.log_det for S in posterior.covariances)
        return 0.5 * (float((ratio - 1 + prior).sum()) - log_det)

    def _targets(self, scores: Tensor) -> Tensor:
        """(N, C) indicators of the known labels, the best distribution over the others."""
        known = self.model.allowed.to(scores.dtype)
        if not bool(self._entropy_rows.any()):
            return known
        return torch.softmax(scores.masked_fill(~self.model.allowed, -torch.inf), -1)

    # ---- means ----------------------------------------------------------------------------------

    def _means(
        self, W: Tensor, scores: Tensor, variance: Tensor, log_variance: Tensor
    ) -> tuple[Tensor, float, LogSumExp]:
        """The weights that maximise the bound for fixed variances, the expected log-likelihood and
        what the rule found there."""
        model, design = self.model, self.model.design
        precision = torch.exp(-log_variance)[model.groups]
        weights = model.weights.unsqueeze(-1)

        def penalty(W: Tensor) -> float:
            return 0.5 * float((precision * W * W).sum())

        fit, targets, found = self._fit(scores, variance)
        now = fit - penalty(W)
        for _ in range(self.mean_steps):
            residual = weights * (targets - found.probability)
            gradient = design.transpose_times(residual) - precision * W
            a = tilt(scores, variance)
            step = _newton_step(design, gradient, a, model.weights, precision)
            expected = float((gradient * step).sum())
            move = design.times(step)
            length = 1.0
            while length > 1e-4:
                trial = W + length * step, scores + length * move
                after = self._fit(trial[1], variance)
                if after[0] - penalty(trial[0]) >= now:
                    break
                length /= 2
            else:
                break
            (W, scores), (fit, targets, found) = trial, after
            now = fit - penalty(W)
            if expected <= 0.1 * self.tol * abs(now) + 1e-9:
                break
        return W, fit, found

    # ---- prior variances ------------------------------------------------------------------------

    def _group_sums(self, posterior: GaussianPosterior) -> tuple[Tensor, Tensor, Tensor]:
        """(G, C) Σ w², Σ S and the number of weights, in each group; all labels together unless
        each has variances of its own."""
        parts = posterior.mean.square(), posterior.variances, torch.ones_like(posterior.mean)
        G = len(posterior.log_variance)
        zeros = torch.zeros(G, posterior.mean.shape[1], dtype=torch.float64)
        sums = [zeros.index_add(0, self.model.groups, part) for part in parts]
        if not self.by_label:
            sums = [part.sum(-1, keepdim=True).expand_as(part) for part in sums]
        return sums[0], sums[1], sums[2]

    def _mackay(self, posterior: GaussianPosterior) -> Tensor:
        squares, variances, count = self._group_sums(posterior)
        old = posterior.log_variance
        well_determined = (count - variances * torch.exp(-old)).clamp_min(1e-9)
        new = (squares / well_determined).clamp_min(1e-300).log()
        return self._learned(old, torch.maximum(torch.minimum(new, old + 2), old - 2))

    def _maximised(self, posterior: GaussianPosterior) -> Tensor:
        squares, variances, count = self._group_sums(posterior)
        return self._learned(posterior.log_variance, ((squares + variances) / count).log())

    def _learned(self, old: Tensor, new: Tensor) -> Tensor:
        new = new.clamp(np.log(SMALLEST_VARIANCE), np.log(LARGEST_VARIANCE))
        return torch.where(self.learned.unsqueeze(-1), new, old)


_LONGEST_STRETCH = 4.0


def _newton_step(
    design: Design, gradient: Tensor, a: Tensor, weights: Tensor, precision: Tensor
) -> Tensor:
    """(D, C) nearly the solution of H x = gradient, H = diag(p) + Ψᵀ [ω (diag a − a aᵀ)] Ψ across
    labels, by conjugate gradients with the diagonal of H before it.

    Each step raises gᵀx − ½ xᵀHx. They end when one raises it by less than `_TRUNCATE` times the
    mean of all so far (Nash & Sofer 1990): the quadratic is only a picture of the bound, and the
    next sweep draws it anew.
    """
    omega = weights.unsqueeze(-1)

    def times_hessian(x: Tensor) -> Tensor:
        ax = a * design.times(x)
        return precision * x + design.transpose_times(omega * (ax - a * ax.sum(-1, keepdim=True)))

    diagonal = precision + design.squared_transpose_times(omega * a * (1 - a))
    x = torch.zeros_like(gradient)
    r = gradient.clone()
    z = r / diagonal
    p, rz = z, float((r * z).sum())
    target, total = 1e-4 * rz, 0.0  # a hundredth of the residual's length
    for steps in range(1, _CG_STEPS + 1 if rz > 0 else 1):
        Hp = times_hessian(p)
        alpha = rz / float((p * Hp).sum())
        x += alpha * p
        r -= alpha * Hp
        z = r / diagonal
        rz, before = float((r * z).sum()), rz
        gain = alpha * before / 2
        total += gain
        if rz <= target or gain <= _TRUNCATE * total / steps:
            break
        p = z + (rz / before) * p
    return x


_CG_STEPS = 100
_TRUNCATE = 0.3
