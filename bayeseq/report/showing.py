"""`show`: tagged text that one can read, in a notebook or a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bayeseq.data.errors import DataError
from bayeseq.labelers.base import SequenceLabeler
from bayeseq.report.markup import STYLE, sentences_html
from bayeseq.report.sentence import TaggedSentence
from bayeseq.report.tagging import DRAWS, tag_sentences
from bayeseq.report.terminal import sentences_text


@dataclass(frozen=True, eq=False, repr=False)
class Shown:
    """Tagged sentences that a notebook shows in colours, and `print` as plain text."""

    sentences: tuple[TaggedSentence, ...]

    def _repr_html_(self) -> str:
        return f"<style>\n{STYLE}</style>\n{sentences_html(self.sentences)}"

    @property
    def html(self) -> str:
        """The piece of HTML that a notebook shows: no script, nothing fetched."""
        return self._repr_html_()

    def __str__(self) -> str:
        return sentences_text(self.sentences)

    __repr__ = __str__


def show(
    model: SequenceLabeler | TaggedSentence | Sequence[TaggedSentence],
    words: Sequence[str] | Sequence[Sequence[str]] | None = None,
    x: Any = None,
    y: Any = None,
    *,
    draws: int = DRAWS,
    level: float = 0.9,
    random_state: int = 0,
) -> Shown:
    """Sentences with their labels, and how sure a model is of each, to look at.

    In a notebook entities (or, where labels spell none, labels) are coloured. Strength is
    confidence: for an entity the probability of exactly these words with exactly this type. Stripes
    are the share of the doubt that is epistemic, where the model has a posterior. The tooltip of a
    word has its most probable labels, with credible intervals where there is a posterior. A model
    without probabilities shows its labels and no strength. With true labels, mistakes are
    underlined. Printed, the same is plain text.

    Args:
        model: a fitted labeler; or a `TaggedSentence`, or several, and nothing else.
        words: the words of a sentence, or of several sentences.
        x: the features of the sentence, or of the sentences, as `fit` had them; None makes them of
            the words: by the template that `bayeseq fit` saved, else by `word_features`.
        y: the true labels, if they are known.
        draws: draws from the posterior, where there is one.
        level: the share of draws in credible intervals.
        random_state: decides the draws.

    >>> from bayeseq import CRF
    >>> model = CRF(l2=0.01).fit([[["up"], ["low"]]] * 9, [["B-PER", "O"]] * 9)
    >>> print(show(model, ["Ann", "ran"], [["up"], ["low"]], y=["B-PER", "O"]))
    [Ann | PER >99%] ran
    <BLANKLINE>
    [words | type, and the probability of exactly these words with this type]
    (word | O ...) stands outside with less than 90%
    """
    if not isinstance(model, SequenceLabeler):
        if words is not None or x is not None or y is not None:
            raise ValueError(
                "words, x and y are for a labeler; what is already tagged goes in by itself"
            )
        return Shown(_tagged(model))
    if words is None:
        raise ValueError("show needs the words of a sentence, or of several, after the model")
    options: dict[str, Any] = {"draws": draws, "level": level, "random_state": random_state}
    if isinstance(words, str):
        raise DataError(f"a list of words is expected, and the text {words!r} is found")
    sentences: Any = words
    if not words or isinstance(words[0], str):
        sentences, x, y = [words], None if x is None else [x], None if y is None else [y]
    return Shown(tuple(tag_sentences(model, sentences, x, y, **options)))


def _tagged(given: Any) -> tuple[TaggedSentence, ...]:
    sentences = (given,) if isinstance(given, TaggedSentence) else tuple(given)
    for sentence in sentences:
        if not isinstance(sentence, TaggedSentence):
            raise TypeError(
                f"show takes a fitted labeler and words, or tagged sentences, not {sentence!r}"
            )
    return sentences
