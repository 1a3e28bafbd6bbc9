"""Pictures drawn into a page: SVG that takes its ink from the page, the same bytes each time."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bayeseq.plots.style import BLUE
from bayeseq.report.escaping import escaped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK = "#0a0b0c"  # stands for the page's colour of text until the picture is drawn
_LOOK: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "bayeseq",
    "text.color": _INK,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.titlesize": "medium",
    "xtick.color": _INK,
    "ytick.color": _INK,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.framealpha": 0.0,
    "font.family": "sans-serif",
    "svg.image_inline": True,
}
_POINT = 4 / 3
"""CSS pixels of a point."""


def figure(name: str, alt: str, caption: str, draw: Callable[[], Axes]) -> str:
    """What `draw` draws, as a figure element. `name` keeps apart the pictures of a page, `alt` says
    what is seen to those who cannot see it."""
    svg, width = _inline(_drawn(draw), name)
    label = f'<svg role="img" aria-label="{escaped(alt, 2000)}"'
    svg = svg.replace("<svg", label, 1)
    return (
        f'<figure style="max-width:{width:.0f}px">{svg}'
        f"<figcaption>{escaped(caption, 2000)}</figcaption></figure>"
    )


def _drawn(draw: Callable[[], Axes]) -> str:
    """The picture as an SVG file, whatever the user's own settings."""
    import matplotlib as mpl
    from matplotlib import pyplot

    with mpl.rc_context(), pyplot.ioff():
        # all but what chooses how windows are shown
        look: Any = {k: v for k, v in mpl.rcParamsDefault.items() if "backend" not in k} | _LOOK
        mpl.rcParams.update(look)
        found = draw().get_figure(root=True)
        assert found is not None  # axes stand in one
        stream = io.StringIO()
        try:
            found.savefig(stream, format="svg", metadata={"Date": None})
        finally:
            pyplot.close(found)
    return stream.getvalue()


def _inline(text: str, name: str) -> tuple[str, float]:
    """The svg element for a page, and its width in pixels: no preamble, ids of its own, and black
    and blue lines in the page's. Text inside keeps its black: it stands on a light cell."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    head, _, rest = text.partition(">")
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', head)
    assert found is not None  # matplotlib writes one
    head = f'<svg viewBox="{found[0][9:-1]}"'
    rest = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", rest)
    rest = "".join(
        part if part.startswith("<text") else part.replace("#000000", "currentColor")
        for part in re.split(r"(<text[^>]*>)", rest)
    )
    rest = rest.replace(_INK, "currentColor").replace(BLUE.lower(), "var(--blue)")
    return f"{head}>{rest.strip()}", float(found[1]) * _POINT
