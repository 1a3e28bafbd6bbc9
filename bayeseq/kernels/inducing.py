"""A kernel as features: φ(x) = L⁻¹ k(Z, x) with k(Z, Z) = L Lᵀ, differentiable."""

from __future__ import annotations

import torch
from torch import Tensor

from bayeseq.kernels.base import Kernel, Logs
from bayeseq.kernels.products import InnerProducts
from bayeseq.linalg import cholesky

JITTER = 1e-8
"""What is added to the diagonal of k(Z, Z) by default, as a part of its mean."""


def inducing_features(
    kernel: Kernel,
    points: InnerProducts,
    cross: InnerProducts,
    log_params: Logs | None = None,
    jitter: float = JITTER,
) -> tuple[Tensor, Tensor]:
    """Φ (n, M) and the residual variances k(x, x) − φ·φ ≥ 0 (n,) of rows X at M points Z.

    `points` are the inner products of Z with Z, `cross` those of Z with X. The kernel is taken with
    overall variance 1 (`Kernel.unit`): of `log_params`, those in its `shape_parameters` count.
    Differentiable in them and in the inner products.

    >>> from bayeseq.kernels import RBF, inner_products
    >>> Z, X = [[0.0], [1.0]], [[0.0], [0.5]]
    >>> phi, rest = inducing_features(RBF(), inner_products(Z), inner_products(Z, X))
    >>> (phi**2).sum(1) + rest
    tensor([1., 1.], dtype=torch.float64)
    """
    factor = inducing_factor(kernel, points, log_params, jitter)
    return features_from_factor(kernel, factor, cross, log_params)


def inducing_factor(
    kernel: Kernel, points: InnerProducts, log_params: Logs | None = None, jitter: float = JITTER
) -> Tensor:
    """L (M, M) of the points alone: it serves any number of calls of `features_from_factor`."""
    return cholesky(_unit_of(kernel, points, log_params), "k(Z, Z) of the inducing points", jitter)


def features_from_factor(
    kernel: Kernel, factor: Tensor, cross: InnerProducts, log_params: Logs | None = None
) -> tuple[Tensor, Tensor]:
    """Φ (n, M) and the residual variances (n,), as `inducing_features` gives them."""
    k = _unit_of(kernel, cross, log_params)
    phi = torch.linalg.solve_triangular(factor, k, upper=False).T
    prior = kernel.unit().diagonal(cross.right, _shape_only(kernel, log_params))
    return phi, (prior - phi.square().sum(1)).clamp(min=0)


def _unit_of(kernel: Kernel, rows: InnerProducts, log_params: Logs | None) -> Tensor:
    return kernel.unit().of(*rows, _shape_only(kernel, log_params))


def _shape_only(kernel: Kernel, log_params: Logs | None) -> dict[str, Tensor]:
    """Without the overall variance, which is not the map's."""
    known = kernel.shape_parameters()
    return {name: log for name, log in (log_params or {}).items() if name in known}
