"""Conformal label sets: is the promised coverage there, on every dataset?

A model is fitted once; its held-out sentences are then divided 200 times at random, two thirds to
calibrate and one third to judge. Sentences of a random division are exchangeable by construction,
so the mean coverage must be at least 90 %, but for the noise of 200 divisions, and it can be above
by no more than one sentence's weight in the calibration (two for tokens, whose loss is a share).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import betabinom, norm

from bayeseq.analysis.conformal import ConformalEntities
from bayeseq.baselines import CRF
from bayeseq.data import load_dataset, tags_to_entities, word_features
from bayeseq.diagnostics.conformal import conformal_threshold
from bayeseq.diagnostics.scores import token_error
from bayeseq.experiments.setting import NAMES, SEED, TASKS, Case, Data, Report, load, run_all, table
from bayeseq.labelers.gpsc import GPSC

ALPHA = 0.1
DIVISIONS = 200
N_SPLITS = 5
LEVEL = 0.99
N_TRAIN = {"conll2000": 300, "conll2002-esp": 1000}
N_HELD = 1000
DATASETS = {
    **NAMES,
    "newswire": "newswire",
    "conll2000": "CoNLL-2000",
    "conll2002-esp": "CoNLL-2002 es",
}
MODELS = ("crf", "gpsc")


class _Work(NamedTuple):
    task: str
    split: int
    model: str


class Held(NamedTuple):
    """What a model says of its held-out sentences, one entry a sentence."""

    own: list[np.ndarray]
    """(T,) 1 - p(true label) of the labelled tokens, infinity where the model does not know it"""
    proba: list[np.ndarray]
    """(T, C) probabilities of these tokens"""
    top: list[np.ndarray]
    """(T,) whether their most probable label is the true one"""
    entities: list[np.ndarray]
    """(E,) -p of the true entities, infinity where they are not among the candidates"""
    error: float


def coverage(
    command: str, jobs: int = 1, quiet: bool = False, models: Sequence[str] = MODELS
) -> Report:
    """Coverage and size of label sets promised to cover 90 % of tokens, or 90 % of sentences."""
    items = [
        _Work(task, split, model)
        for task in DATASETS
        for split in range(N_SPLITS if task in TASKS else 1)
        for model in models
    ]
    records = run_all(_fit_and_divide, items, jobs, quiet)
    tables = [
        _table(records, models, guarantee, what)
        for guarantee, what in (
            ("token", "of the tokens of a sentence"),
            ("sentence", "of sentences, all tokens covered"),
            ("entity", "of the entities of a sentence that has any"),
        )
    ]
    return Report("conformal", command, tables, records)


def _data(work: _Work) -> Data:
    if work.task in TASKS:
        return load(Case(work.task, "gpstruct", work.split))
    dataset = load_dataset(work.task)
    parts: list[Any] = []
    for part, size in (("train", N_TRAIN.get(work.task)), (_held_part(work.task), N_HELD)):
        corpus = dataset[part]
        assert corpus.labels is not None
        count = min(size or len(corpus), len(corpus))
        drawn = np.random.default_rng(SEED).choice(len(corpus), count, replace=False)
        parts.append([word_features([row[0] for row in corpus.sentences[i]]) for i in drawn])
        parts.append([list(corpus.labels[i]) for i in drawn])
    return Data(*parts)


def _held_part(task: str) -> str:
    return "testa" if task == "conll2002-esp" else "test"


def _fit_and_divide(work: _Work) -> dict[str, Any]:
    data = _data(work)
    model: Any = CRF() if work.model == "crf" else GPSC(inference="laplace", progress=False)
    held = held_out(model.fit(data.X, data.y), data.X_test, data.y_test)
    divisions = DIVISIONS // (N_SPLITS if work.task in TASKS else 1)
    rng = np.random.default_rng([SEED, work.split])
    n = round(len(held.own) * 2 / 3)
    orders = [rng.permutation(len(held.own)) for _ in range(divisions)]
    return {
        **work._asdict(),
        "token_error": held.error,
        "calibrate": n,
        "judge": len(held.own) - n,
        "token": _summed([divide(held, order[:n], order[n:], "token") for order in orders]),
        "sentence": _summed([divide(held, order[:n], order[n:], "sentence") for order in orders]),
        "entity": _summed([divide_entities(held, order) for order in orders]),
    }


def _summed(divisions: Sequence[dict[str, float]]) -> dict[str, Any]:
    """The coverage of each division (None where it was not reached), and the means of the rest."""
    means = {key: float(np.mean([d[key] for d in divisions])) for key in divisions[0]}
    each = [d["coverage"] for d in divisions]
    return {**means, "coverage": [None if np.isnan(c) else round(c, 5) for c in each]}


def held_out(model: Any, X: Sequence[Any], y: Sequence[Sequence[Any]]) -> Held:
    """A fitted model's probabilities of labelled sentences."""
    code = {label: c for c, label in enumerate(model.classes_)}
    every = model.predict_proba(X)
    own, proba, top = [], [], []
    for labels, rows in zip(y, every, strict=True):
        target = np.array([-2 if x is None else code.get(x, -1) for x in labels], dtype=int)
        rows, target = rows[target > -2], target[target > -2]
        of_true = 1 - rows[np.arange(len(rows)), np.maximum(target, 0)]
        own.append(np.where(target < 0, np.inf, of_true))
        proba.append(rows)
        top.append(rows.argmax(1) == target)
    error = token_error(y, model.predict(X))
    return Held(own, proba, top, _entity_scores(model, X, y), error)


def _entity_scores(model: Any, X: Sequence[Any], y: Sequence[Sequence[Any]]) -> list[np.ndarray]:
    whole = [i for i, labels in enumerate(y) if None not in labels]
    found = ConformalEntities(model).candidates([X[i] for i in whole])
    scores = []
    for i, row in zip(whole, found, strict=True):
        proba = {entity[:3]: entity.score for entity in row}
        true = [proba.get(entity[:3], -np.inf) for entity in tags_to_entities(y[i])]
        if true:
            scores.append(-np.array(true))
    return scores


def divide(
    held: Held, calibrate: np.ndarray, judge: np.ndarray, guarantee: Any
) -> dict[str, float]:
    """Coverage and mean size of the sets of some sentences, calibrated on others: by threshold
    alone, and with the most probable label always taken."""
    threshold = conformal_threshold([held.own[i] for i in calibrate], ALPHA, guarantee)
    judge = np.array([i for i in judge if len(held.own[i])])
    hits = [held.own[i] <= threshold for i in judge]
    full = [hit | held.top[i] for i, hit in zip(judge, hits, strict=True)]
    sizes = np.concatenate([(1 - held.proba[i] <= threshold).sum(1) for i in judge])
    share = np.min if guarantee == "sentence" else np.mean
    return {
        "coverage": float(np.mean([share(hit) for hit in hits])),
        "size": float(sizes.mean()),
        "empty": float((sizes == 0).mean()),
        "nonempty_coverage": float(np.mean([share(hit) for hit in full])),
        "nonempty_size": float(np.maximum(sizes, 1).mean()),
    }


def divide_entities(held: Held, order: np.ndarray) -> dict[str, float]:
    """The same for candidate entities; a coverage of NaN where these do not hold enough."""
    some = [held.entities[i] for i in order if i < len(held.entities)]
    n = round(len(some) * 2 / 3)
    threshold = conformal_threshold(some[:n], ALPHA)
    hits = [float((row <= threshold).mean()) for row in some[n:]]
    return {"calibrate": n, "coverage": float(np.mean(hits)) if threshold < np.inf else np.nan}


def _table(
    records: Sequence[dict[str, Any]], models: Sequence[str], guarantee: str, what: str
) -> str:
    sets = guarantee != "entity"
    header = ["", "calibrate", "coverage %", f"{LEVEL:.0%} band", "within"]
    if sets:
        header += ["labels", "empty %", "never empty: coverage %", "labels"]
    if guarantee == "sentence":
        header.append("divisions in their 95 % band, %")
    rows = [header]
    for task, name in DATASETS.items():
        for model in models:
            mine = [r for r in records if (r["task"], r["model"]) == (task, model)]
            rows.append([f"{name}, {model.upper()}", *_cells(mine, guarantee)])
    title = f"label sets promised to cover {1 - ALPHA:.0%} {what}; means over {DIVISIONS} divisions"
    return table(rows, title if sets else title.replace("label sets", "candidates"))


def _cells(records: Sequence[dict[str, Any]], guarantee: str) -> list[str]:
    found = [record[guarantee] for record in records]
    n = int(min(part.get("calibrate", records[0]["calibrate"]) for part in found))
    each = [part["coverage"] for part in found]
    if any(None in row for row in each):
        return [str(n), "not reached", "-", "-"]
    coverage, lower, upper = band_of_mean(each, n, 1 if guarantee == "sentence" else 2)
    inside = "yes" if lower <= coverage <= upper else "NO"
    cells = [str(n), f"{100 * coverage:.2f}", f"{100 * lower:.1f}–{100 * upper:.1f}", inside]
    if guarantee != "entity":
        mean = {key: np.mean([part[key] for part in found]) for key in found[0]}
        cells += [f"{mean['size']:.3f}", f"{100 * mean['empty']:.1f}"]
        cells += [f"{100 * mean['nonempty_coverage']:.2f}", f"{mean['nonempty_size']:.3f}"]
    if guarantee == "sentence":
        inside_own = share_in_band(np.concatenate(each), n, records[0]["judge"])
        cells.append(f"{100 * inside_own:.1f}")
    return cells


def band_of_mean(
    coverage: Sequence[Sequence[float]], n: int, slack: int
) -> tuple[float, float, float]:
    """The mean coverage over divisions, and where it must lie but for the noise of the divisions:
    1 - alpha to 1 - alpha + slack / (n + 1), at most 1, each with a margin."""
    each = [np.asarray(row) for row in coverage]
    divisions = sum(map(len, each))
    variance = sum(len(row) * row.var(ddof=1) for row in each) / divisions
    margin = norm.ppf((1 + LEVEL) / 2) * np.sqrt(variance / divisions)
    upper = min(1 - ALPHA + slack / (n + 1) + margin, 1.0)
    return float(np.concatenate(each).mean()), float(1 - ALPHA - margin), float(upper)


def share_in_band(coverage: np.ndarray, n: int, judged: int, level: float = 0.95) -> float:
    """The share of divisions whose number of covered sentences lies in the central `level` part of
    its distribution, which is beta-binomial for any model without ties."""
    rank = int(np.ceil((1 - ALPHA) * (n + 1) - 1e-9))
    covered = np.rint(coverage * judged)
    low, high = betabinom(judged, rank, n + 1 - rank).interval(level)
    return float(np.mean((covered >= low) & (covered <= high)))
