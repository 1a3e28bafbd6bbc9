"""Error as training labels go missing."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bayeseq.plots.style import axes_or_new, look, marker, plain, show_percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_missing_labels(
    fractions: npt.ArrayLike,
    errors: Mapping[str, npt.ArrayLike],
    ax: "Axes | None" = None,
) -> "Axes":
    """A line for each way to learn from incomplete labels: the mean error over splits.

    `fractions` (F,) are the shares of labels that were missing; `errors` holds, by name, the errors
    (splits, F) as shares.

    >>> ax = plot_missing_labels([0.0, 0.5], {"GPSL1": [[0.05, 0.06], [0.04, 0.06]]})
    >>> [float(y) for y in ax.lines[0].get_ydata()]
    [0.045, 0.06]
    """
    if not errors:
        raise ValueError("nothing to plot: there are no errors")
    ax = axes_or_new(ax)
    x = np.asarray(fractions, dtype=float)
    for number, (name, values) in enumerate(errors.items()):
        mean = np.asarray(values, dtype=float).mean(0)
        ax.plot(x, mean, marker=marker(number), label=plain(name), **look(number))
    show_percent(ax.xaxis)
    show_percent(ax.yaxis)
    ax.set_xlabel("training labels missing")
    ax.set_ylabel("error on the test part")
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False, fontsize="small")
    return ax
