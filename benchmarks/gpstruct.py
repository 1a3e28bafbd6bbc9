"""Sweeps and effective samples a second of the elliptical slice sampler.

    python benchmarks/gpstruct.py [--seconds 8] [--chains 32] [task ...]

On the first published split of each task, with the prior as reference and with a variational
Gaussian, all prior variances 1. A sweep is one elliptical slice move of one chain; seconds are CPU
seconds of one thread. Effective samples are those of the log-likelihood by arviz (bulk), over all
chains, after a warm-up of as long; R-hat says whether to believe them. The GPstruct
authors' code made about 500, 80 and 23 sweeps a CPU-second on segmentation, chunking and Base NP,
on another machine (docs/gpstruct.md has figures of the same one).
Writes benchmarks/results/gpstruct-speed.json and .txt; tasks that are not run keep their lines.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bayeseq import GPStruct
from bayeseq.diagnostics.arviz import convergence_of
from bayeseq.experiments.setting import NAMES, TASKS, Case, Report, load, table
from bayeseq.inference.ensemble import Ensemble
from bayeseq.labelers.gpsc import chain_model, feature_map_of

RESULTS = Path(__file__).parent / "results"
THEIRS = {"segmentation": 500, "chunking": 80, "basenp": 23}


def measured(task: str, reference: str, chains: int, seconds: float) -> dict[str, Any]:
    """Speed and mixing on one task."""
    settings = GPStruct(reference=reference, learn=False, progress=False)
    data = load(Case(task, "gpstruct", 0))
    training = settings._training_data(data.X, data.y, None)
    model = chain_model(settings, training, feature_map_of(settings, training)[0])
    began = time.process_time()
    model, about = settings._reference(model)
    preparing = time.process_time() - began
    rng = np.random.Generator(np.random.SFC64(0))
    ensemble = Ensemble(model, chains, rng, reference=about)
    _sweep(ensemble, seconds / 2)
    ensemble.tune(True)
    _sweep(ensemble, seconds / 2)
    ensemble.tune(False)
    before = ensemble.evaluations
    took, trace = _sweep(ensemble, seconds)
    r_hat, ess = convergence_of(trace.T.unsqueeze(-1).numpy())
    sweeps = trace.numel()
    return {
        "task": task,
        "reference": reference,
        "chains": chains,
        "preparing": preparing,
        "sweeps_per_second": sweeps / took,
        "times_theirs": sweeps / took / THEIRS[task] if task in THEIRS else None,
        "evaluations_per_sweep": (ensemble.evaluations - before) / sweeps,
        "ess_per_second": float(ess[0]) / took,
        "r_hat": float(r_hat[0]),
        "log_likelihood": float(trace.mean()),
    }


def _sweep(ensemble: Ensemble, seconds: float) -> tuple[float, torch.Tensor]:
    """CPU seconds taken, and the log-likelihoods (sweeps, S)."""
    began, trace = time.process_time(), []
    while time.process_time() - began < seconds:
        ensemble.sweep()
        trace.append(ensemble.log_likelihood.clone())
    return time.process_time() - began, torch.stack(trace)


def kept_records(tasks: list[str]) -> list[dict[str, Any]]:
    """What an earlier run found on other tasks."""
    path = RESULTS / "gpstruct-speed.json"
    if not path.exists():
        return []
    return [r for r in json.loads(path.read_text())["records"] if r["task"] not in tasks]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--chains", type=int, nargs="*", default=[1, 32])
    options = parser.parse_args()
    torch.set_num_threads(1)
    records = kept_records(options.tasks)
    for task in options.tasks:
        for reference in ("prior", "variational"):
            for chains in options.chains:
                records.append(measured(task, reference, chains, options.seconds))
                print(records[-1], flush=True)
    tasks, chains = " ".join(options.tasks), " ".join(map(str, options.chains))
    command = f"python benchmarks/gpstruct.py {tasks} --seconds {options.seconds:g}"
    command += f" --chains {chains}"
    write(records, command)


def write(records: list[dict[str, Any]], command: str) -> None:
    """The table and the records behind it."""
    head = ["task", "reference", "chains", "sweeps/s", "× theirs", "evaluations/sweep"]
    rows = [[*head, "ESS/s", "R-hat", "log-likelihood", "preparing (s)"]]
    for r in records:
        times = "" if r["times_theirs"] is None else f"{r['times_theirs']:.0f}"
        rows.append(
            [
                NAMES[r["task"]],
                r["reference"],
                str(r["chains"]),
                f"{r['sweeps_per_second']:.0f}",
                times,
                f"{r['evaluations_per_sweep']:.1f}",
                f"{r['ess_per_second']:.2f}",
                f"{r['r_hat']:.2f}",
                f"{r['log_likelihood']:.0f}",
                f"{r['preparing']:.1f}",
            ]
        )
    report = Report("gpstruct-speed", command, [table(rows, "CPU seconds of one thread")], records)
    print(report.tables[0])
    report.write(RESULTS)


if __name__ == "__main__":
    main()
