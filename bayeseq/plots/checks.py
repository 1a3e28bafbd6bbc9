"""Pictures that check an inference and a model: ranks, and data drawn from the model."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bayeseq.diagnostics.ranks import RankCheck
from bayeseq.plots.style import BLUE, GREY, SKY, VERMILION, axes_or_new, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Replicated values that are whole numbers get a bar each, up to so many.
MOST_BARS = 40


def plot_sbc_ranks(check: RankCheck, ax: "Axes | None" = None) -> "Axes":
    """How many ranks fall in each bin, with the range in which each bin of uniform ranks would be.

    Bars that rise at both ends: the posterior is too narrow. A hump: too wide. A slope: biased.

    >>> from bayeseq.diagnostics import rank_check
    >>> ax = plot_sbc_ranks(rank_check([0, 1, 2, 3, 3, 3], draws=3, bins=2))
    >>> [int(bar.get_height()) for bar in ax.containers[0]]
    [2, 4]
    """
    ax = axes_or_new(ax, size=(5.0, 3.5))
    edges = check.edges - 0.5
    ax.bar(
        edges[:-1],
        check.counts,
        width=np.diff(edges),
        align="edge",
        color=SKY,
        edgecolor="white",
        label="ranks",
    )
    ax.stairs(check.expected, edges, baseline=None, color=GREY, linestyle="--", label="expected")
    ax.fill_between(
        edges,
        np.append(check.lower, check.lower[-1]),
        np.append(check.upper, check.upper[-1]),
        step="post",
        color=GREY,
        alpha=0.3,
        linewidth=0,
        label=f"{check.level:.0%} of uniform bins",
    )
    ax.set(xlim=(edges[0], edges[-1]), ylim=(0, 1.3 * max(check.counts.max(), check.upper.max())))
    ax.locator_params(axis="y", integer=True)
    ax.set(xlabel=f"rank among {check.draws:,} draws", ylabel="count")
    ax.set_title(f"{check.total:,} ranks of true values")
    ax.legend(loc="upper center", ncols=3, fontsize="small")
    return ax


def plot_sbc_ecdf(check: RankCheck, ax: "Axes | None" = None) -> "Axes":
    """The cumulative share of ranks minus that of uniform ones, with a band for the whole line.

    Unlike the histogram it hangs on no bins, and the band holds everywhere at once.

    >>> from bayeseq.diagnostics import rank_check
    >>> ax = plot_sbc_ecdf(rank_check([0, 1, 2, 3], draws=3, bins=2))
    >>> [float(y) for y in ax.lines[1].get_ydata()]
    [0.0, 0.0, 0.0, 0.0]
    """
    ax = axes_or_new(ax, size=(5.0, 3.5))
    band = check.excess_band
    ax.fill_between(
        check.places,
        -band,
        band,
        step="post",
        color=GREY,
        alpha=0.3,
        linewidth=0,
        label=f"{check.level:.0%} of uniform lines",
    )
    ax.axhline(0, color=GREY, linestyle=":")
    ax.step(check.places, check.excess, where="post", color=BLUE, label="ranks")
    highest = max(np.abs(check.excess).max(), band.max())
    ax.set(xlabel=f"rank among {check.draws:,} draws", ylabel="share up to there − uniform share")
    ax.set(xlim=(0, check.draws), ylim=(-1.1 * highest, 1.4 * highest))
    ax.set_title(f"{check.total:,} ranks: {'within' if check.is_uniform else 'outside'} the band")
    ax.legend(loc="upper center", ncols=2, fontsize="small")
    return ax


def plot_predictive_check(
    observed: float, replicated: npt.ArrayLike, name: str, ax: "Axes | None" = None
) -> "Axes":
    """A number of the real data beside the same number of data that the model made up.

    Args:
        observed: the number of the real data, say how many entities there are.
        replicated: (S,), the same of S data sets drawn from the model.
        name: what the number is.
        ax: where to draw; a new figure by default.

    >>> ax = plot_predictive_check(2, [1, 2, 2, 3], "entities")
    >>> [float(bar.get_height()) for bar in ax.patches], ax.get_title()
    ([1.0, 2.0, 1.0], '75% of 4 replicates are as high or higher')
    """
    values = np.asarray(replicated, dtype=np.float64)
    if values.ndim != 1 or len(values) == 0:
        raise ValueError(f"replicated has shape {values.shape}; expected at least one number")
    if not (np.isfinite(values).all() and np.isfinite(observed)):
        raise ValueError("observed and replicated must be finite numbers")
    ax = axes_or_new(ax, size=(5.0, 3.5))
    bars: dict[str, Any] = {
        "color": SKY,
        "edgecolor": "white",
        "label": "drawn from the model",
    }
    ax.hist(values, bins=_edges(values).tolist(), **bars)
    ax.axvline(observed, color=VERMILION, linewidth=2, label=f"observed: {observed:,.4g}")
    ax.margins(y=0.25)  # room for the legend
    ax.locator_params(axis="y", integer=True)
    ax.set(xlabel=plain(name, most=60), ylabel="replicates")
    higher = np.mean(values >= observed)
    ax.set_title(f"{higher:.0%} of {len(values):,} replicates are as high or higher")
    ax.legend(loc="upper center", ncols=2, fontsize="small")
    return ax


def _edges(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """A bar for each whole number where there are few, else numpy's choice."""
    low, high = values.min(), values.max()
    if (values == np.round(values)).all() and high - low < MOST_BARS:
        return np.arange(low, high + 2) - 0.5
    edges = np.histogram_bin_edges(values, bins="auto")
    if len(edges) > MOST_BARS + 1:
        edges = np.histogram_bin_edges(values, bins=MOST_BARS)
    return edges
