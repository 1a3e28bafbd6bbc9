"""The margin labelers on the tasks of [gpsl], with their settings chosen as a user would."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from bayeseq.baselines import HMPerceptron, StructuredSVM
from bayeseq.diagnostics import evaluate
from bayeseq.experiments.setting import Case, Data

MARGINS = ("SSVM", "HM-perceptron")
"""Models that have errors and no probabilities."""


class CrossValidatedSSVM:
    """`StructuredSVM` with C chosen by inner cross-validation.

    C is the candidate with the least error over `folds` folds of the training sequences, the
    smaller one where two are equal."""

    candidates = (0.03, 0.1, 0.3, 1.0)

    def __init__(self, folds: int = 4) -> None:
        self.folds = folds

    def fit(self, X: Sequence[Any], y: Sequence[Sequence[Any]]) -> CrossValidatedSSVM:
        """Choose C, then train on everything."""
        self.C = self.candidates[int(np.argmin([self._wrong(X, y, C) for C in self.candidates]))]
        self.model = _ssvm(self.C).fit(X, y)
        return self

    def _wrong(self, X: Sequence[Any], y: Sequence[Sequence[Any]], C: float) -> int:
        wrong = 0
        for fold in range(self.folds):
            inner = [i for i in range(len(X)) if i % self.folds != fold]
            # a choice between penalties needs no exact optimum
            model = _ssvm(C, tol=0.05).fit([X[i] for i in inner], [y[i] for i in inner])
            held = range(fold, len(X), self.folds)
            for found, i in zip(model.predict([X[i] for i in held]), held, strict=True):
                wrong += sum(a is not None and a != b for a, b in zip(y[i], found, strict=True))
        return wrong


def _ssvm(C: float, tol: float = 0.01) -> StructuredSVM:
    return StructuredSVM(C=C, tol=tol, progress=False)


def fit_margins(case: Case, name: str, data: Data) -> dict[str, Any]:
    """The record of a margin labeler on one partition: its error, and what was chosen."""
    began, cpu = time.perf_counter(), time.process_time()
    model: Any
    extra: dict[str, Any] = {}
    if name == "SSVM":
        chosen = CrossValidatedSSVM().fit(data.X, data.y)
        model, extra = chosen.model, {"C": chosen.C}
    else:
        model = HMPerceptron(progress=False).fit(data.X, data.y)
    seconds = {"wall": time.perf_counter() - began, "cpu": time.process_time() - cpu}
    found = evaluate(data.y_test, model.predict(data.X_test), entities=False, bootstrap=2)
    return {**case._asdict(), "model": name, "error": found.token_error, **seconds, **extra}
