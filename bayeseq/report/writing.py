"""`write_report`: one page about a model and how it does on sentences."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from bayeseq.data.columns import replacing
from bayeseq.labelers.base import SequenceLabeler
from bayeseq.report import examples, learned, sections
from bayeseq.report.contents import gather
from bayeseq.report.page import page, paragraph
from bayeseq.report.tagging import DRAWS


def write_report(
    path: str | os.PathLike[str],
    model: SequenceLabeler,
    words: Sequence[Sequence[str]],
    X: Sequence[Any] | None = None,
    y: Sequence[Sequence[str | None]] | None = None,
    **options: Any,
) -> None:
    """Write a page about a model on sentences into a file, whole or not at all.

    The page needs nothing else: pictures are in it, no script runs, nothing is fetched. The same
    model and sentences give the same bytes. Arguments are those of `report_html`.

    >>> import pathlib, tempfile
    >>> from bayeseq import CRF
    >>> X, y = [[["a"], ["b"]]] * 3, [["B-PER", "O"]] * 3
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "report.html"
    >>> write_report(path, CRF().fit(X, y), [["Ann", "ran"]] * 3, X, y)
    >>> path.read_text(encoding="utf-8").count("<h1>")
    1
    """
    text = report_html(model, words, X, y, **options)
    with replacing(path, "utf-8") as stream:
        stream.write(text)


def report_html(
    model: SequenceLabeler,
    words: Sequence[Sequence[str]],
    X: Sequence[Any] | None = None,
    y: Sequence[Sequence[str | None]] | None = None,
    *,
    title: str | None = None,
    data: str = "",
    date: str = "",
    sentences: int = 5,
    draws: int = DRAWS,
    level: float = 0.9,
    scheme: str | None = None,
    random_state: int = 0,
    quiet: bool = True,
) -> str:
    """The page that `write_report` writes.

    Args:
        model: a fitted labeler.
        words: the tokens of each sentence, as they are shown.
        X: their features, as `fit` had them; None makes them of the words (see `show`).
        y: true labels, None where one is missing. Without any there are no scores.
        title: the heading.
        data: where the sentences are from, in words.
        date: a date to be written on the page; by default there is none.
        sentences: how many sentences of each kind are shown.
        draws: draws from the posterior, where there is one.
        level: the share of draws in credible intervals.
        scheme: count only entities that are well formed in this tag scheme, such as "IOB2".
        random_state: decides draws and bootstrap.
        quiet: no progress bar.

    >>> from bayeseq import CRF
    >>> X, y = [[["a"], ["b"]]] * 3, [["B-PER", "O"]] * 3
    >>> page = report_html(CRF().fit(X, y), [["Ann", "ran"]] * 3, X)
    >>> "There are no true labels" in page
    True
    """
    contents = gather(
        model,
        words,
        X,
        y,
        draws=draws,
        scheme=scheme,
        random_state=random_state,
        quiet=quiet,
    )
    name = type(model).__name__
    about = f"{name} on {len(contents.words):,} sentences, {contents.n_tokens:,} tokens"
    head = [paragraph(". ".join(filter(None, [about + (f" of {data}" if data else ""), date])))]
    head.append(sections.summary(contents))
    found = [
        sections.scores(contents) if contents.truth is not None else sections.labels(contents),
        sections.calibration(contents),
        sections.review(contents),
        sections.mistakes(contents),
        examples.sentences(contents, sentences, level, random_state),
        learned.posterior(contents, level, random_state),
        learned.fitting(contents),
    ]
    from bayeseq import __version__

    foot = paragraph(f"Written by bayeseq {__version__}. The file needs no network and no script.")
    return page(title or f"{name}: report", head, [section for section in found if section], foot)
