"""The experiments of [gpsl]: Tables 1 to 3, Figure 2, and other kernels on the same tasks."""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import ttest_rel

from bayeseq.baselines import CRF
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
from bayeseq.inference.scales import Scales
from bayeseq.labelers.gpsl import GPSL
from bayeseq.plots.missing import plot_missing_labels

OFFSETS: dict[str, tuple[int, ...]] = {
    "GPSL1": (-1,),
    "GPSL2": (-1, 1),
    "GPSL4": (-2, -1, 1, 2),
}
PUBLISHED = {  # [gpsl] Table 1: error in per cent, ten partitions that are not published
    "GPSL1": (5.73, 13.02, 23.45, 8.26),
    "GPSL2": (5.55, 12.69, 23.51, 7.86),
    "GPSL4": (5.54, 12.70, 23.53, 7.82),
    "CRFsuite": (5.21, 11.76, 24.10, 7.76),
}
PUBLISHED_SECONDS = {  # [gpsl] Table 2
    "GPSL1": (6010, 1090, 17.1, 1240),
    "GPSL2": (6690, 1350, 19.6, 1560),
    "GPSL4": (7250, 1710, 22.8, 1930),
}
QUIET: dict[str, Any] = {"progress": False}


class _Work(NamedTuple):
    case: Case
    model: str
    params: dict[str, Any]
    missing: float = 0.0


def _fit_and_score(work: _Work) -> dict[str, Any]:
    data = load(work.case)
    began, cpu = time.perf_counter(), time.process_time()
    model: Any
    if work.model == "CRFsuite":
        model = CRFsuite().fit(data.X, data.y)
        classes, extra = model.classes, {"c2": model.c2, "one fit": model.seconds}
    else:
        model = GPSL(**work.params, **QUIET).fit(data.X, data.y)
        classes = model.classes_.tolist()
        result = model.result_
        extra = {"bound": result.objective[-1], "sweeps": result.iterations}
        extra["scales"] = result.hyperparameters["scales"]
    seconds = {"wall": time.perf_counter() - began, "cpu": time.process_time() - cpu}
    found = scored(data, model.predict(data.X_test), model.predict_proba(data.X_test), classes)
    return {**work.case._asdict(), "model": work.model, **found._asdict(), **seconds, **extra}


# ---- Table 1 ------------------------------------------------------------------------------------


def table1(
    command: str,
    tasks: Sequence[str] = TASKS,
    protocols: Sequence[str] = ("gpstruct", "random"),
    splits: int | None = None,
    jobs: int = 1,
    quiet: bool = False,
) -> Report:
    """Error, log loss and calibration of GPSL1, 2, 4 and a cross-validated CRF on four tasks."""
    models: dict[str, dict[str, Any]] = {"CRFsuite": {}}
    models |= {name: {"dependencies": o} for name, o in OFFSETS.items()}
    models["GPSL2, none hidden"] = {"dependencies": (-1, 1), "hidden": 0.0}
    work = [
        _Work(Case(task, protocol, split), model, params)
        for protocol in protocols
        for split in range(splits or N_SPLITS[protocol])
        for task in tasks
        for model, params in models.items()
    ]
    name = "gpsl-table1" + (f"-{protocols[0]}" if len(protocols) == 1 else "")
    report = Report(name, command, records=run_all(_fit_and_score, work, jobs, quiet))
    for protocol in protocols:
        chosen = [r for r in report.records if r["protocol"] == protocol]
        n = len({r["split"] for r in chosen})
        report.tables += _score_tables(
            chosen, list(models), tasks, f"{protocol} protocol, {n} splits"
        )
    return report


def _score_tables(
    records: list[dict[str, Any]], models: Sequence[str], tasks: Sequence[str], where: str
) -> list[str]:
    def values(model: str, task: str, score: str) -> list[float]:
        return [r[score] for r in records if r["model"] == model and r["task"] == task]

    tables = []
    for score, scale, digits, title in (
        ("error", 100.0, 2, "error %"),
        ("log_loss", 1.0, 3, "log loss"),
        ("ece", 100.0, 2, "ECE % (floor)"),
    ):
        rows = [["", *(NAMES[task] for task in tasks)]]
        for model in models:
            row = [model]
            for task in tasks:
                cell = mean_sd(values(model, task, score), scale, digits)
                if score == "ece":
                    cell += f" ({100 * np.mean(values(model, task, 'ece_floor')):.1f})"
                elif model != "CRFsuite" and "CRFsuite" in models:
                    cell += _mark(values(model, task, score), values("CRFsuite", task, score))
                row.append(cell)
            rows.append(row)
            if score == "error" and model in PUBLISHED:
                published = dict(zip(TASKS, PUBLISHED[model], strict=True))
                rows.append([f"  [gpsl] {model}", *(f"{published[task]:.2f}" for task in tasks)])
        tables.append(table(rows, f"{title}, {where}; *: differs from CRFsuite (paired t, 5 %)"))
    return tables


def _mark(ours: Sequence[float], theirs: Sequence[float]) -> str:
    if len(ours) < 3 or np.allclose(ours, theirs):
        return ""
    return "*" if ttest_rel(ours, theirs).pvalue < 0.05 else ""


# ---- Table 2 ------------------------------------------------------------------------------------


def table2(
    command: str,
    tasks: Sequence[str] = TASKS,
    protocols: Sequence[str] = ("gpstruct",),
    splits: int | None = None,
    jobs: int = 1,
    quiet: bool = False,
) -> Report:
    """Training time of GPSL with learned hyper-parameters, beside one CRFsuite fit."""
    settings: dict[str, dict[str, Any]] = {
        name: {"dependencies": offsets} for name, offsets in OFFSETS.items()
    }
    settings["GPSL1, diagonal"] = {"dependencies": (-1,), "covariance": "diagonal"}
    settings["GPSL2, diagonal"] = {"dependencies": (-1, 1), "covariance": "diagonal"}
    work = [
        _Work(Case(task, protocols[0], split), model, params)
        for split in range(splits or 1)
        for task in tasks
        for model, params in {"CRFsuite": {}, **settings}.items()
    ]
    report = Report("gpsl-table2", command, records=run_all(_timed, work, 1, quiet))
    rows = [["seconds of wall clock", *(NAMES[task] for task in tasks)]]
    times = {(r["model"], r["task"]): r for r in report.records}
    rows.append(["CRFsuite, one fit", *(f"{times['CRFsuite', t]['wall']:.2f}" for t in tasks)])
    for model in settings:
        cells = []
        for task in tasks:
            ours, theirs = times[model, task]["wall"], times["CRFsuite", task]["wall"]
            cells.append(f"{ours:.1f} ({ours / theirs:.0f}×)")
        rows.append([model, *cells])
        if model in PUBLISHED_SECONDS:
            rows.append([f"  [gpsl] {model}", *map(str, PUBLISHED_SECONDS[model])])
    peak = max(r["peak_mb"] for r in report.records)
    report.tables.append(table(rows, f"training time, split 0; peak memory of all: {peak:.0f} MB"))
    return report


def _timed(work: _Work) -> dict[str, Any]:
    data = load(work.case)
    began, cpu = time.perf_counter(), time.process_time()
    if work.model == "CRFsuite":
        CRFsuite(c2=0.5).fit(data.X, data.y)
    else:
        GPSL(**work.params, **QUIET).fit(data.X, data.y)
    return {
        **work.case._asdict(),
        "model": work.model,
        "wall": time.perf_counter() - began,
        "cpu": time.process_time() - cpu,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


# ---- Table 3 ------------------------------------------------------------------------------------


def table3(
    command: str,
    tasks: Sequence[str] = TASKS,
    protocols: Sequence[str] = ("gpstruct",),
    splits: int | None = None,
    jobs: int = 1,
    quiet: bool = False,
) -> Report:
    """GPSL1 predicted in five ways: [gpsl]'s Algorithm 2, Viterbi, and what else there is."""
    work = [
        _Work(Case(task, protocol, split), "GPSL1", {"dependencies": (-1,)})
        for protocol in protocols
        for split in range(splits or N_SPLITS[protocol])
        for task in tasks
    ]
    found = run_all(_predicted, work, jobs, quiet)
    report = Report("gpsl-table3", command, records=found)
    for score, scale, digits, title in (
        ("error", 100.0, 2, "error %"),
        ("log_loss", 1.0, 3, "log loss"),
        ("ece", 100.0, 2, "ECE %"),
        ("seconds", 1.0, 2, "seconds to predict the test part"),
    ):
        rows = [["", *(NAMES[task] for task in tasks)]]
        for way in WAYS:
            cells = [
                mean_sd([r[way][score] for r in found if r["task"] == t], scale, digits)
                for t in tasks
            ]
            rows.append([way, *cells])
        report.tables.append(table(rows, f"GPSL1, {title}"))
    iterations = [
        f"{np.mean([r['iterations'] for r in found if r['task'] == t]):.1f}" for t in tasks
    ]
    report.tables.append(
        table([["", *(NAMES[t] for t in tasks)], ["sweeps", *iterations]], "sweeps of Algorithm 2")
    )
    return report


WAYS: dict[str, dict[str, Any]] = {
    "Algorithm 2 (RNS)": {"prediction": "rns", "decode": "marginal"},
    "RNS with E[softmax]": {"prediction": "average", "decode": "marginal"},
    "Viterbi, not weighed anew": {"prediction": "chain", "decode": "viterbi", "scales": False},
    "Viterbi": {"prediction": "chain", "decode": "viterbi"},
    "chain marginals": {"prediction": "chain", "decode": "marginal"},
}


def _predicted(work: _Work) -> dict[str, Any]:
    data = load(work.case)
    model = GPSL(**work.params, **QUIET).fit(data.X, data.y)
    learned = model.scales_
    found: dict[str, Any] = {**work.case._asdict()}
    for way, settings in WAYS.items():
        model.prediction, model.decode = settings["prediction"], settings["decode"]
        model.scales_ = learned if settings.get("scales", True) else Scales()
        began = time.perf_counter()
        labels, proba = model.predict(data.X_test), model.predict_proba(data.X_test)
        seconds = time.perf_counter() - began
        scores = scored(data, labels, proba, model.classes_.tolist())
        found[way] = {**scores._asdict(), "seconds": seconds}
    model.prediction = "rns"
    found["iterations"] = model.refined_scores(data.X_test).iterations
    return found


# ---- Figure 2 -----------------------------------------------------------------------------------

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
        _Work(Case(task, protocols[0], split), model, params, fraction)
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


def _with_missing(work: _Work) -> dict[str, Any]:
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
            model = CRF(l2=0.5, **QUIET).fit(data.X, y)
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


# ---- other kernels ------------------------------------------------------------------------------


def kernels(
    command: str,
    tasks: Sequence[str] = TASKS,
    protocols: Sequence[str] = ("gpstruct",),
    splits: int | None = None,
    jobs: int = 1,
    quiet: bool = False,
) -> Report:
    """GPSL1 with other kernels, groups, bounds and covariances, and without calibration."""
    models: dict[str, dict[str, Any]] = {
        "CRFsuite": {},
        "linear": {},
        "linear, one group": {"groups": None},
        "linear, tilted bound": {"bound": "tilted"},
        "linear, Jensen's bound": {"bound": "jensen"},
        "linear, diagonal": {"covariance": "diagonal"},
        "linear, as it is fitted": {"calibrate": False},
        "polynomial of degree 2": {"kernel": "polynomial(degree=2)", "inducing": 600},
        "RBF": {"kernel": "rbf(scale=0.05)", "inducing": 600},
    }
    work = [
        _Work(Case(task, protocols[0], split), model, params)
        for split in range(splits or N_SPLITS[protocols[0]])
        for task in tasks
        for model, params in models.items()
    ]
    report = Report("gpsl-kernels", command, records=run_all(_fit_and_score, work, jobs, quiet))
    n = splits or N_SPLITS[protocols[0]]
    report.tables = _score_tables(report.records, list(models), tasks, f"GPSL1, {n} splits")
    rows = [["", *(NAMES[task] for task in tasks)]]
    for model in models:
        seconds = [
            mean_sd(
                [r["cpu"] for r in report.records if (r["model"], r["task"]) == (model, t)], 1, 1
            )
            for t in tasks
        ]
        rows.append([model, *seconds])
    report.tables.append(table(rows, "CPU-seconds of training (CRFsuite: with cross-validation)"))
    return report
