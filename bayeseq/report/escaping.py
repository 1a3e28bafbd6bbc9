"""Text of strangers made harmless: for HTML, for attributes of it, and for a terminal."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterable

LONGEST = 200
"""Characters of a token that are shown; of a longer one, the first half of them."""

_JOINERS = "\u200c\u200d"  # inside of Persian and Indic words, and of emoji
_WRITTEN = {"\u06dd", "\u070f", "\u08e2", "\U000110bd", *map(chr, range(0x600, 0x606))}
_TURNING = ("R", "AL", "AN")
_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")


def visible(text: str, most: int = LONGEST) -> str:
    """The text with characters that cannot be seen, or that would act on a terminal or on the order
    of letters, written out; long text is cut, and says so.

    >>> visible("a\\u200bb\\x1b[2J")
    'a<U+200B>b<U+001B>[2J'
    """
    if not text:
        return "<empty>"
    if len(text) > most:
        text = f"{text[: most // 2]}… ({len(text):,} characters)"
    inside = range(1, len(text) - 1)
    return "".join(
        f"<U+{ord(c):04X}>" if _is_unseen(c) and not (c in _JOINERS and i in inside) else c
        for i, c in enumerate(text)
    )


def escaped(text: str, most: int = LONGEST) -> str:
    """The same for HTML, as text or as a quoted attribute.

    >>> escaped('<b title="x">&')
    '&lt;b title=&quot;x&quot;&gt;&amp;'
    """
    return html.escape(visible(text, most), quote=True)


def tooltip(lines: Iterable[str]) -> str:
    """A title attribute of several lines.

    >>> tooltip(["B 90%", '"O" 10%'])
    ' title="B 90%&#10;&quot;O&quot; 10%"'
    """
    return f' title="{"&#10;".join(map(escaped, lines))}"'


def percent(share: float) -> str:
    """A probability in whole per cent; only certainty is 100%.

    >>> percent(0.934), percent(0.9999), percent(0.0001), percent(1.0)
    ('93%', '>99%', '<1%', '100%')
    """
    text = f"{share:.0%}"
    if text == "100%" and share < 1:
        return ">99%"
    return "<1%" if text == "0%" and share > 0 else text


def isolated(text: str) -> str:
    """Text for HTML that cannot turn around what stands beside it: letters that run from right to
    left are set apart."""
    turns = any(unicodedata.bidirectional(c) in _TURNING for c in text)
    return f"<bdi>{escaped(text)}</bdi>" if turns else escaped(text)


def is_right_to_left(words: Iterable[str]) -> bool:
    """Whether the first letter with a direction is of a script that runs from right to left."""
    for word in words:
        for c in word:
            direction = unicodedata.bidirectional(c)
            if direction in ("L", "R", "AL") and not _is_unseen(c):
                return direction != "L"
    return False


def _is_unseen(c: str) -> bool:
    return unicodedata.category(c) in _UNSEEN and c not in _WRITTEN
