"""The experiments of [hmsvm] section 8, and the margin rows of [gpsl] Table 1."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from bayeseq.baselines import CRF, HMM, HMSVM, HMPerceptron, StructuredSVM
from bayeseq.data import load_dataset, word_features
from bayeseq.diagnostics import evaluate
from bayeseq.experiments.gpsl import fit_and_score, score_tables
from bayeseq.experiments.rivals import MARGINS
from bayeseq.experiments.setting import (
    N_SPLITS,
    TASKS,
    Case,
    Report,
    by_sentence,
    mean_sd,
    paired,
    run_all,
    table,
)
from bayeseq.labelers import SequenceLabeler

N_SENTENCES, N_FOLDS = 300, 5
KERNEL = "polynomial(degree=2)"
QUIET: dict[str, Any] = {"progress": False}

# In the paper's order of error, the worst first; its CRFs are linear, and so are these.
MODELS: dict[str, Callable[[], SequenceLabeler]] = {
    "HMM": HMM,
    "HM-perceptron": partial(HMPerceptron, kernel=KERNEL, average=False, **QUIET),
    "CRF": partial(CRF, l2=0.0, **QUIET),
    "CRF-B": partial(CRF, l2=0.5, **QUIET),
    "HM-SVM": partial(HMSVM, C=1.0, kernel=KERNEL, **QUIET),
}
# Not in the paper.
MORE: dict[str, Callable[[], SequenceLabeler]] = {
    "HM-perceptron, averaged": partial(HMPerceptron, kernel=KERNEL, **QUIET),
    "HM-SVM, linear": partial(HMSVM, C=1.0, **QUIET),
    "SSVM, linear": partial(StructuredSVM, C=1.0, **QUIET),
}


class _Work(NamedTuple):
    dataset: str
    part: str
    fold: int
    model: str
    options: dict[str, Any]


def _run(work: _Work) -> dict[str, Any]:
    dataset = load_dataset(work.dataset)
    sentences = dataset[work.part].sentences[:N_SENTENCES]
    X = [word_features([row[0] for row in sentence]) for sentence in sentences]
    y = [list(labels) for labels in dataset.labels(work.part)[:N_SENTENCES]]
    train = [i for i in range(N_SENTENCES) if i % N_FOLDS != work.fold]
    test = range(work.fold, N_SENTENCES, N_FOLDS)
    model = {**MODELS, **MORE}[work.model]().set_params(**work.options)
    began = time.process_time()
    model.fit([X[i] for i in train], [y[i] for i in train])
    cpu = time.process_time() - began
    truth = [y[i] for i in test]
    entities = work.dataset == NER
    predicted = model.predict([X[i] for i in test])
    found = evaluate(truth, predicted, entities=entities, bootstrap=2)
    return {
        "dataset": work.dataset,
        "model": work.model,
        "fold": work.fold,
        "error": found.token_error,
        "f1": found.entities.overall.f1 if found.entities is not None else None,
        "cpu": cpu,
        "iterations": model.result_.iterations,
        "converged": model.result_.converged,
        **model.result_.diagnostics,
        **by_sentence(truth, predicted),
    }


def _table(records: list[dict[str, Any]], models: Sequence[str], what: str) -> str:
    with_f1 = records[0]["f1"] is not None
    head = ["", "error %", *(["entity F1 %"] if with_f1 else []), "CPU-seconds of a fit"]
    rows = [head]
    for model in models:
        chosen = [r for r in records if r["model"] == model]
        cells = [mean_sd([r["error"] for r in chosen], 100.0)]
        if with_f1:
            cells.append(mean_sd([r["f1"] for r in chosen], 100.0))
        rows.append([model, *cells, mean_sd([r["cpu"] for r in chosen], 1.0, 1)])
    folds = len({r["fold"] for r in records})
    return table(rows, f"{what}, the first {N_SENTENCES} sentences, {folds} of {N_FOLDS} folds")


def _differences(records: list[dict[str, Any]], models: Sequence[str], base: str = "HM-SVM") -> str:
    """How much more error than the HM-SVM's, on the same sentences."""
    rows = [[f"more error than {base}", "points", "95 % band"]]
    for model in models:
        if model != base:
            difference, lower, upper = paired(records, base, model)
            rows.append([model, f"{difference:+.2f}", f"{lower:+.2f} to {upper:+.2f}"])
    return table(rows, "paired over sentences, bootstrap of sentences")


NER, POS = "conll2002-esp", "wsj-pos"


def _compared(
    name: str,
    dataset: str,
    part: str,
    what: str,
    options: dict[str, dict[str, Any]],
    command: str,
    splits: int | None,
    jobs: int,
    quiet: bool,
) -> Report:
    models = [*MODELS, *MORE]
    work = [
        _Work(dataset, part, fold, model, options.get(model, {}))
        for fold in range(splits or N_FOLDS)
        for model in models
    ]
    report = Report(name, command, records=run_all(_run, work, jobs, quiet))
    report.tables.append(_table(report.records, models, what))
    report.tables.append(_differences(report.records, models))
    return report


def hmsvm_ner(
    command: str, splits: int | None = None, jobs: int = 1, quiet: bool = False, **_: Any
) -> Report:
    """[hmsvm] figure 1: Spanish named entities. `splits` is the number of folds to run."""
    what = "Spanish named entities"
    return _compared("hmsvm-ner", NER, "train", what, {}, command, splits, jobs, quiet)


def hmsvm_pos(
    command: str, splits: int | None = None, jobs: int = 1, quiet: bool = False, **_: Any
) -> Report:
    """[hmsvm] figure 3: part-of-speech tags. The HM-SVMs stop at a duality gap of 5 %."""
    options = {name: {"tol": 0.05} for name in ("HM-SVM", "HM-SVM, linear")}
    what = "Penn part-of-speech tags"
    return _compared("hmsvm-pos", POS, "all", what, options, command, splits, jobs, quiet)


def margins_table1(
    command: str,
    tasks: Sequence[str] = TASKS,
    protocols: Sequence[str] = ("gpstruct",),
    splits: int | None = None,
    jobs: int = 1,
    quiet: bool = False,
) -> Report:
    """The margin rows of [gpsl] Table 1 beside the cross-validated CRF; errors only."""
    models = ("CRFsuite", *MARGINS)
    work = [
        (Case(task, protocols[0], split), model)
        for split in range(splits or N_SPLITS[protocols[0]])
        for task in tasks
        for model in models
    ]
    report = Report("margins-table1", command, records=run_all(fit_and_score, work, jobs, quiet))
    n = splits or N_SPLITS[protocols[0]]
    where = f"{protocols[0]} protocol, {n} splits"
    report.tables = score_tables(report.records, models, tasks, where)[:1]
    return report
