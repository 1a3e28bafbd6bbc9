"""Which features belong together: columns → groups, by their names or as a user says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np


def column_groups(
    groups: str | Sequence[Any] | None, names: Sequence[str] | None, n_columns: int
) -> tuple[np.ndarray, list[str]]:
    """(D,) the group of each column, and the names of the groups.

    >>> column_groups("auto", ["U00:a", "U00:b", "w=dog", "bias"], 4)
    (array([0, 0, 1, 2]), ['U00', 'w', 'bias'])
    """
    if groups is None or (groups == "auto" and names is None) or n_columns == 0:
        return np.zeros(n_columns, dtype=np.int64), ["all"]
    if isinstance(groups, str):
        if names is None:
            raise ValueError("groups is a text, and X holds numbers without names; give a list")
        try:
            pattern = re.compile(r"[^:=]*" if groups == "auto" else groups)
        except re.error as error:
            raise ValueError(f"groups is {groups!r}, no regular expression: {error}") from error
        found = [match.group() if (match := pattern.search(name)) else "" for name in names]
    else:
        found = list(map(str, groups))
        if len(found) != n_columns:
            raise ValueError(f"groups has {len(found)} entries, X has {n_columns} columns")
    number: dict[str, int] = {}
    for name in found:
        number.setdefault(name, len(number))
    return np.array([number[name] for name in found], dtype=np.int64), list(number)
