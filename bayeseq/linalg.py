"""The one place that factorises a matrix."""

from __future__ import annotations

import numpy as np
import torch
from scipy.linalg import lapack
from torch import Tensor


class NotPositiveDefiniteError(np.linalg.LinAlgError, ValueError):
    """A matrix that should have a Cholesky factor has none."""


def cholesky(matrix: Tensor, name: str, jitter: float = 0.0) -> Tensor:
    """The lower factor L (…, n, n) of a matrix plus jitter × its mean diagonal, differentiable.

    Only the lower triangle is read. `name` is what an error calls the matrix.

    >>> cholesky(torch.tensor([[4.0, 0.0], [0.0, 9.0]]), "K")
    tensor([[2., 0.],
            [0., 3.]])
    """
    if matrix.dim() < 2 or matrix.shape[-1] != matrix.shape[-2]:
        raise ValueError(f"{name} has shape {tuple(matrix.shape)}, not that of a square matrix")
    if not jitter >= 0:
        raise ValueError(f"jitter is {jitter}; it cannot be negative")
    if not bool(matrix.isfinite().all()):
        raise NotPositiveDefiniteError(
            f"{name}, of shape {tuple(matrix.shape)}, holds {_non_finite(matrix)}; look for "
            "non-finite or huge values in what it was computed from"
        )
    if jitter > 0 and matrix.numel() > 0:
        diagonal = matrix.diagonal(dim1=-2, dim2=-1)
        level = jitter * diagonal.mean(-1, keepdim=True)
        matrix = matrix + torch.diag_embed(level.expand_as(diagonal))
    factor, info = torch.linalg.cholesky_ex(matrix)
    if bool(info.any()):
        smallest = float(torch.linalg.eigvalsh(matrix.detach()[info != 0]).min())
        added = f" with jitter {jitter:g}" if jitter > 0 else ""
        raise NotPositiveDefiniteError(
            f"{name}, of shape {tuple(matrix.shape)}, is not positive definite{added}: its "
            f"smallest eigenvalue is {smallest:.3g}; raise jitter, or remove duplicate, dependent "
            "or empty rows"
        )
    return factor


def inverse(matrix: Tensor, name: str) -> tuple[Tensor, float]:
    """The inverse of a positive definite float64 matrix (n, n), which is overwritten, and log |A|.

    LAPACK's own routine for a symmetric inverse: several times faster here than torch's.

    >>> found, log_det = inverse(torch.tensor([[4.0, 0.0], [0.0, 0.5]], dtype=torch.float64), "K")
    >>> [round(x, 4) for x in found.diagonal().tolist()], round(log_det, 4)
    ([0.25, 2.0], 0.6931)
    """
    if len(matrix) == 0:
        return matrix, 0.0
    copy = matrix.numpy().T  # the same numbers in the order that LAPACK wants
    factor, info = lapack.dpotrf(copy, lower=0, clean=0, overwrite_a=1)
    if info != 0:
        raise NotPositiveDefiniteError(
            f"{name}, of shape {tuple(matrix.shape)}, is not positive definite: elimination failed "
            f"at row {info}; look for non-finite or huge values in what it was computed from"
        )
    log_det = 2 * float(np.log(factor.diagonal()).sum())
    found, _ = lapack.dpotri(factor, lower=0, overwrite_c=1)
    lower = torch.from_numpy(found.T).tril_()
    return lower + lower.tril(-1).T, log_det


def inverse_root(matrix: Tensor, name: str) -> tuple[Tensor, float]:
    """F, lower triangular with Fᵀ F = A⁻¹, of a positive definite float64 matrix A (n, n), which is
    overwritten, and log |A|.

    >>> root, log_det = inverse_root(torch.tensor([[4.0, 0.0], [0.0, 0.5]]).double(), "K")
    >>> [round(x, 4) for x in root.diagonal().tolist()], round(log_det, 4)
    ([0.5, 1.4142], 0.6931)
    """
    if len(matrix) == 0:
        return matrix, 0.0
    copy = matrix.numpy().T
    factor, info = lapack.dpotrf(copy, lower=0, clean=1, overwrite_a=1)
    if info != 0:
        raise NotPositiveDefiniteError(
            f"{name}, of shape {tuple(matrix.shape)}, is not positive definite: elimination failed "
            f"at row {info}; look for non-finite or huge values in what it was computed from"
        )
    log_det = 2 * float(np.log(factor.diagonal()).sum())
    found, _ = lapack.dtrtri(factor, lower=0, overwrite_c=1)
    return torch.from_numpy(found.T), log_det


def _non_finite(matrix: Tensor) -> str:
    nans = int(matrix.isnan().sum())
    return f"{nans} NaN and {int(matrix.isinf().sum())} infinite values"
