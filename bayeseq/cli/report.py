"""bayeseq report: one page about a model and how it does on a file."""

from __future__ import annotations

import argparse
import datetime

from bayeseq import load
from bayeseq.cli.inputs import (
    InputFormat,
    Source,
    counted,
    read_source,
    refuse_file_options,
    remark,
)
from bayeseq.data import DataError, tags_to_entities
from bayeseq.data.columns import Corpus
from bayeseq.report import write_report


def run(args: argparse.Namespace) -> int:
    """Read, ask the model, write the page."""
    if args.strict is not None:
        tags_to_entities([], scheme=args.strict, strict=True)  # refuses what is no scheme
    model = load(args.model)
    form = InputFormat.of(model, args.model)
    source = _read(args, form)
    labels = None if source.corpus.labels is None else source.labels
    write_report(
        args.output,
        model,
        source.corpus.column(0),
        form.transform(source.corpus.sentences, args.quiet),
        labels,
        title=args.title,
        data=source.name,
        date=datetime.date.today().isoformat() if args.date else "",
        sentences=args.sentences,
        draws=args.draws,
        scheme=args.strict,
        quiet=args.quiet,
    )
    remark(f"report: {args.output}", args.quiet)
    return 0


def _read(args: argparse.Namespace, form: InputFormat) -> Source:
    """The sentences, with labels where the file has them."""
    source = read_source(
        args.file,
        ("test",),
        quiet=args.quiet,
        label_column=None,
        encoding=args.encoding or form.encoding,
        comments=form.comments,
    )
    refuse_file_options(source, {"encoding": args.encoding})
    width = source.corpus.n_columns
    if source.dataset is None:
        if width == form.columns:
            return source
        return form.labelled(source)
    if width != form.columns:
        raise DataError(
            f"{source.name} has {counted(width, 'feature column')}, and the model was fitted on "
            f"{form.columns}"
        )
    return source._replace(corpus=Corpus(source.corpus.sentences, source.labels))
