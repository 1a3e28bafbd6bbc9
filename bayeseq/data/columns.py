"""Column files: one token a line, a blank line after each sentence, the label in one column.

This is the format of CRF++ and of the CoNLL shared tasks. Columns are split on ASCII spaces and
tabs only, and any run of them is one separator: other white space, such as the full-width space
U+3000, is part of a token. Lines end with LF or CRLF and nothing else.
"""

from __future__ import annotations

import codecs
import io
import operator
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any, TypeAlias, overload

import numpy as np

from bayeseq.data.errors import DataError

Row: TypeAlias = tuple[str, ...]
Rows: TypeAlias = list[Row]
Labels: TypeAlias = list[str | None]
Source: TypeAlias = str | os.PathLike[str] | IO[str] | IO[bytes]

DOCSTART = "-DOCSTART-"
BOM = "\ufeff"
# Encodings offered when the chosen one fails, the strictest first: latin-1 decodes any bytes.
LIKELY_ENCODINGS = ("utf-8", "euc-jp", "shift-jis", "cp1252", "latin-1")


@dataclass(frozen=True, repr=False)
class Corpus:
    """Sentences of rows of columns, with their labels.

    `sentences[i][t]` is the tuple of feature columns of token t of sentence i, without its label;
    `labels[i][t]` is that label, None where it is missing; `labels` is None for unlabelled data.
    `columns` names the feature columns.

    >>> corpus = Corpus([[("Ann", "NNP"), ("ran", "VBD")]], [["B", "O"]], columns=("word", "pos"))
    >>> corpus
    Corpus(1 sentence, 2 tokens, columns word pos, labelled)
    >>> corpus.column("pos")
    [['NNP', 'VBD']]
    """

    sentences: list[Rows]
    labels: list[Labels] | None = None
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.labels is not None:
            _check_shape("labels", self.labels, self.sentences)
        width = self.n_columns
        for i, rows in enumerate(self.sentences):
            if not {width}.issuperset(map(len, rows)):
                t, row = next((t, row) for t, row in enumerate(rows) if len(row) != width)
                raise DataError(
                    f"sentence {i}, token {t}: {width} columns are expected and {len(row)} are "
                    f"found: {row!r}; give every token of the corpus the same columns"
                )

    def __len__(self) -> int:
        return len(self.sentences)

    def __iter__(self) -> Iterator[tuple[Rows, Labels | None]]:
        return (self[i] for i in range(len(self)))

    @overload
    def __getitem__(self, index: int | np.integer) -> tuple[Rows, Labels | None]: ...
    @overload
    def __getitem__(self, index: slice | Sequence[int] | np.ndarray) -> Corpus: ...
    def __getitem__(self, index: Any) -> Any:
        """A sentence `(rows, labels)` for an int; a Corpus for a slice, integers or a mask."""
        if hasattr(index, "__index__") and np.ndim(index) == 0:
            i = operator.index(index)
            return self.sentences[i], None if self.labels is None else self.labels[i]
        if not isinstance(index, slice):
            index = np.asarray(index, dtype=None if len(index) else np.intp)
        picked = np.arange(len(self))[index].tolist()
        return Corpus(
            [self.sentences[i] for i in picked],
            None if self.labels is None else [self.labels[i] for i in picked],
            self.columns,
        )

    def __repr__(self) -> str:
        sentences = f"{len(self):,} sentence{'s' if len(self) != 1 else ''}"
        tokens = f"{self.n_tokens:,} token{'s' if self.n_tokens != 1 else ''}"
        if self.columns is not None:
            columns = f"columns {' '.join(self.columns)}"
        else:
            columns = f"{self.n_columns} column{'s' if self.n_columns != 1 else ''}"
        labelled = "unlabelled" if self.labels is None else "labelled"
        return f"Corpus({sentences}, {tokens}, {columns}, {labelled})"

    @property
    def n_tokens(self) -> int:
        """Tokens in all sentences together."""
        return sum(map(len, self.sentences))

    @property
    def n_columns(self) -> int:
        """Feature columns of a token; the label is not one of them."""
        if self.columns is not None:
            return len(self.columns)
        return next((len(row) for row in chain.from_iterable(self.sentences)), 0)

    @property
    def tokens(self) -> list[list[str]]:
        """The first column, which holds the words."""
        return self.column(0)

    def column(self, k: int | str) -> list[list[str]]:
        """One feature column, by index or name, as a list of str for each sentence."""
        if isinstance(k, str):
            if k not in (self.columns or ()):
                raise DataError(
                    f"there is no column {k!r}; the names are {self.columns}, or give an index"
                )
            k = (self.columns or ()).index(k)
        elif not -self.n_columns <= k < self.n_columns:
            raise DataError(f"there is no column {k}; the corpus has {self.n_columns} columns")
        return [[row[k] for row in rows] for rows in self.sentences]


def _check_shape(what: str, values: Sequence[Sequence[Any]], sentences: list[Rows]) -> None:
    """Refuse `values` that do not hold one value for each token."""
    if len(values) != len(sentences):
        raise DataError(
            f"{what}: {len(values)} sequences are given for {len(sentences)} sentences; "
            "give one for each"
        )
    for i, (sequence, rows) in enumerate(zip(values, sentences, strict=True)):
        if len(sequence) != len(rows):
            raise DataError(
                f"{what}, sentence {i}: {len(sequence)} values are given for {len(rows)} tokens; "
                "give one for each"
            )


# Reading


def iter_columns(
    source: Source,
    *,
    encoding: str = "utf-8",
    comments: str | None = None,
    docstart: bool = True,
) -> Iterator[Rows]:
    """Yield a file's sentences one at a time, each a list of tuples of all columns.

    `source` is a path, "-" for standard input, or an open text or binary file; it is never held in
    memory as a whole. Lines that begin with `comments` are skipped. With `docstart`, a line whose
    first column is -DOCSTART- is skipped and ends a sentence. `encoding` has no effect on a file
    that was opened as text.

    >>> import io
    >>> list(iter_columns(io.StringIO("Ann B\\nran O\\n\\nYes O\\n")))
    [[('Ann', 'B'), ('ran', 'O')], [('Yes', 'O')]]
    """
    for _, rows in numbered_sentences(source, encoding, comments, docstart):
        yield rows


def read_columns(
    source: Source,
    *,
    label_column: int | None = -1,
    encoding: str = "utf-8",
    comments: str | None = None,
    docstart: bool = True,
    missing: str | None = None,
    columns: Sequence[str] | None = None,
) -> Corpus:
    """Read a column file into a Corpus; see `iter_columns` for `source` and the shared options.

    `label_column` counts from 0, or from the end when negative; None says that there are no labels.
    A label equal to `missing`, such as "_", is read as None. `columns` names the feature columns,
    that is all but the label.

    >>> import io
    >>> corpus = read_columns(io.StringIO("Ann NNP B\\nran VBD _\\n"), missing="_")
    >>> corpus.sentences, corpus.labels
    ([[('Ann', 'NNP'), ('ran', 'VBD')]], [['B', None]])
    """
    shared: dict[str, str] = {}  # a corpus repeats few strings often: keep one object of each
    share = shared.setdefault
    sentences: list[Rows] = []
    labels: list[Labels] = []
    for numbers, rows in numbered_sentences(source, encoding, comments, docstart):
        values = [[share(value, value) for value in column] for column in zip(*rows, strict=True)]
        if not sentences:
            _check_width(source_name(source), numbers[0], rows[0], label_column, columns)
        if label_column is not None:
            tags = values.pop(label_column)
            labels.append([None if tag == missing else tag for tag in tags])
        sentences.append(list(zip(*values, strict=True)))
    names = None if columns is None else tuple(columns)
    return Corpus(sentences, None if label_column is None else labels, names)


def numbered_sentences(
    source: Source, encoding: str, comments: str | None, docstart: bool
) -> Iterator[tuple[list[int], Rows]]:
    """Yield the line number of each token of a sentence, and the sentence."""
    name = source_name(source)
    rows: Rows = []
    numbers: list[int] = []
    width = first = None
    for number, line in enumerate(iter_lines(source, encoding), 1):
        if comments and line.startswith(comments):
            continue
        row = _split(line)
        if not row or (docstart and row[0] == DOCSTART):
            if rows:
                yield numbers, rows
            rows, numbers = [], []
            continue
        if "\r" in line:
            raise DataError(
                f"{name}, line {number}: a carriage return inside the line {_short(line)}; "
                "end lines with LF or CRLF"
            )
        if width is None:
            width, first = len(row), number
        elif len(row) != width:
            raise DataError(
                f"{name}, line {number}: {width} columns are expected, as on line {first}, and "
                f"{len(row)} are found: {_short(line)}; give every token the same number of "
                "columns, split by spaces or tabs"
            )
        rows.append(row)
        numbers.append(number)
    if rows:
        yield numbers, rows
    if width is None:
        raise DataError(f"{name}: the file holds no token; check that it is the one you meant")


def _split(line: str) -> Row:
    """The columns of a line: separated by runs of ASCII spaces and tabs, and by nothing else."""
    parts = line.replace("\t", " ").split(" ")
    if "" in parts:
        parts = [part for part in parts if part]
    return tuple(parts)


def _check_width(
    name: str, number: int, row: Row, label_column: int | None, columns: Sequence[str] | None
) -> None:
    """Refuse a label column that is not there, and names that do not fit the columns."""
    width = len(row)
    where = f"{name}, line {number}: {width} column{'s' if width != 1 else ''} {row!r}"
    if label_column is not None:
        if not -width <= label_column < width:
            raise DataError(
                f"{where}, so there is no label_column {label_column}; give one from {-width} to "
                f"{width - 1}, or label_column=None when the file has no labels"
            )
        if width == 1:
            raise DataError(
                f"{where}, which leaves no feature beside the label; "
                "give label_column=None when the file has no labels"
            )
    features = width - (label_column is not None)
    if columns is not None and len(columns) != features:
        raise DataError(
            f"{where}, of which {features} hold features, and {len(columns)} names are given: "
            f"{tuple(columns)!r}; name each feature column and not the label"
        )


def iter_lines(source: Source, encoding: str = "utf-8") -> Iterator[str]:
    """Yield the lines of a path, "-" or open file without their ends, which are LF or CRLF only.

    A byte-order mark at the start is left out. A file that is not there or not in the encoding
    raises a DataError that says so.

    >>> import io
    >>> list(iter_lines(io.BytesIO(b"Ann B\\r\\nran O\\n")))
    ['Ann B', 'ran O']
    """
    with _opened(source) as stream:
        for number, line in enumerate(_decoded(stream, source_name(source), encoding)):
            if number == 0:
                line = line.removeprefix(BOM)
            yield line.removesuffix("\n").removesuffix("\r")


def _decoded(stream: IO[Any], name: str, encoding: str) -> Iterator[str]:
    codec = _codec(name, encoding)
    if isinstance(stream.read(0), str):
        yield from _text_lines(stream, name)
    elif codec.startswith(("utf-16", "utf-32")):  # their line ends are several bytes long
        text = io.TextIOWrapper(stream, encoding, newline="\n")
        try:
            yield from _text_lines(text, name)
        finally:
            text.detach()
    else:
        # The mark of utf-8-sig is one of the file, not of each line.
        encoding = "utf-8" if codec == "utf-8-sig" else encoding
        for number, raw in enumerate(stream, 1):
            try:
                yield raw.decode(encoding)
            except UnicodeDecodeError as error:
                raise DataError(_wrong_encoding(name, number, raw, error)) from None


def _codec(name: str, encoding: str) -> str:
    """The canonical name of an encoding."""
    try:
        return codecs.lookup(encoding).name
    except LookupError:
        raise DataError(
            f"{name}: there is no encoding {encoding!r}; give one such as 'utf-8'"
        ) from None


def _text_lines(stream: IO[str], name: str) -> Iterator[str]:
    number = 0
    try:
        for number, line in enumerate(stream, 1):  # noqa: B007 (the handler reads it)
            yield line
    except UnicodeDecodeError as error:
        # A text stream decodes ahead of the lines that it gives, so the place is approximate.
        raise DataError(
            f"{name}, after line {number}: byte 0x{error.object[error.start]:02x} is not "
            f"{error.encoding}; give the encoding that the file was written in"
        ) from None


def _wrong_encoding(name: str, number: int, raw: bytes, error: UnicodeDecodeError) -> str:
    readings = []
    for encoding in LIKELY_ENCODINGS:
        try:
            text = raw.decode(encoding)
        except UnicodeDecodeError:
            continue
        readings.append(f"{encoding} ({_short(text.rstrip())})")
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        readings.insert(0, "utf-16 (it starts with that mark)")
    return (
        f"{name}, line {number}: byte 0x{raw[error.start]:02x} at position {error.start} is not "
        f"{error.encoding}; the line can be read as {', '.join(readings)}: "
        "give the right one as encoding="
    )


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


def source_name(source: Any) -> str:
    """What messages call a source or target."""
    if source == "-":
        return "<standard stream>"
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    return str(getattr(source, "name", "<stream>"))


@contextmanager
def _opened(source: Source) -> Iterator[IO[Any]]:
    """The stream to read; only a file opened here is closed."""
    if source == "-":
        yield getattr(sys.stdin, "buffer", sys.stdin)
    elif isinstance(source, str | os.PathLike):
        try:
            stream = open(source, "rb")  # noqa: SIM115 (closed below)
        except FileNotFoundError:
            raise DataError(
                f"{source_name(source)}: there is no such file; "
                f"looked in {Path(source).resolve().parent}"
            ) from None
        except IsADirectoryError:
            raise DataError(f"{source_name(source)}: is a folder; name a file in it") from None
        except OSError as error:
            raise DataError(f"{source_name(source)}: cannot be read: {error.strerror}") from error
        with stream:
            yield stream
    else:
        yield source


# Writing

_BREAKS = re.compile(r"[ \t\r\n]")


def write_columns(
    target: str | os.PathLike[str] | IO[str],
    corpus: Corpus,
    *extra_columns: Sequence[Sequence[str | None]],
    missing: str = "_",
    encoding: str = "utf-8",
) -> None:
    """Write a corpus as a column file: feature columns, labels if any, then the extra columns.

    `target` is a path, "-" for standard output, or an open text file. A path is written whole or
    not at all: the file appears under its name once it is complete. Each extra column, such as
    predictions, holds one str for each token. None is written as `missing`; `read_columns` with the
    same `missing` gives the corpus back.

    >>> import sys
    >>> corpus = Corpus([[("Ann", "NNP"), ("ran", "VBD")]], [["B", None]])
    >>> write_columns(sys.stdout, corpus, [["B", "O"]])
    Ann NNP B B
    ran VBD _ O
    <BLANKLINE>
    """
    values: list[Sequence[Sequence[str | None]]] = list(extra_columns)
    for k, column in enumerate(extra_columns):
        _check_shape(f"extra column {k}", column, corpus.sentences)
    if corpus.labels is not None:
        values.insert(0, corpus.labels)
    texts = _sentence_texts(corpus, values, missing)
    if target == "-":
        _write(sys.stdout, "<standard stream>", texts)
    elif isinstance(target, str | os.PathLike):
        with replacing(target, encoding) as stream:
            _write(stream, source_name(target), texts)
    else:
        _write(target, source_name(target), texts)


def _sentence_texts(
    corpus: Corpus, values: list[Sequence[Sequence[str | None]]], missing: str
) -> Iterator[str]:
    """Yield the text of each sentence with its blank line; refuse what would not read back."""
    if not len(corpus):
        raise DataError("the corpus has no sentence, and a file without tokens cannot be read back")
    for column in values:
        flat = set(chain.from_iterable(column))
        if None in flat and missing in flat:
            raise DataError(
                f"{missing!r} is a label and also the mark of a missing one; give another missing="
            )
    for i, rows in enumerate(corpus.sentences):
        if not rows:
            raise DataError(f"sentence {i} has no token, which a column file cannot say; drop it")
        lines = []
        for t, row in enumerate(rows):
            tags = (column[i][t] for column in values)
            line = [*row, *(missing if tag is None else tag for tag in tags)]
            _check_writable(line, i, t)
            lines.append(" ".join(line))
        yield "\n".join(lines) + "\n\n"


def _check_writable(line: list[str], i: int, t: int) -> None:
    for k, value in enumerate(line):
        if not isinstance(value, str) or not value or _BREAKS.search(value):
            raise DataError(
                f"sentence {i}, token {t}, column {k}: {value!r} cannot stand in a column file; "
                "values are strings that are not empty and hold no space, tab or line end"
            )
    if not line:
        raise DataError(f"sentence {i}, token {t}: there is no column to write")
    if i == t == 0 and line[0].startswith(BOM):
        raise DataError(
            f"sentence 0, token 0: {line[0]!r} begins with U+FEFF, which at the start of a file is "
            "a byte-order mark; remove it"
        )


def _write(stream: IO[str], name: str, texts: Iterable[str]) -> None:
    for i, text in enumerate(texts):
        try:
            stream.write(text)
        except UnicodeEncodeError as error:
            raise DataError(
                f"{name}, sentence {i}: {error.object[error.start]!r} cannot be written in "
                f"{error.encoding}; use encoding='utf-8'"
            ) from None


@contextmanager
def replacing(target: str | os.PathLike[str], encoding: str) -> Iterator[IO[str]]:
    """A text stream whose file takes the place of `target` when the block ends without error."""
    _codec(source_name(target), encoding)
    path = Path(os.path.realpath(target))  # a link stays a link to the new content
    if path.is_dir():
        raise DataError(f"{source_name(target)}: is a folder; name a file in it")
    if not path.parent.is_dir():
        raise DataError(f"{source_name(target)}: there is no folder {path.parent}; make it first")
    if path.exists() and not path.is_file():  # a device or a pipe cannot be replaced
        with open(path, "w", encoding=encoding, newline="\n") as stream:
            yield stream
        return
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, "w", encoding=encoding, newline="\n") as stream:
            yield stream
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
