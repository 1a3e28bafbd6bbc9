"""Re-ranking: a second model chooses among the labellings that a first one ranks highest."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
import torch
from scipy.special import log_softmax
from sklearn.base import clone

from bayeseq.baselines.margin import checked_table
from bayeseq.baselines.optimise import minimise
from bayeseq.data.batch import SequenceBatch
from bayeseq.data.errors import DataError
from bayeseq.data.schemes import Entity, tags_to_entities
from bayeseq.labelers.base import FitResult, SequenceLabeler, TrainingData
from bayeseq.labelers.chain import ChainLabeler, require_positive

BASE = "base"
"""The feature that holds the base's score."""
KINDS = ("ngrams", "spans", "strings")


class Reranker(SequenceLabeler):
    """The n best labellings of a chain labeler, ranked again (Collins 2000).

    A chain scores neighbouring labels. A whole labelling has more to look at: longer label n-grams,
    the entities, their lengths, their words, and what stands at their ends. A log-linear model of
    such features, and of the base's log-probability (or score), chooses among the k best. It is
    trained on the k best of sequences that the base was not trained on: the likelihood of the
    candidates with the fewest wrong tokens, less l2 · ‖v − v₀‖², where v₀ is 1 for the base's score
    and 0 for all else, so that without evidence the base's order stands.

    Parameters
    ----------
    base : a chain labeler.
    model : the features, by name with commas between: "ngrams" (of labels), "spans" (entities, or
        runs of equal labels where labels are no tags: label, length, neighbouring entities,
        features of the first and last token), "strings" (entities: label and words); "" for the
        base's score alone.
    k : how many labellings are ranked again.
    ngram : the longest label n-gram.
    word : the beginning of the names of the features that are words, for "strings" ("w[0]=" for
        `word_features`).
    l2 : strength of the penalty.
    cv : folds over sequences.
    max_iter, tol : of the search, as in `CRF`.
    progress : show a bar once training has run for two seconds.

    Probabilities are those of the second model: a label that none of the k labellings has gets 0.

    >>> from bayeseq import CRF
    >>> X = [[["a"], ["b"]], [["b"], ["a"]], [["a"], ["a"]]]
    >>> model = Reranker(CRF(l2=0.1), k=4).fit(X, [["A", "B"], ["B", "A"], ["A", "A"]])
    >>> model.predict([[["a"], ["b"]]])
    [['A', 'B']]
    """

    base_: ChainLabeler
    weights_: np.ndarray
    names_: tuple[str, ...]

    def __init__(
        self,
        base: SequenceLabeler | None = None,
        model: str = "ngrams,spans,strings",
        k: int = 20,
        ngram: int = 4,
        word: str = "w[0]=",
        l2: float = 1.0,
        cv: int = 3,
        max_iter: int = 500,
        tol: float = 1e-6,
        progress: bool = True,
    ) -> None:
        self.base = base
        self.model = model
        self.k = k
        self.ngram = ngram
        self.word = word
        self.l2 = l2
        self.cv = cv
        self.max_iter = max_iter
        self.tol = tol
        self.progress = progress

    @property
    def min_count(self) -> int:
        """The base's: how often a feature must occur."""
        return getattr(self._given_base(), "min_count", 1)

    def _given_base(self) -> ChainLabeler:
        if not isinstance(self.base, ChainLabeler):
            raise ValueError(f"base is {self.base!r}; give a chain labeler: Reranker(CRF())")
        return self.base

    def _kinds(self) -> tuple[str, ...]:
        kinds = tuple(kind for kind in self.model.split(",") if kind)
        if unknown := sorted(set(kinds) - set(KINDS)):
            raise ValueError(f"model names {', '.join(unknown)}; known are {', '.join(KINDS)}")
        return kinds

    # ---- fitting --------------------------------------------------------------------------------

    def _learn(self, data: TrainingData) -> FitResult:
        base = self._given_base()
        require_positive("k", self.k)
        if self.cv < 2:
            raise ValueError(f"cv is {self.cv}; it must be at least 2")
        describe = _Describe(
            self._kinds(), self.ngram, self.word, data.features.names, data.labels.classes
        )
        lists, wrong, weights = [], [], []
        labelled = _labelled(data.batch)
        for fold in range(min(self.cv, len(labelled)) if len(labelled) > 1 else 0):
            held = torch.arange(len(labelled)) % self.cv == fold
            _, others = data.batch.select(labelled[~held])
            fitted = clone(base)._fit_on(replace(data, batch=others))
            _, part = data.batch.select(labelled[held])
            candidates = fitted._ranked(replace(part, allowed=None), self.k)
            lists += describe(part, candidates)
            wrong += _wrong_tokens(part, candidates)
            weights += part.weights.tolist()
        names = (BASE, *sorted({name for rows in lists for row in rows for name in row} - {BASE}))
        v, result = self._rank(lists, wrong, np.array(weights), names)
        self.base_ = clone(base)._fit_on(data)
        self.weights_, self.names_ = v, names
        return result

    def _rank(
        self,
        lists: list[list[dict[str, float]]],
        wrong: list[np.ndarray],
        weights: np.ndarray,
        names: tuple[str, ...],
    ) -> tuple[np.ndarray, FitResult]:
        """The weights v of the second model."""
        start = np.zeros(len(names))
        start[0] = 1.0
        if not lists:  # nothing could be held out: the base's order stands
            return start, FitResult((0.0,), (0.0,), True, 0.0)
        features = _matrix(lists, names)
        lengths = np.array([len(rows) for rows in lists])
        bounds = np.cumsum(lengths) - lengths
        best = np.concatenate([w == w.min() for w in wrong])

        def objective(v: np.ndarray) -> tuple[float, np.ndarray]:
            scores = features @ v
            log_all, p_all = _segments(scores, bounds, lengths)
            log_best, p_best = _segments(np.where(best, scores, -np.inf), bounds, lengths)
            slope = np.repeat(weights, lengths) * (p_all - p_best)
            loss = float(weights @ (log_all - log_best)) + self.l2 * float(
                (v - start) @ (v - start)
            )
            return loss, features.T @ slope + 2 * self.l2 * (v - start)

        return minimise(
            objective,
            start,
            max_iter=self.max_iter,
            tol=self.tol,
            progress=self.progress,
            name="Reranker",
        )

    # ---- predicting -----------------------------------------------------------------------------

    def _candidates(self, batch: SequenceBatch) -> list[tuple[np.ndarray, np.ndarray]]:
        """The labellings (k, T) of each sequence and their log-probabilities, best first."""
        describe = _Describe(
            self._kinds(),
            self.ngram,
            self.word,
            self.feature_space_.names,
            self.label_space_.classes,
        )
        found = []
        ranked = self.base_._ranked(batch, self.k)
        for (labels, _), rows in zip(ranked, describe(batch, ranked), strict=True):
            log_p = log_softmax(_matrix([rows], self.names_) @ self.weights_)
            order = np.argsort(-log_p, kind="stable")
            found.append((labels[order], log_p[order]))
        return found

    def _marginals(self, batch: SequenceBatch) -> np.ndarray:
        flat = [np.zeros((0, len(self.classes_)))]
        for labels, log_p in self._candidates(batch):
            proba = np.zeros((labels.shape[1], len(self.classes_)))
            for row, p in zip(labels, np.exp(log_p), strict=True):
                proba[np.arange(len(row)), row] += p
            flat.append(proba)
        return np.concatenate(flat)[batch.layout.rows.numpy()]

    def _decode(self, batch: SequenceBatch) -> np.ndarray:
        flat = [np.zeros(0, np.int64), *(labels[0] for labels, _ in self._candidates(batch))]
        return np.concatenate(flat)[batch.layout.rows.numpy()]

    # ---- saving ---------------------------------------------------------------------------------

    def _inner(self) -> dict[str, SequenceLabeler]:
        return {"base": self.base_}

    def _restore_inner(self, inner: Mapping[str, SequenceLabeler]) -> None:
        base = inner["base"]
        if not isinstance(base, ChainLabeler) or base.label_space_ != self.label_space_:
            raise ValueError("the model inside is no chain labeler with these labels")
        if base.feature_space_.n_features != self.feature_space_.n_features:
            raise ValueError("the model inside has other features")
        self.base_ = base

    def _tensors(self) -> dict[str, np.ndarray]:
        names = json.dumps(self.names_).encode()
        return {"weights": self.weights_, "names": np.frombuffer(names, dtype=np.uint8)}

    def _restore(self, tensors: Mapping[str, np.ndarray]) -> None:
        text = tensors["names"]
        if text.dtype != np.uint8 or text.ndim != 1:
            raise ValueError("the names of the features are not a text")
        names = json.loads(text.tobytes().decode())
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("the names of the features are not a list of texts")
        if not names or names[0] != BASE or len(set(names)) != len(names):
            raise ValueError("the names of the features repeat, or do not begin with the base's")
        self.names_ = tuple(names)
        self.weights_ = checked_table(tensors, "weights", (len(names),))


@dataclass(frozen=True)
class _Describe:
    """Turns candidates into features by name."""

    kinds: tuple[str, ...]
    ngram: int
    word: str
    names: tuple[str, ...] | None
    classes: tuple[str, ...]

    def __call__(
        self, batch: SequenceBatch, candidates: Sequence[tuple[np.ndarray, Sequence[float]]]
    ) -> list[list[dict[str, float]]]:
        """For each sequence and candidate, feature → value."""
        flat = batch.features[batch.layout.unpacked_rows.numpy()]
        flat.eliminate_zeros()  # a stored zero is an absent feature
        ends = np.cumsum(batch.layout.lengths.numpy())
        found = []
        for (labels, scores), end in zip(candidates, ends.tolist(), strict=True):
            rows = flat[end - labels.shape[1] : end]
            tokens = [
                self._named(rows.indices[a:b])
                for a, b in zip(rows.indptr[:-1], rows.indptr[1:], strict=True)
            ]
            found.append(
                [
                    {BASE: score, **self.features([self.classes[c] for c in row], tokens)}
                    for row, score in zip(labels.tolist(), scores, strict=True)
                ]
            )
        return found

    def _named(self, columns: np.ndarray) -> list[str]:
        if self.names is None:
            return [str(d) for d in columns.tolist()]
        return [self.names[d] for d in columns.tolist()]

    def features(self, labels: list[str], tokens: list[list[str]]) -> dict[str, float]:
        """The features of one labelling."""
        counts: Counter[str] = Counter()
        if "ngrams" in self.kinds:
            padded = ["<", *labels, ">"]
            for n in range(2, self.ngram + 1):
                counts.update(
                    repr(("n", *gram))
                    for gram in zip(*(padded[i:] for i in range(n)), strict=False)
                )
        entities = self._entities(labels) if set(self.kinds) - {"ngrams"} else []
        before = "<"
        for start, end, label in entities:
            if "spans" in self.kinds:
                counts.update((repr(("e", label)), repr(("length", label, min(end - start, 8)))))
                counts[repr(("after", before, label))] += 1
                counts.update(repr(("first", label, name)) for name in tokens[start])
                counts.update(repr(("last", label, name)) for name in tokens[end - 1])
            if "strings" in self.kinds:
                words = (name for token in tokens[start:end] for name in token)
                chosen = [name for name in words if name.startswith(self.word)]
                if chosen:
                    counts[repr(("string", label, *chosen))] += 1
            before = label
        return dict(counts)

    def _entities(self, labels: list[str]) -> list[Entity]:
        """The entities of tags; runs of equal labels where the labels are no tags."""
        if self._are_tags:
            return tags_to_entities(labels)
        starts = [t for t in range(len(labels)) if t == 0 or labels[t] != labels[t - 1]]
        return [Entity(a, b, labels[a]) for a, b in pairwise([*starts, len(labels)])]

    @cached_property
    def _are_tags(self) -> bool:
        try:
            tags_to_entities(list(self.classes))
        except DataError:
            return False
        return True


def _labelled(batch: SequenceBatch) -> torch.Tensor:
    """The sequences that say anything about labels and weigh anything."""
    assert batch.allowed is not None
    informative = (~batch.allowed.all(-1)).to(torch.float64)
    known = batch.layout.sum_by_sequence(informative) * (batch.weights > 0)
    return known.nonzero().squeeze(-1)


def _wrong_tokens(
    batch: SequenceBatch, candidates: Sequence[tuple[np.ndarray, Sequence[float]]]
) -> list[np.ndarray]:
    """For each sequence, (k,) the tokens of each candidate whose label is not allowed."""
    assert batch.allowed is not None
    allowed = batch.allowed[batch.layout.unpacked_rows].numpy()
    ends = np.cumsum(batch.layout.lengths.numpy())
    found = []
    for (labels, _), end in zip(candidates, ends.tolist(), strict=True):
        mask = allowed[end - labels.shape[1] : end]
        found.append((~mask[np.arange(labels.shape[1]), labels]).sum(1))
    return found


def _matrix(lists: list[list[dict[str, float]]], names: tuple[str, ...]) -> sp.csr_matrix:
    """(candidates, features); features without a name here are left out."""
    column = {name: d for d, name in enumerate(names)}
    rows = [row for some in lists for row in some]
    entries = [
        (r, column[name], value)
        for r, row in enumerate(rows)
        for name, value in row.items()
        if name in column
    ]
    r, d, value = zip(*entries, strict=True) if entries else ((), (), ())
    return sp.csr_matrix((np.array(value, dtype=np.float64), (r, d)), (len(rows), len(names)))


def _segments(
    scores: np.ndarray, bounds: np.ndarray, lengths: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """log Σ exp over each run of scores, and the softmax within it."""
    top = np.maximum.reduceat(scores, bounds)
    shifted = np.exp(scores - np.repeat(top, lengths))
    total = np.add.reduceat(shifted, bounds)
    return top + np.log(total), shifted / np.repeat(total, lengths)
