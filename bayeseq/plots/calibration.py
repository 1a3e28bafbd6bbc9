"""Pictures of calibration."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeseq.diagnostics.reliability import ENTITIES, TOP_LABEL, ReliabilityCurve
from bayeseq.plots.style import (
    BLUE,
    GREY,
    MOST_BANDS,
    ORANGE,
    axes_or_new,
    look,
    marker,
    named,
    plain,
    show_log_percent,
    show_percent,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The tallest bar of the token shares, in units of the accuracy axis.
BAR_HEIGHT = 0.2

# Small multiples: labels shown, and panels side by side.
MOST_PANELS, PANELS_ACROSS = 12, 3


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
        ax.set_title(f"Reliability, {plain(name)}: ECE {curve.ece:.1%}")
    else:
        bands = len(by_name) <= MOST_BANDS
        for number, (name, curve) in enumerate(by_name.items()):
            if bands:
                _draw_band(curve, number, ax)
            _draw_line(curve, number, f"{plain(name)}, ECE {curve.ece:.1%}", ax)
        levels = sorted({f"{curve.level:.0%}" for curve in by_name.values()})
        ax.set_title(f"Reliability with {', '.join(levels)} bands" if bands else "Reliability")
    tops = all(map(_is_answer, by_name.values()))
    # A little room keeps the marks at 0 and 1 whole.
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    ax.set_xlabel("confidence" if tops else "probability of the label")
    ax.set_ylabel("accuracy" if tops else "share that bears the label")
    ax.legend(loc="upper left", fontsize="small")
    show_percent(ax.xaxis)
    show_percent(ax.yaxis)
    return ax


def plot_reliability_by_label(
    curves: Mapping[str, ReliabilityCurve], axes: "Sequence[Axes] | None" = None
) -> "list[Axes]":
    """A small reliability plot for each label, where many would hide each other in one.

    `curves` is what `reliability_by_label` gives. At most twelve labels are shown, those expected
    to be most frequent. Returns an Axes a label, in the order of `curves`; `axes` must have one for
    each label shown.

    >>> from bayeseq.diagnostics import reliability_by_label
    >>> curves = reliability_by_label([["O", "B"]], [[[0.2, 0.8], [0.9, 0.1]]], ["B", "O"])
    >>> [ax.get_title() for ax in plot_reliability_by_label(curves)]
    ['B: ECE 15.0%', 'O: ECE 15.0%']
    """
    by_name: dict[str, ReliabilityCurve] = named(curves)
    mass = {name: np.nansum(curve.confidence * curve.counts) for name, curve in by_name.items()}
    frequent = sorted(by_name, key=lambda name: -mass[name])[:MOST_PANELS]
    shown = [name for name in by_name if name in frequent]
    panels = _panels(len(shown)) if axes is None else list(axes)
    if len(panels) != len(shown):
        raise ValueError(f"there are {len(panels)} axes for {len(shown)} labels")
    for name, ax in zip(shown, panels, strict=True):
        curve = by_name[name]
        ax.plot([0, 1], [0, 1], color=GREY, linestyle=":")
        _draw_shares(curve, ax)
        _draw_band(curve, 0, ax)
        _draw_line(curve, 0, name, ax)
        ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        ax.set_title(f"{plain(name, most=12)}: ECE {curve.ece:.1%}", fontsize="medium")
        show_percent(ax.xaxis)
        show_percent(ax.yaxis)
    if axes is None:
        figure = panels[0].figure
        figure.supxlabel("probability of the label", fontsize="medium")
        figure.supylabel("share that bears the label", fontsize="medium")
    return panels


def plot_confidence_histogram(
    curves: ReliabilityCurve | Mapping[str, ReliabilityCurve], ax: "Axes | None" = None
) -> "Axes":
    """How many tokens have which confidence, and how many of those are right.

    Several curves, a dict by name, are drawn as outlines: the share of tokens in each bin, on a
    logarithmic axis, since most tokens of a tagger are in the last bin.

    >>> from bayeseq.diagnostics import reliability
    >>> curve = reliability([["O", "B"]], [[[0.2, 0.8], [0.9, 0.1]]], ["B", "O"])
    >>> plot_confidence_histogram(curve).get_ylabel()
    'tokens'
    >>> plot_confidence_histogram({"CRF": curve, "GPSL": curve}).get_ylabel()
    'share of tokens'
    """
    by_name = named(curves)
    ax = axes_or_new(ax, size=(5.0, 3.5))
    top = all(map(_is_answer, by_name.values()))
    units = " or ".join(sorted({_units(curve) for curve in by_name.values()}))
    if len(by_name) == 1:
        _draw_right_and_wrong(*next(iter(by_name.items())), ax)
    else:
        for number, (name, curve) in enumerate(by_name.items()):
            shares = curve.counts / curve.counts.sum()
            ax.stairs(shares, curve.edges, label=plain(name), linewidth=1.8, **look(number))
        ax.set_yscale("log")
        # Outlines end above the axis where a bin is empty.
        ax.set_ylim(bottom=0.5 / max(curve.counts.sum() for curve in by_name.values()))
        ax.set(ylabel=f"share of {units}", title=f"{units.capitalize()} by confidence")
        show_log_percent(ax.yaxis)
    ax.set(xlim=(0, 1), xlabel="confidence" if top else "probability of the label")
    ax.legend(loc="best", fontsize="small")
    show_percent(ax.xaxis)
    return ax


def _is_answer(curve: ReliabilityCurve) -> bool:
    """Whether the curve judges what the model answers, not the probability of one label."""
    return curve.label in (TOP_LABEL, ENTITIES)


def _units(curve: ReliabilityCurve) -> str:
    return "entities" if curve.label == ENTITIES else "tokens"


def _draw_right_and_wrong(name: str, curve: ReliabilityCurve, ax: "Axes") -> None:
    # An empty bin has no accuracy, and no token to be right.
    right = curve.counts * np.nan_to_num(curve.accuracy)
    wrong = curve.counts - right
    top = _is_answer(curve)
    yes, no = ("right", "wrong") if top else (plain(curve.label), "another label")
    x = curve.edges[:-1]
    bars: dict[str, Any] = {"width": np.diff(curve.edges), "align": "edge", "edgecolor": "white"}
    ax.bar(x, right, color=BLUE, label=yes, **bars)
    ax.bar(x, wrong, bottom=right, color=ORANGE, hatch="///", label=no, **bars)
    total = int(curve.counts.sum())
    title = f"{total:,} {_units(curve)} by confidence: {right.sum() / total:.1%} {yes}"
    ax.set(ylabel=_units(curve), title=f"{plain(name)}, {title}" if name else title)


def _panels(count: int) -> "list[Axes]":
    """So many axes of a new figure, row by row."""
    from matplotlib import pyplot

    across = min(count, PANELS_ACROSS)
    down = -(-count // across)
    size = (max(3.0, 2.0 * across), 0.6 + 1.9 * down)
    figure, grid = pyplot.subplots(
        down, across, figsize=size, layout="constrained", sharex=True, sharey=True, squeeze=False
    )
    for spare in grid.flat[count:]:
        figure.delaxes(spare)
    for lowest in grid.flat[max(count - across, 0) : count]:
        lowest.tick_params(labelbottom=True)
    return list(grid.flat[:count])


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
        label=f"share of {_units(curve)}, highest {shares.max():.0%}",
    )
