"""The experiments of [gpsc]: named entities in Spanish (Table 1), pitch accents (Figure 1)."""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import ttest_rel

from bayeseq.baselines import CRF
from bayeseq.data import load_dataset, word_features
from bayeseq.diagnostics import risk_coverage
from bayeseq.experiments.setting import (
    CRFsuite,
    Data,
    Report,
    chosen,
    mean_sd,
    run_all,
    scored,
    table,
)
from bayeseq.labelers.gpsc import GPSC
from bayeseq.labelers.sparse_gpsc import SparseGPSC
from bayeseq.plots import plot_abstention

FOLDS = 5
SEED = 0
N_SENTENCES = 1000
N_WORDS = 13_000
QUIET: dict[str, Any] = {"progress": False}
PUBLISHED = {"CRF": 4.92, "CRF-B": 4.56, "DGPS1": 4.58, "DGPS2": 4.39, "SGPS2 25%": 4.48}

VARIANCES = {1: (0.1, 0.3, 1.0, 3.0), 2: (0.003, 0.01, 0.03, 0.1, 0.3), 3: (0.001,)}
"""Prior variances to choose from, by the degree of the kernel; for 3, where fits are long, one."""

PENALTIES = (0.1, 0.3, 1.0)


class _Work(NamedTuple):
    task: str
    fold: int
    model: str


# ---- data ---------------------------------------------------------------------------------------


def spanish() -> tuple[list[Any], list[list[Any]]]:
    """1000 sentences of the Spanish training part, drawn with seed 0: the word, its lower case and
    its shape in a window of three, affixes and spelling of the word itself."""
    corpus = load_dataset("conll2002-esp")["train"]
    drawn = np.random.default_rng(SEED).choice(len(corpus), N_SENTENCES, replace=False)
    assert corpus.labels is not None
    X = [word_features([row[0] for row in corpus.sentences[i]]) for i in drawn]
    return X, [list(corpus.labels[i]) for i in drawn]


def prosody() -> tuple[list[Any], list[list[Any]]]:
    """Utterances of the prosody corpus, drawn with seed 0, with 13,000 words in all, as many as
    [gpsc] had: a word is accented where its prominence is above 0. Text features of the word
    before, the word and the word after, their lengths, and the punctuation between them."""
    corpus = load_dataset("prosody")["all"]
    assert corpus.labels is not None
    X: list[Any] = []
    y: list[list[Any]] = []
    for i in np.random.default_rng(SEED).permutation(len(corpus)):
        tokens, labels = _accents([row[0] for row in corpus.sentences[i]], corpus.labels[i])
        if labels:
            X.append(tokens)
            y.append(labels)
        if sum(map(len, y)) >= N_WORDS:
            break
    return X, y


def _accents(words: Sequence[str], labels: Sequence[Any]) -> tuple[list[list[str]], list[str]]:
    """The words that have a label, with their features, and whether they are accented."""
    spoken = [t for t, label in enumerate(labels) if label is not None]
    tokens = word_features([words[t] for t in spoken])
    for k, t in enumerate(spoken):
        between = "".join(words[t + 1 : spoken[k + 1] if k + 1 < len(spoken) else None])
        before = "".join(words[spoken[k - 1] + 1 if k else 0 : t])
        tokens[k] += [f"punctuation[1]={between or 'none'}", f"punctuation[-1]={before or 'none'}"]
        for j in (-1, 0, 1):
            if 0 <= k + j < len(spoken):
                tokens[k].append(f"length[{j}]={min(len(words[spoken[k + j]]), 12)}")
    return tokens, ["accented" if str(labels[t]) > "0" else "plain" for t in spoken]


def _fold(task: str, fold: int) -> Data:
    X, y = spanish() if task == "spanish" else prosody()
    train = [i for i in range(len(X)) if i % FOLDS != fold]
    test = range(fold, len(X), FOLDS)
    return Data(
        [X[i] for i in train], [y[i] for i in train], [X[i] for i in test], [y[i] for i in test]
    )


# ---- models -------------------------------------------------------------------------------------


def _dgps(degree: int, variance: float) -> Any:
    kernel = "linear" if degree == 1 else f"polynomial(degree={degree})"
    return GPSC(
        kernel=kernel,
        inference="map",
        groups=None,
        variance=variance,
        decode="viterbi",
        tol=1e-5,
        max_iter=500,
        **QUIET,
    )


@lru_cache
def _chosen_variance(task: str, fold: int, degree: int) -> float:
    """The prior variance of DGPS, which SGPS takes over."""
    candidates = VARIANCES[degree]
    if len(candidates) == 1:
        return candidates[0]
    return chosen(partial(_dgps, degree), candidates, _fold(task, fold))


def _fitted(work: _Work, data: Data) -> tuple[Any, dict[str, Any]]:
    """The model of a row of a table, fitted, and what was chosen for it on the training part."""
    name = work.model
    if name == "CRFsuite":
        crfsuite = CRFsuite().fit(data.X, data.y)
        return crfsuite, {"c2": crfsuite.c2}
    if name == "CRF":
        return CRF(l2=0.0, **QUIET).fit(data.X, data.y), {}
    if name == "CRF-B":
        l2 = chosen(lambda penalty: CRF(l2=penalty, **QUIET), PENALTIES, data)
        return CRF(l2=l2, **QUIET).fit(data.X, data.y), {"l2": l2}
    if name.startswith("GPSC"):
        inference = "laplace" if "Laplace" in name else "vg"
        model = GPSC(kernel="linear", inference=inference, **QUIET).fit(data.X, data.y)
        return model, model.result_.hyperparameters
    degree = int(name[4])
    variance = _chosen_variance(work.task, work.fold, degree)
    if name.startswith("DGPS"):
        return _dgps(degree, variance).fit(data.X, data.y), {"variance": variance}
    sparse = SparseGPSC(
        f"polynomial(degree={degree})", fraction=_share(name), variance=variance, **QUIET
    ).fit(data.X, data.y)
    return sparse, {"variance": variance, **sparse.result_.hyperparameters}


def _share(name: str) -> float:
    """The fraction in the name of a row: "SGPS2 25%" has 0.25."""
    return float(name.split()[1].strip("%")) / 100


def _fit_and_score(work: _Work) -> dict[str, Any]:
    data = _fold(work.task, work.fold)
    began, cpu = time.perf_counter(), time.process_time()
    model, settings = _fitted(work, data)
    seconds = {"wall": time.perf_counter() - began, "cpu": time.process_time() - cpu}
    labels, proba = model.predict(data.X_test), model.predict_proba(data.X_test)
    classes = model.classes if work.model == "CRFsuite" else model.classes_.tolist()
    found = {
        **work._asdict(),
        **scored(data, labels, proba, classes)._asdict(),
        **seconds,
        "words": sum(map(len, labels)),
        "chosen": settings,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    if (work.task, work.model) == ("prosody", "DGPS2"):  # for the curve of figure 1c
        found["answers"] = [
            [int(t == p), round(float(c), 6)]
            for truth, row, predicted in zip(data.y_test, proba, labels, strict=True)
            for t, p, c in zip(truth, predicted, row.max(1), strict=True)
        ]
    return found


# ---- Table 1 ------------------------------------------------------------------------------------

ROWS = (
    "CRF",
    "CRF-B",
    "CRFsuite",
    "DGPS1",
    "DGPS2",
    "SGPS2 25%",
    "GPSC Laplace",
    "GPSC variational",
)


def table1(
    command: str,
    splits: int | None = None,
    models: Sequence[str] = ROWS,
    jobs: int = 1,
    quiet: bool = False,
) -> Report:
    """Spanish named entities: unregularised and regularised CRF, dense and sparse Gaussian-process
    classification by MAP, and its Bayesian versions with a prior variance a feature group."""
    work = [_Work("spanish", fold, model) for model in models for fold in range(splits or FOLDS)]
    return _table1(command, run_all(_fit_and_score, work, jobs, quiet))


def _table1(command: str, found: list[dict[str, Any]]) -> Report:
    report = Report("gpsc-table1", command, records=found)
    rows = [["", "error %", "published", "log loss", "ECE % (floor)", "CPU s", "peak MB"]]
    for name in dict.fromkeys(r["model"] for r in found):
        own, other = _of(found, name), _of(found, "CRFsuite")
        cells = [name, mean_sd([r["error"] for r in own], 100) + _mark(own, other, "error")]
        cells.append(f"{PUBLISHED[name]:.2f}" if name in PUBLISHED else "")
        cells.append(mean_sd([r["log_loss"] for r in own], 1, 4) + _mark(own, other, "log_loss"))
        floor = np.mean([r["ece_floor"] for r in own])
        cells.append(f"{mean_sd([r['ece'] for r in own], 100)} ({100 * floor:.2f})")
        cells.append(f"{np.mean([r['cpu'] for r in own]):.0f}")
        cells.append(f"{max(r['peak_mb'] for r in own):.0f}")
        rows.append(cells)
    n = len({r["fold"] for r in found})
    title = f"{N_SENTENCES} Spanish sentences, {n} of {FOLDS} folds; * differs from CRFsuite"
    report.tables.append(table(rows, f"{title} (paired t, 5 %)"))
    if sparse := [r["chosen"] for r in _of(found, "SGPS2 25%")]:
        report.tables.append(_sparseness({"SGPS2 25%": sparse}))
    return report


def _of(records: Sequence[dict[str, Any]], model: str) -> list[dict[str, Any]]:
    return [r for r in records if r["model"] == model]


def _mark(ours: list[dict[str, Any]], theirs: list[dict[str, Any]], score: str) -> str:
    a, b = [r[score] for r in ours], [r[score] for r in theirs]
    if len(a) < 3 or len(a) != len(b) or np.allclose(a, b):
        return ""
    return "*" if ttest_rel(a, b).pvalue < 0.05 else ""


def _sparseness(by_model: dict[str, list[dict[str, Any]]]) -> str:
    """How many coordinates and tokens sparse models chose."""
    rows = [["", "coordinates", "share of tokens", "coordinates a token"]]
    for name, selected in by_model.items():
        means = [
            float(np.mean([c[key] for c in selected]))
            for key in ("coordinates", "share_of_tokens", "coordinates_per_token")
        ]
        rows.append([name, f"{means[0]:.0f}", f"{means[1]:.1%}", f"{means[2]:.2f}"])
    return table(rows, "what the sparse models chose, means over folds")


# ---- Figure 1 -----------------------------------------------------------------------------------

SHARES = (0.5, 1.0, 2.0, 4.0, 8.0)
SPARSE = tuple(f"SGPS2 {share:g}%" for share in SHARES)
DENSE = ("CRFsuite", "DGPS1", "DGPS2", "DGPS3")
ABSTAINED = 0.1493
"""The share of words that [gpsc] abstained on."""


def figure1(
    command: str,
    splits: int | None = None,
    models: Sequence[str] = (*DENSE, *SPARSE),
    jobs: int = 1,
    quiet: bool = False,
) -> Report:
    """Pitch accents: accuracy by the degree of the kernel (a) and by sparseness (b), and what
    abstaining gains (c)."""
    work = [_Work("prosody", fold, model) for model in models for fold in range(splits or FOLDS)]
    return _figure1(command, run_all(_fit_and_score, work, jobs, quiet))


def _figure1(command: str, found: list[dict[str, Any]]) -> Report:
    report = Report("gpsc-figure1", command, records=found)
    rows = [["", "accuracy %", "log loss", "ECE %", "CPU s"]]
    names = list(dict.fromkeys(r["model"] for r in found))
    for name in names:
        own = _of(found, name)
        rows.append(
            [
                name,
                mean_sd([1 - r["error"] for r in own], 100),
                mean_sd([r["log_loss"] for r in own], 1, 4),
                mean_sd([r["ece"] for r in own], 100),
                f"{np.mean([r['cpu'] for r in own]):.1f}",
            ]
        )
    words = sum(r["words"] for r in _of(found, names[0]))
    report.tables.append(table(rows, f"pitch accents, {words} test words"))
    sparse = [name for name in names if name in SPARSE]
    report.tables.append(
        _sparseness({name: [r["chosen"] for r in _of(found, name)] for name in sparse})
    )
    if "DGPS2" not in names:
        return report
    curve = _curve(_of(found, "DGPS2"))
    kept = [["confidence from", "words kept", "error % among them"]]
    for threshold in (0.5, 0.6, 0.7, 0.8, 0.9):
        share, error = curve.at_threshold(threshold)
        kept.append([f"{threshold:g}", f"{share:.1%}", f"{100 * error:.2f}"])
    least = curve.at_coverage(1 - ABSTAINED)
    kept.append([f"{ABSTAINED:.2%} left out", f"{1 - ABSTAINED:.1%}", f"{100 * least:.2f}"])
    report.tables.append(table(kept, "DGPS2, abstaining"))
    report.picture = partial(_draw_figure1, found)
    return report


def _curve(records: Sequence[dict[str, Any]]) -> Any:
    """The risk–coverage curve of all test words, the answers of all folds together."""
    answers = np.array([answer for r in records for answer in r["answers"]])
    trust = answers[:, 1]
    proba = np.stack([trust, 1 - trust], 1)
    truth = ["right" if right else "wrong" for right in answers[:, 0]]
    predicted = [["right"] * len(truth)]
    return risk_coverage([truth], [proba], ["right", "wrong"], y_pred=predicted, bootstrap=0)


def _draw_figure1(records: list[dict[str, Any]], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.5, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    bars, curve, kept = (figure.add_subplot(1, 3, k + 1) for k in range(3))
    accuracy = {
        name: 100 * (1 - np.mean([r["error"] for r in _of(records, name)]))
        for name in dict.fromkeys(r["model"] for r in records)
    }
    dense = [name for name in DENSE if name in accuracy]
    bars.bar(dense, [accuracy[name] for name in dense], color="#0072B2")
    bars.set_ylim(min(accuracy.values()) - 2, max(accuracy.values()) + 1)
    bars.set(ylabel="accuracy %", title="By kernel")
    sparse = [name for name in SPARSE if name in accuracy]
    shares = [100 * _share(name) for name in sparse]
    curve.plot(shares, [accuracy[name] for name in sparse], "o-", color="#D55E00", label="SGPS2")
    curve.axhline(accuracy["DGPS2"], color="#0072B2", label="DGPS2")
    curve.set(xlabel="coordinates, % of the training words", title="By sparseness")
    curve.legend(loc="lower right")
    plot_abstention(_curve(_of(records, "DGPS2")), kept)
    figure.savefig(path, dpi=120)
