"""What is not known, on text like the training text and on other text."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bayeseq.baselines import CRF
from bayeseq.data import load_dataset, word_features
from bayeseq.diagnostics import evaluate
from bayeseq.experiments.setting import (
    NAMES,
    SEED,
    TASKS,
    Case,
    Data,
    Report,
    chosen,
    load,
    mean_sd,
    run_all,
    table,
)
from bayeseq.labelers.gpsc import GPSC
from bayeseq.labelers.gpsl import GPSL
from bayeseq.labelers.gpstruct import GPStruct

MODELS = ("CRF", "GPSL", "GPSC", "GPStruct")
SPANISH, WORDS = "Spanish names", "Base NP, words"
DOMAINS = (*TASKS, SPANISH, WORDS)
OTHER = {SPANISH: "Dutch", WORDS: "prosody transcripts"}
"""The text unlike training that a domain is also tested on"""

N_TRAIN, N_TEST = 400, 400
PENALTIES = (0.03, 0.1, 0.3, 1.0)
DRAWS = 100
QUIET: dict[str, Any] = {"progress": False, "random_state": SEED}


class _Work(NamedTuple):
    domain: str
    split: int
    model: str


class _Test(NamedTuple):
    """Sequences to test on, with their labels where there are any."""

    X: list[Any]
    y: list[list[Any]] | None


# ---- data ---------------------------------------------------------------------------------------


def _load(domain: str, split: int) -> tuple[Data, _Test | None]:
    """Training and test sequences of a domain, and those of the other text."""
    if domain == SPANISH:
        X, y = _names("conll2002-esp", "train", N_TRAIN, split)
        data = Data(X, y, *_names("conll2002-esp", "testa", N_TEST, split))
        return data, _Test(*_names("conll2002-ned", "testa", N_TEST, split))
    if domain == WORDS:
        return _base_np_of_words(split), _Test(_utterances(N_TEST), None)
    return load(Case(domain, "gpstruct", split)), None


def _names(dataset: str, part: str, n: int, seed: int) -> tuple[list[Any], list[list[Any]]]:
    """Sentences drawn from a part of a corpus, by how their words are spelt, and their labels."""
    corpus = load_dataset(dataset)[part]
    drawn = np.random.default_rng(seed).choice(len(corpus), n, replace=False)
    assert corpus.labels is not None
    X = [word_features([row[0] for row in corpus.sentences[i]]) for i in drawn]
    return X, [list(corpus.labels[i]) for i in drawn]


def _base_np_of_words(split: int) -> Data:
    """A published split of Base NP, by how words are spelt: transcripts have no other columns."""
    dataset = load_dataset("basenp", protocol="gpstruct")
    X = [word_features([row[0] for row in sentence]) for sentence in dataset["all"].sentences]
    y, (train, test) = dataset.labels("all"), dataset.splits[split]
    return Data(
        [X[i] for i in train],
        [list(y[i]) for i in train],
        [X[i] for i in test],
        [list(y[i]) for i in test],
    )


def _utterances(n: int) -> list[Any]:
    corpus = load_dataset("prosody")["all"]
    drawn = np.random.default_rng(SEED).choice(len(corpus), n, replace=False)
    return [word_features([row[0] for row in corpus.sentences[i]]) for i in drawn]


# ---- fitting ------------------------------------------------------------------------------------


def _fitted(name: str, data: Data) -> Any:
    if name == "CRF":
        l2 = chosen(lambda penalty: CRF(l2=penalty, progress=False), PENALTIES, data)
        return CRF(l2=l2, progress=False).fit(data.X, data.y)
    kinds = {"GPSL": GPSL, "GPSC": GPSC, "GPStruct": GPStruct}
    tokens = sum(map(len, data.X))
    large = {"covariance": "diagonal"} if name == "GPSL" and tokens > _LARGE else {}
    return kinds[name](**large, **QUIET).fit(data.X, data.y)


_LARGE = 5000
"""Training tokens from which on GPSL takes its weights to be independent, to be quick."""


def _run(work: _Work) -> dict[str, Any]:
    data, other = _load(work.domain, work.split)
    began = time.process_time()
    model = _fitted(work.model, data)
    found = {**work._asdict(), "cpu": time.process_time() - began}
    found["alike"] = _measured(model, _Test(data.X_test, data.y_test))
    if other is not None:
        found["other"] = _measured(model, other)
    return found


def _measured(model: Any, test: _Test) -> dict[str, float]:
    """Scores where there are labels; nats a token of total and epistemic uncertainty where there is
    a posterior, with and without the features that training never showed."""
    found: dict[str, float] = {}
    if test.y is not None:
        labels, proba = model.predict(test.X), model.predict_proba(test.X)
        classes = model.classes_.tolist()
        scores = evaluate(test.y, labels, proba, classes, entities=False, bootstrap=2)
        assert scores.probabilities is not None
        assert scores.risk_coverage is not None
        p = scores.probabilities
        found |= {"error": scores.token_error, "log_loss": p.log_loss, "ece": p.ece}
        found |= {"ece_floor": p.ece_floor, "aurc": scores.risk_coverage.aurc}
    if isinstance(model, CRF):
        return found
    tokens = sum(map(len, test.X))
    for unseen, name in ((True, ""), (False, "_of_seen")):
        known = model.predict_uncertainty(test.X, DRAWS, random_state=SEED, unseen=unseen)
        for kind in ("total", "epistemic"):
            found[kind + name] = sum(float(r.sum()) for r in getattr(known, kind)) / tokens
        found["share" + name] = known.epistemic_share
    return found


# ---- tables -------------------------------------------------------------------------------------


def in_and_out(
    command: str,
    splits: int | None = None,
    models: Sequence[str] = MODELS,
    jobs: int = 1,
    quiet: bool = False,
) -> Report:
    """Error, calibration and kinds of uncertainty of CRF, GPSL, GPSC and GPStruct on text like that
    of training, and how they change on other text: Dutch for Spanish, speech for newspapers."""
    work = [
        _Work(domain, split, model)
        for split in range(splits or 1)
        for domain in DOMAINS
        for model in models
    ]
    report = Report("uncertainty", command, records=run_all(_run, work, jobs, quiet))
    report.tables = [_scores_table(report.records, models), _change_table(report.records, models)]
    return report


def _scores_table(records: list[dict[str, Any]], models: Sequence[str]) -> str:
    head = ["", "", "error %", "log loss", "ECE % (floor)", "AURC", "nats a token", "epistemic"]
    rows = [head]
    for domain in DOMAINS:
        for model in models:
            own = [r["alike"] for r in records if (r["domain"], r["model"]) == (domain, model)]
            if not own:
                continue
            floor = 100 * np.mean([r["ece_floor"] for r in own])
            cells = [
                NAMES.get(domain, domain),
                model,
                mean_sd([r["error"] for r in own], 100),
                mean_sd([r["log_loss"] for r in own], 1, 3),
                f"{mean_sd([r['ece'] for r in own], 100)} ({floor:.2f})",
                mean_sd([r["aurc"] for r in own], 1, 4),
            ]
            rows.append([*cells, *_kinds(own)])
    return table(rows, "text like that of training; the last column is a share of the one before")


def _kinds(own: list[dict[str, float]]) -> list[str]:
    if "total" not in own[0]:
        return ["", ""]
    return [
        mean_sd([r["total"] for r in own], 1, 3),
        f"{np.mean([r['share'] for r in own]):.1%}",
    ]


def _change_table(records: list[dict[str, Any]], models: Sequence[str]) -> str:
    rows = [
        [
            "",
            "",
            "log loss",
            "change",
            "error %",
            "epistemic nats a token",
            "share of all",
            "without unseen features",
        ]
    ]
    for domain, text in OTHER.items():
        for model in models:
            own = [r for r in records if (r["domain"], r["model"]) == (domain, model)]
            if own:
                rows.append([f"{domain} → {text}", model, *_changes(own)])
    return table(rows, "from text like that of training to other text, means over splits")


def _changes(own: list[dict[str, Any]]) -> list[str]:
    def means(what: str) -> tuple[float, float] | None:
        if any(what not in r[where] for r in own for where in ("alike", "other")):
            return None
        return tuple(float(np.mean([r[w][what] for r in own])) for w in ("alike", "other"))  # type: ignore[return-value]

    def arrow(what: str, form: str, scale: float = 1.0) -> str:
        found = means(what)
        return "" if found is None else " → ".join(f"{scale * x:{form}}" for x in found)

    loss = means("log_loss")
    return [
        arrow("log_loss", ".3f"),
        "" if loss is None else f"{loss[1] - loss[0]:+.3f}",
        arrow("error", ".2f", 100),
        arrow("epistemic", ".4f"),
        arrow("share", ".1%"),
        arrow("share_of_seen", ".1%"),
    ]
