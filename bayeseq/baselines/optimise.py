"""Searches of the baselines: how one went, told as every labeler tells it."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from bayeseq.inference import optimise
from bayeseq.inference.optimise import Objective
from bayeseq.labelers.base import FitResult


def interrupted_message(iterations: int) -> str:
    """What an interrupted search says, as a warning and in `result_`."""
    message = f"interrupted after {iterations} iterations; what was learned until then is kept"
    warnings.warn(message, ConvergenceWarning, stacklevel=3)
    return message


def max_iter_message(name: str, max_iter: int) -> str:
    """What a search that ran out of iterations says, as a warning and in `result_`."""
    message = f"{name} stopped after max_iter={max_iter} iterations"
    warnings.warn(f"{message}; raise max_iter or tol", ConvergenceWarning, stacklevel=3)
    return message


def minimise(
    objective: Objective,
    start: np.ndarray,
    *,
    max_iter: int,
    tol: float,
    progress: bool,
    name: str,
) -> tuple[np.ndarray, FitResult]:
    """`inference.optimise.minimise`, with a warning where it was interrupted or ran out."""
    found, search = optimise.minimise(
        objective, start, max_iter=max_iter, tol=tol, progress=progress, name=name
    )
    message = ""
    if search.interrupted:
        message = interrupted_message(len(search.objective))
    elif not search.converged:
        message = max_iter_message(name, max_iter)
    return found, FitResult(
        search.objective,
        search.elapsed,
        search.converged,
        search.seconds,
        message,
        search.interrupted,
    )
