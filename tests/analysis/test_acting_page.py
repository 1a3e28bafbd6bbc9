"""The page on acting runs as it stands, and prints what it says."""

import re
from pathlib import Path

TEXT = (Path(__file__).resolve().parents[2] / "docs/acting.md").read_text(encoding="utf-8")


def test_snippets_print_what_the_page_says(capsys):
    names: dict = {}
    blocks = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", TEXT, re.DOTALL)
    assert len(blocks) == 8
    for code, expected in blocks:
        exec(code, names)
        assert capsys.readouterr().out == expected
