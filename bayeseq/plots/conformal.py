"""Pictures of label sets: is the truth in them as often as promised, and how large are they?"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeseq.diagnostics.conformal import CoverageScores
from bayeseq.plots.style import BLUE, GREY, axes_or_new, show_percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_coverage(scores: Mapping[float, CoverageScores], ax: "Axes | None" = None) -> "Axes":
    """The share of truths that sets hold against the share promised, with the mean size of a set.

    `scores` has the record of each `alpha`, the share of misses allowed. A promise is kept on or
    above the dotted line; the bars are the bands over sentences. Far above the line are models that
    err less often than they may.

    >>> from bayeseq.diagnostics import score_sets
    >>> ax = plot_coverage({0.2: score_sets([["A"], ["B"]], [[{"A"}], [{"A", "B"}]])})
    >>> [text.get_text() for text in ax.texts]
    ['1.50 labels']
    """
    if not scores:
        raise ValueError("nothing to plot: there is no record")
    units = {record.guarantee for record in scores.values()}
    if len(units) != 1:
        raise ValueError(f"records of different guarantees cannot share axes: {sorted(units)}")
    ax = axes_or_new(ax)
    order = sorted(scores, reverse=True)
    records = [scores[alpha] for alpha in order]
    x, y = 1 - np.array(order), np.array([record.coverage for record in records])
    bars = [y - [record.lower for record in records], [record.upper for record in records] - y]
    low = min(x.min(), float(np.min(y - np.nan_to_num(bars[0]))))
    room = 0.06 * (1 - low) or 0.01
    ax.plot([low - room, 1], [low - room, 1], color=GREY, linestyle=":", label="promised")
    name = f"observed, {records[0].level:.0%} band"
    looks: dict[str, Any] = {
        "marker": "o",
        "markersize": 5,
        "capsize": 3,
        "color": BLUE,
        "linestyle": "-",
    }
    ax.errorbar(x, y, yerr=np.nan_to_num(bars), label=name, **looks)
    for number, (place, record) in enumerate(zip(x, records, strict=True)):
        left = number % 2 == 0  # neighbours write to different sides
        ax.annotate(
            f"{record.mean_size:.2f} labels",
            (place, record.coverage),
            xytext=(-6, 4) if left else (6, -4),
            textcoords="offset points",
            ha="right" if left else "left",
            va="bottom" if left else "top",
            fontsize="x-small",
        )
    across = 1 - x.min()
    ax.set(xlim=(x.min() - 0.25 * across, 1 + 0.15 * across), ylim=(low - room, 1 + room))
    ax.set_xticks(x, [f"{100 * share:g}%" for share in x.round(6)], fontsize="small")
    unit = records[0].guarantee
    what = "tokens with their label in their set" if unit == "token" else "sentences all covered"
    ax.set(xlabel="share promised", ylabel=what, title=f"Coverage of label sets, by {unit}")
    ax.legend(loc="lower right", fontsize="small")
    show_percent(ax.yaxis)
    return ax
