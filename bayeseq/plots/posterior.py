"""Pictures of the posterior over weights."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bayeseq.diagnostics.posterior import TransitionPosterior, WeightPosterior
from bayeseq.plots.style import (
    DASHES,
    GREY,
    SIGNED,
    axes_or_new,
    ink_on,
    label_looks,
    marker,
    matrix_ticks,
    plain,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

# With more labels than this the numbers in the cells cannot be read.
MOST_CELLS_WITH_TEXT = 9

PLACES = {-1: "label before", 1: "label after"}


def plot_transitions(record: TransitionPosterior, ax: "Axes | None" = None) -> "Axes":
    """The weight of each label beside each neighbour's label, with its uncertainty.

    Colour, and the upper number, is the mean over draws; the lower number is the standard
    deviation. A cell is hatched where the interval holds 0: the data did not even settle the sign.

    >>> from bayeseq.diagnostics import transition_posterior
    >>> found = transition_posterior([[[1.0, 0.0]] * 2, [[3.0, 0.0]] * 2], ["B", "O"])
    >>> [text.get_text() for text in plot_transitions(found).texts][:2]
    ['2.0\\n±1.4', '0.0\\n±0.0']
    """
    labels, side = record.labels, 2.0 + 0.42 * len(record.labels)
    ax = axes_or_new(ax, size=(float(np.clip(side + 1, 5, 12)), float(np.clip(side, 4, 11))))
    most = float(np.abs(record.mean).max()) or 1.0
    image = ax.imshow(record.mean, cmap=SIGNED, vmin=-most, vmax=most)
    ax.figure.colorbar(image, ax=ax, label="mean weight", shrink=0.8)
    if record.undecided.any():
        _hatch(ax, record.undecided)
    if len(labels) <= MOST_CELLS_WITH_TEXT:
        for row, column in np.ndindex(record.mean.shape):
            mean, sd = record.mean[row, column], record.sd[row, column]
            ax.text(
                column,
                row,
                f"{mean:.1f}\n±{sd:.1f}",
                ha="center",
                va="center",
                fontsize="x-small",
                color=ink_on(*image.cmap(image.norm(mean))[:3]),
            )
    matrix_ticks(ax, labels)
    ax.set_xlabel(f"label (hatched: {record.level:.0%} interval holds 0)")
    ax.set_ylabel(PLACES.get(record.offset, f"label at offset {record.offset:+d}"))
    ax.set_title("Weights of label pairs: mean ± sd")
    return ax


def plot_weights(record: WeightPosterior, top: int = 15, ax: "Axes | None" = None) -> "Axes":
    """The `top` largest weights with their intervals, by feature, one colour a label.

    A weight counts by the size of its mean. Features come in the order of their largest weight;
    weights of one feature share its row. A dot is filled where the interval leaves out 0.

    >>> from bayeseq.diagnostics import weight_posterior
    >>> found = weight_posterior([[[1.0, 0.0]], [[3.0, 0.0]]], ["w=the"], ["B", "O"])
    >>> ax = plot_weights(found, top=1)
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['w=the']
    """
    if top < 1:
        raise ValueError(f"top must be at least 1, not {top}")
    rows = _largest(record, top)
    number = sum(map(len, rows.values()))
    ax = axes_or_new(ax, size=(5.5, float(np.clip(1.2 + 0.22 * number, 2.5, 12))))
    ax.axvline(0, color=GREY, linestyle=":", zorder=1)
    shown = [record.labels[c] for c in sorted({c for row in rows.values() for c in row})]
    looks = label_looks(shown, record.labels)
    dots: dict[str, Artist] = {}
    place, ticks = 0.0, []
    for feature, labels in rows.items():
        ticks.append(place + (len(labels) - 1) / 2)
        for c in labels:
            name = record.labels[c]
            dots[name] = _draw_weight(record, feature, c, place, looks[name], ax)
            place += 1
        place += 0.6  # a gap between features
    ax.set_yticks(ticks, [plain(record.features[feature]) for feature in rows], fontsize="small")
    ax.invert_yaxis()
    ax.set_xlabel(f"weight: mean and {record.level:.0%} interval")
    ax.set_title(f"The {number} largest weights")
    ax.legend(
        [dots[name] for name in shown],
        [plain(name) for name in shown],
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        fontsize="small",
    )
    return ax


def _largest(record: WeightPosterior, top: int) -> dict[int, list[int]]:
    """The `top` weights with the largest means: features, largest first, each with its labels."""
    rows: dict[int, list[int]] = {}
    for cell in np.argsort(-np.abs(record.mean), axis=None, kind="stable")[:top]:
        feature, label = divmod(int(cell), len(record.labels))
        rows.setdefault(feature, []).append(label)
    return {feature: sorted(labels) for feature, labels in rows.items()}


def _draw_weight(
    record: WeightPosterior, feature: int, label: int, y: float, look: dict[str, Any], ax: "Axes"
) -> "Artist":
    color = look["color"]
    low, high = record.lower[feature, label], record.upper[feature, label]
    ax.plot([low, high], [y, y], color=color, linewidth=1.8, zorder=2)
    (dot,) = ax.plot(
        record.mean[feature, label],
        y,
        color=color,
        marker=marker(DASHES.index(look["linestyle"])),  # labels of one colour differ
        markersize=5,
        markerfacecolor="white" if low <= 0 <= high else color,
        linestyle="",
        zorder=3,
    )
    return dot


def _hatch(ax: "Axes", cells: npt.NDArray[np.bool_]) -> None:
    """Hatch the true cells of a matrix (C, C), all in one path: a patch for each is slow."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    square = np.array([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5], [-0.5, -0.5]])
    places = np.argwhere(cells)[:, ::-1]  # x is the column
    squares = [Path(square + place, closed=True) for place in places]
    looks: dict[str, Any] = {"fill": False, "hatch": "///", "edgecolor": "#C8C8C8", "linewidth": 0}
    ax.add_patch(PathPatch(Path.make_compound_path(*squares), **looks))
