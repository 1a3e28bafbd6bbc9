"""Tokens by confidence: what is claimed of each, how surely, and in which bin it falls."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bayeseq.data.errors import DataError
from bayeseq.diagnostics.tokens import (
    Bools,
    Floats,
    Ints,
    TokenTable,
    class_codes,
    require_tokens,
)

Proba = Sequence[npt.ArrayLike]
RandomState = int | np.random.Generator | None

BINS = 15


@dataclass(frozen=True, eq=False)
class Binning:
    """Bin edges (K + 1,) and the bin of each token (N,)."""

    edges: Floats
    index: Ints

    def sums(self, values: npt.NDArray[np.generic]) -> Floats:
        """`values` (N,) summed within each bin: (K,)."""
        bins = len(self.edges) - 1
        return np.bincount(self.index, weights=values, minlength=bins).astype(np.float64)


def scored(table: TokenTable, exclude: Sequence[int] = ()) -> TokenTable:
    """The tokens with a true label among the classes and a most probable one not in `exclude`."""
    kept = table.target >= 0
    if len(exclude) and len(table.target):
        kept &= ~np.isin(table.proba.argmax(axis=1), exclude)
    tokens = table.where(kept)
    what = "token whose label is among the classes"
    require_tokens(
        len(tokens.target), f"{what} and whose prediction is not excluded" if len(exclude) else what
    )
    return tokens


def events(tokens: TokenTable, column: int | None) -> tuple[Floats, Bools]:
    """What is claimed with which confidence (N,), and whether it is true (N,)."""
    if column is not None:
        return tokens.proba[:, column], tokens.target == column
    top = tokens.proba.argmax(axis=1)
    return tokens.proba[np.arange(len(top)), top], tokens.target == top


def bin_by_confidence(confidence: Floats, bins: int, adaptive: bool) -> Binning:
    if bins < 1:
        raise ValueError(f"bins must be at least 1, not {bins}")
    edges = np.linspace(0, 1, bins + 1)
    if adaptive:
        # Many tokens with one confidence (often exactly 1) make equal quantiles: one bin for them.
        inner = np.unique(np.quantile(confidence, edges[1:-1]))
        edges = np.concatenate([[0.0], inner[(inner > 0) & (inner < 1)], [1.0]])
    return Binning(edges, np.searchsorted(edges[1:-1], confidence, side="left"))


def column_of(classes: Sequence[str], label: str) -> int:
    codes = class_codes(classes)
    if label not in codes:
        raise DataError(f"label {label!r} is not among the classes {list(classes)}")
    return codes[label]


def columns_of(classes: Sequence[str], labels: Sequence[str]) -> list[int]:
    """The columns of several labels."""
    if isinstance(labels, str):
        raise ValueError(f"exclude is the text {labels!r}; pass labels in a tuple: ({labels!r},)")
    return [column_of(classes, label) for label in labels]
