"""Pictures of what a person's reading buys."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from bayeseq.diagnostics.review import ReviewBudget
from bayeseq.plots.style import (
    GREY,
    MOST_BANDS,
    axes_or_new,
    look,
    marker,
    named,
    plain,
    plural,
    show_percent,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_review_budget(
    plans: ReviewBudget | Mapping[str, ReviewBudget], ax: "Axes | None" = None
) -> "Axes":
    """The error rate of what nobody reads, against the share that a person reads, with its band.

    The person takes the least confident cases. The dotted line is what reading at random would
    leave. Several plans, a dict by name, share the axes: two models, or one plan with errors
    counted and one with errors expected.

    >>> from bayeseq.diagnostics import review_budget
    >>> proba = [[[0.9, 0.1], [0.6, 0.4]], [[0.2, 0.8], [0.3, 0.7]]]
    >>> ax = plot_review_budget(review_budget(None, proba, ["B", "O"], budget=[0, 0.25]))
    >>> ax.get_title()
    'Reading 25.0% of the tokens finds 40% of the errors'
    """
    by_name = named(plans)
    units = {plan.unit for plan in by_name.values()}
    if len(units) != 1:
        raise ValueError(f"plans of different units cannot share axes: {sorted(units)}")
    unit = plural(units.pop())
    ax = axes_or_new(ax)
    for number, (name, plan) in enumerate(by_name.items()):
        order = np.argsort(plan.share)
        share, style = plan.share[order], look(number)
        ax.axhline(plan.error, color=style["color"] if len(by_name) > 1 else GREY, linestyle=":")
        if len(by_name) <= MOST_BANDS and not np.isnan(plan.lower).all():
            low, high = plan.lower[order], plan.upper[order]
            ax.fill_between(share, low, high, color=style["color"], alpha=0.2, linewidth=0)
        text = plain(name) or ("errors counted" if plan.labelled else "errors expected")
        ax.plot(share, plan.error_left[order], marker=marker(number), label=text, **style)
    ax.plot([], [], color=GREY, linestyle=":", label="reading at random")
    if len(by_name) == 1:
        last = int(plan.share.argmax())
        gain = f"{plan.share[last]:.1%} of the {unit} finds {plan.found_share[last]:.0%}"
        ax.set_title(f"Reading {gain} of the errors")
    else:
        ax.set_title("What reading the most doubtful buys")
    ax.set(xlabel=f"share of {unit} that a person reads", ylabel="error among the rest")
    ax.set_ylim(bottom=0)
    ax.legend(loc="best", fontsize="small")
    show_percent(ax.xaxis)
    show_percent(ax.yaxis)
    return ax
