"""bayeseq suggest: which sentences of a file, or which tokens, to annotate next."""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

from bayeseq import load
from bayeseq.analysis.suggest import Suggestion, Suggestions, suggest
from bayeseq.cli.inputs import InputFormat, counted, file_name, remark, watched
from bayeseq.data import Corpus, DataError, write_columns
from bayeseq.data.columns import Rows, numbered_sentences
from bayeseq.diagnostics.tables import aligned
from bayeseq.labelers import SequenceLabeler

MARK, ASKED = "_", "?"
NUMBER = 20
"""How many are suggested where neither their number nor that of the tokens is given."""
WIDTH = 60
"""Letters of a sentence that are shown."""


class Pool(NamedTuple):
    """The sentences of a file, without the label column."""

    sentences: list[Rows]
    lines: list[list[int]]
    """The line of each token, from 1"""
    known: list[list[str | None]]
    """Labels that the file has already"""

    @property
    def words(self) -> list[list[str]]:
        """The first column."""
        return [[row[0] for row in rows] for rows in self.sentences]


def run(args: argparse.Namespace) -> int:
    """Print the ranking, and write the chosen sentences where asked to."""
    model = load(args.model)
    form = InputFormat.of(model, args.model)
    mark = args.missing or form.missing or MARK
    for sign in {mark, ASKED} & set(model.classes_.tolist()):
        raise DataError(
            f"{sign!r} is a label of {args.model}, and here the mark of a label that is missing or "
            "asked for; give another --missing, or choose with bayeseq.suggest in Python"
        )
    pool = _read(args, form, mark)
    X = form.transform(pool.sentences, args.quiet)
    found = _ask(model, X, pool, args)
    print(_table(found, pool))
    if args.output is not None:
        _write(found, model, X, pool, form, mark, args)
    remark(
        f"{counted(len(found), found.unit)} of {counted(len(pool.sentences), 'sentence')}, "
        f"{counted(found.tokens, 'label')} to give; sentences and tokens are counted from 0",
        args.quiet,
    )
    return 0


def _read(args: argparse.Namespace, form: InputFormat, mark: str) -> Pool:
    pool = Pool([], [], [])
    encoding = args.encoding or form.encoding
    with watched(args.file, args.quiet) as (stream, _):
        for numbers, rows in numbered_sentences(stream, encoding, form.comments, True):
            features, labels = form.split(rows, file_name(args.file))
            pool.sentences.append(features)
            pool.lines.append(numbers)
            pool.known.append(
                [
                    None if label in (mark, ASKED) else label
                    for label in labels or [mark] * len(rows)
                ]
            )
    if not any(None in row for row in pool.known):
        raise DataError(
            f"{file_name(args.file)}: every token has a label, so there is nothing to ask for; "
            f"leave the label column out, or write {mark!r} where a label is missing"
        )
    return pool


def _ask(model: SequenceLabeler, X: Any, pool: Pool, args: argparse.Namespace) -> Suggestions:
    number = NUMBER if args.number is None and args.tokens is None else args.number
    try:
        return suggest(
            model,
            X,
            n=number,
            tokens=args.tokens,
            strategy=args.strategy,
            unit=args.unit,
            diversity=args.diversity,
            given=pool.known,
            random_state=args.seed,
        )
    except TypeError as error:  # no probabilities, or no posterior
        raise DataError(f"{args.model}: {error}") from error


def _table(found: Suggestions, pool: Pool) -> str:
    """The suggestions with their lines in the file, and their texts."""
    what = "token" if found.unit == "token" else "tokens"
    rows = [["rank", "sentence", "line", what, "score"]]
    texts = ["text"]
    for rank, item in enumerate(found, 1):
        i, t = item.sentence, item.token
        cells = [i, pool.lines[i][t or 0], item.tokens if t is None else t]
        rows.append([str(rank), *map(str, cells), f"{item.score:.4f}"])
        texts.append(f"{_text(pool.words[i], t)}  ({item.reason})")
    lines = aligned(rows).split("\n")
    return "\n".join(f"{line}  {text}" for line, text in zip(lines, texts, strict=True))


def _text(words: list[str], token: int | None) -> str:
    """The words of a sentence as far as they fit; around a token where one is meant."""
    if token is None:
        text = " ".join(words)
        return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"
    before, after = " ".join(words[:token]), " ".join(words[token + 1 :])
    side = max(0, WIDTH - len(words[token])) // 2
    before = before if len(before) <= side else "…" + before[len(before) - side :]
    after = after if len(after) <= side else after[:side] + "…"
    return f"{before} [{words[token]}] {after}".strip()


def _write(
    found: Suggestions,
    model: SequenceLabeler,
    X: Any,
    pool: Pool,
    form: InputFormat,
    mark: str,
    args: argparse.Namespace,
) -> None:
    chosen = found.sentences
    if not chosen:
        raise DataError("nothing was suggested, so there is nothing to write; allow more --tokens")
    known = [pool.known[i] for i in chosen]
    predicted = model.predict([X[i] for i in chosen], known)
    asked = _asked(found.items, pool)
    k = form.label_column
    sentences: list[Rows] = []
    for i, labels in zip(chosen, predicted, strict=True):
        rows = []
        for t, (row, label) in enumerate(zip(pool.sentences[i], labels, strict=True)):
            if pool.known[i][t] is None and args.fill == "missing":
                label = ASKED if found.unit == "token" and t in asked[i] else mark
            elif pool.known[i][t] is None and t not in asked[i]:
                label = mark
            rows.append((*row[:k], label, *row[k:]))
        sentences.append(rows)
    write_columns(args.output, Corpus(sentences), encoding=args.encoding or form.encoding)


def _asked(items: tuple[Suggestion, ...], pool: Pool) -> dict[int, set[int]]:
    """The tokens that are asked for, by sentence."""
    found: dict[int, set[int]] = {}
    for item in items:
        every = range(len(pool.sentences[item.sentence]))
        found.setdefault(item.sentence, set()).update(
            every if item.token is None else (item.token,)
        )
    return found
