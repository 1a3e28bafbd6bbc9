"""Are ranks uniform? What simulation-based calibration asks of an inference.

Draw weights from the prior and labels from those weights, infer the weights from the labels, and
count how many of `draws` posterior draws lie below the true weight. If the inference is right, that
rank is uniform on 0, 1, ..., draws (Talts and others 2018, arXiv:1804.06788).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from bayeseq.data.errors import DataError
from bayeseq.diagnostics.tokens import Floats, Ints

# Places at which the cumulative shares are compared, and simulations behind their band.
MOST_PLACES = 100
SIMULATIONS = 2000


@dataclass(frozen=True, eq=False)
class RankCheck:
    """Counts and cumulative shares of ranks, with what uniform ranks would do.

    Attributes:
        total: the number n of ranks.
        draws: a rank is one of 0, 1, ..., draws.
        edges: (K + 1,), bin k holds the ranks from edges[k] up to but not including edges[k + 1].
        counts, expected: (K,), found and expected number of ranks in each bin.
        lower, upper: (K,), each bin for itself is between them with probability `level` or more.
        places: (G,), ranks at which the cumulative share is looked at.
        excess: (G,), the share of ranks up to there, minus the uniform one.
        excess_band: (G,), all of `excess` at once is between ± this with probability `level`.
        level: the probability of the bands.
    """

    total: int
    draws: int
    edges: Ints
    counts: Ints
    expected: Floats
    lower: Floats
    upper: Floats
    places: Ints
    excess: Floats
    excess_band: Floats
    level: float

    @property
    def is_uniform(self) -> bool:
        """Whether the cumulative shares stay within their band everywhere."""
        # Shares are multiples of 1 / n and often meet the band: rounding must not decide.
        return bool((np.abs(self.excess) <= self.excess_band + 1e-12).all())


def rank_check(
    ranks: npt.ArrayLike,
    draws: int,
    *,
    bins: int = 10,
    level: float = 0.95,
    random_state: int | np.random.Generator | None = 0,
) -> RankCheck:
    """Compare ranks with uniform ones, by bins and by cumulative shares.

    Args:
        ranks: (n,), whole numbers from 0 to `draws`.
        draws: the number of posterior draws among which each rank was counted.
        bins: the number of bins, at most draws + 1.
        level: the probability that uniform ranks keep within the bands.
        random_state: seed or numpy Generator of the simulation behind the cumulative band.

    >>> check = rank_check([0, 1, 2, 3, 3, 3], draws=3, bins=2)
    >>> check.counts, check.expected
    (array([2, 4]), array([3., 3.]))
    """
    values = _ranks(ranks, draws)
    if not 1 <= bins <= draws + 1:
        raise ValueError(f"bins must be between 1 and draws + 1 = {draws + 1}, not {bins}")
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, not {level!r}")
    n = len(values)
    # The first rank of each bin: bins hold equally many of the draws + 1 ranks, or one more.
    edges = -(np.arange(bins + 1) * -(draws + 1) // bins)
    share = np.diff(edges) / (draws + 1)
    places = np.unique(np.linspace(0, draws, min(MOST_PLACES, draws + 1)).astype(np.int64))
    uniform = (places + 1) / (draws + 1)
    found = (values[:, None] <= places).mean(0)
    return RankCheck(
        total=n,
        draws=draws,
        edges=edges,
        counts=np.histogram(values, edges - 0.5)[0],
        expected=n * share,
        lower=binom.ppf((1 - level) / 2, n, share),
        upper=binom.ppf((1 + level) / 2, n, share),
        places=places,
        excess=found - uniform,
        excess_band=_band(n, uniform, level, np.random.default_rng(random_state)),
        level=level,
    )


def _ranks(ranks: npt.ArrayLike, draws: int) -> Ints:
    values = np.asarray(ranks)
    if values.ndim != 1 or len(values) == 0:
        raise DataError(f"ranks has shape {values.shape}; expected a list of at least one rank")
    if draws < 1:
        raise ValueError(f"draws must be at least 1, not {draws}")
    good = (values == np.floor(values)) & (values >= 0) & (values <= draws)
    if not good.all():
        first = int(np.flatnonzero(~good)[0])
        raise DataError(
            f"ranks: entry {first} (from 0) is {values[first]}; a rank among {draws} draws is a "
            f"whole number from 0 to {draws}"
        )
    return values.astype(np.int64)


def _band(n: int, uniform: Floats, level: float, rng: np.random.Generator) -> Floats:
    """Half-widths (G,) in proportion to the standard deviation of the cumulative share, as wide as
    it takes for `level` of simulated uniform ranks to stay inside everywhere."""
    cells = np.diff(uniform, prepend=0.0)
    cells /= cells.sum()
    share = rng.multinomial(n, cells, size=SIMULATIONS).cumsum(axis=1) / n
    sd = np.sqrt(uniform * (1 - uniform) / n)
    off = np.abs(share - uniform)[:, sd > 0] / sd[sd > 0]
    return float(np.quantile(off.max(axis=1, initial=0.0), level, method="higher")) * sd
