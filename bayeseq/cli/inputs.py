"""What the verbs share: reading column files and datasets, and making features of them."""

from __future__ import annotations

import hashlib
import io
import os
import select
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import IO, Any, NamedTuple

from tqdm import tqdm

from bayeseq.data import Corpus, DataError, Dataset, Template, load_dataset, word_features
from bayeseq.data.columns import Rows, read_columns, write_columns
from bayeseq.labelers import SequenceLabeler

SPELLING = "spelling"
DATASET = "dataset:"
TOKENS_AT_ONCE = 10_000
"""Tokens that are predicted together: enough to be fast, few enough for any memory."""


@dataclass(frozen=True)
class InputFormat:
    """How a model's column files are read and turned into features; `metadata_["input"]` of a
    model that the command line fitted holds it, so that nobody has to say it again."""

    features: str
    """The text of a template, or "spelling" """
    encoding: str
    columns: int
    """How many feature columns there are"""
    label_column: int
    """Where the label stands, from 0, in a row that has it"""
    missing: str | None
    comments: str | None

    @classmethod
    def of(cls, model: SequenceLabeler, folder: str) -> InputFormat:
        """The format that a model was fitted on."""
        found: Any = model.metadata_.get("input")
        kinds = {"columns": int, "label_column": int, "features": str, "encoding": str}
        try:
            values = {field.name: found[field.name] for field in fields(cls)}
            if not all(isinstance(values[name], kind) for name, kind in kinds.items()):
                raise TypeError
        except (KeyError, TypeError):
            raise DataError(
                f"{folder} does not say how to make features of the columns of a file, as "
                "`bayeseq fit` would have written it; load this model in Python with bayeseq.load"
            ) from None
        return cls(**values)

    def as_dict(self) -> dict[str, Any]:
        """The fields as JSON can hold them."""
        return asdict(self)

    @cached_property
    def template(self) -> Template | None:
        """The template, None where spelling makes the features."""
        return None if self.features == SPELLING else Template.parse(self.features)

    def transform(self, sentences: Sequence[Rows], quiet: bool = True) -> list[list[list[str]]]:
        """The features of sentences of rows of feature columns."""
        if self.template is not None:
            return self.template.transform(sentences)
        bar = tqdm(
            sentences, desc="spelling", delay=2, leave=False, disable=True if quiet else None
        )
        return [word_features([row[0] for row in rows]) for rows in bar]

    def split(self, rows: Rows, name: str) -> tuple[Rows, list[str] | None]:
        """The feature columns of a sentence of the file `name`, and its labels if it has any."""
        width = len(rows[0])
        if width == self.columns:
            return rows, None
        if width == self.columns + 1:
            k = self.label_column
            return [(*row[:k], *row[k + 1 :]) for row in rows], [row[k] for row in rows]
        raise DataError(
            f"{name}: {counted(width, 'column')} found, and the model was fitted on "
            f"{counted(self.columns, 'column')} and a label; give it a file with the columns of "
            "its training file"
        )

    def labelled(self, source: Source) -> Source:
        """A file that was read without looking for labels, now with those that it must have."""
        sentences: list[Rows] = []
        labels: list[list[str | None]] = []
        for rows in source.corpus.sentences:
            features, tags = self.split(rows, source.name)
            if tags is None:
                raise DataError(
                    f"{source.name}: {counted(self.columns, 'column')} found, which the model "
                    "takes for features, and no labels; add a column with the true labels, or use "
                    "`bayeseq tag`"
                )
            sentences.append(features)
            labels.append([None if tag == self.missing else tag for tag in tags])
        return source._replace(corpus=Corpus(sentences, labels))


class Source(NamedTuple):
    """Sentences, and where they are from."""

    corpus: Corpus
    name: str
    sha256: str
    """Of the file, or of the column file that a part of a dataset would be"""
    dataset: Dataset | None = None
    part: str = ""

    @property
    def labels(self) -> list[list[str | None]]:
        """The labels; a dataset may have none."""
        if self.dataset is not None:
            return self.dataset.labels(self.part)
        assert self.corpus.labels is not None  # fit and evaluate see to it
        return self.corpus.labels


def read_source(
    text: str,
    parts: Sequence[str],
    *,
    quiet: bool,
    label_column: int | None = -1,
    encoding: str = "utf-8",
    missing: str | None = None,
    comments: str | None = None,
) -> Source:
    """Read a column file, "-" or `dataset:NAME[:PART]`; the first of `parts` that a
    dataset has is meant when none is named. The options are for files only."""
    if text.startswith(DATASET):
        return _read_dataset(text, parts)
    with watched(text, quiet) as (stream, digest):
        corpus = read_columns(
            stream,
            label_column=label_column,
            encoding=encoding,
            missing=missing,
            comments=comments,
        )
    return Source(corpus, file_name(text), digest())


def _read_dataset(text: str, parts: Sequence[str]) -> Source:
    name, _, part = text.removeprefix(DATASET).partition(":")
    dataset = load_dataset(name)
    part = part or next((part for part in parts if part in dataset.parts), parts[0])
    written = io.StringIO()
    write_columns(written, dataset[part])
    sha256 = hashlib.sha256(written.getvalue().encode()).hexdigest()
    return Source(dataset[part], f"{DATASET}{name}:{part}", sha256, dataset, part)


def refuse_file_options(source: Source, given: Mapping[str, object]) -> None:
    """Refuse options about a file, given or None, where a dataset is read."""
    for name, value in given.items():
        if value is not None and source.dataset is not None:
            raise DataError(f"--{name} is for files and {source.name} is none; leave it out")


def file_name(path: str) -> str:
    """What messages call a file."""
    return "standard input" if path == "-" else path


@contextmanager
def watched(
    path: str, quiet: bool, before_waiting: Callable[[], None] | None = None
) -> Iterator[tuple[IO[bytes], Callable[[], str]]]:
    """A file or "-" opened for reading in binary, under a progress bar, and its SHA-256 so far.

    `before_waiting` is called when the next part of the input is not there yet.
    """
    if path == "-":
        with _watch(sys.stdin.buffer, path, quiet, before_waiting) as found:
            yield found
    else:
        with open(path, "rb") as stream, _watch(stream, path, quiet, before_waiting) as found:
            yield found


@contextmanager
def _watch(
    stream: Any, path: str, quiet: bool, before_waiting: Callable[[], None] | None
) -> Iterator[tuple[IO[bytes], Callable[[], str]]]:
    with tqdm(
        total=_size(stream),
        desc=f"reading {file_name(path)}",
        unit="B",
        unit_scale=True,
        delay=2,
        leave=False,
        disable=True if quiet else None,
    ) as bar:
        raw = _WatchedStream(stream, file_name(path), bar, before_waiting)
        yield io.BufferedReader(raw, 1 << 16), raw.digest.hexdigest


class _WatchedStream(io.RawIOBase):
    """Passes bytes on; on the way they are hashed and counted."""

    def __init__(
        self, stream: Any, name: str, bar: tqdm, before_waiting: Callable[[], None] | None
    ) -> None:
        super().__init__()
        self.name = name  # what the reader's error messages call it
        self.digest = hashlib.sha256()
        self._stream, self._bar, self._before_waiting = stream, bar, before_waiting

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._before_waiting is not None and not _ready(self._stream):
            self._before_waiting()
        n: int = self._stream.readinto1(buffer)
        self.digest.update(memoryview(buffer)[:n])
        self._bar.update(n)
        return n


def _ready(stream: Any) -> bool:
    """Whether reading would not have to wait; yes where the system cannot tell."""
    try:
        return bool(select.select([stream], [], [], 0)[0])
    except (OSError, ValueError):
        return True


def _size(stream: Any) -> int | None:
    """The bytes of a regular file; None for a pipe and the like."""
    try:
        status = os.fstat(stream.fileno())
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def chunks(sentences: Sequence[Rows]) -> Iterator[Sequence[Rows]]:
    """Consecutive sentences, about as many tokens at once as are predicted together.

    >>> [len(chunk) for chunk in chunks([[("a",)] * 6000] * 3)]
    [2, 1]
    """
    first, tokens = 0, 0
    for i, rows in enumerate(sentences):
        tokens += len(rows)
        if tokens >= TOKENS_AT_ONCE or i == len(sentences) - 1:
            yield sentences[first : i + 1]
            first, tokens = i + 1, 0


def remark(text: str, quiet: bool) -> None:
    """Say on standard error how things are going."""
    if not quiet:
        print(text, file=sys.stderr, flush=True)


def counted(n: int, noun: str) -> str:
    """A number and its noun.

    >>> counted(1, "label"), counted(1200, "token")
    ('1 label', '1,200 tokens')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"
