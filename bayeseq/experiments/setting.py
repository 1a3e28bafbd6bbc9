"""What the experiments share: tasks and splits, the CRF to compare with, scores, reports."""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from tqdm import tqdm

from bayeseq.data import DataError, load_dataset
from bayeseq.diagnostics import evaluate, log_loss
from bayeseq.diagnostics.bootstrap import band, sequence_weights
from bayeseq.diagnostics.tables import aligned
from bayeseq.experiments.journal import current_journal

TASKS = ("basenp", "chunking", "segmentation", "japanesene")
NAMES = {
    "basenp": "Base NP",
    "chunking": "Chunking",
    "segmentation": "Segmentation",
    "japanesene": "Japanese NE",
}
N_SPLITS = {"gpstruct": 5, "random": 10}
SEED = 0
"""Draws the random partitions, and is every model's `random_state`."""


class Case(NamedTuple):
    """One partition of one task."""

    task: str
    protocol: str
    split: int


class Data(NamedTuple):
    """Training and test sequences of a case."""

    X: list[Any]
    y: list[list[Any]]
    X_test: list[Any]
    y_test: list[list[Any]]


def load(case: Case) -> Data:
    """The sequences of a case."""
    seed = SEED if case.protocol == "random" else None
    dataset = load_dataset(case.task, protocol=case.protocol, seed=seed)
    X, y = dataset.features("all"), dataset.labels("all")
    split = dataset.splits[case.split]
    return Data(
        [X[i] for i in split.train],
        [list(y[i]) for i in split.train],
        [X[i] for i in split.test],
        [list(y[i]) for i in split.test],
    )


class Scores(NamedTuple):
    """How well test labels were predicted; log loss without labels that training did not show."""

    error: float
    log_loss: float
    ece: float
    ece_floor: float


def scored(data: Data, labels: Any, proba: Any, classes: Sequence[str]) -> Scores:
    """The scores of predicted labels and probabilities."""
    found = evaluate(data.y_test, labels, proba, list(classes), entities=False, bootstrap=2)
    assert found.probabilities is not None
    p = found.probabilities
    return Scores(found.token_error, p.log_loss, p.ece, p.ece_floor)


def chosen(make: Any, candidates: Sequence[float], data: Data) -> float:
    """The candidate with the least log loss on every fourth training sequence, when the others
    train."""
    inner = [i for i in range(len(data.X)) if i % 4]
    held = range(0, len(data.X), 4)
    losses = []
    for candidate in candidates:
        model = make(candidate).fit([data.X[i] for i in inner], [data.y[i] for i in inner])
        proba = model.predict_proba([data.X[i] for i in held])
        classes = model.classes_.tolist()
        known = [[c if c in classes else None for c in data.y[i]] for i in held]
        losses.append(log_loss(known, proba, classes))
    return float(candidates[int(np.argmin(losses))])


class CRFsuite:
    """python-crfsuite with its penalty chosen by inner cross-validation, as a user would.

    `c2` is the candidate with the least mean log loss over `folds` folds of the training sequences.
    """

    candidates = (0.03, 0.1, 0.3, 1.0, 3.0)

    def __init__(self, folds: int = 4, c2: float | None = None) -> None:
        self.folds, self.c2 = folds, c2

    def fit(self, X: Sequence[Any], y: Sequence[Sequence[str]]) -> CRFsuite:
        """Choose the penalty, then train on everything; sentences are cut where a label is
        missing, since CRFsuite knows no missing labels."""
        X, y = cut_at_gaps(X, y)
        if self.c2 is None:
            losses = [self._loss(X, y, c2) for c2 in self.candidates]
            self.c2 = self.candidates[int(np.argmin(losses))]
        began = time.process_time()
        self.tagger, self._content = _trained(X, y, self.c2)  # the tagger reads from the bytes
        self.seconds = time.process_time() - began
        self.classes = sorted(self.tagger.labels())
        return self

    def _loss(self, X: Sequence[Any], y: Sequence[Sequence[str]], c2: float) -> float:
        total, count = 0.0, 0
        for fold in range(self.folds):
            inner = [i for i in range(len(X)) if i % self.folds != fold]
            model = CRFsuite(c2=c2).fit([X[i] for i in inner], [y[i] for i in inner])
            number = {label: c for c, label in enumerate(model.classes)}
            for i in range(fold, len(X), self.folds):
                for row, label in zip(model.predict_proba([X[i]])[0], y[i], strict=True):
                    if label in number:
                        total -= np.log(max(row[number[label]], 1e-12))
                        count += 1
        return total / max(count, 1)

    def predict_proba(self, X: Iterable[Any]) -> list[np.ndarray]:
        """(T, C) marginals of each sequence."""
        found = []
        for x in X:
            self.tagger.set(x)
            rows = [[self.tagger.marginal(c, t) for c in self.classes] for t in range(len(x))]
            found.append(np.array(rows).reshape(len(x), len(self.classes)))
        return found

    def predict(self, X: Iterable[Any]) -> list[list[str]]:
        """The most probable labelling of each sequence."""
        return [self.tagger.tag(x) for x in X]


def cut_at_gaps(X: Sequence[Any], y: Sequence[Sequence[Any]]) -> tuple[list[Any], list[list[str]]]:
    """The stretches of tokens whose labels are known, as sequences of their own."""
    pieces: list[Any] = []
    labels: list[list[str]] = []
    for x, row in zip(X, y, strict=True):
        gaps = [t for t, label in enumerate(row) if label is None]
        for start, end in zip([0, *(t + 1 for t in gaps)], [*gaps, len(row)], strict=True):
            if end > start:
                pieces.append(x[start:end])
                labels.append(list(row[start:end]))
    return pieces, labels


def _trained(X: Sequence[Any], y: Sequence[Sequence[str]], c2: float) -> tuple[Any, bytes]:
    try:
        import pycrfsuite
    except ImportError as error:
        raise DataError(
            "the experiments compare with python-crfsuite, which is not installed; "
            "install bayeseq[bench]"
        ) from error
    trainer = pycrfsuite.Trainer(verbose=False)
    for x, labels in zip(X, y, strict=True):
        trainer.append(x, labels)
    trainer.set_params({"c1": 0.0, "c2": c2, "feature.possible_transitions": False})
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model")
        trainer.train(path)
        content = Path(path).read_bytes()
    tagger = pycrfsuite.Tagger()
    tagger.open_inmemory(content)
    return tagger, content


Item = TypeVar("Item")


def run_all(
    work: Callable[[Item], dict[str, Any]],
    items: Sequence[Item],
    jobs: int,
    quiet: bool,
    apart: bool = False,
) -> list[dict[str, Any]]:
    """The records of all pieces of work, some at once in processes of one thread each; `apart`
    gives each piece a process of its own, so that peaks of memory are its own too. Where a journal
    is kept, each record is written to it at once, and those that it has are not computed again."""
    kept = current_journal()
    names = [f"{work.__module__}.{work.__qualname__} {item!r}" for item in items]
    done = {} if kept is None else kept.records
    left = [i for i, name in enumerate(names) if name not in done]
    found = {i: done[name] for i, name in enumerate(names) if name in done}
    with tqdm(
        total=len(items), initial=len(found), disable=True if quiet else None, unit="run"
    ) as bar:
        for i, record in _computed(work, items, left, jobs, apart):
            found[i] = record if kept is None else kept.add(names[i], record)
            bar.update()
    return [found[i] for i in range(len(items))]


def _computed(
    work: Callable[[Item], dict[str, Any]],
    items: Sequence[Item],
    numbers: Sequence[int],
    jobs: int,
    apart: bool,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The records of some pieces of work with their numbers, as they come."""
    if jobs == 1 and not apart:
        for i in numbers:
            yield i, work(items[i])
        return
    with ProcessPoolExecutor(
        jobs,
        mp_context=get_context("spawn"),
        initializer=_alone,
        max_tasks_per_child=1 if apart else None,
    ) as pool:
        futures = {pool.submit(work, items[i]): i for i in numbers}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _alone() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ConvergenceWarning)


@dataclass
class Report:
    """What an experiment found: records, tables in words, and where it was run."""

    name: str
    command: str
    tables: list[str] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    picture: Callable[[Path], None] | None = None

    def write(self, folder: Path) -> list[Path]:
        """A JSON file with everything, a text file with the tables, maybe a picture."""
        folder.mkdir(parents=True, exist_ok=True)
        content = {
            "experiment": self.name,
            "command": self.command,
            "machine": f"{platform.machine()}, {platform.system()}, {os.cpu_count()} cores",
            "versions": {
                name: version(name)
                for name in ("bayeseq", "torch", "scipy", "scikit-learn", "python-crfsuite")
            },
            "seed": SEED,
            "records": self.records,
        }
        paths = [folder / f"{self.name}.json", folder / f"{self.name}.txt"]
        paths[0].write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        paths[1].write_text(
            f"{self.command}\n\n" + "\n\n".join(self.tables) + "\n", encoding="utf-8"
        )
        if self.picture is not None:
            paths.append(folder / f"{self.name}.png")
            self.picture(paths[-1])
        return paths


def by_sentence(
    truth: Sequence[Sequence[Any]], predicted: Sequence[Sequence[Any]]
) -> dict[str, str]:
    """How many tokens of each sentence are right, and how many there are, for `paired`."""
    right = [
        sum(a == b for a, b in zip(labels, found, strict=True))
        for labels, found in zip(truth, predicted, strict=True)
    ]
    return {"right": " ".join(map(str, right)), "tokens": " ".join(str(len(y)) for y in truth)}


def paired(records: list[dict[str, Any]], model: str, base: str) -> tuple[float, float, float]:
    """The difference in accuracy on the same sentences, in points, and its 95 % band."""

    def counts(name: str, what: str) -> np.ndarray:
        chosen = sorted((r for r in records if r["model"] == name), key=lambda r: r["fold"])
        return np.array(" ".join(r[what] for r in chosen).split(), dtype=np.int64)

    tokens = counts(base, "tokens")
    gain = counts(model, "right") - counts(base, "right")
    weights = sequence_weights(len(tokens), 2000, np.random.default_rng(0))
    draws = 100 * (weights @ gain) / (weights @ tokens)
    lower, upper = band(draws[:, None], 0.95)
    return float(100 * gain.sum() / tokens.sum()), float(lower[0]), float(upper[0])


def table(rows: Sequence[Sequence[str]], title: str) -> str:
    """A titled table of aligned columns."""
    return f"{title}\n{aligned(rows)}"


def mean_sd(values: Sequence[float], scale: float = 1.0, digits: int = 2) -> str:
    """The mean ± standard deviation over partitions."""
    array = scale * np.asarray(values)
    sd = array.std(ddof=1) if len(array) > 1 else 0.0
    return f"{array.mean():.{digits}f}±{sd:.{digits}f}"
