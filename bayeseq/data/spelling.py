"""Features of how words are spelt, for names and other entities: no lexicon, no tagger needed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby

from bayeseq.data.errors import DataError


def word_features(words: Sequence[str], window: int = 1, affixes: int = 3) -> list[list[str]]:
    """The feature strings of each word of a sentence.

    Each string is `group=value`, and the group up to the first `=` is one of

    - `w[k]`, `lower[k]`, `shape[k]` for k from -window to window: the word k places away as it is,
      in lower case, and its shape (`X` capital, `x` small letter, `d` digit, `c` letter without
      case, other characters as they are, runs cut to two: "McDonald's-12" is "XxXxx'x-dd").
      A place outside the sentence gives `w[k]` alone, with the value `_B-1`, … or `_B+1`, …;
    - `prefix1[0]`, … and `suffix1[0]`, … up to `affixes` characters, in lower case, where the word
      is longer than that;
    - `flag[0]`: any of capitalised, all_caps, has_digit, has_hyphen, ends_with_dot, punctuation
      (no letter or digit at all) and sentence_start;
    - `bias`, which every word has.

    >>> word_features(["Mr."], window=0, affixes=1)
    [['w[0]=Mr.', 'lower[0]=mr.', 'shape[0]=Xx.', 'prefix1[0]=m', 'suffix1[0]=.', \
'flag[0]=capitalised', 'flag[0]=ends_with_dot', 'bias=1', 'flag[0]=sentence_start']]
    """
    if isinstance(words, str) or not all(isinstance(word, str) for word in words):
        raise DataError(f"a list of words is expected, and {words!r} is found")
    if window < 0 or affixes < 0:
        raise DataError(f"window={window} and affixes={affixes} must not be negative")
    if not len(words):
        return []
    tokens = [[*_seen(word, 0), *_spelt(word, affixes)] for word in words]
    for k in range(1, window + 1):
        before = [(f"w[-{k}]=_B-{j}",) for j in range(k, 0, -1)]
        after = [(f"w[{k}]=_B+{j}",) for j in range(1, k + 1)]
        left = [*before, *(_seen(word, -k) for word in words)]
        right = [*(_seen(word, k) for word in words[k:]), *after[-len(words) :]]
        for token, features in zip(tokens, left, strict=False):
            token += features
        for token, features in zip(tokens, right, strict=True):
            token += features
    tokens[0].append("flag[0]=sentence_start")
    return tokens


# A corpus repeats its words: their strings are made once, and shared.
@lru_cache(maxsize=1 << 17)
def _seen(word: str, k: int) -> tuple[str, ...]:
    """What a token sees of the word k places away."""
    return f"w[{k}]={word}", f"lower[{k}]={word.lower()}", f"shape[{k}]={_shape(word)}"


@lru_cache(maxsize=1 << 16)
def _spelt(word: str, affixes: int) -> tuple[str, ...]:
    """The features of a word that only it sees."""
    lower = word.lower()
    lengths = range(1, min(affixes, len(lower) - 1) + 1)
    return (
        *(f"prefix{n}[0]={lower[:n]}" for n in lengths),
        *(f"suffix{n}[0]={lower[-n:]}" for n in lengths),
        *(f"flag[0]={flag}" for flag in _flags(word)),
        "bias=1",
    )


def _shape(word: str) -> str:
    kinds = map(_kind, word)
    return "".join(kind * min(2, len(list(run))) for kind, run in groupby(kinds))


def _kind(char: str) -> str:
    if char.isdigit():
        return "d"
    if not char.isalpha():
        return char
    return "X" if char.isupper() else "x" if char.islower() else "c"


def _flags(word: str) -> list[str]:
    flags = {
        "capitalised": word[:1].isupper(),
        "all_caps": len(word) > 1 and word.isupper(),
        "has_digit": any(map(str.isdigit, word)),
        "has_hyphen": "-" in word,
        "ends_with_dot": word.endswith("."),
        "punctuation": bool(word) and not any(map(str.isalnum, word)),
    }
    return [flag for flag, holds in flags.items() if holds]
