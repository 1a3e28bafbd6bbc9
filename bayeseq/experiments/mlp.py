"""The experiments of [mlp] and [mlp-slides]: named entities, and trees against sequences."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bayeseq import (
    CRF,
    HMM,
    LABELERS,
    DAGKernel,
    DataError,
    GappySequenceKernel,
    MarginalizedPerceptron,
    MarginalizedSVM,
    SequenceKernel,
    TreeKernel,
    corpus_trees,
    load_dataset,
    word_features,
)
from bayeseq.experiments.setting import Report, by_sentence, mean_sd, paired, run_all, table

OUTSIDE = "O"
PUBLISHED = {  # [mlp-slides]: precision, recall and F1 of labels, per cent, with deviations
    "HM-perceptron, window 3": ("23.8±14.6", "17.9±3.0", "18.6±5.2"),
    "perceptron, sequence kernel as in [mlp]": ("49.0±6.0", "23.1±8.1", "30.5±6.7"),
}
QUIET: dict[str, Any] = {"progress": False}
NO_CONTEXT = 1e-9
"""A c so small that what surrounds a position does not count."""


class _Model(NamedTuple):
    """A labeler, and how far its features look to each side."""

    labeler: Any
    window: int = 0


class _Work(NamedTuple):
    model: str
    fold: int
    folds: int


# ---- Spanish named entities ---------------------------------------------------------------------


def _ner_models() -> dict[str, _Model]:
    as_published = SequenceKernel(c=1.0, unit=False, normalize=False)
    found = {
        "HMM, window 3": _Model(HMM(), 1),
        "CRF, window 3": _Model(CRF(l2=0.5, **QUIET), 1),
        "CRF, no window": _Model(CRF(l2=0.5, **QUIET)),
        "kernel perceptron, window 3": _Model(
            MarginalizedPerceptron(SequenceKernel(c=NO_CONTEXT), **QUIET), 1
        ),
        "perceptron, sequence kernel as in [mlp]": _Model(
            MarginalizedPerceptron(as_published, average=False, shuffle=False, max_iter=10, **QUIET)
        ),
        "perceptron, sequence kernel": _Model(MarginalizedPerceptron(**QUIET)),
        "perceptron, skipping": _Model(MarginalizedPerceptron(SequenceKernel(skip=True), **QUIET)),
        "perceptron, gappy kernel": _Model(MarginalizedPerceptron(GappySequenceKernel(), **QUIET)),
        "SVM, sequence kernel": _Model(MarginalizedSVM(**QUIET)),
        "perceptron, HMM prior": _Model(MarginalizedPerceptron(prior="hmm", **QUIET)),
        "perceptron, CRF prior": _Model(MarginalizedPerceptron(prior="crf", **QUIET)),
        "SVM, CRF prior": _Model(MarginalizedSVM(prior="crf", **QUIET)),
    }
    if "HMPerceptron" in LABELERS:
        plain = LABELERS["HMPerceptron"](kernel="polynomial", average=False, **QUIET)
        averaged = LABELERS["HMPerceptron"](kernel="polynomial", **QUIET)
        found = {
            "HM-perceptron, window 3": _Model(plain, 1),
            "HM-perceptron, window 3, averaged": _Model(averaged, 1),
            **found,
        }
    return found


def ner(
    command: str,
    tasks: Sequence[str] | None = None,
    protocols: Sequence[str] | None = None,
    splits: int | None = None,
    jobs: int = 1,
    quiet: bool = False,
) -> Report:
    """Spanish named entities by label, first 300 sentences, five folds: [mlp-slides]' table."""
    _refuse_choices("mlp-ner", tasks, protocols)
    work = [_Work(model, fold, 5) for fold in range(splits or 5) for model in _ner_models()]
    return _ner_report(command, run_all(_label_entities, work, jobs, quiet))


def _ner_report(command: str, records: list[dict[str, Any]]) -> Report:
    report = Report("mlp-ner", command, records=records)
    rows = [["", "precision %", "recall %", "F1 %", "accuracy %", "CPU-seconds"]]
    for model in _ner_models():
        chosen = [r for r in records if r["model"] == model]
        if not chosen:
            continue
        scores = ("precision", "recall", "f1", "accuracy")
        cells = [mean_sd([r[score] for r in chosen], 100.0, 1) for score in scores]
        rows.append([model, *cells, f"{np.mean([r['cpu'] for r in chosen]):.1f}"])
        if model in PUBLISHED:
            rows.append(["  [mlp-slides]", *PUBLISHED[model], "", ""])
    folds = len({r["fold"] for r in records})
    title = (
        f"conll2002-esp, first 300 sentences, {folds} of 5 folds (sentence i in fold i mod 5);\n"
        "precision and recall of labels other than O, counted over tokens, mean over folds"
    )
    report.tables.append(table(rows, title))
    return report


def _label_entities(work: _Work) -> dict[str, Any]:
    corpus = load_dataset("conll2002-esp")["train"][:300]
    model = _ner_models()[work.model]
    X = [word_features(words, window=model.window) for words in corpus.tokens]
    assert corpus.labels is not None
    predicted, truth, found = _held_out(work, model.labeler, X, corpus.labels)
    right = sum(
        a == b != OUTSIDE
        for y, p in zip(truth, predicted, strict=True)
        for a, b in zip(y, p, strict=True)
    )
    named = sum(label != OUTSIDE for labels in predicted for label in labels)
    there = sum(label != OUTSIDE for labels in truth for label in labels)
    scores = {
        "precision": right / max(named, 1),
        "recall": right / max(there, 1),
        "f1": 2 * right / max(named + there, 1),
    }
    return {**found, **scores}


# ---- dependency trees ---------------------------------------------------------------------------


def _tree_models() -> dict[str, _Model]:
    kernels: dict[str, Any] = {
        "no context": SequenceKernel(c=NO_CONTEXT),
        "sequence kernel": SequenceKernel(),
        "tree kernel": TreeKernel(),
        "DAG kernel": DAGKernel(),
    }
    found = {
        f"perceptron, {name}": _Model(MarginalizedPerceptron(kernel, **QUIET))
        for name, kernel in kernels.items()
    }
    return {**found, "CRF, no window": _Model(CRF(l2=0.5, **QUIET))}


def trees(
    command: str,
    tasks: Sequence[str] | None = None,
    protocols: Sequence[str] | None = None,
    splits: int | None = None,
    jobs: int = 1,
    quiet: bool = False,
) -> Report:
    """Parts of speech from words and spelling, 300 dependency trees, three folds: the tree kernel
    against the sequence kernel on the same sentences."""
    _refuse_choices("mlp-trees", tasks, protocols)
    work = [_Work(model, fold, 3) for fold in range(splits or 3) for model in _tree_models()]
    report = Report("mlp-trees", command, records=run_all(_label_words, work, jobs, quiet))
    models = list(_tree_models())
    rows = [["", "accuracy %", "CPU-seconds"]]
    for model in models:
        chosen = [r for r in report.records if r["model"] == model]
        seconds = np.mean([r["cpu"] for r in chosen])
        rows.append([model, mean_sd([r["accuracy"] for r in chosen], 100.0), f"{seconds:.1f}"])
    title = f"wsj-dependencies, first 300 sentences, {splits or 3} of 3 folds: parts of speech"
    report.tables.append(table(rows, title))
    base = "perceptron, sequence kernel"
    rows = [[f"against {base}", "accuracy, points", "95 % band"]]
    for model in models:
        if model != base:
            difference, lower, upper = paired(report.records, model, base)
            rows.append([model, f"{difference:+.2f}", f"{lower:+.2f} to {upper:+.2f}"])
    report.tables.append(table(rows, "paired over sentences, bootstrap of sentences"))
    return report


def _label_words(work: _Work) -> dict[str, Any]:
    words = corpus_trees(load_dataset("wsj-dependencies")["all"][:300])
    X = [tree.with_nodes(word_features([row[0] for row in tree], window=0)) for tree in words]
    y = [[row[1] for row in tree] for tree in words]
    predicted, truth, found = _held_out(work, _tree_models()[work.model].labeler, X, y)
    return {**found, **by_sentence(truth, predicted)}


# ---- both ---------------------------------------------------------------------------------------


def _held_out(
    work: _Work, labeler: Any, X: Sequence[Any], y: Sequence[Sequence[Any]]
) -> tuple[list[list[str]], list[Sequence[Any]], dict[str, Any]]:
    """Predicted and true labels of one fold, and what all experiments write down."""
    test = [i for i in range(len(X)) if i % work.folds == work.fold]
    train = [i for i in range(len(X)) if i % work.folds != work.fold]
    began = time.process_time()
    labeler.fit([X[i] for i in train], [y[i] for i in train])
    cpu = time.process_time() - began
    truth = [y[i] for i in test]
    predicted = labeler.predict([X[i] for i in test])
    tokens = sum(map(len, truth))
    right = sum(
        a == b
        for labels, p in zip(truth, predicted, strict=True)
        for a, b in zip(labels, p, strict=True)
    )
    result = labeler.result_
    found = {
        "model": work.model,
        "fold": work.fold,
        "accuracy": right / tokens,
        "cpu": cpu,
        "iterations": result.iterations,
        "converged": result.converged,
    }
    return predicted, truth, found


def _refuse_choices(name: str, tasks: Any, protocols: Any) -> None:
    if tasks is not None or protocols is not None:
        raise DataError(f"{name} has one task and one protocol; leave out --tasks and --protocols")
