"""What choosing the sentences or the tokens to annotate saves: learning curves beside random."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bayeseq.analysis.suggest import suggest
from bayeseq.baselines import CRF
from bayeseq.data import load_dataset, word_features
from bayeseq.diagnostics.learning import LearningCurve, learning_curve
from bayeseq.experiments.setting import SEED, Data, Report, mean_sd, run_all, table
from bayeseq.labelers.base import SequenceLabeler
from bayeseq.labelers.gpsc import GPSC
from bayeseq.plots.learning import plot_learning_curves

SHARES = (0.05, 0.075, 0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8)
"""Shares of the pool's tokens that are labelled; random choice goes on to all."""
TOKEN_SHARES = SHARES[:11]
SEED_SHARE = 0.025
"""The share of tokens in the random sentences that every curve begins with."""
BASENP_TEST = 273
BASENP_FIRST = 8
"""The first seed that counts: models and settings were chosen looking at the seeds before it."""
ESP_POOL, ESP_TEST = 1500, 500


class Choice(NamedTuple):
    """A row of the table: a model and how it chooses."""

    model: str
    strategy: str
    unit: str = "sentence"

    @property
    def name(self) -> str:
        """What tables and pictures call it."""
        by = {"mnlp": "MNLP", "bald": "BALD", "least_confidence": "least confidence"}
        what = "" if self.unit == "sentence" else " of tokens"
        return f"{self.model}, {by.get(self.strategy, self.strategy)}{what}"


BASENP = (
    Choice("CRF", "random"),
    Choice("CRF", "least_confidence"),
    Choice("CRF", "mnlp"),
    Choice("CRF", "random", "token"),
    Choice("CRF", "entropy", "token"),
    Choice("CRF", "mnlp", "token"),
    Choice("GPSC", "random"),
    Choice("GPSC", "mnlp"),
    Choice("GPSC", "bald"),
    Choice("GPSC", "bald", "token"),
)
SPANISH = (
    Choice("CRF", "random"),
    Choice("CRF", "mnlp"),
    Choice("CRF", "entropy", "token"),
)


class Work(NamedTuple):
    """One curve."""

    task: str
    choice: Choice
    seed: int


def base_phrases(
    command: str, splits: int | None = None, jobs: int = 1, quiet: bool = False
) -> Report:
    """Noun phrases: 550 sentences to choose from, 273 to test on, drawn anew for each seed."""
    seeds = range(BASENP_FIRST, BASENP_FIRST + (splits or 16))
    return _report("active-learning", command, "basenp", BASENP, seeds, jobs, quiet)


def spanish(command: str, splits: int | None = None, jobs: int = 1, quiet: bool = False) -> Report:
    """Spanish names: 1,500 sentences to choose from, 500 to test on, drawn anew for each seed."""
    report = "active-learning-ner"
    seeds = range(splits or 3)
    return _report(report, command, "conll2002-esp", SPANISH, seeds, jobs, quiet)


def _report(
    name: str,
    command: str,
    task: str,
    choices: Sequence[Choice],
    seeds: Sequence[int],
    jobs: int,
    quiet: bool,
) -> Report:
    work = [Work(task, choice, seed) for seed in seeds for choice in choices]
    records = run_all(run_curve, work, jobs, quiet)
    return summary(name, command, records, choices)


def make_model(name: str) -> SequenceLabeler:
    """The labelers, with settings that fit in a second: GPSC's prior is the CRF's penalty, so that
    they differ little but for GPSC's posterior."""
    if name == "CRF":
        return CRF(l2=0.5, decode="marginal", progress=False)
    return GPSC(
        inference="laplace", covariance="diagonal", variance=1.0, learn=False, progress=False
    )


def load_pool(task: str, seed: int) -> Data:
    """The sentences to choose from and those to test on."""
    rng = np.random.default_rng([SEED, seed])
    if task == "basenp":
        dataset = load_dataset("basenp")
        X, y = dataset.features("all"), dataset.labels("all")
        order = rng.permutation(len(X)).tolist()
        test, pool = order[:BASENP_TEST], order[BASENP_TEST:]
        return Data(*([rows[i] for i in part] for part in (pool, test) for rows in (X, y)))
    found: list[Any] = []
    for part, size in (("train", ESP_POOL), ("testa", ESP_TEST)):
        corpus = load_dataset(task)[part]
        corpus = corpus[rng.permutation(len(corpus))[:size]]
        found += [[word_features(words, window=1) for words in corpus.tokens], corpus.labels]
    return Data(*found)


def run_curve(work: Work) -> dict[str, Any]:
    """Label what the model asks for, share by share, and note the error after each."""
    data = load_pool(work.task, work.seed)
    began = time.process_time()
    known = first_labels(data.y)
    total = sum(map(len, data.y))
    shares: tuple[float, ...] = TOKEN_SHARES if work.choice.unit == "token" else SHARES
    if work.choice == Choice(work.choice.model, "random"):
        shares = (*SHARES, 1.0)
    points = []
    model = _fitted(work.choice.model, data.X, known)
    for share in shares:
        _add(model, data, known, work, round(share * total) - count_labels(known))
        model = _fitted(work.choice.model, data.X, known)
        error = float(1 - model.score(data.X_test, data.y_test))
        points.append({"share": share, "tokens": count_labels(known), "error": error})
    return {
        "task": work.task,
        **work.choice._asdict(),
        "seed": work.seed,
        "pool_tokens": total,
        "points": points,
        "cpu": time.process_time() - began,
    }


def first_labels(y: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """The labels of the first sentences, a `SEED_SHARE` of all tokens, and None elsewhere."""
    ends = np.cumsum([len(row) for row in y])
    n = int(np.searchsorted(ends, SEED_SHARE * ends[-1])) + 1
    return [list(row) if i < n else [None] * len(row) for i, row in enumerate(y)]


def count_labels(y: Sequence[Sequence[Any]]) -> int:
    """How many tokens have a label."""
    return sum(label is not None for row in y for label in row)


def _fitted(name: str, X: list[Any], known: list[list[Any]]) -> SequenceLabeler:
    use = [i for i, row in enumerate(known) if any(label is not None for label in row)]
    return make_model(name).fit([X[i] for i in use], [known[i] for i in use])


def _add(
    model: SequenceLabeler, data: Data, known: list[list[Any]], work: Work, tokens: int
) -> None:
    """Tell the labels of the tokens or sentences that are suggested."""
    choice = work.choice
    found = suggest(
        model,
        data.X,
        tokens=tokens,
        strategy=choice.strategy,
        unit=choice.unit,
        given=known,
        random_state=np.random.default_rng([SEED, work.seed, tokens]),
    )
    for item in found:
        truth = data.y[item.sentence]
        if item.token is None:
            known[item.sentence] = list(truth)
        else:
            known[item.sentence][item.token] = truth[item.token]


# ---- what it comes to ---------------------------------------------------------------------------


def summary(
    name: str, command: str, records: list[dict[str, Any]], choices: Sequence[Choice]
) -> Report:
    """Tables of errors and of the labels that each choice needs, and the picture."""
    curves = {choice: _curve(records, choice) for choice in choices}
    full = {c.model: curves[c].errors[:, -1] for c in choices if c == Choice(c.model, "random")}
    report = Report(name, command, records=records)
    report.tables = [_errors(curves, full), _beside_random(curves), _needed(curves, full)]
    report.picture = partial(_draw, curves, full)
    return report


def _curve(records: list[dict[str, Any]], choice: Choice) -> LearningCurve:
    runs = [r for r in records if (r["model"], r["strategy"], r["unit"]) == choice]
    share = [p["share"] for p in runs[0]["points"]]
    return learning_curve(share, [[p["error"] for p in r["points"]] for r in runs])


def _errors(curves: dict[Choice, LearningCurve], full: dict[str, np.ndarray]) -> str:
    shown = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8)
    rows = [["labelled", *(f"{share:.0%}" for share in shown), "100%"]]
    for choice, curve in curves.items():
        at = dict(zip(curve.share.tolist(), curve.errors.T.tolist(), strict=True))
        cells = [mean_sd(at[share], 100.0) if share in at else "" for share in shown]
        rows.append([choice.name, *cells, mean_sd(full[choice.model].tolist(), 100.0)])
    return table(
        rows, "error % on the test part by the share of the pool's tokens that is labelled"
    )


def _beside_random(curves: dict[Choice, LearningCurve]) -> str:
    """What share of the labels given by lot each choice needs for the same error."""
    drawn = next(curve for choice, curve in curves.items() if choice.strategy == "random")
    budgets = [b for b in (0.2, 0.3, 0.4, 0.6, 0.8, 1.0) if b in drawn.share.tolist()]
    rows = [["labels by lot", *(f"{budget:.0%}" for budget in budgets)]]
    for choice, curve in curves.items():
        lot = curves[Choice(choice.model, "random")]
        if curve is not lot:
            targets = dict(zip(lot.share.tolist(), lot.mean.tolist(), strict=True))
            needs = [curve.labels_for(targets[budget]) for budget in budgets]
            cells = [
                "more" if need is None else f"{need / budget:.0%}"
                for need, budget in zip(needs, budgets, strict=True)
            ]
            rows.append([choice.name, *cells])
    return table(
        rows,
        "for the error of random sentences with this share of the pool's labels, a choice needs so "
        "many of\nthem (mean errors over seeds, straight lines between the shares; more: not "
        "reached)",
    )


def _needed(curves: dict[Choice, LearningCurve], full: dict[str, np.ndarray]) -> str:
    shown = (0.1, 0.2, 0.3, 0.4, 0.6)
    rows = [["", "needs", "smoothed", *(f"at {share:.0%}" for share in shown)]]
    for choice, curve in curves.items():
        target = full[choice.model]
        first, smooth = (curve.reaches(float(target.mean()), s) for s in (False, True))
        at = dict(zip(curve.share.tolist(), curve.errors.T, strict=True))
        above = [_difference(at[share] - target) if share in at else "" for share in shown]
        rows.append([choice.name, _share(first), _share(smooth), *above])
    return table(
        rows,
        "share of the pool's tokens at which the mean error over seeds first is at most that of "
        "the same\nmodel with all labels; smoothed: the same of means over three neighbouring "
        "shares; then by how\nmany points the error is above that one, with the standard error "
        "over seeds",
    )


def _difference(above: np.ndarray) -> str:
    error = above.std(ddof=1) / np.sqrt(len(above)) if len(above) > 1 else 0.0
    return f"{100 * above.mean():+.2f}±{100 * error:.2f}"


def _share(value: float | None) -> str:
    return "never" if value is None else f"{100 * value:.4g}%"


def _draw(curves: dict[Choice, LearningCurve], full: dict[str, np.ndarray], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.0 * len(full), 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    for k, (model, errors) in enumerate(full.items()):
        ax = figure.add_subplot(1, len(full), k + 1)
        own = {c.name.partition(", ")[2]: v for c, v in curves.items() if c.model == model}
        plot_learning_curves(own, float(errors.mean()), ax)
        ax.set_title(model)
    figure.savefig(path, dpi=110)
