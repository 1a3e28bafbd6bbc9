"""bayeseq fit: learn a model and write it into a folder."""

from __future__ import annotations

import argparse
import inspect
import os
import sys
import warnings
from itertools import chain
from pathlib import Path
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from bayeseq.cli.inputs import (
    SPELLING,
    InputFormat,
    Source,
    counted,
    read_source,
    refuse_file_options,
    remark,
)
from bayeseq.cli.main import INTERRUPTED
from bayeseq.cli.params import labeler_named, parse_params
from bayeseq.data import DataError, Template
from bayeseq.labelers import SequenceLabeler
from bayeseq.labelers.gpsc import GPSC
from bayeseq.labelers.gpsl import GPSL
from bayeseq.labelers.persistence import require_writable


def run(args: argparse.Namespace) -> int:
    """Fit, save, and say how it went. Whatever can be refused is refused before training."""
    labeler = labeler_named(args.model)
    asked = parse_params(labeler, args.param)
    output = Path(args.output)
    _check_output(output)
    source = _read(args)
    form, origin = _input_format(args, source)
    params = {**_params_of_template(labeler, form.template), **asked}
    if "progress" in inspect.signature(labeler).parameters:
        params.setdefault("progress", not args.quiet)
    model = labeler(**params)

    remark(_about_source(source), args.quiet)
    remark(f"features: {origin}", args.quiet)
    if _has_own_features(args, source):
        assert source.dataset is not None
        X = source.dataset.features(source.part)  # fewer than the template's: its vocabulary
    else:
        X = form.transform(source.corpus.sentences, args.quiet)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # result_ says it, and so do we
        model.fit(X, source.labels)
    model.metadata_ = {"input": {**form.as_dict(), **_provenance(source)}}
    model.save(output)
    return _report(model, output, args.quiet)


def _check_output(output: Path) -> None:
    """Refuse a place where the model could not be written: training may take hours."""
    require_writable(output)
    parent = next(folder for folder in output.absolute().parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise DataError(f"{output} cannot be written: there is no right to write in {parent}")


def _read(args: argparse.Namespace) -> Source:
    options = {
        "encoding": args.encoding,
        "label-column": args.label_column,
        "missing": args.missing,
        "comments": args.comments,
    }
    source = read_source(
        args.train,
        ("train", "all"),
        quiet=args.quiet,
        label_column=-1 if args.label_column is None else args.label_column,
        encoding=args.encoding or "utf-8",
        missing=args.missing,
        comments=args.comments,
    )
    refuse_file_options(source, options)
    return source


def _has_own_features(args: argparse.Namespace, source: Source) -> bool:
    """Whether the features are those that come with a dataset."""
    asked = args.template is not None or args.features is not None
    return not asked and source.dataset is not None and source.dataset.template is not None


def _input_format(args: argparse.Namespace, source: Source) -> tuple[InputFormat, str]:
    """How features are made, and in words where that is from."""
    columns = source.corpus.n_columns
    encoding = args.encoding or "utf-8"
    if args.template is not None:
        text, origin = Template.read(args.template, encoding).text, f"template {args.template}"
    elif args.features == SPELLING:
        text, origin = SPELLING, "spelling of the words of the first column"
    elif _has_own_features(args, source):
        assert source.dataset is not None
        assert source.dataset.template is not None
        text, origin = source.dataset.template.text, f"those of {source.dataset.name}"
    else:
        text = Template.default(columns).text
        origin = f"a window of ±2 over {counted(columns, 'column')}; --template gives others"
    label = columns if args.label_column is None else args.label_column % (columns + 1)
    return InputFormat(text, encoding, columns, label, args.missing, args.comments), origin


def _params_of_template(labeler: type[SequenceLabeler], template: Template | None) -> dict:
    """The parameters that the B lines of a template ask for."""
    if template is None:
        return {}
    known = inspect.signature(labeler).parameters
    params: dict[str, Any] = {}
    if template.has_pair_features:
        if "pair_prefix" not in known:
            line = next(line for line in template.bigrams if line.macros)
            raise DataError(
                f"template line {line.number} {line.text!r} weighs label pairs by what stands in "
                f"the columns, and {labeler.__name__} cannot; make it a bare B, or use -m crf"
            )
        params["pair_prefix"] = "B"
    if not template.has_transitions:
        if "transitions" in known:
            params["transitions"] = False
        elif "dependencies" in known:
            params["dependencies"] = ()
        else:
            raise DataError(
                "the template has no B line, so labels would not depend on their neighbours, and "
                f"in {labeler.__name__} they always do; add a line B, or use -m crf or -m gpsl"
            )
    return params


def _about_source(source: Source) -> str:
    labels = list(chain.from_iterable(source.labels))
    missing = labels.count(None)
    parts = [
        counted(len(source.corpus), "sentence"),
        counted(len(labels), "token"),
        counted(source.corpus.n_columns, "feature column"),
        counted(len(set(labels) - {None}), "label"),
        *([f"{counted(missing, 'token')} without one"] if missing else []),
    ]
    return f"{source.name}: {', '.join(parts)}"


def _provenance(source: Source) -> dict[str, Any]:
    return {
        "source": source.name,
        "sha256": source.sha256,
        "sentences": len(source.corpus),
        "tokens": source.corpus.n_tokens,
    }


def _report(model: SequenceLabeler, output: Path, quiet: bool) -> int:
    name, result = type(model).__name__, model.result_
    if not result.converged:
        why = result.message or f"{name} stopped after {counted(result.iterations, 'iteration')}"
        hint = "" if result.interrupted else "; -p max_iter=N allows more"
        print(f"bayeseq: warning: not converged: {why}{hint}", file=sys.stderr)
    size = counted(model.feature_space_.n_features, "feature")
    if hasattr(model, "weights_"):
        size += f", {counted(len(model.weights_), 'weight')}"
    swept = isinstance(model, GPSL) or (isinstance(model, GPSC) and model.inference != "map")
    step, goal = ("sweep", "bound") if swept else ("iteration", "objective")
    objective = f"{goal} {result.objective[-1]:.6g}" if result.objective else f"no {goal} yet"
    remark(
        f"{name}: {size}; {'converged' if result.converged else 'stopped'} after "
        f"{counted(result.iterations, step)} in {result.seconds:.1f} s, {objective}",
        quiet,
    )
    if result.diagnostics:
        remark(", ".join(f"{k} {v:.3g}" for k, v in result.diagnostics.items()), quiet)
    if any(key in result.hyperparameters for key in (*_TITLES, "kernel")):
        remark(_learned(result.hyperparameters), quiet)
    remark(f"model: {output}", quiet)
    return INTERRUPTED if result.interrupted else 0


def _learned(found: dict[str, Any]) -> str:
    """Hyper-parameters as a table: prior variances, the largest first, and how scores are weighed.

    >>> print(_learned({"variance": {"w": 0.5, "bias": 20.0}, "scales": {"local": 1.0}}))
    prior variance  bias    20
                    w      0.5
    scale           local    1
    """
    rows: list[list[str]] = []
    for key, title in _TITLES.items():
        values = found.get(key, {})
        ranked = sorted(values.items(), key=lambda item: -_largest(item[1]))
        if key in ("scales", "dependency_variance"):
            ranked = list(values.items())
        for k, (name, value) in enumerate(ranked[:_ROWS]):
            rows.append(["" if k else title, name, _number(value)])
        if len(ranked) > _ROWS:
            rows.append(["", f"{counted(len(ranked) - _ROWS, 'group')} more", "less"])
    if "spread" in found:
        rows.append(["spread", "of draws", _number(found["spread"])])
    if "kernel" in found:
        rows.insert(0, ["kernel", str(found["kernel"]), ""])
    widths = [max(len(row[k]) for row in rows) for k in (0, 1)]
    right = max(len(row[2]) for row in rows)
    return "\n".join(f"{a:{widths[0]}}  {b:{widths[1]}}  {c:>{right}}".rstrip() for a, b, c in rows)


_TITLES = {
    "variance": "prior variance",
    "group_weight": "weight in kernel",
    "dependency_variance": "label at offset",
    "scales": "scale",
}
_ROWS = 12
"""Groups that the table shows at most."""


def _largest(value: float | list[float]) -> float:
    return max(value) if isinstance(value, list) else value


def _number(value: float | list[float]) -> str:
    """One number, or from the least to the largest where each label has its own."""
    if isinstance(value, list):
        return f"{min(value):.3g} to {max(value):.3g}"
    return f"{value:.3g}"
