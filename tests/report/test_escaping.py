"""Text of strangers stays text, whatever it holds."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from bayeseq import TaggedSentence, show
from bayeseq.report.escaping import LONGEST, visible
from tests.report.pages import HOSTILE, parsed, skeleton, words_of


def test_hostile_tokens_and_labels_stay_text():
    n = len(HOSTILE)
    labels = [f"B-{word}" if word else "O" for word in HOSTILE]
    bad = TaggedSentence(HOSTILE, labels, truth=[*labels[1:], labels[0]])
    good = TaggedSentence(
        [f"w{k}" for k in range(n)],
        [f"B-t{k:02d}" if word else "O" for k, word in enumerate(HOSTILE)],
        truth=["O" if k == 8 else "B-x" for k in range(n)],
    )
    html = show(bad).html
    root = parsed(html)
    assert words_of(root.all("p")[0]) == [visible(word) for word in HOSTILE]
    assert len(html.encode("utf-8")) < 40_000
    for shown in (html, str(show(bad))):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\u200b]", shown)
    # the colours' order, and so the styles, may differ; the elements may not
    assert skeleton(root.all("p")[0]) == skeleton(parsed(show(good).html).all("p")[0])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(max_size=12), min_size=1, max_size=5), st.data())
def test_any_text_stays_text(words, data):
    labels = data.draw(
        st.lists(st.sampled_from(["B-A", "I-A", "O"]), min_size=len(words), max_size=len(words))
    )
    html = show(TaggedSentence(words, labels)).html
    plain = show(TaggedSentence(["w"] * len(words), labels)).html
    assert skeleton(parsed(html)) == skeleton(parsed(plain))
    assert words_of(parsed(html).all("p")[0]) == [visible(word) for word in words]
    printed = str(show(TaggedSentence(words, labels)))
    assert all(c == "\n" or c.isprintable() or c.isspace() or ord(c) > 127 for c in printed)


def test_what_cannot_be_seen_is_written_out():
    assert visible("ab c") == "ab c"
    assert visible("a\u200db") == "a\u200db"  # a joiner inside of a word
    assert visible("\u200d") == "<U+200D>"
    assert visible("\u0600\u0627") == "\u0600\u0627"
    assert visible("\u2028") == "<U+2028>"
    assert visible("y" * (LONGEST + 1)) == "y" * (LONGEST // 2) + f"… ({LONGEST + 1} characters)"


def test_direction_follows_the_script():
    def direction(*words):
        return parsed(show(TaggedSentence(words, ["O"] * len(words))).html).all("p")[0]["dir"]

    assert direction("1", "שלום", "Paris") == "rtl"
    assert direction("مرحبا") == "rtl"
    assert direction("\u200f", "Paris") == "ltr"  # a mark is no letter
    assert direction() == "ltr"
