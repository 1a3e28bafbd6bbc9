"""A page that needs nothing else: headings, tables, pictures, a style for screens and paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bayeseq.report.escaping import LONGEST, escaped
from bayeseq.report.markup import STYLE as SENTENCES

PROSE = 20_000
"""Characters of a paragraph or a cell that are shown."""

_STYLE = """\
:root{color-scheme:light dark;--back:#fdfdfc;--card:#f3f4f2;--ink:#1c1f23;--soft:#565d66;
--line:#d4d7da;--link:#005a8e;--bar:#0072b2;--blue:#0072b2}
@media (prefers-color-scheme:dark){:root{--back:#15181c;--card:#1e2328;--ink:#e6e7e8;--soft:#a5adb6;
--line:#3a4149;--link:#7cc0f0;--bar:#56b4e9;--blue:#4da3dc}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);
font:1rem/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
main,header,nav,footer{max-width:66rem;margin:0 auto;padding:0 1.2rem}
header{padding-top:2rem}
h1{font-size:1.7rem;line-height:1.2;margin:0 0 .3rem}
h2{font-size:1.25rem;margin:2.6rem 0 .5rem;padding-top:.6rem;border-top:1px solid var(--line)}
h3{font-size:1.02rem;margin:1.6rem 0 .3rem}
p{max-width:46rem;margin:.5rem 0}
header p,footer p,.note,figcaption,caption{color:var(--soft)}
a{color:var(--link)}
nav ul{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;padding:0;margin:.8rem 0 0}
code{font:.92em ui-monospace,Menlo,Consolas,monospace;overflow-wrap:anywhere}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.5rem,1fr));gap:.7rem;
margin:1.2rem 0}
.tiles div{background:var(--card);border-radius:.5rem;padding:.6rem .8rem}
.tiles dt,.tiles dd{margin:0}
.tiles dt{font-size:.82rem;color:var(--soft)}
.tiles .number{font-size:1.45rem;font-weight:600;font-variant-numeric:tabular-nums}
.tiles .aside{font-size:.78rem;color:var(--soft)}
.scroll{overflow-x:auto;max-width:100%}
table{border-collapse:collapse;margin:.8rem 0;font-size:.92rem;font-variant-numeric:tabular-nums}
caption{text-align:start;font-size:.85rem;padding-bottom:.3rem}
th,td{padding:.28rem .7rem;text-align:end;border-bottom:1px solid var(--line);vertical-align:top}
td{white-space:nowrap}
th:first-child,td:first-child,.words td,.words th,td.meaning{text-align:start}
th:first-child,td:first-child{padding-inline-start:0}
tbody th,.words td,td.meaning{white-space:normal;overflow-wrap:anywhere;min-width:6rem}
.words td{max-width:44rem}
td.meaning{color:var(--soft);max-width:30rem}
thead th,thead td{font-weight:600;border-bottom-width:2px;vertical-align:bottom}
tbody th{font-weight:500}
.bar{display:inline-block;height:.7em;background:var(--bar);border-radius:.15em;min-width:1px}
td.barred{width:12rem;text-align:start}
.pictures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,27rem),1fr));gap:1rem;
align-items:start}
figure{margin:.6rem 0;min-width:0}
figure svg{display:block;width:100%;height:auto}
figcaption{font-size:.85rem;max-width:46rem}
footer{margin-top:3rem;padding-bottom:2rem;font-size:.85rem}
.bq-show{max-width:none}
.bq-show p{max-width:56rem}
.bq-show .bq-k:first-child{border:0;padding:0;margin:0}
@media (max-width:30rem){main,header,nav,footer{padding-inline:.9rem}h1{font-size:1.4rem}
th,td{padding:.25rem .4rem}.barred{display:none}}
@media print{:root{--back:#fff;--card:#f3f4f2;--ink:#000;--soft:#444;--line:#bbb;--link:#000;
--bar:#0072b2;--blue:#0072b2;color-scheme:light}nav{display:none}h2{break-after:avoid}
figure,tr,.tiles,.bq-show p{break-inside:avoid}}
"""


class Html(str):
    """Text that is HTML already; everything else is escaped."""


def html(value: Any, most: int = PROSE) -> str:
    """What goes on the page: HTML as it is, all else escaped, and cut where it is long.

    >>> html("a < b"), html(Html("<b>a</b>"))
    ('a &lt; b', '<b>a</b>')
    """
    text = str(value)
    return text if isinstance(value, Html) or not text else escaped(text, most)


def paragraph(*texts: Any, note: bool = False) -> Html:
    """A paragraph of texts joined by spaces."""
    cls = ' class="note"' if note else ""
    return Html(f"<p{cls}>{' '.join(map(html, texts))}</p>")


def table(
    header: Sequence[Any], rows: Sequence[Sequence[Any]], caption: Any = "", words: bool = False
) -> Html:
    """A table whose first column names the rows; `words` sets all columns to the left, and leaves
    room for long texts."""
    most = PROSE if words else LONGEST
    kinds = [_kind(cell) for cell in rows[0]] if rows else [""] * len(header)
    head = "".join(
        f'<th scope="col">{html(cell)}</th>' if cell else f"<td{kind}></td>"
        for cell, kind in zip(header, kinds, strict=False)
    )
    body = "".join(
        f'<tr><th scope="row">{html(row[0], most)}</th>'
        + "".join(f"<td{_kind(cell)}>{html(cell, most)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    cls = ' class="words"' if words else ""
    above = f"<caption>{html(caption)}</caption>" if caption else ""
    thead = f"<thead><tr>{head}</tr></thead>" if header else ""
    # focusable, so that a keyboard can scroll it where it is wider than the page
    return Html(
        f'<div class="scroll" tabindex="0"><table{cls}>{above}{thead}<tbody>{body}</tbody>'
        "</table></div>"
    )


def _kind(value: Any) -> str:
    """The class attribute of a cell, if it has one."""
    if isinstance(value, Bar):
        return ' class="barred"'
    return ' class="meaning"' if isinstance(value, Meaning) else ""


class Meaning(str):
    """A cell that says in words what the others mean."""


class Bar(Html):
    """A bar as long as a share; the number stands in another cell, so readers can pass it over."""

    def __new__(cls, share: float) -> Bar:
        width = 100 * min(1.0, max(0.0, share)) if math.isfinite(share) else 0.0
        text = f'<span class="bar" style="width:{width:.1f}%" aria-hidden="true"></span>'
        return super().__new__(cls, text)


def tiles(entries: Sequence[tuple[str, str, str]]) -> Html:
    """Numbers in a row: a name, the number, and what to hold it against."""
    parts = [
        f'<div><dt>{html(name)}</dt><dd class="number">{html(number)}</dd>'
        + (f'<dd class="aside">{html(aside)}</dd>' if aside else "")
        + "</div>"
        for name, number, aside in entries
    ]
    return Html(f'<dl class="tiles">{"".join(parts)}</dl>')


def pictures(*figures: str) -> Html:
    """Pictures beside each other where there is room."""
    return Html(f'<div class="pictures">{"".join(figures)}</div>')


def heading(text: str) -> Html:
    """A heading inside a section."""
    return Html(f"<h3>{html(text)}</h3>")


class Section:
    """A part of the page under a heading of its own, to which the navigation leads."""

    def __init__(self, name: str, title: str, *parts: str) -> None:
        self.name, self.title, self.parts = name, title, parts

    def html(self) -> str:
        """The section; its parts are HTML."""
        body = "\n".join(self.parts)
        return (
            f'<section id="{escaped(self.name)}">\n<h2>{html(self.title)}</h2>\n{body}\n</section>'
        )


def page(title: str, head: Sequence[str], sections: Sequence[Section], foot: str) -> str:
    """The whole page."""
    links = "".join(
        f'<li><a href="#{escaped(section.name)}">{html(section.title)}</a></li>'
        for section in sections
    )
    name = escaped(title, PROSE)
    body = "\n".join(section.html() for section in sections)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
style-src 'unsafe-inline'; img-src data:">
<title>{name}</title>
<style>
{_STYLE}{SENTENCES}</style>
</head>
<body>
<header>
<h1>{name}</h1>
{"".join(head)}
</header>
<nav aria-label="Contents"><ul>{links}</ul></nav>
<main>
{body}
</main>
<footer>{foot}</footer>
</body>
</html>
"""
