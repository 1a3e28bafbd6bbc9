"""What all pictures share: colours, new axes, names of several records."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

Record = TypeVar("Record")

# Okabe and Ito's colours, told apart by readers with any kind of colour vision. Their yellow is
# left out: it is too light for a line on white.
BLUE, VERMILION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, BLACK = "#E69F00", "#56B4E9", "#000000"
PALETTE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK)
GREY = "#767676"

# Records of the same colour differ in these.
MARKERS = ("o", "s", "^", "D")
DASHES = ("-", "--", "-.", ":")


def look(number: int) -> dict[str, Any]:
    """Colour and line style of the record with this number, from 0."""
    repeat = number // len(PALETTE) % len(DASHES)
    return {"color": PALETTE[number % len(PALETTE)], "linestyle": DASHES[repeat]}


def marker(number: int) -> str:
    """The marker of the record with this number, from 0."""
    return MARKERS[number % len(MARKERS)]


def axes_or_new(ax: "Axes | None", size: tuple[float, float] = (5.0, 4.5)) -> "Axes":
    """`ax` itself, or the axes of a new figure of `size` inches.

    The new figure comes from pyplot, so that a notebook shows it without being asked.
    """
    if ax is not None:
        return ax
    from matplotlib import pyplot  # slow to import, so only when a picture is drawn

    return pyplot.subplots(figsize=size, layout="constrained")[1]


def named(records: "Record | Mapping[str, Record]") -> dict[str, Record]:
    """Records by name; a single one gets the empty name."""
    if not isinstance(records, Mapping):
        return {"": records}
    if not records:
        raise ValueError("nothing to plot: there is no record")
    return dict(records)


def show_percent(axis: "Axis") -> None:
    """Write shares as percentages: the data stay between 0 and 1."""
    from matplotlib.ticker import PercentFormatter

    axis.set_major_formatter(PercentFormatter(xmax=1, decimals=None))
