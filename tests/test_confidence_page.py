"""The code of docs/confidence.md is run, and prints what the page shows."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[1] / "docs" / "confidence.md"
BLOCKS = re.compile(r"```python\n([^`]*)```\n\n```text\n([^`]*)```")
NUMBER = re.compile(r"[-+]?\d+\.?\d*")


def test_the_page_prints_what_it_shows(capsys):
    names: dict = {}
    blocks = BLOCKS.findall(PAGE.read_text(encoding="utf-8"))
    assert len(blocks) >= 6
    for code, shown in blocks:
        exec(code, names)
        printed = capsys.readouterr().out
        texts = (NUMBER.sub("#", text).split() for text in (printed, shown))
        assert next(texts) == next(texts)
        found, expected = (list(map(float, NUMBER.findall(text))) for text in (printed, shown))
        # the last digit that is printed may be rounded the other way on another machine
        assert found == pytest.approx(expected, abs=0.11, rel=2e-3)
