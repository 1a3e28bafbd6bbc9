"""Exchanging coordinates of a sparse search: those that the others can stand in for make room.

A search adds what is steepest while all coordinates are on their way, and in the end some of them
say what others say together. Let γ be without its coordinate s, and the others move so that f and A
change least in the prior's norm, ‖δ‖² = δᵀK'δ. With M = K'⁻¹ of all of them,

    γ ← γ − M_{·s} γ_s / M_ss,    ‖δ‖² = γ_s² / M_ss,    M ← M − M_{·s} M_{s·} / M_ss,

the last being the inverse for those that are left. So the coordinates go one by one, each the one
whose loss changes the scores least, and the search goes on from there.
"""

from __future__ import annotations

import numpy as np
import torch

from bayeseq.inference.greedy import JITTER, Coordinates, Greedy, SparseScores
from bayeseq.linalg import cholesky

SHARE = 0.15
"""The part of the coordinates that goes in one exchange."""


def exchanged(
    search: Greedy, found: SparseScores, visits: np.ndarray, threshold: float = 0.0
) -> SparseScores:
    """What is found after an exchange of a part of the coordinates for as many others at most, with
    a lower R; or what there was before, where R would not fall."""
    most = len(found.gamma)
    gamma = without_least(search, found, int(SHARE * most))
    kept = Coordinates(*(part[gamma != 0.0] for part in found.coordinates))
    after = search.at(kept, gamma[gamma != 0.0])
    for visit in search.search(visits, most, threshold, after):
        after = visit.found
    return after if after.objective < found.objective else found


def without_least(search: Greedy, found: SparseScores, n: int) -> np.ndarray:
    """γ (p,) with n of its coordinates 0, each the one that the others left over can best stand in
    for, and the others moved to do so."""
    labels = [
        _OfLabel(own, block, found.gamma[own]) for own, block in search.curvature(found.coordinates)
    ]
    for _ in range(n):
        min(labels, key=lambda label: label.least).leave_out()
    gamma = np.zeros_like(found.gamma)
    for label in labels:
        gamma[label.own] = label.gamma
    return gamma


class _OfLabel:
    """The coordinates of a label, which go one by one."""

    def __init__(self, own: np.ndarray, block: np.ndarray, gamma: np.ndarray) -> None:
        L = cholesky(torch.from_numpy(block), "K' of the coordinates", JITTER)
        self.own, self.gamma = own, gamma
        self._inverse = torch.cholesky_inverse(L).numpy()
        self._gone = np.zeros(len(own), dtype=bool)
        self._find()

    def _find(self) -> None:
        """Which would change the scores least, and by how much: ‖δ‖²."""
        change = np.where(self._gone, np.inf, self.gamma**2 / self._inverse.diagonal())
        self._next = int(change.argmin())
        self.least = float(change[self._next])

    def leave_out(self) -> None:
        """Leave out the one that changes the scores least."""
        s, M = self._next, self._inverse
        column = M[:, s] / M[s, s]
        self.gamma = self.gamma - column * self.gamma[s]
        M -= np.outer(column, M[s])
        self._gone[s] = True
        self.gamma[s] = M[s] = M[:, s] = 0.0
        M[s, s] = 1.0
        self._find()
