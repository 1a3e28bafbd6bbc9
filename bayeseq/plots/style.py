"""What all pictures share: colours, new axes, names of several records, texts of others."""

from collections.abc import Mapping, Sequence
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

# Colours of signed numbers, white at 0, and of shares; told apart as the above.
SIGNED, SHARES = "PuOr_r", "Blues"

# More bands than this hide each other.
MOST_BANDS = 4

# Longer words and names are cut.
MOST_LETTERS = 24

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


def label_looks(labels: Sequence[str], classes: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour and line style of each label; one that is not among the classes is grey.

    Where there are enough colours for all classes, a label has the same one in every picture.
    """
    order = classes if len(classes) <= len(PALETTE) else [x for x in labels if x in set(classes)]
    number = {label: k for k, label in enumerate(order)}
    grey = {"color": GREY, "linestyle": "--"}
    return {label: look(number[label]) if label in number else grey for label in labels}


def plain(text: str, most: int = MOST_LETTERS) -> str:
    """Any text as matplotlib must be told it to draw it as it stands, cut to `most` letters.

    A pair of dollars would be read as a formula, a line break would move what is around, and an
    underscore in front would keep a name out of the legend.

    >>> plain("$5 or $6")
    '\\\\$5 or \\\\$6'
    >>> plain("Donaudampfschiffahrt", most=6)
    'Donau…'
    """
    text = "".join(letter if letter.isprintable() else " " for letter in text)
    if len(text) > most:
        text = text[: most - 1] + "…"
    if text.startswith("_"):
        text = " " + text
    return text.replace("$", r"\$")


def plural(unit: str) -> str:
    """Several of what is counted: tokens, sequences, entities."""
    return unit.removesuffix("y") + "ies" if unit.endswith("y") else unit + "s"


def word_ticks(ax: "Axes", words: Sequence[str]) -> None:
    """Words along the x axis, at 0, 1, ..."""
    ax.set_xticks(
        range(len(words)),
        [plain(word, most=16) for word in words],
        rotation=60,
        ha="right",
        rotation_mode="anchor",
        fontsize="small",
    )
    ax.set_xlim(-0.5, len(words) - 0.5)


def sentence_width(n_words: int) -> float:
    """Inches that so many words need."""
    return float(min(max(5.0, 1.2 + 0.3 * n_words), 16.0))


def matrix_ticks(ax: "Axes", labels: Sequence[str]) -> None:
    """The same labels along both axes of a matrix."""
    texts = [plain(label) for label in labels]
    ax.set_xticks(range(len(labels)), texts, rotation=90)
    ax.set_yticks(range(len(labels)), texts)


def ink_on(red: float, green: float, blue: float) -> str:
    """Black or white, whichever stands out more on a colour with these parts between 0 and 1.

    By relative luminance, as the Web Content Accessibility Guidelines measure contrast; 0.179 is
    where black and white are level: (L + 0.05)² = 0.05 · 1.05.

    >>> ink_on(1, 1, 0), ink_on(0, 0, 1)
    ('black', 'white')
    """
    luminance = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2
    return "black" if luminance > 0.179 else "white"


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


def show_log_percent(axis: "Axis") -> None:
    """The same where the axis is logarithmic and shares are small: 0.01%, 0.1%, 1%."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g}%"))
    axis.set_minor_formatter(NullFormatter())
