"""Labels → numbers: known labels, missing labels and sets of allowed labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayeseq.data.errors import DataError

Labels = Sequence[Sequence[Any]]
"""y: one list a sequence; a label is a string, None (missing) or a set of strings (allowed)."""


@dataclass(frozen=True)
class LabelSpace:
    """The labels of a problem, in sorted order.

    >>> space = LabelSpace.learn([["B", None, {"B", "O"}]])
    >>> space.classes
    ('B', 'O')
    >>> space.allowed([["B", None, {"B", "O"}]], [3])
    array([[ True, False],
           [ True,  True],
           [ True,  True]])
    """

    classes: tuple[str, ...]

    @classmethod
    def learn(cls, y: Labels) -> LabelSpace:
        """The labels that occur in y, alone or in a set."""
        classes: set[str] = set()
        for i, labels in enumerate(_sequences(y)):
            for t, label in enumerate(labels):
                classes.update(map(str, label_members(label, f"sequence {i}, token {t}")))
        if not classes:
            raise DataError("y holds no label at all; at least one token must be labelled")
        return cls(tuple(sorted(classes)))

    def allowed(self, y: Labels, lengths: Sequence[int] | np.ndarray) -> np.ndarray:
        """(N, C) which labels each token may have, for tokens laid end to end."""
        y = _sequences(y)
        check_lengths(y, lengths)
        number = {label: c for c, label in enumerate(self.classes)}
        allowed = np.zeros((int(np.sum(lengths)), len(self.classes)), dtype=bool)
        known = np.array(
            [number.get(label, -1) if isinstance(label, str) else -1 for row in y for label in row],
            dtype=np.int64,
        )
        simple = known >= 0
        allowed[simple, known[simple]] = True
        if not simple.all():
            self._fill_others(allowed, y, number)
        return allowed

    def _fill_others(self, allowed: np.ndarray, y: Labels, number: dict[str, int]) -> None:
        row = 0
        for i, labels in enumerate(y):
            for t, label in enumerate(labels):
                where = f"sequence {i}, token {t}"
                for member in label_members(label, where):
                    if member not in number:
                        raise DataError(
                            f"{where}: label {member!r} is not one of the labels of the training "
                            f"data ({', '.join(self.classes)})"
                        )
                    allowed[row, number[member]] = True
                if label is None:
                    allowed[row] = True
                row += 1


def check_lengths(y: Labels, lengths: Sequence[int] | np.ndarray) -> None:
    """Refuse labels whose sequences are not as long as those of X."""
    if len(y) != len(lengths):
        raise DataError(f"X has {len(lengths)} sequences, y has {len(y)}")
    for i, (labels, n) in enumerate(zip(_sequences(y), lengths, strict=True)):
        if len(labels) != n:
            raise DataError(f"sequence {i} has {n} tokens in X, but {len(labels)} labels in y")


def _sequences(y: Any) -> Labels:
    y = list(y)
    for i, labels in enumerate(y):
        if isinstance(labels, str) or not isinstance(labels, Sequence | np.ndarray):
            raise DataError(
                f"sequence {i} of y is a {type(labels).__name__}; expected a list of labels"
            )
    return y


def label_members(label: Any, where: str) -> Iterable[str]:
    """The labels that a token may have: one, those of a set, or none when it is missing."""
    if isinstance(label, str):
        return (label,)
    if label is None:
        return ()
    if isinstance(label, set | frozenset | tuple | list):
        if not label:
            raise DataError(f"{where}: the set of allowed labels is empty; use None for missing")
        for member in label:
            if not isinstance(member, str):
                raise DataError(f"{where}: allowed label {member!r} is not a string")
        return label
    raise DataError(
        f"{where}: label {label!r} is not a string; a label is a string, None where it is missing "
        "(write None for the -1 or -100 of other libraries), or a set of strings"
    )
