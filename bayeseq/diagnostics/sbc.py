"""Simulation-based calibration: the ranks of true values, and whether they are uniform."""

from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2

from bayeseq.diagnostics.ranks import RankCheck, rank_check
from bayeseq.diagnostics.tables import aligned
from bayeseq.diagnostics.tokens import Floats, Ints

EXPECTED = 5
"""Ranks that a bin of the chi-squared test should expect, at least."""


@dataclass(frozen=True, eq=False)
class SBC:
    """What an inference made of data that were drawn from the model.

    Attributes:
        names: the Q quantities.
        ranks: (n, Q), how many of `draws` posterior draws lie below the true value, in each of n
            simulations.
        draws: posterior draws of each simulation.
        warnings: simulations whose fit said that it did not converge.
    """

    names: tuple[str, ...]
    ranks: Ints
    draws: int
    warnings: int = 0

    def check(self, name: str, *, bins: int = 10, level: float = 0.95) -> RankCheck:
        """The ranks of one quantity against uniform ones, for `plot_sbc_ranks` and
        `plot_sbc_ecdf`."""
        if name not in self.names:
            raise KeyError(f"{name!r} is none of the quantities: {', '.join(self.names)}")
        ranks = self.ranks[:, self.names.index(name)]
        return rank_check(ranks, self.draws, bins=min(bins, self.draws + 1), level=level)

    @property
    def p_values(self) -> Floats:
        """(Q,) of a chi-squared test of each quantity's ranks."""
        n = len(self.ranks)
        bins = max(2, min(10, n // EXPECTED, self.draws + 1))
        found = []
        for name in self.names:
            check = self.check(name, bins=bins)
            statistic = ((check.counts - check.expected) ** 2 / check.expected).sum()
            found.append(float(chi2.sf(statistic, bins - 1)))
        return np.array(found)

    @property
    def p_value(self) -> float:
        """Of all quantities together: the smallest times their number (Bonferroni)."""
        return float(min(1.0, len(self.names) * self.p_values.min()))

    def table(self) -> str:
        """For each quantity its p-value, the mean rank (½ when unbiased), and how many ranks are in
        the outer tenths on both sides (20 % when uniform; more: the posterior is too narrow)."""
        share = (self.ranks + 0.5) / (self.draws + 1)
        outer = ((share < 0.1) | (share > 0.9)).mean(0)
        rows = [["quantity", "p", "mean rank", "outer fifth %"]]
        rows += [
            [name, f"{p:.3f}", f"{mean:.2f}", f"{100 * out:.0f}"]
            for name, p, mean, out in zip(
                self.names, self.p_values, share.mean(0), outer, strict=True
            )
        ]
        about = f"{len(self.ranks)} simulations, p {self.p_value:.3g} over all quantities"
        if self.warnings:
            about += f"; {self.warnings} fits did not converge"
        return f"{aligned(rows)}\n{about}"

    def __str__(self) -> str:
        return self.table()
