"""Which training tokens speak for a label of a new token, and which against it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayeseq.analysis.fitted import training_data
from bayeseq.analysis.representers import representers
from bayeseq.data.errors import DataError
from bayeseq.data.labels import Labels
from bayeseq.diagnostics.html import html_paragraphs, html_table
from bayeseq.diagnostics.tables import aligned
from bayeseq.labelers.base import SequenceLabeler
from bayeseq.labelers.chain import require_positive


@dataclass(frozen=True)
class Speaker:
    """A training token and what it adds to the score of a label."""

    contribution: float
    """similarity times coefficient; above 0 it speaks for the label"""
    similarity: float
    """the kernel between the two tokens, prior variance included"""
    coefficient: float
    """whether it has the label, less how probable the model finds that (for margins, α)"""
    label: str
    """its own label; "?" where that is not known"""
    sequence: int
    position: int
    word: str
    """its word, if words were given"""


@dataclass(frozen=True, eq=False)
class Evidence:
    """The training tokens that speak loudest for or against a label of one token."""

    position: int
    word: str
    label: str
    score: float
    """of the label, by the token's features alone (labels around it not counted)"""
    explained: float
    """the sum of the contributions of all training tokens: the score, as far as the search for the
    weights, or their sampling, came to its end"""
    speakers: tuple[Speaker, ...]
    """the loudest, either way, first"""
    n_tokens: int
    """how many training tokens there are"""

    def _rows(self) -> list[list[str]]:
        rows = [["token", "label", "sequence", "position", "similarity", "weight", "adds"]]
        for one in self.speakers:
            place = [str(one.sequence), str(one.position)]
            numbers = [
                f"{one.similarity:.3f}",
                f"{one.coefficient:+.3f}",
                f"{one.contribution:+.3f}",
            ]
            rows.append([one.word or "-", one.label, *place, *numbers])
        return rows

    def table(self) -> str:
        """A line a training token."""
        return aligned(self._rows())

    def _line(self) -> str:
        shown = sum(one.contribution for one in self.speakers)
        word = f" ({self.word})" if self.word else ""
        return (
            f"Token {self.position}{word} scores {self.score:+.3f} for {self.label} by its "
            f"features. {self.n_tokens} training tokens add up to {self.explained:+.3f}; the "
            f"{len(self.speakers)} that say most make {shown:+.3f} of it:"
        )

    def __str__(self) -> str:
        return f"{self._line()}\n{self.table()}"

    def _repr_html_(self) -> str:
        return html_paragraphs([self._line()]) + html_table(self._rows())


def explain(
    model: SequenceLabeler,
    x: Any,
    t: int,
    label: str | None = None,
    *,
    X_train: Iterable[Any],
    y_train: Labels,
    words: Sequence[str] | None = None,
    words_train: Sequence[Sequence[str]] | None = None,
    sample_weight: Sequence[float] | None = None,
    n: int = 5,
) -> Evidence:
    """The training tokens that speak for a label of token t of a sequence x, and against it.

    The score of a label is a sum over training tokens of how alike they are to this one, times how
    much each counts: whether it has the label, less how probable the model finds that. So tokens
    that the model finds surprising speak loudest. This holds for GPSL, GPSC, GPStruct, SparseGPSC
    and CRF, and for HMSVM and HMPerceptron with dual=True, with any kernel.

    Args:
        model: the fitted labeler.
        x: one sequence, as in X.
        t: which token.
        label: which label; None for the predicted one.
        X_train, y_train: what the labeler was fitted to, in the same order: a saved model does not
            hold it.
        words, words_train: the words of x and of the training sequences, to be shown.
        sample_weight: as in `fit`, if there was one.
        n: how many training tokens, those that say most either way.

    >>> from bayeseq import GPSC
    >>> X, y = [[["a"], ["b"]], [["b"], ["a"]]], [["A", "B"], ["B", "A"]]
    >>> model = GPSC(inference="map", progress=False).fit(X, y)
    >>> found = explain(model, [["a"], ["c"]], 0, X_train=X, y_train=y, n=2)
    >>> [(one.label, one.sequence, one.position) for one in found.speakers]
    [('A', 0, 0), ('A', 1, 1)]
    """
    require_positive("n", n)
    X_train, y_train = list(X_train), list(y_train)
    predicted = model.predict([x])[0]
    if not 0 <= t < len(predicted):
        raise DataError(f"t is {t}, and x has {len(predicted)} tokens, from 0 on")
    label = predicted[t] if label is None else label
    classes = model.label_space_.classes
    if label not in classes:
        raise DataError(f"label {label!r} is none of the model's: {', '.join(classes)}")
    for name, texts, sequences in (("words", [words], [x]), ("words_train", words_train, X_train)):
        _check_words(name, texts, sequences)
    data = training_data(model, X_train, y_train, sample_weight)
    found, c = representers(model, data), classes.index(label)
    row = model.feature_space_.matrix([x])[0][t]
    similarity, coefficient = found.similarity(row, c), found.alpha[:, c]
    contribution = similarity * coefficient
    sequence, position = (index.numpy()[found.rows] for index in data.batch.layout.token_index)
    order = np.lexsort((position, sequence, -np.abs(contribution).round(12)))[:n]
    return Evidence(
        t,
        "" if words is None else str(words[t]),
        label,
        found.score(row, c),
        float(contribution.sum()),
        tuple(
            Speaker(
                float(contribution[k]),
                float(similarity[k]),
                float(coefficient[k]),
                _label(y_train[sequence[k]][position[k]]),
                int(sequence[k]),
                int(position[k]),
                "" if words_train is None else str(words_train[sequence[k]][position[k]]),
            )
            for k in order.tolist()
        ),
        len(contribution),
    )


def _label(label: Any) -> str:
    return label if isinstance(label, str) else "?"


def _check_words(name: str, texts: Sequence[Any] | None, sequences: Sequence[Any]) -> None:
    if texts is None or (len(texts) == 1 and texts[0] is None):
        return
    if len(texts) != len(sequences):
        raise DataError(f"{name} has {len(texts)} sequences, and there are {len(sequences)}")
    for i, (text, x) in enumerate(zip(texts, sequences, strict=True)):
        size = x.shape[0] if hasattr(x, "shape") else len(x)
        if len(text) != size:
            raise DataError(f"{name}: sequence {i} has {len(text)} words and {size} tokens")
