"""Pictures as files: drawn without a window, on machines without a screen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DPI = 150


def save_picture(draw: Callable[[], Axes], path: Path) -> None:
    """Write as PNG what `draw` draws, into a folder that is made if need be."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    path.parent.mkdir(parents=True, exist_ok=True)
    figure = draw().get_figure(root=True)
    assert figure is not None  # axes stand in one
    try:
        figure.savefig(path, dpi=DPI)
    finally:
        pyplot.close(figure)
