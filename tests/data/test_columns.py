"""Column files: reading, writing, and what is refused."""

import io
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bayeseq.data.columns import Corpus, iter_columns, iter_lines, read_columns, write_columns
from bayeseq.data.errors import DataError

# White space to Python's str.split or str.splitlines, and yet parts of a token here.
ODD_SPACES = "\u3000\u00a0\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e"

tokens = st.text(
    st.one_of(
        st.characters(exclude_characters=" \t\r\n", exclude_categories=["Cs"]),
        st.sampled_from(ODD_SPACES + "\ufeff#_-"),
    ),
    min_size=1,
    max_size=4,
)


@st.composite
def corpora(draw: st.DrawFn) -> Corpus:
    width = draw(st.integers(1, 3))
    row = st.tuples(*[tokens] * width)
    sentences = draw(st.lists(st.lists(row, min_size=1, max_size=4), min_size=1, max_size=4))
    labels: Any = None
    if draw(st.booleans()):
        label = draw(st.sampled_from([tokens, st.none() | tokens]))
        labels = [[draw(label) for _ in rows] for rows in sentences]
    return Corpus(sentences, labels, draw(st.sampled_from([None, ("a", "b", "c")[:width]])))


def stream(text: str) -> io.BytesIO:
    return io.BytesIO(text.encode())


@settings(deadline=None, max_examples=150)
@given(corpus=corpora(), encoding=st.sampled_from(["utf-8", "utf-16", "utf-8-sig"]))
def test_what_is_written_is_read_back(
    corpus: Corpus, encoding: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    flat = [label for labels in corpus.labels or [] for label in labels]
    assume(not (None in flat and "_" in flat))
    assume(not corpus.sentences[0][0][0].startswith("\ufeff"))
    path = tmp_path_factory.getbasetemp() / "round_trip.txt"
    write_columns(path, corpus, encoding=encoding)
    again = read_columns(
        path,
        label_column=None if corpus.labels is None else -1,
        missing="_" if None in flat else None,
        docstart=False,
        columns=corpus.columns,
        encoding=encoding,
    )
    assert again == corpus


@pytest.mark.parametrize("char", ODD_SPACES)
def test_only_ascii_space_and_tab_split_and_only_newline_ends_a_line(char: str) -> None:
    corpus = read_columns(stream(f"{char} a\t \tO\n x{char}y b O \n"))
    assert corpus.sentences == [[(char, "a"), (f"x{char}y", "b")]]
    assert corpus.labels == [["O", "O"]]


def test_byte_order_mark_carriage_returns_and_a_missing_last_line_end() -> None:
    text = "\ufeffAnn B\r\nran O\r\n\r\n\r\nYes O"
    assert list(iter_columns(stream(text))) == [[("Ann", "B"), ("ran", "O")], [("Yes", "O")]]
    assert list(iter_columns(io.StringIO(text))) == list(iter_columns(stream(text)))


def test_a_byte_order_mark_elsewhere_is_a_character() -> None:
    assert list(iter_columns(stream("a\n\ufeffb\n"))) == [[("a",), ("\ufeffb",)]]


def test_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "Zoë B\nran O\n\nyes O\n"
    path = tmp_path / "a.txt"
    path.write_bytes(text.encode())
    expected = Corpus([[("Zoë",), ("ran",)], [("yes",)]], [["B", "O"], ["O"]])
    assert read_columns(path) == read_columns(str(path)) == expected
    with open(path, encoding="utf-8") as as_text, open(path, "rb") as as_bytes:
        assert read_columns(as_text) == read_columns(as_bytes) == expected
        assert not as_text.closed
        assert not as_bytes.closed
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream(text), encoding="ascii"))
    assert read_columns("-") == expected
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert read_columns("-") == expected


def test_a_stream_is_read_sentence_by_sentence() -> None:
    source = stream("word X\n\n" * 1000)
    sentences = iter_columns(source)
    assert next(sentences) == [("word", "X")]
    assert source.tell() == len("word X\n\n")


def test_document_starts_comments_and_missing_labels() -> None:
    text = "-DOCSTART- -X-\nAnn B\n# note\nran -\n-DOCSTART- -X- O\n# O\n"
    corpus = read_columns(stream(text), comments="# n", missing="-")
    assert corpus.sentences == [[("Ann",), ("ran",)], [("#",)]]
    assert corpus.labels == [["B", None], ["O"]]
    kept = read_columns(stream("-DOCSTART- O\n\nAnn B\n"), docstart=False)
    assert kept.tokens == [["-DOCSTART-"], ["Ann"]]


@pytest.mark.parametrize(
    ("label_column", "rows", "labels"),
    [
        (-1, [("a", "b")], [["c"]]),
        (2, [("a", "b")], [["c"]]),
        (0, [("b", "c")], [["a"]]),
        (-2, [("a", "c")], [["b"]]),
        (None, [("a", "b", "c")], None),
    ],
)
def test_label_column(label_column: int | None, rows: Any, labels: Any) -> None:
    corpus = read_columns(stream("a b c\n"), label_column=label_column)
    assert (corpus.sentences, corpus.labels) == ([rows], labels)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a O\n\nb N O\n", {}, r"<stream>, line 3: 2 columns .* on line 1, and 3 .*'b N O'"),
        ("", {}, "<stream>: the file holds no token"),
        (" \n\t\n-DOCSTART- O\n", {}, "<stream>: the file holds no token"),
        ("a\n", {}, r"line 1: 1 column \('a',\), which leaves no feature"),
        ("\n\na b\n", {"label_column": 2}, r"line 3: 2 columns .* no label_column 2; .* -2 to 1"),
        ("a b\n", {"label_column": -3}, "no label_column -3"),
        ("a b\n", {"columns": ("x", "y")}, "1 hold features, and 2 names are given"),
        ("a O\rb O\n", {}, "line 1: a carriage return inside the line"),
        ("a O\n", {"encoding": "klingon"}, "there is no encoding 'klingon'"),
    ],
)
def test_unreadable_text(text: str, options: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_columns(stream(text), **options)


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.txt: there is no such file"):
        read_columns(tmp_path / "absent.txt")
    with pytest.raises(DataError, match="is a folder"):
        read_columns(tmp_path)


def test_wrong_encoding_names_the_line_the_byte_and_what_would_do(tmp_path: Path) -> None:
    path = tmp_path / "japanese.txt"
    path.write_bytes("one O\n".encode("euc-jp") + "東京 LOC\n".encode("euc-jp"))
    with pytest.raises(DataError) as caught:
        read_columns(path)
    message = str(caught.value)
    assert f"{path}, line 2: byte 0xc5 at position 0 is not utf-8" in message
    assert "euc-jp ('東京 LOC')" in message
    assert "latin-1" in message
    assert read_columns(path, encoding="euc-jp").tokens == [["one", "東京"]]
    with (
        open(path, encoding="utf-8") as text,
        pytest.raises(DataError, match=r"after line 0: byte 0xc5 is not utf-8"),
    ):
        read_columns(text)


def test_a_utf16_file_is_recognised_and_read() -> None:
    raw = "東京 LOC\n".encode("utf-16")
    with pytest.raises(DataError, match=r"line 1: byte 0xff .* utf-16"):
        read_columns(io.BytesIO(raw))
    assert read_columns(io.BytesIO(raw), encoding="utf-16").tokens == [["東京"]]
    with pytest.raises(DataError, match="after line 1"):
        read_columns(io.BytesIO(raw + b"\x00"), encoding="utf-16")


def test_lines_end_with_lf_or_crlf_only() -> None:
    assert list(iter_lines(stream("a\u2028b\x85\r\n\nc"))) == ["a\u2028b\x85", "", "c"]


# Corpus


def small() -> Corpus:
    sentences = [[("a", "A"), ("b", "B")], [("c", "C")], [("d", "D")]]
    return Corpus(sentences, [["x", None], ["y"], ["z"]], ("low", "high"))  # type: ignore[arg-type]


def test_corpus_counts_and_columns() -> None:
    corpus = small()
    assert (len(corpus), corpus.n_tokens, corpus.n_columns) == (3, 4, 2)
    assert corpus.tokens == corpus.column("low") == corpus.column(0) == [["a", "b"], ["c"], ["d"]]
    assert corpus.column("high") == corpus.column(-1) == [["A", "B"], ["C"], ["D"]]
    assert repr(corpus) == "Corpus(3 sentences, 4 tokens, columns low high, labelled)"
    assert repr(Corpus([[("a",)]])) == "Corpus(1 sentence, 1 token, 1 column, unlabelled)"
    assert Corpus([]).n_columns == 0
    with pytest.raises(DataError, match="no column 'pos'"):
        corpus.column("pos")
    with pytest.raises(DataError, match="no column 2; the corpus has 2"):
        corpus.column(2)


def test_corpus_indexing() -> None:
    corpus = small()
    assert corpus[1] == corpus[np.int64(1)] == corpus[-2] == ([("c", "C")], ["y"])
    assert list(corpus) == [corpus[0], corpus[1], corpus[2]]
    assert corpus[1:].labels == [["y"], ["z"]]
    for index in ([2, 0], (2, 0), np.array([2, 0]), [-1, -3]):
        assert corpus[index].tokens == [["d"], ["a", "b"]]
        assert corpus[index].columns == ("low", "high")
    assert corpus[np.array([True, False, True])] == corpus[::2]
    assert len(corpus[[]]) == len(corpus[5:]) == 0
    assert Corpus([[("a",)]])[0] == ([("a",)], None)
    with pytest.raises(IndexError):
        corpus[3]
    with pytest.raises(IndexError):
        corpus[[3]]


@pytest.mark.parametrize(
    ("sentences", "labels", "columns", "message"),
    [
        ([[("a",), ("b", "c")]], None, None, "sentence 0, token 1: 1 columns .* 2 are found"),
        ([[("a",)]], [], None, "labels: 0 sequences are given for 1 sentences"),
        ([[("a",)]], [["x", "y"]], None, "labels, sentence 0: 2 values are given for 1 tokens"),
        ([[("a",)]], None, ("x", "y"), "sentence 0, token 0: 2 columns are expected and 1"),
    ],
)
def test_a_corpus_has_one_shape(sentences: Any, labels: Any, columns: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Corpus(sentences, labels, columns)


# Writing


def test_extra_columns_and_targets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = small()
    text = "a A x p\nb B ? ?\n\nc C y q\n\nd D z r\n\n"
    extra: list[list[str | None]] = [["p", None], ["q"], ["r"]]
    write_columns("-", corpus, extra, missing="?")
    assert capsys.readouterr().out == text
    opened = io.StringIO()
    write_columns(opened, corpus, extra, missing="?")
    assert opened.getvalue() == text
    write_columns(tmp_path / "a", corpus, extra, missing="?")
    assert (tmp_path / "a").read_bytes() == text.encode()


@pytest.mark.parametrize("bad", ["a b", "a\tb", "a\n", "a\r", "", 3])
@pytest.mark.parametrize("place", ["column", "label", "extra"])
def test_a_value_that_would_not_read_back_is_refused(bad: Any, place: str, tmp_path: Path) -> None:
    rows: Any = [("fine", "N"), ("w", bad if place == "column" else "N")]
    labels = ["O", bad if place == "label" else "O"]
    extra = ["O", bad if place == "extra" else "O"]
    column = {"column": 1, "label": 2, "extra": 3}[place]
    path = tmp_path / "out"
    path.write_text("as before")
    with pytest.raises(DataError, match=f"sentence 0, token 1, column {column}: ") as caught:
        write_columns(path, Corpus([rows], [labels]), [extra])
    assert repr(bad) in str(caught.value)
    assert path.read_text() == "as before"
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize(
    ("corpus", "extra", "message"),
    [
        (Corpus([]), [], "no sentence"),
        (Corpus([[("a",)], []]), [], "sentence 1 has no token"),
        (Corpus([[("a",), ("b",)]], [["_", None]]), [], "'_' is a label and also the mark"),
        (Corpus([[("a",)]]), [[["x", "y"]]], "extra column 0, sentence 0: 2 values"),
        (Corpus([[("\ufeffa",)]]), [], "byte-order mark"),
        (Corpus([[()]]), [], "no column to write"),
    ],
)
def test_corpora_that_cannot_be_written(corpus: Corpus, extra: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        write_columns(io.StringIO(), corpus, *extra)


def test_targets_that_cannot_be_written(tmp_path: Path) -> None:
    corpus = Corpus([[("東京",)]])
    with pytest.raises(DataError, match="is a folder"):
        write_columns(tmp_path, corpus)
    with pytest.raises(DataError, match="there is no folder"):
        write_columns(tmp_path / "no" / "file", corpus)
    with pytest.raises(DataError, match="sentence 0: '東' cannot be written in latin-1"):
        write_columns(tmp_path / "file", corpus, encoding="latin-1")
    assert os.listdir(tmp_path) == []


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "file")
    write_columns(link, Corpus([[("a",)]]))
    assert link.is_symlink()
    assert (tmp_path / "file").read_text() == "a\n\n"


# Real files


def test_full_width_spaces_of_a_real_file_are_tokens(data_dir: Path) -> None:
    path = data_dir / "crfpp" / "JapaneseNE" / "test.data"
    corpus = read_columns(path, encoding="euc-jp")
    assert (len(corpus), corpus.n_columns) == (500, 3)
    assert [any(word == "\u3000" for word in corpus.tokens[i]) for i in (205, 211)] == [True, True]
    with pytest.raises(DataError, match="euc-jp"):
        read_columns(path)


def test_a_real_file_against_a_plain_split(data_dir: Path) -> None:
    with zipfile.ZipFile(data_dir / "nltk" / "conll2000.zip") as archive:
        with archive.open("conll2000/test.txt") as source:
            corpus = read_columns(source, columns=("word", "pos"))
        text = archive.read("conll2000/test.txt").decode("ascii")
    blocks = [
        [tuple(line.split(" ")) for line in b.split("\n")] for b in text.strip().split("\n\n")
    ]
    assert corpus.sentences == [[row[:2] for row in block] for block in blocks]
    assert corpus.labels == [[row[2] for row in block] for block in blocks]
