"""What labelers with a search say of how it went, and of numbers that are read from a file."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from bayeseq.inference.optimise import Search
from bayeseq.inference.variational import Trace
from bayeseq.labelers.base import FitResult


def fit_result(
    labeler: Any, found: Search | Trace, hyperparameters: dict[str, Any] | None = None
) -> FitResult:
    """The record of a search by iterations, or by sweeps, with a warning where it was interrupted
    or ran out of them; `labeler.max_iter` is how many there might have been."""
    swept = isinstance(found, Trace)
    objective = found.bound if isinstance(found, Trace) else found.objective
    steps = "sweeps" if swept else "iterations"
    message = ""
    if found.interrupted:
        message = f"interrupted after {len(objective)} {steps}; what was learned is kept"
    elif not found.converged:
        message = f"{type(labeler).__name__} stopped after max_iter={labeler.max_iter} {steps}"
    if message:
        warnings.warn(message, ConvergenceWarning, stacklevel=3)
    return FitResult(
        objective,
        found.elapsed,
        found.converged,
        found.elapsed[-1] if found.elapsed else 0.0,
        message,
        found.interrupted,
        hyperparameters or {},
    )


def finite(array: np.ndarray, name: str, shape: tuple[int, ...]) -> Tensor:
    """A saved array, if it holds finite numbers in this shape."""
    if array.shape != shape or array.dtype != np.float64 or not np.isfinite(array).all():
        raise ValueError(f"{name} is not {shape} finite numbers")
    return torch.from_numpy(np.array(array))
