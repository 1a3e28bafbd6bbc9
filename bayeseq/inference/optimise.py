"""L-BFGS with a progress bar, a plain stopping rule, and something to show for an interrupt."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import OptimizeResult, minimize
from tqdm import tqdm

PERIOD = 10
"""Iterations over which the stopping rule looks back, unless told otherwise."""

Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]


@dataclass(frozen=True)
class Search:
    """How a search for a minimum went."""

    objective: tuple[float, ...]
    """after each iteration"""
    elapsed: tuple[float, ...]
    """seconds from the start to the end of each iteration"""
    converged: bool
    seconds: float
    interrupted: bool = False


def progress_bar(name: str, unit: str, progress: bool) -> tqdm:
    """A bar without an end that shows up after two seconds, if it is wanted at all."""
    return tqdm(
        total=None,
        desc=name,
        unit=unit,
        disable=None if progress else True,
        delay=2,
        leave=False,
    )


def minimise(
    objective: Objective,
    start: np.ndarray,
    *,
    max_iter: int,
    tol: float,
    period: int = PERIOD,
    progress: bool = False,
    name: str = "",
    enough: Callable[[float], bool] | None = None,
) -> tuple[np.ndarray, Search]:
    """The minimum of a smooth function that also returns its gradient.

    Stops when the objective fell by less than `tol` of itself over `period` iterations, or where
    `enough`, asked with its value after each, says so. An interrupt (Ctrl-C) ends the search and
    keeps the best point found so far.
    """
    best = start
    trace: list[float] = []
    elapsed: list[float] = []
    began = time.perf_counter()
    bar = progress_bar(name, "it", progress)

    def after_iteration(intermediate_result: OptimizeResult) -> None:
        nonlocal best
        best = intermediate_result.x.copy()
        trace.append(float(intermediate_result.fun))
        elapsed.append(time.perf_counter() - began)
        bar.update()
        bar.set_postfix_str(f"objective {trace[-1]:.6g}", refresh=False)
        if enough is not None and enough(trace[-1]):
            raise StopIteration
        if len(trace) > period:
            before, now = trace[-1 - period], trace[-1]
            if before - now <= tol * max(abs(now), np.finfo(float).tiny):
                raise StopIteration

    def search(converged: bool, interrupted: bool = False) -> Search:
        seconds = time.perf_counter() - began
        return Search(tuple(trace), tuple(elapsed), converged, seconds, interrupted)

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
            return best, search(False, interrupted=True)
    return found.x, search(len(trace) < max_iter)
