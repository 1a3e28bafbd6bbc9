"""The shape of a kernel, learned from the bound by gradients through its feature map.

The M-step of variational EM: the posterior of the weights is held, Φ moves with the kernel's
hyper-parameters θ, and the bound's likelihood term is raised,

    ∂L/∂Φ = ω (Y − p) Wᵀ − Σ_c ω λ_c ∘ (Φ S_c),    ∂L/∂r = −½ Σ_c ω λ_c t_c,

followed through the map by automatic differentiation.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp
import torch
from scipy.optimize import minimize
from torch import Tensor

from bayeseq.inference.expectations import Expectation
from bayeseq.inference.variational import GaussianPosterior, SoftmaxModel
from bayeseq.kernels.design import Design
from bayeseq.kernels.inducing import inducing_features
from bayeseq.kernels.maps import InducingMap
from bayeseq.kernels.products import inner_products


class ShapeObjective:
    """The expected log-likelihood as a function of the kernel's shape, with its gradient."""

    def __init__(
        self,
        feature_map: InducingMap,
        model: SoftmaxModel,
        posterior: GaussianPosterior,
        rows: sp.csr_matrix,
        rule: Expectation,
    ) -> None:
        """`rows` (n, D) are the inputs of the model's rows."""
        self.map, self.model, self.posterior, self.rule = feature_map, model, posterior, rule
        self.names = sorted(feature_map.kernel.shape_parameters())
        weights = feature_map.column_weights
        self.points = inner_products(feature_map.points, None, weights)
        self.cross = inner_products(feature_map.points, rows, weights)
        dense = model.design.matrix
        self.rest = torch.from_numpy(np.ascontiguousarray(dense[:, feature_map.n_columns :]))

    def start(self) -> np.ndarray:
        """The logs of the present hyper-parameters."""
        found = self.map.kernel.shape_parameters()
        return np.array([float(found[name]) for name in self.names])

    def __call__(self, logs: np.ndarray) -> tuple[float, np.ndarray]:
        """The value and its gradient in the logs."""
        params = {
            name: torch.tensor(value, dtype=torch.float64, requires_grad=True)
            for name, value in zip(self.names, logs, strict=True)
        }
        phi, residual = inducing_features(
            self.map.kernel, self.points, self.cross, params, self.map.jitter
        )
        value, by_phi, by_residual = self._at(phi.detach(), residual.detach())
        surrogate = (phi * by_phi).sum() + (residual * by_residual).sum()
        found = torch.autograd.grad(surrogate, list(params.values()), allow_unused=True)
        return value, np.array([0.0 if g is None else float(g) for g in found])

    def _at(self, phi: Tensor, residual: Tensor) -> tuple[float, Tensor, Tensor]:
        model, posterior = self.model, self.posterior
        design = Design(torch.cat([phi, self.rest], -1).numpy())
        scores, variance = posterior.scores(design, residual)
        found = self.rule(scores, variance.clamp_min(0.0))
        targets = torch.softmax(scores.masked_fill(~model.allowed, -torch.inf), -1)
        omega = model.weights.unsqueeze(-1)
        fit = (targets * scores).sum(-1) - found.value + torch.special.entr(targets).sum(-1)
        curvature = omega * found.curvature
        by_phi = (omega * (targets - found.probability)) @ posterior.mean.T
        columns = torch.from_numpy(np.ascontiguousarray(design.matrix.T))
        for c, S in enumerate(posterior.covariances):
            by_phi -= curvature[:, c : c + 1] * S.times(columns).T
        by_residual = -0.5 * curvature @ posterior.log_variance[0].exp()
        return float(model.weights @ fit), by_phi[:, : phi.shape[1]], by_residual


_ENOUGH = 1e-5
"""A step that raises the likelihood term by less than this share of it ends the search: the next
posterior moves the top by more."""


def raise_bound(
    feature_map: InducingMap,
    model: SoftmaxModel,
    posterior: GaussianPosterior,
    rows: sp.csr_matrix,
    rule: Expectation,
    max_iter: int = 10,
) -> InducingMap | None:
    """The map with the kernel's shape moved to where the bound is higher; None if it has none, or
    is already at the top. `rows` (n, D) are the inputs of the model's rows."""
    objective = ShapeObjective(feature_map, model, posterior, rows, rule)
    if not objective.names:
        return None
    start = objective.start()
    now, _ = objective(start)

    def downhill(logs: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = objective(logs)
        return -value, -gradient

    found = minimize(
        downhill,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(x - 2.0, x + 2.0) for x in start],  # a new posterior before the next stretch
        options={"maxiter": max_iter, "ftol": _ENOUGH},
    )
    if not -found.fun > now:
        return None
    logs = {
        name: torch.tensor(value, dtype=torch.float64)
        for name, value in zip(objective.names, found.x, strict=True)
    }
    return replace(feature_map, kernel=feature_map.kernel.with_parameters(logs))
