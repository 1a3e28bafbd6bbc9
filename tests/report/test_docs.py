"""The code of docs/report.md is run, and prints what the page shows."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "report.md"
BLOCKS = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)
NUMBER = re.compile(r"\d+")


def test_the_page_prints_what_it_shows(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    blocks = BLOCKS.findall(PAGE.read_text(encoding="utf-8"))
    assert len(blocks) == 3
    for code, shown in blocks:
        exec(code, names)
        printed = capsys.readouterr().out
        assert NUMBER.sub("#", printed).split() == NUMBER.sub("#", shown).split()
        found, expected = (list(map(int, NUMBER.findall(text))) for text in (printed, shown))
        assert found == pytest.approx(expected, abs=2)
    assert "bq-show" in (tmp_path / "show.html").read_text(encoding="utf-8")
