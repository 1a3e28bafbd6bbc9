"""The page on annotating runs as it stands, and prints what it says."""

import re
from pathlib import Path

TEXT = (Path(__file__).resolve().parents[2] / "docs/annotating.md").read_text(encoding="utf-8")


def test_snippets_print_what_the_page_says(capsys):
    names: dict = {}
    blocks = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) == TEXT.count("```python") == 3
    for code, expected in blocks:
        exec(code, names)
        assert capsys.readouterr().out == expected
