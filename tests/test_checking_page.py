"""The code of docs/checking.md is run, and prints what the page shows."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[1] / "docs" / "checking.md"
BLOCKS = re.compile(r"```python\n((?:(?!```).)*)```\n\n```text\n(.*?)```", re.DOTALL)
NUMBER = re.compile(r"[-+]?\d+\.?\d*")


def test_the_page_prints_what_it_shows(capsys):
    pytest.importorskip("arviz_stats", reason="leave-one-out scores need arviz-stats")
    names: dict = {}
    blocks = BLOCKS.findall(PAGE.read_text(encoding="utf-8"))
    assert len(blocks) == 4
    for code, shown in blocks:
        exec(code, names)
        printed = capsys.readouterr().out
        texts = (NUMBER.sub("#", text).split() for text in (printed, shown))
        assert next(texts) == next(texts)
        found, expected = (list(map(float, NUMBER.findall(text))) for text in (printed, shown))
        # effective draws of heavy-tailed weights follow the last digits of a fit
        assert found == pytest.approx(expected, abs=0.06, rel=0.05)
