"""Templates against an expander written as one plain loop, and against published counts."""

import gc
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayeseq.data.columns import Corpus, read_columns
from bayeseq.data.errors import DataError
from bayeseq.data.template import Template


def expand(text: str, rows: Sequence[tuple[str, ...]]) -> list[list[str]]:
    """The oracle: every line at every token, macro by macro."""
    lines = [line for line in text.split("\n") if line and not line.startswith("#")]
    tokens = []
    for t in range(len(rows)):

        def value(macro: re.Match[str], t: int = t) -> str:
            place, column = t + int(macro[1]), int(macro[2])
            if place < 0:
                return f"_B{place}"
            if place >= len(rows):
                return f"_B+{place - len(rows) + 1}"
            return rows[place][column]

        unigrams = [line for line in lines if line[0] == "U"]
        bigrams = [line for line in lines if line[0] == "B" and "%" in line and t > 0]
        tokens.append([re.sub(r"%x\[(.*?),(.*?)\]", value, line) for line in unigrams + bigrams])
    return tokens


literals = st.text("ab/:[],x0\\", max_size=3)
macros = st.builds("%x[{},{}]".format, st.integers(-4, 4), st.integers(0, 1))


@st.composite
def lines(draw: st.DrawFn) -> str:
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(["", "# U00:%x[0,0] %m", "B"]))
    parts = draw(st.lists(st.tuples(macros, literals), max_size=3))
    return draw(st.sampled_from("UUB")) + draw(literals) + "".join(m + text for m, text in parts)


# Few values, among them the marks of places outside, so that strings meet in odd ways.
rows = st.tuples(*[st.sampled_from(["a", "b", "ab", "", "%s", "_B-1", "_B+1", "é\u3000"])] * 2)


@settings(deadline=None, max_examples=200)
@given(
    text=st.lists(lines(), max_size=6).map("\n".join),
    sentences=st.lists(st.lists(rows, max_size=5), max_size=4),
)
def test_against_the_loop(text: str, sentences: list[list[tuple[str, ...]]]) -> None:
    template = Template.parse(text)
    expected = [expand(text, sentence) for sentence in sentences]
    assert template.transform(sentences) == expected
    assert template.transform(iter(sentences)) == expected
    assert template.transform(Corpus(sentences)) == expected
    assert [template.features(sentence) for sentence in sentences] == expected
    assert str(template) == text


def test_many_tokens_and_windows_beyond_the_sentence() -> None:
    text = "U00:%x[-9,0]/%x[12,0]\nU01:%x[0,0]\nU02\nB03:%x[-1,0]/%x[0,0]"
    sentences = [[(f"w{(i * j) % 7}",) for j in range(i % 13)] for i in range(2000)]
    assert Template.parse(text).transform(sentences) == [expand(text, s) for s in sentences]


def test_a_far_row_costs_nothing() -> None:
    assert Template.parse("U:%x[-1000000000,0]").features([("a",), ("b",)]) == [
        ["U:_B-1000000000"],
        ["U:_B-999999999"],
    ]


def test_lines_and_what_they_say_of_label_pairs() -> None:
    text = "# words\r\n U00:%x[-2,0]/%x[+1,1] \r\n\r\nU99\nB\nB01:%x[0,0]\n"
    template = Template.parse(text)
    assert [(line.number, line.text, line.macros) for line in template.unigrams] == [
        (2, "U00:%x[-2,0]/%x[+1,1]", ((-2, 0), (1, 1))),
        (4, "U99", ()),
    ]
    assert [line.text for line in template.bigrams] == ["B", "B01:%x[0,0]"]
    assert str(template) == text
    for part, has_transitions, has_pair_features in [
        ("U", False, False),
        ("B", True, False),
        ("B07", True, False),
        ("B:%x[0,0]", True, True),
    ]:
        one = Template.parse(part)
        assert one.has_transitions is has_transitions
        assert one.has_pair_features is has_pair_features


def test_pair_features_begin_at_the_second_token() -> None:
    template = Template.parse("B\nB01:%x[0,0]\nU:bias\nB02")
    assert template.features([("a",), ("b",)]) == [["U:bias"], ["U:bias", "B01:b"]]


def test_no_line_gives_empty_lists() -> None:
    assert Template.parse("B\n").transform([[("a",), ("b",)], []]) == [[[], []], []]
    assert Template.parse("").transform([]) == []


@pytest.mark.parametrize("text", ["U00:%x[0,0]\nU01:%x[-1,0]/%x[0,0]", "U:%x[0,0]\nU:%x[1,0]"])
def test_equal_strings_are_one_object(text: str) -> None:
    sentences = [[(word,) for word in "ababac"] for _ in range(50)]
    strings = [s for tokens in Template.parse(text).transform(sentences) for t in tokens for s in t]
    assert len({id(s) for s in strings}) == len(set(strings))


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_left_as_it_was(enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        Template.default(1).features([("a",)])
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("U00:%x[0,0]\nX01", r"template, line 2 'X01': a template line begins with U, B or #"),
        ("*:%x[0,0]", r"line 1 .* begins with U, B or #"),
        ("U:%m[0,0,'a']", r"line 1 .*: there is no macro '%m'"),
        ("U:%t[0,0]", "there is no macro '%t'"),
        ("U:100%", "there is no macro '%'"),
        ("U:%%x[0,0]", "there is no macro '%%'"),
        ("U:%x[0]", r"write macros as %x\[row,col\]"),
        ("U:%x[0,-1]", r"write macros as %x\[row,col\]"),
        ("U:%x[a,0]", r"write macros as %x\[row,col\]"),
        ("U:%x[0,0", r"write macros as %x\[row,col\]"),
        ("U:%%x[0,0]x[0,0]", "there is no macro '%%'"),
        ("U:%x[٣,0]", r"write macros as %x\[row,col\]"),
    ],
)
def test_bad_lines(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Template.parse(text)


def test_data_that_does_not_fit() -> None:
    template = Template.parse("U00:%x[0,0]\n\nU01:%x[0,1]\n")
    with pytest.raises(
        DataError, match=r"line 3 'U01:%x\[0,1\]' asks for column 1, .* sentence 1 has 1 column"
    ):
        template.transform([[("a", "b")], [("a",)]])
    for bad in (["ab", "cd"], [("a", 3)]):
        with pytest.raises(DataError, match="sentence 0: a token is a tuple of strings"):
            template.features(bad)  # type: ignore[arg-type]


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "template"
    path.write_bytes("\ufeff# Wörter\r\nU00:%x[0,0]\r\nB".encode("utf-8"))
    template = Template.read(path)
    assert str(template) == "# Wörter\nU00:%x[0,0]\nB\n"
    assert template.has_transitions
    with pytest.raises(DataError, match="there is no such file"):
        Template.read(tmp_path / "absent")
    path.write_bytes(b"U00:\xff\n")
    with pytest.raises(DataError, match="line 1: byte 0xff at position 4 is not utf-8"):
        Template.read(path)
    path.write_bytes(b"\nQ\n")
    with pytest.raises(DataError, match="template, line 2 'Q'"):
        Template.read(path)


@pytest.mark.parametrize("n_columns", [1, 2, 3])
def test_the_default_uses_every_column(n_columns: int) -> None:
    template = Template.default(n_columns)
    used = {column for line in template.unigrams for _, column in line.macros}
    assert used == set(range(n_columns))
    assert template.has_transitions
    assert not template.has_pair_features
    assert len({line.text.split(":")[0] for line in template.unigrams}) == len(template.unigrams)
    row = tuple("abc"[:n_columns])
    assert template.features([row]) == expand(str(template), [row])
    with pytest.raises(DataError, match="at least one feature column"):
        Template.default(0)


# Features seen at least three times in the training files, as the GPSL paper's Table 1 has them.
@pytest.mark.parametrize(
    ("task", "encoding", "count"),
    [
        ("basenp", "utf-8", 2143),
        ("chunking", "utf-8", 2112),
        ("seg", "utf-8", 691),
        ("JapaneseNE", "euc-jp", 6030),
    ],
)
def test_published_feature_counts(data_dir: Path, task: str, encoding: str, count: int) -> None:
    folder = data_dir / "crfpp" / task
    corpus = read_columns(folder / "train.data", encoding=encoding)
    template = Template.read(folder / "template")
    counts = Counter(s for tokens in template.transform(corpus) for token in tokens for s in token)
    assert sum(n >= 3 for n in counts.values()) == count
