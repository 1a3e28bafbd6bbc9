"""bayeseq compare: several models on the same labelled sentences."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from bayeseq import load
from bayeseq.analysis.compare import known_to_all, predictions_of
from bayeseq.cli.evaluate import _read
from bayeseq.cli.inputs import InputFormat, Source, chunks, remark
from bayeseq.data import DataError
from bayeseq.data.columns import replacing
from bayeseq.diagnostics.comparison import Predictions, compare_predictions
from bayeseq.labelers import SequenceLabeler


def run(args: argparse.Namespace) -> int:
    """Print the scores and the differences, and write them where asked for."""
    if len(args.models) < 2:
        raise DataError("one model was named, and nothing to compare it with; `bayeseq evaluate`")
    names = short_names(args.models)
    models = {name: load(folder) for name, folder in zip(names, args.models, strict=True)}
    forms = [
        InputFormat.of(model, f) for model, f in zip(models.values(), args.models, strict=True)
    ]
    sources = _sources(args, forms)
    known = known_to_all(models)
    predictions = {
        name: _predict(name, models[name], form, source, known, args.quiet)
        for name, form, source in zip(names, forms, sources, strict=True)
    }
    for name, model in models.items():
        if not model.has_probabilities:
            remark(f"{name} has no probabilities, so only its labels are scored", args.quiet)
    found = compare_predictions(sources[0].labels, predictions)
    print(found.table())
    if args.json is not None:
        with replacing(args.json, "utf-8") as stream:
            stream.write(json.dumps(found.as_dict(), ensure_ascii=False, indent=2) + "\n")
    return 0


def short_names(folders: list[str]) -> list[str]:
    """The last parts of paths, or all of them where two would be the same.

    >>> short_names(["runs/crf/", "runs/gpsl"]), short_names(["a/model", "b/model"])
    (['crf', 'gpsl'], ['a/model', 'b/model'])
    """
    names = [Path(folder).name or folder for folder in folders]
    found = names if len(set(names)) == len(names) else folders
    if len(set(found)) < len(found):
        raise DataError("the same model was named twice")
    return found


def _sources(args: argparse.Namespace, forms: list[InputFormat]) -> list[Source]:
    """The test sentences as each model wants them; their labels must be the same."""
    kinds = {(form.encoding, form.comments, form.columns, form.label_column) for form in forms}
    if args.file == "-" and len(kinds) > 1:
        raise DataError(
            "the models were fitted to files of different kinds, and standard input can be read "
            "only once; give the name of a file"
        )
    if args.file == "-":
        return [_read(args, forms[0])] * len(forms)
    sources = [_read(args, form) for form in forms]
    for source, folder in zip(sources[1:], args.models[1:], strict=True):
        if source.labels != sources[0].labels:
            raise DataError(
                f"{folder} takes other labels from {args.file} than {args.models[0]} does: they "
                "were fitted to files with the label in another column"
            )
    return sources


def _predict(
    name: str,
    model: SequenceLabeler,
    form: InputFormat,
    source: Source,
    known: set[str],
    quiet: bool,
) -> Predictions:
    labels: list[Sequence[str]] = []
    proba: list[Any] = []
    density: list[np.ndarray] = []
    has_density, first = True, 0
    with tqdm(
        total=source.corpus.n_tokens,
        desc=name,
        unit="token",
        unit_scale=True,
        delay=2,
        leave=False,
        disable=True if quiet else None,
    ) as bar:
        for sentences in chunks(source.corpus.sentences):
            y = source.labels[first : first + len(sentences)]
            found = predictions_of(model, form.transform(sentences), y, known)
            labels += found.labels
            proba += found.proba or []
            has_density = has_density and found.log_density is not None
            density += [] if found.log_density is None else [found.log_density]
            first += len(sentences)
            bar.update(sum(map(len, sentences)))
    if not model.has_probabilities:
        return Predictions(labels)
    whole = np.concatenate(density) if has_density and density else None
    return Predictions(labels, proba, model.classes_.tolist(), whole)
