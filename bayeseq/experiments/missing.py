"""Figure 2 of [gpsl]: training labels that are missing, and what one can do about it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bayeseq.baselines import CRF
from bayeseq.experiments.gpsl import OFFSETS, QUIET, Work
from bayeseq.experiments.setting import (
    N_SPLITS,
    NAMES,
    TASKS,
    Case,
    CRFsuite,
    Data,
    Report,
    cut_at_gaps,
    load,
    mean_sd,
    run_all,
    scored,
    table,
)
from bayeseq.labelers.gpsl import GPSL
from bayeseq.plots.missing import plot_missing_labels

FRACTIONS = (0.0, 0.1, 0.3, 0.5)
STRATEGIES = (
    "drop sentences",
    "fill with majority",
    "cut at gaps",
    "partial-label CRF",
)


def figure2(
    command: str,
    tasks: Sequence[str] = TASKS,
    protocols: Sequence[str] = ("gpstruct",),
    splits: int | None = None,
    jobs: int = 1,
    quiet: bool = False,
) -> Report:
    """Error as training labels go missing: GPSL, and what a CRFsuite user can do."""
    models: dict[str, dict[str, Any]] = {
        name: {"dependencies": offsets, "covariance": "diagonal", "hidden": 0.0}
        for name, offsets in OFFSETS.items()
    }
    models["GPSL1, expected labels"] = {**models["GPSL1"], "missing": "expect"}
    models |= {name: {} for name in STRATEGIES}
    work = [
        Work(Case(task, protocols[0], split), model, params, fraction)
        for split in range(splits or N_SPLITS[protocols[0]])
        for task in tasks
        for fraction in FRACTIONS
        for model, params in models.items()
    ]
    found = run_all(_with_missing, work, jobs, quiet)
    report = Report("gpsl-figure2", command, records=found)
    for task in tasks:
        rows = [[NAMES[task], *(f"{f:.0%} missing" for f in FRACTIONS)]]
        for model in models:
            cells = []
            for fraction in FRACTIONS:
                errors = [
                    r["error"]
                    for r in found
                    if (r["task"], r["model"], r["missing"]) == (task, model, fraction)
                ]
                cells.append(mean_sd(errors, 100.0))
            rows.append([model, *cells])
        report.tables.append(table(rows, "error % on the test part"))
    report.picture = partial(_draw_figure2, found, list(models), list(tasks))
    return report


def _with_missing(work: Work) -> dict[str, Any]:
    data = load(work.case)
    rng = np.random.default_rng([work.case.split, int(1000 * work.missing)])
    y = [[None if rng.random() < work.missing else label for label in row] for row in data.y]
    began = time.process_time()
    model: Any
    if work.model in STRATEGIES[:3]:
        X, full = _as_crfsuite_must(work.model, data, y)
        model = CRFsuite().fit(X, full)
        classes = model.classes
    else:
        if work.model == "partial-label CRF":
            model = CRF(l2=0.5, progress=False).fit(data.X, y)
        else:
            model = GPSL(**work.params, **QUIET).fit(data.X, y)
        classes = model.classes_.tolist()
    cpu = time.process_time() - began
    found = scored(data, model.predict(data.X_test), model.predict_proba(data.X_test), classes)
    return {
        **work.case._asdict(),
        "model": work.model,
        "missing": work.missing,
        **found._asdict(),
        "cpu": cpu,
    }


def _as_crfsuite_must(strategy: str, data: Data, y: list[list[Any]]) -> tuple[list, list]:
    """Complete labellings, as CRFsuite asks for them."""
    if strategy == "drop sentences":
        whole = [i for i, row in enumerate(y) if None not in row]
        if not whole:  # then the sentence with the fewest gaps, filled, must do
            whole = [int(np.argmin([row.count(None) / max(len(row), 1) for row in y]))]
        X, kept = [data.X[i] for i in whole], [y[i] for i in whole]
    elif strategy == "cut at gaps":
        return cut_at_gaps(data.X, y)
    else:
        X, kept = data.X, y
    seen = [label for row in y for label in row if label is not None]
    majority = max(sorted(set(seen)), key=seen.count)
    return X, [[majority if label is None else label for label in row] for row in kept]


def _draw_figure2(
    records: list[dict[str, Any]], models: list[str], tasks: list[str], path: Path
) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.5 * len(tasks), 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    for k, task in enumerate(tasks):
        ax = figure.add_subplot(1, len(tasks), k + 1)
        errors = {
            model: [
                [r["error"] for r in records if (r["task"], r["model"], r["missing"]) == key]
                for key in ((task, model, fraction) for fraction in FRACTIONS)
            ]
            for model in models
        }
        by_split = {model: np.array(rows).T for model, rows in errors.items()}
        plot_missing_labels(FRACTIONS, by_split, ax)
        ax.set_title(NAMES[task])
        legend = ax.get_legend()
        if k and legend is not None:
            legend.remove()
    figure.savefig(path, dpi=110)
