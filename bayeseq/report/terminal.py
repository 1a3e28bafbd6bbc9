"""Tagged sentences as plain text, for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from bayeseq.report.escaping import percent, visible
from bayeseq.report.sentence import Stretch, TaggedSentence, runs

WIDTH = 96
DOUBTFUL = 0.9
"""A word outside of any entity is marked from this confidence down."""


def sentences_text(sentences: Sequence[TaggedSentence]) -> str:
    """The sentences, entities in brackets or words with their labels, and what the signs mean.

    >>> print(sentences_text([TaggedSentence(["Ann", "ran"], ["B-PER", "O"])]))
    [Ann | PER] ran
    <BLANKLINE>
    No probabilities: the model gives labels and does not say how sure it is
    """
    blocks = []
    for sentence in sentences:
        parts = [_part(sentence, stretch) for stretch in sentence.stretches]
        # a part stays whole: its spaces are not for breaking lines
        text = " ".join(part.replace(" ", "\0") for part in parts) or "(no token)"
        lines = textwrap.wrap(
            text, WIDTH, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
        )
        blocks.append("\n".join(lines).replace("\0", " "))
    return "\n\n".join([*blocks, _key(sentences)])


def _part(sentence: TaggedSentence, stretch: Stretch) -> str:
    words = " ".join(map(visible, sentence.words[stretch.start : stretch.end]))
    remarks = [visible(stretch.label)] if stretch.label else []
    if stretch.probability is not None:
        remarks.append(percent(stretch.probability))
        if stretch.epistemic is not None and stretch.probability < DOUBTFUL:
            remarks.append(f"epistemic {percent(stretch.epistemic)}")
    if stretch.truth:
        true = " ".join(
            visible(label) + (f" ×{n}" if n > 1 else "") for label, n in runs(stretch.truth)
        )
        remarks.append(f"≠ {true}")
    if not sentence.has_entities:
        return f"{words}/{':'.join(remarks).replace(' ', '')}"
    if stretch.label is not None:
        return f"[{words} | {' '.join(remarks)}]".replace(" | ]", "]")
    sure = stretch.probability is None or stretch.probability >= DOUBTFUL
    return words if sure and not stretch.truth else f"({words} | O {' '.join(remarks)})"


def _key(sentences: Sequence[TaggedSentence]) -> str:
    if all(sentence.proba is None for sentence in sentences):
        key = ["No probabilities: the model gives labels and does not say how sure it is"]
    elif any(sentence.has_entities for sentence in sentences):
        exact = all(sentence.is_exact for sentence in sentences)
        key = [
            "[words | type, and the probability of exactly these words with this type]"
            if exact
            else "[words | type]: the model gives no probability of whole entities",
            f"(word | O ...) stands outside with less than {percent(DOUBTFUL)}",
        ]
    else:
        key = ["word/label:probability"]
    if any(sentence.doubt is not None for sentence in sentences):
        key.append("epistemic: the share of the doubt that more training labels would lower")
    if any(any(sentence.wrong) for sentence in sentences):
        key.append("≠: the true labels, where another was given")
    return "\n".join(key)
