"""The section of a report about single sentences: those that are worth a look."""

from __future__ import annotations

from bayeseq.report.contents import (
    Contents,
    expected_mistakes,
    least_known,
    least_sure,
    most_mistakes,
    surest_mistakes,
)
from bayeseq.report.escaping import percent
from bayeseq.report.markup import legend_html, sentences_html
from bayeseq.report.page import Section, heading, paragraph
from bayeseq.report.tagging import tag_sentences


def sentences(contents: Contents, most: int, level: float, random_state: int) -> Section | None:
    """The sentences worth a look, with everything that the model says of them."""
    chosen = _chosen(contents, most)
    if not chosen:
        return None
    numbers = sorted({i for _, _, places in chosen for i in places})
    tagged = tag_sentences(
        contents.model,
        [contents.words[i] for i in numbers],
        [contents.X[i] for i in numbers],
        None if contents.truth is None else [contents.truth[i] for i in numbers],
        draws=contents.draws,
        level=level,
        random_state=random_state,
    )
    by_number = dict(zip(numbers, tagged, strict=True))
    legend = f'<div class="bq-show">{legend_html(tagged)}</div>'
    parts: list[str] = [paragraph("Numbers count sentences from 1.", note=True), legend]
    for title, about, places in chosen:
        parts.append(heading(title))
        if about:
            parts.append(paragraph(about))
        names = [str(i + 1) for i in places]
        parts.append(sentences_html([by_number[i] for i in places], names, key=False))
    return Section("sentences", "Sentences", *parts)


def _chosen(contents: Contents, most: int) -> list[tuple[str, str, list[int]]]:
    """Headings, what they mean, and the sentences under them."""
    chosen: list[tuple[str, str, list[int]]] = []
    if contents.truth is not None and contents.proba is not None:
        about = "The labels that are wrong although the model was sure of them."
        chosen.append(("Surest mistakes", about, surest_mistakes(contents, most)))
    if contents.truth is not None:
        chosen.append(("Most mistakes", "", most_mistakes(contents, most)))
    if contents.proba is not None:
        about = (
            "Where the model itself expects most wrong labels: the sum of 1 − confidence, "
            f"{sum(expected_mistakes(contents)):,.1f} in all sentences."
        )
        chosen.append(("Least sure", about, least_sure(contents, most)))
    if contents.uncertainty is not None:
        total, epistemic = (float(x.sum()) for x in contents.uncertainty)
        about = (
            "Where draws from the posterior disagree most: labels of such sentences would teach "
            f"the model most. Of all its uncertainty {percent(epistemic / total if total else 0)} "
            "is epistemic."
        )
        chosen.append(("Least known", about, least_known(contents, most)))
    return [entry for entry in chosen if entry[2]]
