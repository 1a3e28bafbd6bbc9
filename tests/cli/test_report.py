"""`bayeseq report`, run in this process on sentences cut from the embedded corpus."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bayeseq import Corpus, load, read_columns, report_html
from bayeseq.cli.main import main
from bayeseq.data import write_columns
from tests.cli.test_cli import Files, Run, fails, features_of, files, run
from tests.report.pages import assert_harmless, parsed

__all__ = ["fails", "files", "run"]  # fixtures


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are looked at elsewhere, and take most of the time."""
    for room in ("sections", "learned"):
        monkeypatch.setattr(f"bayeseq.report.{room}.figure", lambda *_: "<figure></figure>")


def test_the_page_is_the_library_page(files: Files, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    code, out, err = run("report", files["model"], files["test"], "-o", path)
    assert (code, out, err) == (0, "", f"report: {path}\n")
    corpus = read_columns(files["test"])
    expected = report_html(
        load(files["model"]),
        corpus.column(0),
        features_of(files["test"]),
        corpus.labels,
        data=str(files["test"]),
    )
    assert path.read_text(encoding="utf-8") == expected
    assert_harmless(expected)


def test_numbers_are_those_of_evaluate(files: Files, run: Run, tmp_path: Path) -> None:
    page, scores = tmp_path / "report.html", tmp_path / "scores.json"
    assert run("report", files["model"], files["test"], "-o", page, "-q") == (0, "", "")
    assert run("evaluate", files["model"], files["test"], "--json", scores, "-q")[0] == 0
    found = json.loads(scores.read_text())
    numbers = [n.text for n in parsed(page.read_text(encoding="utf-8")).all("dd", "number")]
    assert numbers == [
        "20",
        f"{100 * found['token_error']:.2f}%",
        f"{100 * found['entities']['overall']['f1']:.2f}%",
        f"{found['probabilities']['log_loss']:.4f}",
        f"{100 * found['probabilities']['ece']:.2f}%",
        f"{found['risk_coverage']['aurc']:.4f}",
    ]


def test_a_file_without_labels(files: Files, run: Run, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert run("report", files["model"], files["bare"], "-o", page)[0] == 0
    text = parsed(page.read_text(encoding="utf-8")).text
    assert "There are no true labels, so nothing is scored" in text


def test_options(files: Files, run: Run, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    options = ["--title", "<Mine>", "--sentences", "1", "--strict", "IOB2", "--date"]
    assert run("report", files["model"], files["test"], "-o", page, *options)[0] == 0
    root = parsed(page.read_text(encoding="utf-8"))
    assert root.all("h1")[0].text == "<Mine>"
    assert "strict IOB2 reading" in root.text
    assert datetime.date.today().isoformat() in root.all("header")[0].text
    assert len(root.all("span", "bq-n")) == 3


def test_a_dataset(run: Run, tmp_path: Path) -> None:
    model, page = tmp_path / "model", tmp_path / "report.html"
    fit = ["fit", "dataset:newswire", "--features", "spelling", "-m", "hmm", "-q", "-o", model]
    assert run(*fit)[0] == 0
    assert run("report", model, "dataset:newswire", "-o", page)[0] == 0
    root = parsed(page.read_text(encoding="utf-8"))
    assert "100 sentences, 1,755 tokens of dataset:newswire:test" in root.all("header")[0].text
    assert "training data" in root.text


def test_a_hostile_file(files: Files, run: Run, tmp_path: Path) -> None:
    page, bad = tmp_path / "report.html", tmp_path / "bad.conll"
    words = ["<script>x</script>", '"onload="x', "&amp;", "\u202e", "\u200b", "y" * 3000, "'"]
    rows = [[(word, "<b>") for word in words]]
    write_columns(bad, Corpus(rows, [["B-<i>", *["O"] * 6]]))
    assert run("report", files["model"], bad, "-o", page)[0] == 0
    assert "<script>x</script>" in assert_harmless(page.read_text(encoding="utf-8")).text


def test_errors(
    files: Files, fails: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "report.html"
    model, test = files["model"], files["test"]
    assert "is a folder" in fails("report", model, test, "-o", tmp_path)
    assert "there is no folder" in fails("report", model, test, "-o", tmp_path / "no" / "x.html")
    assert "no-file" in fails("report", model, tmp_path / "no-file", "-o", page)
    assert "there is no tag scheme 'X'" in fails("report", model, test, "-o", page, "--strict", "X")
    wide = tmp_path / "wide.conll"
    wide.write_text("a b c d e\n")
    assert "5 columns found" in fails("report", model, wide, "-o", page)
    empty = tmp_path / "empty.conll"
    empty.write_text("")
    assert fails("report", model, empty, "-o", page)
    assert not page.exists()
    with pytest.raises(SystemExit, match="2"):
        main(["report", str(model), str(test)])
    assert "-o/--output" in capsys.readouterr().err
