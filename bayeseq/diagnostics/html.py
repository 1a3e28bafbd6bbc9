"""Records as HTML for a notebook: everything escaped, no script, nothing fetched."""

from __future__ import annotations

import html
from collections.abc import Sequence


def html_table(rows: Sequence[Sequence[str]]) -> str:
    """A table; the first row is its head.

    >>> html_table([["label"], ["<b>"]])
    '<table><tr><th>label</th></tr><tr><td>&lt;b&gt;</td></tr></table>'
    """
    found = []
    for number, row in enumerate(rows):
        tag = "td" if number else "th"
        found.append(f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in row)}</tr>")
    return f"<table>{''.join(found)}</table>"


def html_paragraphs(lines: Sequence[str]) -> str:
    """Lines as paragraphs.

    >>> html_paragraphs(["a & b"])
    '<p>a &amp; b</p>'
    """
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines)
