"""Slice sampling of one number in each of many chains at once (Neal 2003).

A chain that has found its next point drops out of the evaluations that remain. A density is a
function of (numbers of the chains, a point for each) that gives a log density for each, up to a
constant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

Density = Callable[[Tensor, Tensor], Tensor]

_VANISHED = 1e-13
"""A bracket relative to its first width that leaves only the point where the chain already is."""


FEWEST, _SHARE = 8, 4
"""Points that are evaluated together, at least: 8, and a 4th of the chains. A few cost hardly more
than one."""


class Moved(NamedTuple):
    """Where the chains are after a move."""

    point: Tensor
    """(S,)"""
    value: Tensor
    """(S,) the log density there"""
    evaluations: int
    """How many chain-points were evaluated."""


def uniform(rng: np.random.Generator, n: int) -> Tensor:
    """(n,) numbers in [0, 1)."""
    return torch.from_numpy(rng.random(n))


def level(value: Tensor, rng: np.random.Generator) -> Tensor:
    """(S,) a height drawn uniformly under each density, as a logarithm."""
    return value + torch.from_numpy(np.log1p(-rng.random(len(value))))


def shrink(
    density: Density,
    threshold: Tensor,
    at: Tensor,
    value: Tensor,
    low: Tensor,
    high: Tensor,
    rng: np.random.Generator,
) -> Moved:
    """Draw from the part of the brackets (low, high) where the density is above the threshold, by
    shrinking a bracket to every point that is not, towards where the chain is (`at`, of density
    `value`)."""
    # numpy, whose calls on a few numbers take a third of the time of torch's
    point, found_value = at.numpy().copy(), value.numpy().copy()
    here, bar = at.numpy(), threshold.numpy()
    left, right = low.numpy(), high.numpy()
    least = _VANISHED * (right - left)
    chains = np.arange(len(at))
    evaluations, together = 0, max(FEWEST, len(at) // _SHARE)
    while len(chains):
        tries = max(1, together // len(chains))
        proposals, left, right = _next_proposals(here[chains], left, right, tries, rng)
        each = torch.from_numpy(np.tile(chains, tries))
        found = density(each, torch.from_numpy(proposals.ravel())).numpy().reshape(tries, -1)
        evaluations += found.size
        inside = found >= bar[chains]  # never so for a value that is not a number
        done = inside.any(0)
        first = inside.argmax(0)[done], np.flatnonzero(done)
        point[chains[done]] = proposals[first]
        found_value[chains[done]] = found[first]
        again = ~done & (right - left > least[chains])
        chains, left, right = chains[again], left[again], right[again]
    return Moved(torch.from_numpy(point), torch.from_numpy(found_value), evaluations)


def _next_proposals(
    at: np.ndarray, low: np.ndarray, high: np.ndarray, tries: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(tries, S) the next points of a shrinking bracket, and the bracket after them. Where a
    bracket shrinks depends only on the side of `at` that a rejected point lies on, so the points
    that would follow are known beforehand and can be evaluated together."""
    found = rng.random((tries, len(at)))
    for proposal in found:
        proposal *= high - low
        proposal += low
        left = proposal < at
        low, high = np.where(left, proposal, low), np.where(left, high, proposal)
    return found, low, high


def step_out(
    density: Density,
    threshold: Tensor,
    at: Tensor,
    width: float,
    rng: np.random.Generator,
    most: int = 16,
) -> tuple[Tensor, Tensor, int]:
    """Brackets around `at`, placed at random and widened in steps of `width` until both ends lie
    outside, at most `most` steps in all; and how many chain-points were evaluated."""
    S = len(at)
    low = at - width * uniform(rng, S)
    ends = torch.stack([low, low + width])
    budget = torch.from_numpy(rng.integers(most, size=S))
    left = torch.stack([budget, most - 1 - budget])  # steps that each end may still take
    direction = torch.tensor([-width, width], dtype=at.dtype)
    side, chains = (left > 0).nonzero(as_tuple=True)
    evaluations = 0
    while len(chains):
        outside = ~(density(chains, ends[side, chains]) >= threshold[chains])
        evaluations += len(chains)
        side, chains = side[~outside], chains[~outside]
        ends[side, chains] += direction[side]
        left[side, chains] -= 1
        more = left[side, chains] > 0
        side, chains = side[more], chains[more]
    return ends[0], ends[1], evaluations


def slice_move(
    density: Density, at: Tensor, value: Tensor, width: float, rng: np.random.Generator
) -> Moved:
    """One univariate move of each chain: a level, stepping out, shrinkage.

    >>> rng = np.random.default_rng(0)
    >>> at = torch.zeros(1000, dtype=torch.float64)
    >>> density = lambda chains, x: -0.5 * (x - 3.0) ** 2
    >>> for _ in range(10):
    ...     at, value, _ = slice_move(density, at, density(None, at), 2.0, rng)
    >>> round(float(at.mean()), 1)
    3.0
    """
    threshold = level(value, rng)
    low, high, evaluations = step_out(density, threshold, at, width, rng)
    moved = shrink(density, threshold, at, value, low, high, rng)
    return moved._replace(evaluations=moved.evaluations + evaluations)
