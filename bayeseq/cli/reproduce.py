"""bayeseq reproduce: run a published experiment again and write down what it gives."""

from __future__ import annotations

import argparse
import inspect
import sys
from pathlib import Path

from bayeseq.cli.inputs import remark
from bayeseq.data import DataError
from bayeseq.experiments import EXPERIMENTS
from bayeseq.experiments.journal import journal
from bayeseq.experiments.setting import N_SPLITS, TASKS


def run(args: argparse.Namespace) -> int:
    """Run, print the tables, write the records."""
    if args.experiment not in EXPERIMENTS:
        names = ", ".join(EXPERIMENTS)
        raise DataError(f"there is no experiment {args.experiment!r}; choose one of {names}")
    options = {"tasks": _chosen("--tasks", args.tasks, TASKS), "splits": args.splits}
    if args.protocols is not None:
        options["protocols"] = _chosen("--protocols", args.protocols, tuple(N_SPLITS))
    if args.models is not None:
        if "models" not in inspect.signature(EXPERIMENTS[args.experiment]).parameters:
            raise DataError(f"--models: {args.experiment} has no rows to choose from")
        options["models"] = tuple(args.models.split(","))
    options = {name: value for name, value in options.items() if value is not None}
    experiment = EXPERIMENTS[args.experiment]
    known = inspect.signature(experiment).parameters
    for name in options:
        if name not in known:
            raise DataError(f"{args.experiment} has one task, so it takes no --{name}")
    command = "bayeseq " + " ".join(sys.argv[1:])
    with journal(Path(args.output), args.experiment, command) as kept:
        if kept.records:
            remark(f"{len(kept.records)} runs are taken from {kept.path}", args.quiet)
        report = experiment(command, jobs=args.jobs, quiet=args.quiet, **options)
        print("\n\n".join(report.tables))
        for path in report.write(Path(args.output)):
            remark(str(path), args.quiet)
    return 0


def _chosen(option: str, text: str | None, known: tuple[str, ...]) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = tuple(text.split(","))
    for name in names:
        if name not in known:
            raise DataError(f"{option}: {name!r} is none of {', '.join(known)}")
    return names
