"""Error as labels are added."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bayeseq.diagnostics.learning import LearningCurve
from bayeseq.plots.style import GREY, axes_or_new, look, marker, named, show_percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_learning_curves(
    curves: LearningCurve | Mapping[str, LearningCurve],
    target: float | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """A line for each way to choose what to annotate: the mean error over runs, with a band of one
    standard error to each side; `target` is a dashed line, the error with all labels.

    >>> from bayeseq.diagnostics.learning import learning_curve
    >>> curve = learning_curve([0.1, 1.0], [[0.05, 0.04], [0.07, 0.04]])
    >>> ax = plot_learning_curves({"random": curve}, target=0.04)
    >>> [round(float(y), 3) for y in ax.lines[0].get_ydata()]
    [0.06, 0.04]
    """
    ax = axes_or_new(ax)
    for number, (name, curve) in enumerate(named(curves).items()):
        style = look(number)
        ax.plot(curve.share, curve.mean, marker=marker(number), ms=4, label=name or None, **style)
        ax.fill_between(
            curve.share,
            curve.mean - curve.standard_error,
            curve.mean + curve.standard_error,
            color=style["color"],
            alpha=0.15,
            linewidth=0,
        )
    if target is not None:
        ax.axhline(target, color=GREY, linestyle="--", linewidth=1, label="all labels")
    show_percent(ax.xaxis)
    show_percent(ax.yaxis)
    ax.set_xlabel("labelled tokens of the pool")
    ax.set_ylabel("error on the test part")
    if any(named(curves)) or target is not None:
        ax.legend(frameon=False, fontsize="small")
    return ax
