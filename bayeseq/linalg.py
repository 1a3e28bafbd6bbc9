"""The one place that factorises a matrix."""

from __future__ import annotations

import numpy as np
import torch
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


def _non_finite(matrix: Tensor) -> str:
    nans = int(matrix.isnan().sum())
    return f"{nans} NaN and {int(matrix.isinf().sum())} infinite values"
