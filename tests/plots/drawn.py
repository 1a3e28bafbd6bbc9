"""What stands in a picture, read back from its axes."""

import numpy as np


def line(ax, label):
    """The line with this text in the legend, and no other."""
    (found,) = [line for line in ax.get_lines() if line.get_label().startswith(label)]
    return found


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def band(ax, number=0):
    """Lowest and highest y at each x of a band."""
    points = ax.collections[number].get_paths()[0].vertices
    xs = np.unique(points[:, 0])
    return xs, *(
        np.array([pick(points[points[:, 0] == x, 1]) for x in xs]) for pick in (np.min, np.max)
    )


def texts(ax):
    """The free texts by place: (row, column) of a matrix."""
    return {(int(t.get_position()[1]), int(t.get_position()[0])): t.get_text() for t in ax.texts}


def ticks(axis):
    return [tick.get_text() for tick in axis.get_ticklabels()]


def rendered(ax):
    """Draw everything; fails where a text cannot be read."""
    ax.figure.canvas.draw()
    return ax
