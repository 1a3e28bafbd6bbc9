"""Spelling features against a loop that asks every question of every token."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayeseq.data.errors import DataError
from bayeseq.data.spelling import word_features


def shape(word: str) -> str:
    """The oracle's shape: one character at a time, then runs cut by a regular expression."""
    kinds = ""
    for char in word:
        if char.isdigit():
            kinds += "d"
        elif char.isalpha() and char.isupper():
            kinds += "X"
        elif char.isalpha() and char.islower():
            kinds += "x"
        elif char.isalpha():
            kinds += "c"
        else:
            kinds += char
    return re.sub(r"(.)\1{2,}", r"\1\1", kinds, flags=re.DOTALL)


def expected(words: list[str], t: int, window: int, affixes: int) -> set[str]:
    """The oracle: the features of one token."""
    word = words[t]
    found = {"bias=1"}
    for k in range(-window, window + 1):
        place = t + k
        if place < 0:
            found.add(f"w[{k}]=_B{place}")
        elif place >= len(words):
            found.add(f"w[{k}]=_B+{place - len(words) + 1}")
        else:
            found.add(f"w[{k}]={words[place]}")
            found.add(f"lower[{k}]={words[place].lower()}")
            found.add(f"shape[{k}]={shape(words[place])}")
    for n in range(1, affixes + 1):
        if len(word.lower()) > n:
            found.add(f"prefix{n}[0]={word.lower()[:n]}")
            found.add(f"suffix{n}[0]={word.lower()[len(word.lower()) - n :]}")
    if word and word[0].isupper():
        found.add("flag[0]=capitalised")
    if len(word) > 1 and word == word.upper() and word != word.lower():
        found.add("flag[0]=all_caps")
    if any(char.isdigit() for char in word):
        found.add("flag[0]=has_digit")
    if "-" in word:
        found.add("flag[0]=has_hyphen")
    if word.endswith("."):
        found.add("flag[0]=ends_with_dot")
    if word and all(not char.isalnum() for char in word):
        found.add("flag[0]=punctuation")
    if t == 0:
        found.add("flag[0]=sentence_start")
    return found


words = st.one_of(
    st.text("aBc9-.'", max_size=6),
    st.sampled_from(["U.S.", "McDonald's", "1996-08-30", "東京", "Élan", "USA", "I", "--", "é=è"]),
)


@settings(deadline=None, max_examples=150)
@given(
    sentence=st.lists(words, max_size=5),
    window=st.integers(0, 3),
    affixes=st.integers(0, 4),
)
def test_against_the_loop(sentence: list[str], window: int, affixes: int) -> None:
    tokens = word_features(sentence, window=window, affixes=affixes)
    assert len(tokens) == len(sentence)
    for t, token in enumerate(tokens):
        assert set(token) == expected(sentence, t, window, affixes)
        assert len(token) == len(set(token))


def test_the_defaults_on_a_sentence() -> None:
    tokens = word_features(["Dr.", "Smith", "left"])
    assert [len(token) for token in tokens] == [15, 17, 14]
    assert "w[-1]=_B-1" in tokens[0]
    assert {"w[1]=left", "lower[-1]=dr.", "shape[0]=Xxx", "suffix3[0]=ith"} <= set(tokens[1])
    groups = {string.partition("=")[0] for token in tokens for string in token}
    assert groups == {
        *(f"{name}[{k}]" for name in ("w", "lower", "shape") for k in (-1, 0, 1)),
        *(f"{name}{n}[0]" for name in ("prefix", "suffix") for n in (1, 2, 3)),
        "flag[0]",
        "bias",
    }


def test_a_repeated_word_shares_its_strings() -> None:
    first, second = word_features(["Ann", "Ann"], window=0)
    assert first[0] is second[0]


@pytest.mark.parametrize(
    ("sentence", "options", "message"),
    [
        ("Ann ran", {}, "a list of words is expected, and 'Ann ran' is found"),
        (["Ann", 3], {}, "a list of words is expected"),
        (["Ann"], {"window": -1}, "window=-1"),
        (["Ann"], {"affixes": -1}, "affixes=-1"),
    ],
)
def test_what_is_refused(sentence: Any, options: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        word_features(sentence, **options)
