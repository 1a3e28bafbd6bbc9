"""What the README shows is run as it stands."""

import re
from pathlib import Path

import matplotlib
import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def test_the_first_python_runs(capsys):
    matplotlib.use("agg")
    names: dict = {}
    exec(BLOCKS[0], names)
    assert "token error %" in capsys.readouterr().out
    assert 0.0 < names["record"].token_error < 0.05
    assert names["record"].probabilities.ece < 0.02
    assert names["names"][0][0]._fields == ("start", "end", "label", "score")


@pytest.mark.parametrize("number", range(1, len(BLOCKS)))
def test_the_other_python_runs(number):
    exec(BLOCKS[number], {})


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#]+)\)", TEXT))
def test_links_lead_somewhere(target):
    assert target.startswith("https://") or (ROOT / target).exists()
