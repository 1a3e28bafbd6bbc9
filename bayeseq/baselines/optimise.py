"""L-BFGS with a progress bar, a plain stopping rule, and something to show for an interrupt."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import numpy as np
from scipy.optimize import OptimizeResult, minimize
from sklearn.exceptions import ConvergenceWarning
from tqdm import tqdm

from bayeseq.labelers.base import FitResult

PERIOD = 10
"""Iterations over which the stopping rule looks back."""


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


Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]


def minimise(
    objective: Objective,
    start: np.ndarray,
    *,
    max_iter: int,
    tol: float,
    progress: bool,
    name: str,
) -> tuple[np.ndarray, FitResult]:
    """The minimum of a smooth function that also returns its gradient.

    Stops when the objective fell by less than `tol` of itself over ten iterations. An interrupt
    (Ctrl-C) ends the search and keeps the best point found so far, with a warning.
    """
    best = start
    trace: list[float] = []
    elapsed: list[float] = []
    began = time.perf_counter()
    bar = tqdm(
        total=None, desc=name, unit="it", disable=None if progress else True, delay=2, leave=False
    )

    def after_iteration(intermediate_result: OptimizeResult) -> None:
        nonlocal best
        best = intermediate_result.x.copy()
        trace.append(float(intermediate_result.fun))
        elapsed.append(time.perf_counter() - began)
        bar.update()
        bar.set_postfix_str(f"objective {trace[-1]:.6g}", refresh=False)
        if len(trace) > PERIOD:
            before, now = trace[-1 - PERIOD], trace[-1]
            if before - now <= tol * max(abs(now), np.finfo(float).tiny):
                raise StopIteration

    def result(converged: bool, message: str, interrupted: bool = False) -> FitResult:
        seconds = time.perf_counter() - began
        return FitResult(tuple(trace), tuple(elapsed), converged, seconds, message, interrupted)

    with bar:
        try:
            found = minimize(
                objective,
                start,
                jac=True,
                method="L-BFGS-B",
                callback=after_iteration,
                options={
                    "maxiter": max_iter,
                    "maxfun": 10 * max_iter,
                    "ftol": 1e-15,
                    "gtol": 1e-7,
                    "maxcor": 6,
                },
            )
        except KeyboardInterrupt:
            message = interrupted_message(len(trace))
            return best, result(False, message, interrupted=True)
    converged = len(trace) < max_iter
    message = "" if converged else max_iter_message(name, max_iter)
    return found.x, result(converged, message)
