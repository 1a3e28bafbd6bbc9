"""Text tables with aligned columns."""

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Join rows of cells: the first column to the left, the others to the right.

    >>> print(aligned([["model", "error %"], ["crf", "5.21"]]))
    model  error %
    crf       5.21
    """
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def percent(share: float, digits: int = 2) -> str:
    """A share as a percentage without its sign.

    >>> percent(0.0521)
    '5.21'
    """
    return f"{100 * share:.{digits}f}"
