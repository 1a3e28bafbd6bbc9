"""bayeseq evaluate: score a model on labelled sentences."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from bayeseq import load
from bayeseq.cli.inputs import (
    InputFormat,
    Source,
    chunks,
    counted,
    read_source,
    refuse_file_options,
    remark,
)
from bayeseq.cli.pictures import save_picture
from bayeseq.data import DataError, tags_to_entities
from bayeseq.data.columns import replacing
from bayeseq.diagnostics import Evaluation, confusion, evaluate
from bayeseq.labelers import SequenceLabeler
from bayeseq.plots import (
    plot_confidence_histogram,
    plot_confusion,
    plot_entity_f1,
    plot_reliability,
    plot_risk_coverage,
)


def run(args: argparse.Namespace) -> int:
    """Print the scores, and write what else was asked for."""
    if args.strict is not None:
        tags_to_entities([], scheme=args.strict, strict=True)  # refuses what is no scheme
    model = load(args.model)
    form = InputFormat.of(model, args.model)
    source = _read(args, form)
    y_pred, proba = _predict(model, form, source, args.quiet)
    result = _score(source, y_pred, proba, model.classes_.tolist(), args)
    print(result.table())
    if args.json is not None:
        with replacing(args.json, "utf-8") as stream:
            stream.write(json.dumps(result.as_dict(), ensure_ascii=False, indent=2) + "\n")
    if args.plots is not None:
        folder = Path(args.plots)
        for name, draw in _pictures(result, source, y_pred).items():
            save_picture(draw, folder / name)
        remark(f"pictures: {folder}", args.quiet)
    return 0


def _read(args: argparse.Namespace, form: InputFormat) -> Source:
    source = read_source(
        args.file,
        ("test",),
        quiet=args.quiet,
        label_column=None,
        encoding=args.encoding or form.encoding,
        comments=form.comments,
    )
    refuse_file_options(source, {"encoding": args.encoding})
    if source.dataset is None:
        return form.labelled(source)
    if source.corpus.n_columns != form.columns:
        raise DataError(
            f"{source.name} has {counted(source.corpus.n_columns, 'feature column')}, and the "
            f"model was fitted on {form.columns}"
        )
    return source


def _predict(
    model: SequenceLabeler, form: InputFormat, source: Source, quiet: bool
) -> tuple[list[list[str]], list[np.ndarray] | None]:
    """Labels and probabilities (None where the model has none), with a bar where there are many."""
    y_pred: list[list[str]] = []
    proba: list[np.ndarray] = []
    with tqdm(
        total=source.corpus.n_tokens,
        desc="predicting",
        unit="token",
        unit_scale=True,
        delay=2,
        leave=False,
        disable=True if quiet else None,
    ) as bar:
        for sentences in chunks(source.corpus.sentences):
            X = form.transform(sentences)
            if not model.has_probabilities:
                y_pred += model.predict(X)
            else:
                for labels, p in model.tag(X):
                    y_pred.append(labels)
                    proba.append(p)
            bar.update(sum(map(len, sentences)))
    if not model.has_probabilities:
        name = type(model).__name__
        remark(f"{name} has no probabilities, so only labels are scored", quiet)
        return y_pred, None
    return y_pred, proba


def _score(
    source: Source,
    y_pred: list[list[str]],
    proba: list[np.ndarray] | None,
    classes: list[str],
    args: argparse.Namespace,
) -> Evaluation:
    if args.strict is not None:
        options: dict[str, Any] = {"mode": "strict", "scheme": args.strict, "entities": True}
    elif any(None in labels for labels in source.labels):
        remark("some labels are missing, so entities are not scored", args.quiet)
        options = {"entities": False}
    else:
        options = {}
    return evaluate(source.labels, y_pred, proba, classes, **options)


def _pictures(
    result: Evaluation, source: Source, y_pred: list[list[str]]
) -> dict[str, Callable[[], Any]]:
    """What to draw, by file name."""
    curve, risk, entities = result.reliability, result.risk_coverage, result.entities
    pictures: dict[str, Callable[[], Any]] = {
        "confusion.png": lambda: plot_confusion(confusion(source.labels, y_pred)),
    }
    if curve is not None and risk is not None:  # there are probabilities
        pictures |= {
            "reliability.png": lambda: plot_reliability(curve),
            "risk-coverage.png": lambda: plot_risk_coverage(risk),
            "confidence.png": lambda: plot_confidence_histogram(curve),
        }
    if entities is not None and entities.by_label:
        pictures["entity-f1.png"] = lambda: plot_entity_f1(entities)
    return pictures
