"""Feature sets, dicts and arrays → one sparse matrix with a row a token."""

from __future__ import annotations

import itertools
import numbers
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from bayeseq.data.errors import DataError


@dataclass(frozen=True)
class FeatureSpace:
    """The columns of the feature matrix: feature names, or only their number for numeric input.

    >>> space, matrix, lengths = FeatureSpace.learn([[["a", "b"], ["a"]], [{"b": 0.5, "c": "x"}]])
    >>> space.names
    ('a', 'b', 'c:x')
    >>> matrix.toarray()
    array([[1. , 1. , 0. ],
           [1. , 0. , 0. ],
           [0. , 0.5, 1. ]])
    >>> space.matrix([[["b", "never seen"]]])[0].toarray()
    array([[0., 1., 0.]])
    """

    names: tuple[str, ...] | None
    """Feature names by falling count, equal counts by name; None for numeric input."""
    n_features: int

    @classmethod
    def learn(
        cls, X: Iterable[Any], min_count: int = 1
    ) -> tuple[FeatureSpace, sp.csr_matrix, np.ndarray]:
        """The space of the features in X, its matrix (N, D) and the sequence lengths (B,).

        Features that occur fewer than `min_count` times are left out; numeric columns all stay. Of
        a generator of sequences only some are held at a time.
        """
        blocks = _blocks(X)
        block = next(blocks, [])
        if _is_numeric(block):
            matrix, lengths = _stack_numeric(list(itertools.chain(block, *blocks)), None)
            return cls(None, matrix.shape[1]), matrix, lengths
        first_seen = _Numbering()
        parts, n_sequences = [], 0
        while block:
            parts.append(_Tokens.of(block, first_seen, n_sequences))
            n_sequences += len(block)
            block = next(blocks, [])
        tokens = _Tokens.joined(parts)
        names = list(first_seen)
        counts = np.bincount(tokens.columns, minlength=len(names))
        kept = sorted(np.flatnonzero(counts >= min_count), key=names.__getitem__)
        kept.sort(key=lambda column: -counts[column])
        renumbered = np.full(len(names), -1, dtype=np.int32)
        renumbered[kept] = np.arange(len(kept))
        space = cls(tuple(names[column] for column in kept), len(kept))
        kept_only = replace(tokens, columns=renumbered[tokens.columns])
        return space, kept_only.matrix(len(kept)), tokens.lengths

    def matrix(self, X: Iterable[Any]) -> tuple[sp.csr_matrix, np.ndarray]:
        """The matrix (N, D) of new sequences and their lengths; unknown features are ignored."""
        X = list(X)
        if _is_numeric(X) and self.names is not None:
            raise DataError("X holds numbers, but the model was fitted on features with names")
        if self.names is None and any(isinstance(x, Sequence) and len(x) for x in X):
            raise DataError("X holds features, but the model was fitted on numbers")
        if self.names is None:
            return _stack_numeric(X, self.n_features)
        tokens = _Tokens.of(X, self._columns)
        return tokens.matrix(self.n_features), tokens.lengths

    def unseen(self, X: Sequence[Any]) -> tuple[list[str], sp.csr_matrix]:
        """What `matrix` ignores: the names (J) of unknown features, and their values (N, J).

        >>> names, values = FeatureSpace(("a",), 1).unseen([[["a", "b"], {"c": 0.5}]])
        >>> names, values.toarray().tolist()
        (['b', 'c'], [[1.0, 0.0], [0.0, 0.5]])
        """
        if self.names is None:
            return [], sp.csr_matrix((sum(map(len, X)), 0))
        first_seen = _Numbering()
        tokens = _Tokens.of(X, first_seen)
        names = list(first_seen)
        unknown = np.flatnonzero(self._columns.find(names, len(names)) < 0)
        renumbered = np.full(len(names), -1, dtype=np.int32)
        renumbered[unknown] = np.arange(len(unknown))
        only = replace(tokens, columns=renumbered[tokens.columns])
        return [names[j] for j in unknown], only.matrix(len(unknown))

    @cached_property
    def _columns(self) -> _Columns:
        """Name → column, made on first use."""
        return _Columns(self.names or ())


class _Numbering(dict[str, int]):
    """Name → number, in the order in which names are first asked for."""

    def __missing__(self, name: Any) -> int:
        if not isinstance(name, str):
            raise TypeError(f"feature {name!r} is not a string")
        self[name] = number = len(self)
        return number

    def find(self, names: Iterable[str], n_names: int) -> np.ndarray:
        """(n_names,) the numbers of names; a TypeError where one is no string."""
        return np.fromiter(map(self.__getitem__, names), np.int32, n_names)


class _Columns:
    """Name → column of a fixed vocabulary, −1 for other names, for a great many at once.

    Looking names up is most of the work of tagging, and in a dict nearly all of that is waiting for
    memory: the slot, the entry, the string and the number each lie elsewhere. Here a slot holds all
    that is needed, the string's 64-bit hash and its column, and slots are read by array (open
    addressing, next slot on a collision). That two different strings have one hash is not looked
    for: among a million names, an unknown one has a chance of 5e-14 to be taken for one of them,
    and as Python draws a new hash function for each process, nobody can choose it so.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        hashes = np.fromiter(map(hash, names), np.int64, len(names))
        size = 1 << (2 * len(names)).bit_length()
        self._last = size - 1
        self._hashes = np.zeros(size, dtype=np.int64)
        self._column = np.full(size, -1, dtype=np.int32)
        waiting, slot = np.arange(len(names)), hashes & self._last
        while len(waiting):
            free = self._column[slot] < 0
            self._column[slot[free]] = waiting[free]  # of several, the last one stays
            placed = self._column[slot] == waiting
            self._hashes[slot[placed]] = hashes[waiting[placed]]
            waiting, slot = waiting[~placed], (slot[~placed] + 1) & self._last

    def __reduce__(self) -> tuple[type[_Columns], tuple[Sequence[str]]]:
        return _Columns, (self._names,)  # another process hashes otherwise

    def find(self, names: Iterable[str], n_names: int) -> np.ndarray:
        """(n_names,) the columns of names; a TypeError where one is no string."""
        hashes = np.fromiter(map(str.__hash__, names), np.int64, n_names)
        slot = hashes & self._last
        columns = self._column[slot]
        others = np.flatnonzero((columns >= 0) & (self._hashes[slot] != hashes))
        slot = slot[others]
        while len(others):
            slot = (slot + 1) & self._last
            columns[others] = self._column[slot]
            still = (columns[others] >= 0) & (self._hashes[slot] != hashes[others])
            others, slot = others[still], slot[still]
        return columns


_BLOCK = 1000
"""Sequences whose features are looked up together."""


def _blocks(X: Iterable[Any]) -> Iterator[list[Any]]:
    sequences = iter(X)
    while block := list(itertools.islice(sequences, _BLOCK)):
        yield block


def _is_numeric(X: Sequence[Any]) -> bool:
    return any(hasattr(x, "shape") and hasattr(x, "dtype") for x in X)


def _stack_numeric(X: Sequence[Any], n_features: int | None) -> tuple[sp.csr_matrix, np.ndarray]:
    """2-D arrays or scipy matrices, one a sequence, on top of each other."""
    blocks, lengths = [], []
    for i, x in enumerate(X):
        if isinstance(x, Sequence) and len(x) == 0 and n_features is not None:
            lengths.append(0)
            continue
        if not hasattr(x, "shape") or len(x.shape) != 2:
            what = f"shape {x.shape}" if hasattr(x, "shape") else f"a {type(x).__name__}"
            raise DataError(
                f"sequence {i} is {what}; with numeric features every sequence is a 2-D array "
                "or scipy matrix with a row a token"
            )
        n_features = x.shape[1] if n_features is None else n_features
        if x.shape[1] != n_features:
            raise DataError(f"sequence {i} has {x.shape[1]} columns, expected {n_features}")
        if x.dtype.kind not in "biuf":
            raise DataError(f"sequence {i} is an array of {x.dtype}; expected real numbers")
        block = sp.csr_matrix(x, dtype=np.float64)
        if not np.isfinite(block.data).all():
            entries = block.tocoo()
            bad = int(np.flatnonzero(~np.isfinite(entries.data))[0])
            raise DataError(
                f"sequence {i}, token {entries.row[bad]}, column {entries.col[bad]} "
                f"is {entries.data[bad]}, not a finite number"
            )
        blocks.append(block)
        lengths.append(x.shape[0])
    stacked = sp.vstack(blocks, format="csr") if blocks else sp.csr_matrix((0, n_features or 0))
    return stacked, np.asarray(lengths, dtype=np.int64)


@dataclass(frozen=True)
class _Tokens:
    """The features of all tokens, end to end."""

    lengths: np.ndarray
    """(B,) tokens of each sequence"""
    counts: np.ndarray
    """(N,) features of each token"""
    columns: np.ndarray
    """the column of each feature, −1 where it has none"""
    values: np.ndarray | None
    """None when every value is 1"""

    @classmethod
    def joined(cls, parts: Sequence[_Tokens]) -> _Tokens:
        """The tokens of parts, end to end."""
        none = np.zeros(0, dtype=np.int32)
        values = None
        if any(part.values is not None for part in parts):
            ones = (np.ones(len(p.columns)) if p.values is None else p.values for p in parts)
            values = np.concatenate(list(ones))
        return cls(
            np.concatenate([none, *(part.lengths for part in parts)]),
            np.concatenate([none, *(part.counts for part in parts)]),
            np.concatenate([none, *(part.columns for part in parts)]),
            values,
        )

    @classmethod
    def of(cls, X: Sequence[Any], index: _Columns | _Numbering, number: int = 0) -> _Tokens:
        """The tokens of sequences, of which the first has this number."""
        for i, sequence in enumerate(X, number):
            if isinstance(sequence, str | Mapping) or not isinstance(sequence, Sequence):
                raise DataError(
                    f"sequence {i} is a {type(sequence).__name__}; "
                    "a sequence is a list of tokens, a token a list of feature strings or a dict"
                )
        lengths = np.fromiter(map(len, X), np.int64, len(X))
        tokens = list(itertools.chain.from_iterable(X))
        if set(map(type, tokens)) <= {list, tuple, set, frozenset}:
            counts = np.fromiter(map(len, tokens), np.int64, len(tokens))
            names = itertools.chain.from_iterable(tokens)
            try:
                return cls(lengths, counts, index.find(names, int(counts.sum())), None)
            except TypeError:  # some feature is no string: the slow way says which
                pass
        return cls._item_by_item(X, lengths, index, number)

    @classmethod
    def _item_by_item(
        cls, X: Sequence[Any], lengths: np.ndarray, index: _Columns | _Numbering, number: int
    ) -> _Tokens:
        """The way for dicts, and for finding what is wrong."""
        counts: list[int] = []
        names: list[str] = []
        values: list[float] = []
        for i, sequence in enumerate(X, number):
            for t, token in enumerate(sequence):
                before = len(names)
                for name, value in _items(token, f"sequence {i}, token {t}"):
                    names.append(name)
                    values.append(value)
                counts.append(len(names) - before)
        return cls(
            lengths,
            np.asarray(counts, np.int64),
            index.find(names, len(names)),
            np.asarray(values, np.float64),
        )

    def matrix(self, n_columns: int) -> sp.csr_matrix:
        """The matrix with so many columns; features that have none are left out."""
        columns = self.columns
        row_starts = np.concatenate([[0], np.cumsum(self.counts)])
        known = columns >= 0
        values = np.ones(len(columns)) if self.values is None else self.values
        if not known.all():
            row_starts = np.concatenate([[0], np.cumsum(known)])[row_starts]
            columns, values = columns[known], values[known]
        matrix = sp.csr_matrix(
            (values, columns.astype(np.int32, copy=False), row_starts.astype(np.int32)),
            shape=(len(self.counts), n_columns),
        )
        matrix.sum_duplicates()
        return matrix


def _items(token: Any, where: str) -> Iterator[tuple[str, float]]:
    """The features of one token as (name, value), by CRFsuite's rules for dicts."""
    if isinstance(token, str) or not isinstance(token, Mapping | Iterable):
        raise DataError(
            f"{where} is {token!r}; a token is a list or set of feature strings, or a dict"
        )
    if not isinstance(token, Mapping):
        for name in token:
            if not isinstance(name, str):
                raise DataError(f"{where}: feature {name!r} is not a string")
            yield name, 1.0
        return
    for name, value in token.items():
        if not isinstance(name, str):
            raise DataError(f"{where}: feature name {name!r} is not a string")
        if isinstance(value, str):
            yield f"{name}:{value}", 1.0
        elif isinstance(value, numbers.Real | np.bool_):
            yield name, _finite(value, f"{where}: feature {name!r}")
        elif isinstance(value, list | tuple | set | frozenset) and all(
            isinstance(item, str) for item in value
        ):
            yield from ((f"{name}:{item}", 1.0) for item in value)
        else:
            raise DataError(
                f"{where}: feature {name!r} is a {type(value).__name__}; "
                "use a string, a number, a truth value or a list of strings"
            )


def _finite(value: Any, where: str) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = np.inf
    if not np.isfinite(number):
        raise DataError(f"{where} is {value!r:.40}, not a finite number")
    return number
