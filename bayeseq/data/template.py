"""CRF++ feature templates: from rows of columns to feature strings.

A template is a text of lines. A line that begins with U describes one feature of each token: every
macro `%x[row,col]` in it is replaced by column `col` of the token `row` places away, so that
`U05:%x[-1,0]/%x[0,0]` at "ran" in "Ann ran" gives `U05:Ann/ran`. A place before the sentence reads
`_B-1`, `_B-2`, … and one after it `_B+1`, `_B+2`, …, counted away from the sentence. A line that
begins with B describes a feature of a token and its predecessor's label together. Without a macro,
as in the usual bare `B`, it stands for the label pair alone. Lines that begin with # are comments.
"""

from __future__ import annotations

import gc
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count, islice
from operator import itemgetter

import numpy as np

from bayeseq.data.columns import Corpus, iter_lines
from bayeseq.data.errors import DataError

_MACRO = re.compile(r"%x\[([+-]?[0-9]+),([0-9]+)\]")
_NO_MACRO = re.compile(rf"%(?!{_MACRO.pattern[1:]}).?")
_BLOCK = 4096  # tokens whose strings are gathered together: few enough to stay in cache


@dataclass(frozen=True)
class TemplateLine:
    """One U or B line: its number in the file, its text and its macros as (row, column) pairs."""

    number: int
    text: str
    macros: tuple[tuple[int, int], ...]

    @property
    def literals(self) -> list[str]:
        """The text before, between and after the macros: one piece more than macros."""
        return _MACRO.split(self.text)[::3]  # the rows and columns stand between


@dataclass(frozen=True)
class Template:
    """A CRF++ feature template.

    `unigrams` and `bigrams` are its U and B lines in their order, `text` is the whole of it.

    >>> template = Template.parse("U00:%x[0,0]\\nU01:%x[-1,0]/%x[0,0]\\nB\\n")
    >>> template.features([("Ann", "NNP"), ("ran", "VBD")])
    [['U00:Ann', 'U01:_B-1/Ann'], ['U00:ran', 'U01:Ann/ran']]
    >>> template.has_transitions, template.has_pair_features
    (True, False)
    """

    text: str
    unigrams: tuple[TemplateLine, ...]
    bigrams: tuple[TemplateLine, ...]

    @classmethod
    def parse(cls, text: str) -> Template:
        """Read a template from its text; spaces and tabs around a line do not count.

        >>> Template.parse("# words\\nU00:%x[0,0]\\n").unigrams[0].macros
        ((0, 0),)
        """
        return cls._parse(text, "template")

    @classmethod
    def read(cls, path: str | os.PathLike[str], encoding: str = "utf-8") -> Template:
        """Read a template file."""
        text = "".join(f"{line}\n" for line in iter_lines(path, encoding))
        return cls._parse(text, os.fspath(path))

    @classmethod
    def default(cls, n_columns: int) -> Template:
        """A template for any file: columns in a window of ±2, neighbours combined, and label pairs.

        The first column (words) is combined in pairs, which are already rare; the further columns,
        such as part-of-speech tags, in pairs and triples.

        >>> len(Template.default(1).unigrams), len(Template.default(2).unigrams)
        (7, 19)
        """
        if n_columns < 1:
            raise DataError(f"a template needs at least one feature column, not {n_columns}")
        windows: list[tuple[int, ...]] = [(-2,), (-1,), (0,), (1,), (2,)]
        pairs: list[tuple[int, ...]] = [(-1, 0), (0, 1)]
        outer: list[tuple[int, ...]] = [(-2, -1), (1, 2), (-2, -1, 0), (-1, 0, 1), (0, 1, 2)]
        lines = []
        for column in range(n_columns):
            for i, rows in enumerate(windows + pairs + (outer if column else [])):
                macros = "/".join(f"%x[{row},{column}]" for row in rows)
                lines.append(f"U{column}{i:02d}:{macros}")
        return cls.parse("\n".join([*lines, "B", ""]))

    @classmethod
    def _parse(cls, text: str, name: str) -> Template:
        lines = list(_parsed_lines(text, name))
        return cls(
            text,
            tuple(line for line in lines if line.text.startswith("U")),
            tuple(line for line in lines if line.text.startswith("B")),
        )

    def __str__(self) -> str:
        return self.text

    @property
    def has_transitions(self) -> bool:
        """Whether there is any B line, so that neighbouring labels depend on each other."""
        return bool(self.bigrams)

    @property
    def has_pair_features(self) -> bool:
        """Whether a B line has macros, so that label pairs depend on the tokens."""
        return any(line.macros for line in self.bigrams)

    def features(self, rows: Sequence[Sequence[str]]) -> list[list[str]]:
        """The feature strings of each token of a sentence of rows of columns.

        U lines come first, in their order, then the B lines that have macros. The first token has
        no B features, as no label comes before its own.
        """
        return self.transform([rows])[0]

    def transform(
        self, sentences: Corpus | Iterable[Sequence[Sequence[str]]]
    ) -> list[list[list[str]]]:
        """The feature strings of each token of each sentence, as `features` gives them.

        Much faster than sentence by sentence. Equal strings are one object, so that a corpus costs
        one pointer for each occurrence.

        >>> Template.parse("U:%x[1,0]").transform([[("Ann",), ("ran",)], [("Yes",)]])
        [[['U:ran'], ['U:_B+1']], [['U:_B+1']]]
        """
        block = sentences.sentences if isinstance(sentences, Corpus) else list(sentences)
        lengths = [len(rows) for rows in block]
        lines = [*self.unigrams, *(line for line in self.bigrams if line.macros)]
        windows = _windows(block, lengths, lines)
        strings = [_line_strings(line, windows, sum(lengths)) for line in lines]
        _share(lines, strings)
        with _collector_paused():
            tokens = _tokens(strings, sum(lengths))
            expanded = [list(islice(tokens, length)) for length in lengths]
        for sentence in expanded:
            if sentence:
                del sentence[0][len(self.unigrams) :]
        return expanded


class _Column:
    """One column of all sentences as ids (N,) of its distinct values, which may still grow."""

    def __init__(self, values: Iterable[str], n_tokens: int) -> None:
        self._ids: defaultdict[str, int] = defaultdict(count().__next__)
        self.ids = np.fromiter(map(self._ids.__getitem__, values), np.int64, n_tokens)

    @property
    def values(self) -> np.ndarray:
        """The value of each id, an array of str objects."""
        return np.array(list(self._ids), dtype=object)

    def shifted(self, row: int, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """The ids (N,) `row` places away; `first` and `last` (N,) bound each token's sentence."""
        place = np.arange(len(self.ids)) + row
        ids = self.ids.take(place, mode="clip")
        for sign, beyond in (("-", first - place), ("+", place - last)):
            outside = beyond > 0
            distances, kind = np.unique(beyond[outside], return_inverse=True)
            markers = [self._ids[f"_B{sign}{distance}"] for distance in distances.tolist()]
            ids[outside] = np.array(markers, dtype=np.int64)[kind]
        return ids


@dataclass(frozen=True)
class _Window:
    """What one macro reads: ids (N,), and the array of str objects that they point into."""

    ids: np.ndarray
    values: np.ndarray


def _windows(
    block: Sequence[Sequence[Sequence[str]]], lengths: list[int], lines: list[TemplateLine]
) -> dict[tuple[int, int], _Window]:
    """The window of each distinct macro of the lines."""
    n_tokens = sum(lengths)
    ends = np.cumsum(lengths, dtype=np.int64)
    first = np.repeat(ends - lengths, lengths)
    last = np.repeat(ends - 1, lengths)
    windows: dict[tuple[int, int], _Window] = {}
    asked = {macro: line for line in reversed(lines) for macro in line.macros}
    for column in sorted({column for _, column in asked}):
        rows = [row for row, other in asked if other == column]
        sentences = _column_values(block, column, asked[rows[0], column])
        data = _Column(chain.from_iterable(sentences), n_tokens)
        ids = [data.shifted(row, first, last) for row in rows]
        values = data.values  # only now, as the shifts added the marks of places outside
        for row, shifted in zip(rows, ids, strict=True):
            windows[row, column] = _Window(shifted, values)
    return windows


def _column_values(
    block: Sequence[Sequence[Sequence[str]]], column: int, line: TemplateLine
) -> Iterator[list[str]]:
    """One column of each sentence; `line` is named when a sentence does not have it."""
    pick = itemgetter(column)
    for i, rows in enumerate(block):
        try:
            values = list(map(pick, rows))
        except IndexError:
            width = min(map(len, rows))
            raise DataError(
                f"template line {line.number} {line.text!r} asks for column {column}, counted from "
                f"0, and sentence {i} has {width} column{'s' if width != 1 else ''}"
            ) from None
        strings = all(issubclass(kind, str) for kind in set(map(type, values)))
        if not strings or str in map(type, rows):
            raise DataError(
                f"sentence {i}: a token is a tuple of strings, one for each column, and "
                f"{rows[0]!r} is found; write for example [(word,) for word in words]"
            )
        yield values


def _line_strings(
    line: TemplateLine, windows: dict[tuple[int, int], _Window], n_tokens: int
) -> tuple[np.ndarray, np.ndarray]:
    """A line's strings, an array of str objects, and the index (N,) of each token's among them.

    Macro by macro, the strings so far and the values that follow them are paired; each distinct
    pair is joined once, however many tokens have it.
    """
    before, *after = line.literals
    if not line.macros:
        return np.array([before], dtype=object), np.zeros(n_tokens, dtype=np.int32)
    window = windows[line.macros[0]]
    strings, index = before + window.values + after[0], window.ids
    for macro, literal in zip(line.macros[1:], after[1:], strict=True):
        window = windows[macro]
        n_values = max(1, len(window.values))
        pairs, index = np.unique(index * n_values + window.ids, return_inverse=True)
        strings = strings[pairs // n_values] + window.values[pairs % n_values] + literal
    return strings, index.astype(np.int32)


def _share(lines: list[TemplateLine], strings: list[tuple[np.ndarray, np.ndarray]]) -> None:
    """Make equal strings one object where lines differ in their macros only, as in bags of words.

    Otherwise strings are equal only where a value happens to hold a piece of a literal or of its
    neighbour's value, which is too rare to be worth the search.
    """
    twins: dict[tuple[str, ...], list[np.ndarray]] = defaultdict(list)
    for line, (values, _) in zip(lines, strings, strict=True):
        twins[tuple(line.literals)].append(values)
    for group in twins.values():
        if len(group) > 1:
            shared: dict[str, str] = {}
            for values in group:
                values[:] = [shared.setdefault(value, value) for value in values.tolist()]


def _tokens(strings: list[tuple[np.ndarray, np.ndarray]], n_tokens: int) -> Iterator[list[str]]:
    """Each token's list of strings, one from each line."""
    for start in range(0, n_tokens, _BLOCK):
        stop = min(start + _BLOCK, n_tokens)
        if strings:
            lines = [values[index[start:stop]].tolist() for values, index in strings]
            yield from map(list, zip(*lines, strict=True))
        else:
            yield from ([] for _ in range(start, stop))


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Hold off the cyclic garbage collector while a great many lists are made.

    They are no garbage and hold no cycle, and yet the collector would walk through all of them
    again and again, for longer than making them takes.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _parsed_lines(text: str, name: str) -> Iterator[TemplateLine]:
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip(" \t\r")
        if not line or line.startswith("#"):
            continue
        where = f"{name}, line {number} {line!r}"
        if line[0] not in "UB":
            raise DataError(f"{where}: a template line begins with U, B or # (a comment)")
        unknown = _NO_MACRO.search(line)
        if unknown is not None and unknown[0] == "%x":
            raise DataError(f"{where}: write macros as %x[row,col], such as %x[-1,0]")
        if unknown is not None:
            raise DataError(
                f"{where}: there is no macro {unknown[0]!r}; the one macro is %x[row,col]"
            )
        macros = tuple((int(row), int(column)) for row, column in _MACRO.findall(line))
        yield TemplateLine(number, line, macros)
