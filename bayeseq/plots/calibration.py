"""Pictures of calibration."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeseq.diagnostics.calibration import TOP_LABEL, ReliabilityCurve
from bayeseq.plots.style import (
    BLUE,
    GREY,
    ORANGE,
    axes_or_new,
    look,
    marker,
    named,
    show_percent,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The tallest bar of the token shares, in units of the accuracy axis.
BAR_HEIGHT = 0.2

# More bands than this hide each other.
MOST_BANDS = 4


def plot_reliability(
    curves: ReliabilityCurve | Sequence[ReliabilityCurve] | Mapping[str, ReliabilityCurve],
    ax: "Axes | None" = None,
) -> "Axes":
    """Accuracy against confidence with its band; on the diagonal, probabilities mean what they say.

    A single curve stands over light bars that show where the tokens are. Several curves, a list
    (named by their labels) or a dict by name, share the axes; more than four go without bands.
    Empty bins are left out.

    >>> from bayeseq.diagnostics import reliability
    >>> curve = reliability([["O", "B"]], [[[0.2, 0.8], [0.9, 0.1]]], ["B", "O"])
    >>> plot_reliability(curve).get_title()
    'Reliability, top label: ECE 15.0%'
    """
    by_name = _by_name(curves)
    ax = axes_or_new(ax)
    ax.plot([0, 1], [0, 1], color=GREY, linestyle=":", label="perfect")
    if len(by_name) == 1:
        curve = next(iter(by_name.values()))
        _draw_shares(curve, ax)
        _draw_band(curve, 0, ax)
        _draw_line(curve, 0, f"observed, {curve.level:.0%} band", ax)
        name = next(iter(by_name)) or curve.label
        ax.set_title(f"Reliability, {name}: ECE {curve.ece:.1%}")
    else:
        bands = len(by_name) <= MOST_BANDS
        for number, (name, curve) in enumerate(by_name.items()):
            if bands:
                _draw_band(curve, number, ax)
            _draw_line(curve, number, f"{name}, ECE {curve.ece:.1%}", ax)
        levels = sorted({f"{curve.level:.0%}" for curve in by_name.values()})
        ax.set_title(f"Reliability with {', '.join(levels)} bands" if bands else "Reliability")
    tops = all(curve.label == TOP_LABEL for curve in by_name.values())
    # A little room keeps the marks at 0 and 1 whole.
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    ax.set_xlabel("confidence" if tops else "probability of the label")
    ax.set_ylabel("accuracy" if tops else "share that bears the label")
    ax.legend(loc="upper left", fontsize="small")
    show_percent(ax.xaxis)
    show_percent(ax.yaxis)
    return ax


def plot_confidence_histogram(curve: ReliabilityCurve, ax: "Axes | None" = None) -> "Axes":
    """How many tokens have which confidence, and how many of those are right.

    >>> from bayeseq.diagnostics import reliability
    >>> curve = reliability([["O", "B"]], [[[0.2, 0.8], [0.9, 0.1]]], ["B", "O"])
    >>> plot_confidence_histogram(curve).get_ylabel()
    'tokens'
    """
    ax = axes_or_new(ax, size=(5.0, 3.5))
    # An empty bin has no accuracy, and no token to be right.
    right = curve.counts * np.nan_to_num(curve.accuracy)
    wrong = curve.counts - right
    top = curve.label == TOP_LABEL
    yes, no = ("right", "wrong") if top else (curve.label, "another label")
    x = curve.edges[:-1]
    bars: dict[str, Any] = {"width": np.diff(curve.edges), "align": "edge", "edgecolor": "white"}
    ax.bar(x, right, color=BLUE, label=yes, **bars)
    ax.bar(x, wrong, bottom=right, color=ORANGE, hatch="///", label=no, **bars)
    total = int(curve.counts.sum())
    ax.set_title(f"{total:,} tokens by confidence: {right.sum() / total:.1%} {yes}")
    ax.set(xlim=(0, 1), ylabel="tokens", xlabel="confidence" if top else "probability of the label")
    ax.legend(loc="best", fontsize="small")
    show_percent(ax.xaxis)
    return ax


def _by_name(
    curves: ReliabilityCurve | Sequence[ReliabilityCurve] | Mapping[str, ReliabilityCurve],
) -> dict[str, ReliabilityCurve]:
    if isinstance(curves, ReliabilityCurve | Mapping):
        return named(curves)
    by_label = {curve.label: curve for curve in curves}
    if len(by_label) < len(curves):
        raise ValueError("two curves have the same label; pass a dict with a name for each")
    return named(by_label)


def _draw_band(curve: ReliabilityCurve, number: int, ax: "Axes") -> None:
    full = curve.counts > 0
    ax.fill_between(
        curve.confidence[full],
        curve.lower[full],
        curve.upper[full],
        color=look(number)["color"],
        alpha=0.2,
        linewidth=0,
    )


def _draw_line(curve: ReliabilityCurve, number: int, text: str, ax: "Axes") -> None:
    full = curve.counts > 0
    x, y = curve.confidence[full], curve.accuracy[full]
    ax.plot(x, y, marker=marker(number), markersize=4, label=text, **look(number))


def _draw_shares(curve: ReliabilityCurve, ax: "Axes") -> None:
    shares = curve.counts / curve.counts.sum()
    ax.bar(
        curve.edges[:-1],
        BAR_HEIGHT * shares / shares.max(),
        width=np.diff(curve.edges),
        align="edge",
        color=GREY,
        alpha=0.3,
        edgecolor="white",
        label=f"share of tokens, highest {shares.max():.0%}",
    )
