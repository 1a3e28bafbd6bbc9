"""The experiments of [gpsl]: Tables 1 to 3, and other kernels on the same tasks."""

from __future__ import annotations

import re
import resource
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import ttest_rel

from bayeseq.data import DataError
from bayeseq.experiments.rivals import MARGINS, fit_margins
from bayeseq.experiments.setting import (
    N_SPLITS,
    NAMES,
    SEED,
    TASKS,
    Case,
    CRFsuite,
    Report,
    load,
    mean_sd,
    run_all,
    scored,
    table,
)
from bayeseq.inference.scales import Scales
from bayeseq.labelers import SequenceLabeler
from bayeseq.labelers.gpsc import GPSC
from bayeseq.labelers.gpsl import GPSL
from bayeseq.labelers.gpstruct import GPStruct

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
    "SSVM": (5.19, 10.71, 23.46, 6.17),
    "GPStruct": (5.66, 12.56, 23.55, 7.79),
}
PUBLISHED_SECONDS = {  # [gpsl] Table 2
    "GPSL1": (6010, 1090, 17.1, 1240),
    "GPSL2": (6690, 1350, 19.6, 1560),
    "GPSL4": (7250, 1710, 22.8, 1930),
}
QUIET: dict[str, Any] = {"progress": False, "random_state": SEED}


CHAIN_PARAMS: dict[str, dict[str, Any]] = {
    "GPSC, MAP": {"inference": "map"},
    "GPSC, Laplace": {"inference": "laplace"},
    "GPSC, VG": {"inference": "vg"},
    "GPStruct": {},
}
CHAINS: dict[str, type[SequenceLabeler]] = dict.fromkeys(CHAIN_PARAMS, GPSC)
CHAINS["GPStruct"] = GPStruct
"""The Gaussian-process chains of [gpsc] on the tasks of [gpsl]"""


class Work(NamedTuple):
    """A model to be fitted to one partition, some of its training labels missing."""

    case: Case
    model: str
    params: dict[str, Any]
    missing: float = 0.0


def _fit_and_score(work: Work) -> dict[str, Any]:
    data = load(work.case)
    began, cpu = time.perf_counter(), time.process_time()
    model: Any
    if work.model == "CRFsuite":
        model = CRFsuite().fit(data.X, data.y)
        classes, extra = model.classes, {"c2": model.c2, "one fit": model.seconds}
    elif work.model in MARGINS:
        return fit_margins(work.case, work.model, data)
    else:
        kind = CHAINS.get(work.model, GPSL)
        model = kind(**work.params, **QUIET).fit(data.X, data.y)
        classes = model.classes_.tolist()
        result = model.result_
        extra = {"bound": result.objective[-1], "sweeps": result.iterations}
        learned = ("scales", "spread", "r_hat", "ess")
        extra |= {k: v for k, v in result.hyperparameters.items() if k in learned}
    seconds = {"wall": time.perf_counter() - began, "cpu": time.process_time() - cpu}
    found = scored(data, model.predict(data.X_test), model.predict_proba(data.X_test), classes)
    return {**work.case._asdict(), "model": work.model, **found._asdict(), **seconds, **extra}


def fit_and_score(work: tuple[Case, str]) -> dict[str, Any]:
    """The record of one model of Table 1, with its own settings, on one partition."""
    return _fit_and_score(Work(*work, {}))


# ---- Table 1 ------------------------------------------------------------------------------------


def table1(
    command: str,
    tasks: Sequence[str] = TASKS,
    protocols: Sequence[str] = ("gpstruct", "random"),
    splits: int | None = None,
    jobs: int = 1,
    quiet: bool = False,
    models: Sequence[str] | None = None,
) -> Report:
    """Error, log loss and calibration of GPSL1, 2, 4, the Gaussian-process chains and a
    cross-validated CRF on four tasks; `models` asks for some of them."""
    params: dict[str, dict[str, Any]] = {"CRFsuite": {}}
    params |= {name: {"dependencies": o} for name, o in OFFSETS.items()}
    params["GPSL2, none hidden"] = {"dependencies": (-1, 1), "hidden": 0.0}
    params |= CHAIN_PARAMS
    params |= {name: {} for name in MARGINS}
    chosen_models = list(params) if models is None else _known(models, params)
    work = [
        Work(Case(task, protocol, split), model, params[model])
        for protocol in protocols
        for split in range(splits or N_SPLITS[protocol])
        for task in tasks
        for model in chosen_models
    ]
    name = "gpsl-table1" + (f"-{protocols[0]}" if len(protocols) == 1 else "")
    if models is not None:
        name += "-" + "_".join(re.sub("[^a-z0-9]+", "-", model.lower()) for model in chosen_models)
    report = Report(name, command, records=run_all(_fit_and_score, work, jobs, quiet))
    for protocol in protocols:
        chosen = [r for r in report.records if r["protocol"] == protocol]
        n = len({r["split"] for r in chosen})
        where = f"{protocol} protocol, {n} splits"
        report.tables += score_tables(chosen, chosen_models, tasks, where)
        report.tables.append(_time_table(chosen, chosen_models, tasks, where))
    return report


def _known(models: Sequence[str], params: dict[str, Any]) -> list[str]:
    """The models asked for, by their names or those without spaces and commas."""
    plain = {re.sub("[^a-z0-9]+", "", name.lower()): name for name in params}
    asked = [re.sub("[^a-z0-9]+", "", name.lower()) for name in models]
    for name, given in zip(asked, models, strict=True):
        if name not in plain:
            raise DataError(f"there is no model {given!r}; choose from {', '.join(plain)}")
    return [plain[name] for name in asked]


def score_tables(
    records: list[dict[str, Any]], models: Sequence[str], tasks: Sequence[str], where: str
) -> list[str]:
    """Error, log loss and calibration of models (rows) on tasks (columns)."""

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
            if score != "error" and model in MARGINS:  # they have no probabilities
                continue
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


def _time_table(
    records: list[dict[str, Any]], models: Sequence[str], tasks: Sequence[str], where: str
) -> str:
    """CPU-seconds of training, and over one CRFsuite fit where that was run."""
    rows = [["", *(NAMES[task] for task in tasks)]]
    for model in models:
        cells = []
        for task in tasks:
            ours = _mean(records, model, task, "cpu")
            fits = [r["one fit"] for r in records if r["task"] == task and "one fit" in r]
            cells.append(f"{ours:.2f}" + (f" ({ours / np.mean(fits):.0f}×)" if fits else ""))
        rows.append([model, *cells])
    title = "CPU-seconds of training (over one CRFsuite fit; CRFsuite's own with cross-validation)"
    return table(rows, f"{title}, {where}")


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
        Work(Case(task, protocols[0], split), model, params)
        for split in range(splits or 1)
        for task in tasks
        for model, params in {"CRFsuite": {}, **settings}.items()
    ]
    records = run_all(_timed, work, 1, quiet, apart=True)
    report = Report("gpsl-table2", command, records=records)
    where = f"{protocols[0]} protocol, {splits or 1} split(s)"
    for clock, title in (("cpu", "CPU-seconds of training"), ("wall", "seconds by the clock")):
        rows = [[f"{title} (over CRFsuite's)", *(NAMES[task] for task in tasks)]]
        theirs = [_mean(records, "CRFsuite", task, clock) for task in tasks]
        rows.append(["CRFsuite, one fit", *(f"{seconds:.2f}" for seconds in theirs)])
        for model in settings:
            ours = [_mean(records, model, task, clock) for task in tasks]
            cells = [f"{a:.2f} ({a / b:.0f}×)" for a, b in zip(ours, theirs, strict=True)]
            rows.append([model, *cells])
            if model in PUBLISHED_SECONDS:
                published = dict(zip(TASKS, PUBLISHED_SECONDS[model], strict=True))
                rows.append([f"  [gpsl] {model}", *(str(published[task]) for task in tasks)])
        report.tables.append(table(rows, f"{title}, {where}"))
    rows = [["MB at most", *(NAMES[task] for task in tasks)]]
    for model in ["CRFsuite", *settings]:
        rows.append([model, *(f"{_mean(records, model, t, 'peak_mb'):.0f}" for t in tasks)])
    report.tables.append(table(rows, "peak memory, each fit in a process of its own"))
    return report


def _mean(records: list[dict[str, Any]], model: str, task: str, what: str) -> float:
    return float(np.mean([r[what] for r in records if (r["model"], r["task"]) == (model, task)]))


def _timed(work: Work) -> dict[str, Any]:
    data = load(work.case)
    # What a process does for the first time, such as loading libraries, is not training.
    GPSL(**work.params, max_iter=2, **QUIET).fit(data.X[:2], data.y[:2])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
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
        "peak_mb_before": before / 1024,
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
        Work(Case(task, protocol, split), "GPSL1", {"dependencies": (-1,)})
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
        ("cpu", 1.0, 2, "CPU-seconds to predict the test part"),
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


def _predicted(work: Work) -> dict[str, Any]:
    data = load(work.case)
    model = GPSL(**work.params, **QUIET).fit(data.X, data.y)
    learned = model.scales_
    found: dict[str, Any] = {**work.case._asdict()}
    for way, settings in WAYS.items():
        model.prediction, model.decode = settings["prediction"], settings["decode"]
        model.scales_ = learned if settings.get("scales", True) else Scales()
        began = time.process_time()
        labels, proba = model.predict(data.X_test), model.predict_proba(data.X_test)
        cpu = time.process_time() - began
        scores = scored(data, labels, proba, model.classes_.tolist())
        found[way] = {**scores._asdict(), "cpu": cpu}
    model.prediction = "rns"
    found["iterations"] = model.refined_scores(data.X_test).iterations
    return found


# ---- other kernels ------------------------------------------------------------------------------


def kernels(
    command: str,
    tasks: Sequence[str] = TASKS,
    protocols: Sequence[str] = ("gpstruct",),
    splits: int | None = None,
    jobs: int = 1,
    quiet: bool = False,
    models: Sequence[str] | None = None,
) -> Report:
    """GPSL1 with other kernels, groups, bounds and covariances, and without calibration; `models`
    asks for some of the rows."""
    params: dict[str, dict[str, Any]] = {
        "CRFsuite": {},
        "linear": {},
        "linear, one group": {"groups": None},
        "linear, tilted bound": {"bound": "tilted"},
        "linear, Jensen's bound": {"bound": "jensen"},
        "linear, diagonal": {"covariance": "diagonal"},
        "linear, as it is fitted": {"calibrate": False},
        "polynomial of degree 2": {"kernel": "polynomial(degree=2)", "inducing": 600},
        "RBF": {"kernel": "rbf(scale=0.05)", "inducing": 600},
        "polynomial, small": {"kernel": "polynomial(degree=2)", **_SMALL},
        "RBF, small": {"kernel": "rbf(scale=0.05)", **_SMALL},
    }
    rows = list(params) if models is None else _known(models, params)
    work = [
        Work(Case(task, protocols[0], split), model, params[model])
        for split in range(splits or N_SPLITS[protocols[0]])
        for task in tasks
        for model in rows
    ]
    report = Report("gpsl-kernels", command, records=run_all(_fit_and_score, work, jobs, quiet))
    n = splits or N_SPLITS[protocols[0]]
    report.tables = score_tables(report.records, rows, tasks, f"GPSL1, {n} splits")
    report.tables.append(_time_table(report.records, rows, tasks, f"GPSL1, {n} splits"))
    return report


_SMALL: dict[str, Any] = {"inducing": 200, "covariance": "diagonal"}
"""For tasks with many labels, where 600 points and a full covariance take an hour"""
