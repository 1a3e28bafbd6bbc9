"""Lay true labels, predictions and probabilities side by side, and say where they do not fit."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bayeseq.data.errors import DataError

Labels = Sequence[Sequence[str]]
MaybeLabels = Sequence[Sequence[str | None]]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# Codes of `TokenTable.target` for tokens without a column of their own.
UNKNOWN = -1
MISSING = -2

# Single-precision rows of thousands of labels still sum to one within this.
SUM_TOLERANCE = 1e-4


@dataclass(frozen=True, eq=False)
class TokenTable:
    """N tokens of all sequences in one table.

    Attributes:
        proba: (N, C), the label probabilities.
        target: (N,), the column of the true label; `UNKNOWN` when it is not among the classes,
            `MISSING` when there is no true label.
        sequence: (N,), the number of the sequence that the token belongs to, from 0.
    """

    proba: Floats
    target: Ints
    sequence: Ints

    def where(self, mask: Bools) -> "TokenTable":
        """The tokens at which `mask` (N,) is true."""
        return TokenTable(self.proba[mask], self.target[mask], self.sequence[mask])


def token_table(y_true: MaybeLabels, proba: Sequence[Any], classes: Sequence[str]) -> TokenTable:
    """Check `y_true` against `proba`, a list of (T, C) arrays in `classes` order, and join them."""
    codes = class_codes(classes)
    check_true(y_true)
    lengths = [len(labels) for labels in y_true]
    table = stack("proba", proba, lengths, (len(codes),))
    _check_probabilities(table, lengths)
    codes[None] = MISSING
    target = [codes.get(label, UNKNOWN) for labels in y_true for label in labels]
    return TokenTable(
        table, np.asarray(target, dtype=np.int64), np.repeat(np.arange(len(lengths)), lengths)
    )


def label_pairs(y_true: MaybeLabels, y_pred: Labels) -> list[list[tuple[str, str]]]:
    """For each sequence the (true, predicted) labels of its tokens that have a true label."""
    check_true(y_true)
    check_predicted(y_pred, [len(labels) for labels in y_true])
    return [
        [(true, pred) for true, pred in zip(truth, guess, strict=True) if true is not None]
        for truth, guess in zip(y_true, y_pred, strict=True)
    ]


def class_codes(classes: Sequence[str]) -> dict[str | None, int]:
    """The column of each label."""
    codes: dict[str | None, int] = {label: column for column, label in enumerate(classes)}
    if len(codes) != len(classes):
        twice = sorted({label for label in classes if list(classes).count(label) > 1})
        raise DataError(f"classes has {', '.join(map(repr, twice))} more than once")
    return codes


def check_true(y_true: MaybeLabels) -> None:
    """Every true label is a text or None."""
    for number, labels in enumerate(y_true):
        _check_is_list("y_true", number, labels)
        for position, label in enumerate(labels):
            if not isinstance(label, str) and label is not None:
                raise DataError(
                    f"y_true: sequence {number}, token {position} (both from 0) has {label!r}; "
                    "scores need one label, a text, or None where it is missing"
                )


def check_predicted(y_pred: Labels, lengths: Sequence[int]) -> None:
    """Predictions are texts, and as many as there are tokens."""
    _check_count("y_pred", len(y_pred), len(lengths))
    for number, (labels, length) in enumerate(zip(y_pred, lengths, strict=True)):
        _check_is_list("y_pred", number, labels)
        _check_length("y_pred", number, len(labels), length)
        for position, label in enumerate(labels):
            if not isinstance(label, str):
                raise DataError(
                    f"y_pred: sequence {number}, token {position} (both from 0) has {label!r}; "
                    "a predicted label is a text"
                )


def stack(
    name: str, arrays: Sequence[Any], lengths: Sequence[int], row_shape: tuple[int, ...]
) -> Floats:
    """Join one array of shape (T, *row_shape) a sequence into one of shape (N, *row_shape)."""
    _check_count(name, len(arrays), len(lengths))
    parts = [np.asarray(array, dtype=np.float64) for array in arrays]
    for number, (part, length) in enumerate(zip(parts, lengths, strict=True)):
        if part.ndim != 1 + len(row_shape) or part.shape[1:] != row_shape:
            wanted = ", ".join(["T", *map(str, row_shape)])
            raise DataError(
                f"{name}: sequence {number} (from 0) has shape {part.shape}, not ({wanted}), "
                "where T counts its tokens"
            )
        _check_length(name, number, len(part), length)
    return np.concatenate(parts) if parts else np.empty((0, *row_shape))


def require_tokens(count: int, what: str) -> None:
    """A mean over nothing has no value: say so instead of returning one."""
    if count == 0:
        raise DataError(f"nothing to score: y_true has no {what}")


def first_place(mask: Bools, lengths: Iterable[int]) -> str:
    """Name the sequence and the token of the first true entry of `mask` (N,)."""
    index = int(np.flatnonzero(mask)[0])
    ends = np.cumsum(list(lengths))
    number = int(np.searchsorted(ends, index, side="right"))
    start = int(ends[number - 1]) if number else 0
    return f"sequence {number}, token {index - start} (both from 0)"


def _check_probabilities(table: Floats, lengths: Sequence[int]) -> None:
    total = table.sum(axis=1)
    # Written so that NaN fails too.
    good = (table >= 0).all(axis=1) & (np.abs(total - 1) <= SUM_TOLERANCE)
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        raise DataError(
            f"proba: {first_place(~good, lengths)} has no probabilities: smallest "
            f"{table[row].min():.4g}, sum {total[row]:.4g}; each row must be at least 0 and sum to "
            "1 (are these scores or logarithms?)"
        )


def _check_is_list(name: str, number: int, labels: object) -> None:
    if isinstance(labels, str):
        raise DataError(
            f"{name}: sequence {number} (from 0) is the text {labels!r}; pass a list of "
            "sequences, each a list of labels"
        )


def _check_count(name: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise DataError(f"{name} has {found} sequences but y_true has {wanted}")


def _check_length(name: str, number: int, found: int, wanted: int) -> None:
    if found != wanted:
        raise DataError(
            f"{name}: sequence {number} (from 0) has {found} tokens but y_true has {wanted} there"
        )
