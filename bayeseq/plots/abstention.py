"""Pictures of abstention."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from bayeseq.diagnostics.abstention import RiskCoverage
from bayeseq.plots.style import (
    GREY,
    MOST_BANDS,
    axes_or_new,
    look,
    named,
    plain,
    plural,
    show_percent,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Below this coverage a handful of cases decide the risk: they do not set the height of the picture.
STEADY_COVERAGE = 0.05


def plot_risk_coverage(
    curves: RiskCoverage | Mapping[str, RiskCoverage], ax: "Axes | None" = None
) -> "Axes":
    """The error rate among the cases kept, against the share kept, with its band.

    A single curve comes with the best possible one and with the level of a random order; several,
    a dict by name, share the axes; more than four go without bands.

    >>> from bayeseq.diagnostics import risk_coverage
    >>> curve = risk_coverage([["O", "B"]], [[[0.2, 0.8], [0.4, 0.6]]], ["B", "O"])
    >>> plot_risk_coverage(curve).get_xlabel()
    'coverage: share of tokens kept'
    """
    by_name = named(curves)
    units = {curve.unit for curve in by_name.values()}
    if len(units) != 1:
        raise ValueError(f"curves of different units cannot share axes: {sorted(units)}")
    ax = axes_or_new(ax)
    for number, (name, curve) in enumerate(by_name.items()):
        text = f"observed, {curve.level:.0%} band"
        if name:
            text = f"{plain(name)}, AURC {curve.aurc:.4f}"
        _draw_curve(curve, number, text, ax, with_band=len(by_name) <= MOST_BANDS)
    first = next(iter(by_name.values()))
    if len(by_name) == 1:
        _draw_references(first, ax)
        name = plain(next(iter(by_name)))
        ax.set_title(f"Risk and coverage{', ' + name if name else ''}: AURC {first.aurc:.4f}")
        ax.legend(loc="center left", fontsize="small")
    else:
        ax.set_title("Risk and coverage")
        ax.legend(loc="upper left", fontsize="small")
    ax.set(xlim=(0, 1), ylim=(0, 1.1 * max(map(_height, by_name.values()), default=1)))
    ax.set_xlabel(f"coverage: share of {plural(first.unit)} kept")
    ax.set_ylabel(f"risk: {first.unit} error among those kept")
    show_percent(ax.xaxis)
    show_percent(ax.yaxis)
    return ax


def plot_abstention(curve: RiskCoverage, ax: "Axes | None" = None) -> "Axes":
    """What a confidence threshold does: precision and recall of the answers that are kept, and the
    share that is. [gpsc], figure 1c.

    >>> from bayeseq.diagnostics import risk_coverage
    >>> curve = risk_coverage([["O", "B"]], [[[0.2, 0.8], [0.4, 0.6]]], ["B", "O"])
    >>> plot_abstention(curve).get_xlabel()
    'answers are kept from this confidence on'
    """
    ax = axes_or_new(ax)
    lines = {
        "precision: right among those kept": curve.precision,
        "recall: kept among the right ones": curve.recall,
        f"share of {plural(curve.unit)} kept": curve.coverage,
    }
    for number, (text, values) in enumerate(lines.items()):
        ax.step(curve.threshold, values, where="post", label=text, **look(number))
    ax.set_xlabel("answers are kept from this confidence on")
    ax.set_ylabel("share")
    ax.set_title("What abstaining gains and costs")
    ax.legend(loc="lower left", fontsize="small")
    show_percent(ax.xaxis)
    show_percent(ax.yaxis)
    return ax


def _draw_curve(curve: RiskCoverage, number: int, text: str, ax: "Axes", with_band: bool) -> None:
    style = look(number)
    if with_band:
        x, color = curve.band_coverage, style["color"]
        ax.fill_between(x, curve.lower, curve.upper, color=color, alpha=0.2, linewidth=0)
    ax.plot(curve.coverage, curve.risk, label=text, **style)


def _draw_references(curve: RiskCoverage, ax: "Axes") -> None:
    ax.axhline(curve.error, color=GREY, linestyle=":", label="random order")
    grid = np.linspace(0.001, 1, 1000)
    ax.plot(grid, curve.oracle_risk(grid), color=GREY, linestyle="--", label="perfect order")


def _height(curve: RiskCoverage) -> float:
    """The highest risk that must be seen; 1 where there is none at all."""
    risks = np.concatenate(
        [
            curve.risk[curve.coverage >= STEADY_COVERAGE],
            curve.upper[curve.band_coverage >= STEADY_COVERAGE],
        ]
    )
    return float(np.nanmax(risks)) or 1.0
