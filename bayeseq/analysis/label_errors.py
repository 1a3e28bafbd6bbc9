"""Labels that are probably wrong, by a labeler that was trained without them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from tqdm import tqdm

from bayeseq.data.errors import DataError
from bayeseq.data.labels import Labels, LabelSpace, check_lengths
from bayeseq.diagnostics.label_errors import LabelErrors, LabelQuality, find_label_errors
from bayeseq.labelers.base import NoProbabilitiesError, SequenceLabeler


class OutOfFold(NamedTuple):
    """Probabilities of sentences by labelers that were not trained on them."""

    proba: list[np.ndarray]
    """(T, C) for each sentence; 0 for a label that its labeler had not seen"""
    classes: tuple[str, ...]
    known: list[np.ndarray]
    """(C,) for each sentence: which labels its labeler had seen"""


def out_of_fold_proba(
    labeler: SequenceLabeler,
    X: Iterable[Any],
    y: Labels,
    *,
    folds: int = 5,
    random_state: int | np.random.Generator | None = 0,
    progress: bool = False,
) -> OutOfFold:
    """Fit a copy of the labeler without each fold of sentences in turn, and ask it about the fold.

    Args:
        labeler: a labeler with its parameters, fitted or not; it is left as it is.
        X, y: the sentences and their labels, in the shapes of `fit`.
        folds: into how many parts the sentences are divided at random.
        random_state: seed or numpy Generator of the division.
        progress: whether to show the folds as they go.

    >>> from bayeseq import CRF
    >>> X, y = [[["a"]], [["b"]], [["a"]], [["b"]]], [["A"], ["B"], ["A"], ["B"]]
    >>> found = out_of_fold_proba(CRF(l2=0.1), X, y, folds=2)
    >>> found.classes, [p.shape for p in found.proba]
    (('A', 'B'), [(1, 2), (1, 2), (1, 2), (1, 2)])
    """
    if not labeler.has_probabilities:
        name = type(labeler).__name__
        raise NoProbabilitiesError(
            f"{name} has scores and no probabilities; wrap it: Calibrated({name}(...))"
        )
    X, y = list(X), list(y)
    if len(X) != len(y):
        raise DataError(f"X has {len(X)} sequences, y has {len(y)}")
    if not 2 <= folds <= len(X):
        raise ValueError(f"folds is {folds}; it must lie between 2 and the {len(X)} sequences")
    classes = LabelSpace.learn(y).classes
    column = {label: c for c, label in enumerate(classes)}
    fold = np.random.default_rng(random_state).permutation(len(X)) % folds
    proba: list[np.ndarray] = [np.zeros((0, len(classes)))] * len(X)
    known: list[np.ndarray] = [np.zeros(len(classes), dtype=bool)] * len(X)
    for k in tqdm(range(folds), disable=not progress, unit="fold"):
        others, mine = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        model = clone(labeler).fit([X[i] for i in others], [y[i] for i in others])
        places = [column[label] for label in model.classes_]
        for i, rows in zip(mine, model.predict_proba([X[i] for i in mine]), strict=True):
            proba[i] = np.zeros((len(rows), len(classes)))
            proba[i][:, places] = rows
            known[i] = np.isin(np.arange(len(classes)), places)
    return OutOfFold(proba, classes, known)


def label_errors(
    labeler: SequenceLabeler,
    X: Iterable[Any],
    y: Labels,
    *,
    folds: int = 5,
    method: LabelQuality = "self_confidence",
    random_state: int | np.random.Generator | None = 0,
    progress: bool = False,
) -> LabelErrors:
    """Rank the labels of a training set by how little a labeler believes them that has not seen
    them: the most suspicious first.

    A label that occurs in the sentences of one fold only is unknown to the labeler that should
    judge it. It is not ranked but listed as `unjudged`: a rare label, or a misspelt one. Missing
    labels are left out, and so are sets of labels.

    Args:
        labeler: a labeler with its parameters, fitted or not; it is left as it is.
        X, y: the sentences and their labels, in the shapes of `fit`.
        folds, random_state, progress: as in `out_of_fold_proba`.
        method: as in `find_label_errors`.

    >>> from bayeseq import CRF
    >>> X = [[["a"], ["b"]]] * 10
    >>> y = [["A", "B"]] * 9 + [["B", "B"]]
    >>> found = label_errors(CRF(l2=0.1), X, y)
    >>> int(found.sequence[0]), int(found.token[0]), found.suggested[0], found.count
    (9, 0, 'A', 1)
    """
    X, y = list(X), list(y)
    made = out_of_fold_proba(
        labeler, X, y, folds=folds, random_state=random_state, progress=progress
    )
    check_lengths(y, [len(rows) for rows in made.proba])
    judged, unjudged = _judged(y, made)
    found = find_label_errors(judged, made.proba, made.classes, method=method)
    return replace(found, unjudged=tuple(unjudged))


def _judged(
    y: Sequence[Sequence[Any]], made: OutOfFold
) -> tuple[list[list[str | None]], list[tuple[int, int]]]:
    """The labels that can be judged, None elsewhere, and the places of those that cannot."""
    column = {label: c for c, label in enumerate(made.classes)}
    judged: list[list[str | None]] = []
    unjudged: list[tuple[int, int]] = []
    for i, labels in enumerate(y):
        judged.append([label if isinstance(label, str) else None for label in labels])
        for t, label in enumerate(judged[-1]):
            if label is not None and not made.known[i][column[label]]:
                judged[-1][t] = None
                unjudged.append((i, t))
    return judged, unjudged
