"""bayeseq tag: add a column with predicted labels to a file, as it is read."""

from __future__ import annotations

import argparse
import codecs
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from bayeseq import load
from bayeseq.cli.inputs import TOKENS_AT_ONCE, InputFormat, file_name, watched
from bayeseq.data import Corpus, DataError, iter_columns, write_columns
from bayeseq.data.columns import Rows, replacing
from bayeseq.labelers import ChainLabeler, SequenceLabeler


def run(args: argparse.Namespace) -> int:
    """Tag a file or standard input, in chunks of sentences."""
    model = load(args.model)
    form = InputFormat.of(model, args.model)
    if args.marginals and not model.has_probabilities:
        name = type(model).__name__
        raise DataError(
            f"{args.model} holds a {name}, which has no probabilities; omit --marginals, or fit it "
            f"with -m calibrated -p labeler={name.lower()}"
        )
    if args.decode is not None:
        model.set_params(decode=args.decode)
    encoding = args.encoding or form.encoding
    to_terminal = args.output in (None, "-") and sys.stdout.isatty()
    with _output(args.output, encoding) as out:
        tagger = _Tagger(model, form, args, out)
        with watched(args.file, args.quiet or to_terminal, tagger.flush) as (stream, _):
            for rows in iter_columns(stream, encoding=encoding, comments=form.comments):
                tagger.add(rows)
        tagger.flush()
    return 0


@contextmanager
def _output(path: str | None, encoding: str) -> Iterator[Any]:
    """A text stream in the encoding of the input, which the output repeats."""
    if path in (None, "-"):
        yield codecs.getwriter(encoding)(sys.stdout.buffer)
    else:
        assert path is not None
        with replacing(path, encoding) as stream:
            yield stream


class _Tagger:
    """Collects sentences, and writes them out tagged when there are enough or none come."""

    def __init__(
        self, model: SequenceLabeler, form: InputFormat, args: argparse.Namespace, out: Any
    ) -> None:
        self._model, self._form, self._args, self._out = model, form, args, out
        self._waiting: list[Rows] = []
        self._tokens = 0

    def add(self, rows: Rows) -> None:
        self._waiting.append(rows)
        self._tokens += len(rows)
        if self._tokens >= TOKENS_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        if not self._waiting:
            return
        sentences, self._waiting, self._tokens = self._waiting, [], 0
        name = file_name(self._args.file)
        X = self._form.transform([self._form.split(rows, name)[0] for rows in sentences])
        if self._args.nbest is not None:
            proba = self._model.predict_proba(X) if self._args.marginals else None
            self._write_nbest(sentences, X, proba)
        elif self._args.marginals:
            labels, proba = zip(*self._model.tag(X), strict=True)
            self._write(sentences, list(labels), proba)
        else:
            self._write(sentences, self._model.predict(X), None)
        self._out.flush()

    def _write_nbest(self, sentences: list[Rows], X: Any, proba: list[np.ndarray] | None) -> None:
        if not isinstance(self._model, ChainLabeler):
            raise DataError(f"a {type(self._model).__name__} does not rank labellings; omit -n")
        has_some = self._model.has_probabilities
        ask: Any = self._model.predict_nbest if has_some else self._model.rank_labellings
        for i, best in enumerate(ask(X, self._args.nbest)):
            for rank, (labels, value) in enumerate(best):
                self._out.write(f"# {rank} {value:.6f}\n")
                self._write([sentences[i]], [labels], None if proba is None else [proba[i]])

    def _write(
        self,
        sentences: list[Rows],
        predicted: list[list[str]],
        proba: Sequence[np.ndarray] | None,
    ) -> None:
        columns = [predicted]
        if proba is not None:
            columns = _marginal_columns(predicted, proba, self._model.classes_.tolist())
        write_columns(self._out, Corpus(sentences), *columns)


def _marginal_columns(
    predicted: list[list[str]], proba: Sequence[np.ndarray], classes: list[str]
) -> list[list[list[str]]]:
    """label/probability of the predicted label, then of each label, as `crf_test -v2` has them."""
    number = {label: c for c, label in enumerate(classes)}
    chosen = [
        [f"{label}/{row[number[label]]:.6f}" for label, row in zip(labels, p, strict=True)]
        for labels, p in zip(predicted, proba, strict=True)
    ]
    every = [
        [[f"{label}/{row[c]:.6f}" for row in p] for p in proba] for c, label in enumerate(classes)
    ]
    return [chosen, *every]
