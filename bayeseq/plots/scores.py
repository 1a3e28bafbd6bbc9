"""Pictures of label and entity scores."""

from typing import TYPE_CHECKING, Any

import numpy as np

from bayeseq.diagnostics.confidence import ConfusionConfidence
from bayeseq.diagnostics.scores import Confusion, EntityScores
from bayeseq.plots.style import (
    BLACK,
    GREY,
    SHARES,
    SKY,
    VERMILION,
    axes_or_new,
    ink_on,
    matrix_ticks,
    plain,
    show_percent,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import Patch

# With more labels than this the counts in the cells of a confusion matrix cannot be read.
MOST_CELLS_WITH_TEXT = 20
MOST_CELLS_WITH_TWO_LINES = 15


def plot_confusion(record: Confusion, ax: "Axes | None" = None) -> "Axes":
    """True labels in rows, predicted in columns; colour is the share of the row, text the count.

    Shares keep rare labels visible beside a frequent one.

    >>> from bayeseq.diagnostics import confusion
    >>> plot_confusion(confusion([["O", "B", "B"]], [["O", "O", "B"]])).get_xlabel()
    'predicted label'
    """
    labels = record.labels
    ax = axes_or_new(ax, size=_size(len(labels)))
    # Labels that are never true have an empty row.
    shares = record.counts / np.maximum(record.counts.sum(axis=1, keepdims=True), 1)
    image = ax.imshow(shares, cmap=SHARES, vmin=0, vmax=1)
    bar = ax.figure.colorbar(image, ax=ax, label="share of the true label", shrink=0.8)
    show_percent(bar.ax.yaxis)
    if len(labels) <= MOST_CELLS_WITH_TEXT:
        for row, column in np.argwhere(record.counts > 0):
            ax.text(
                column,
                row,
                f"{record.counts[row, column]:,}",
                ha="center",
                va="center",
                fontsize="small",
                color=ink_on(*image.cmap(float(shares[row, column]))[:3]),
            )
    matrix_ticks(ax, labels)
    right = np.trace(record.counts) / record.counts.sum()
    ax.set(xlabel="predicted label", ylabel="true label")
    ax.set_title(f"Confusion: {right:.1%} of {record.counts.sum():,} tokens right")
    return ax


def plot_confusion_confidence(record: ConfusionConfidence, ax: "Axes | None" = None) -> "Axes":
    """The confusion matrix with how sure the answers of each cell were.

    True labels in rows, predicted in columns. Colour, and the percentage below, is the mean
    confidence of the cell's answers; the number above counts them. Right answers stand in frames.
    A dark cell outside of them is a mistake that the model would not warn of.

    >>> from bayeseq.diagnostics import confusion_confidence
    >>> found = confusion_confidence([["O", "B"]], [[[0.2, 0.8], [0.4, 0.6]]], ["B", "O"])
    >>> plot_confusion_confidence(found).get_title()
    'Mean confidence: 80% right, 60% wrong'
    """
    labels = record.labels
    ax = axes_or_new(ax, size=_size(len(labels)))
    image = ax.imshow(np.ma.masked_invalid(record.confidence), cmap=SHARES, vmin=0, vmax=1)
    bar = ax.figure.colorbar(image, ax=ax, label="mean confidence", shrink=0.8)
    show_percent(bar.ax.yaxis)
    for row, column in np.argwhere(record.counts > 0):
        if row == column:
            box = (row - 0.47, row - 0.47)
            ax.add_patch(_rectangle(box, 0.94, 0.94, fill=False, edgecolor=VERMILION, linewidth=2))
        if len(labels) <= MOST_CELLS_WITH_TWO_LINES:
            trust = record.confidence[row, column]
            ax.text(
                column,
                row,
                f"{record.counts[row, column]:,}\n{trust:.0%}",
                ha="center",
                va="center",
                fontsize="x-small",
                color=ink_on(*image.cmap(float(trust))[:3]),
            )
    matrix_ticks(ax, labels)
    ax.set(xlabel="predicted label", ylabel="true label")
    parts = {"right": record.right, "wrong": record.wrong}
    known = [f"{value:.0%} {name}" for name, value in parts.items() if not np.isnan(value)]
    ax.set_title(f"Mean confidence: {', '.join(known)}")
    return ax


def plot_entity_f1(scores: EntityScores, ax: "Axes | None" = None) -> "Axes":
    """A bar for the F1 of each entity label, with marks for precision and recall.

    >>> from bayeseq.diagnostics import entity_scores
    >>> plot_entity_f1(entity_scores([["B-PER", "O"]], [["B-PER", "O"]])).get_title()
    'Entity F1, conlleval reading: 100.0% overall'
    """
    rows = scores.by_label
    ax = axes_or_new(ax, size=(5.5, 1.8 + 0.4 * len(rows)))
    y = range(len(rows))
    counts = list(rows.values())
    bars = ax.barh(y, [row.f1 for row in counts], color=SKY, alpha=0.7, height=0.6)
    for place, row in zip(y, counts, strict=True):
        ax.text(0.01, place, f"{row.f1:.1%}", va="center", fontsize="small")
    marks: dict[str, Any] = {"linestyle": "", "markersize": 8, "markeredgecolor": "white"}
    precision = ax.plot([row.precision for row in counts], y, marker=">", color=BLACK, **marks)
    recall = ax.plot([row.recall for row in counts], y, marker="<", color=VERMILION, **marks)
    line = ax.axvline(scores.overall.f1, color=GREY, linestyle="--", zorder=1)
    ax.legend(
        [bars, line, *precision, *recall],
        ["F1", "F1 of all", "precision", "recall"],
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        fontsize="small",
    )
    names = [f"{plain(label) or 'untyped'} ({row.support:,})" for label, row in rows.items()]
    ax.set_yticks(y, names)
    ax.invert_yaxis()
    ax.set(xlim=(0, 1.02), xlabel="score", ylabel="label (true entities)")
    ax.set_title(f"Entity F1, {scores.reading} reading: {scores.overall.f1:.1%} overall")
    show_percent(ax.xaxis)
    return ax


def _size(n_labels: int) -> tuple[float, float]:
    side = 2.5 + 0.4 * n_labels
    return min(side + 1, 12.0), min(side, 11.0)


def _rectangle(corner: tuple[float, float], width: float, height: float, **looks: Any) -> "Patch":
    from matplotlib.patches import Rectangle

    return Rectangle(corner, width, height, **looks)
