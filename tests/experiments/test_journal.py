"""The journal of a long run: what is done is not done again, and nothing else is taken from it."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from bayeseq.cli import reproduce
from bayeseq.cli.main import main
from bayeseq.experiments.journal import Journal, current_journal, journal
from bayeseq.experiments.setting import Report, run_all

DONE: list[int] = []


class Item(NamedTuple):
    number: int
    stop_at: int = -1


def _work(item: Item) -> dict:
    if item.number == item.stop_at:
        raise RuntimeError("killed")
    DONE.append(item.number)
    return {"number": item.number, "third": item.number / 3, "pair": (1, 2)}


def _squared(item: Item) -> dict:
    return {"square": item.number**2}


@pytest.fixture(autouse=True)
def _nothing_done():
    DONE.clear()


def test_without_a_journal_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert current_journal() is None
    found = run_all(_work, [Item(1), Item(2)], 1, True)
    assert [r["number"] for r in found] == DONE == [1, 2]
    assert list(tmp_path.iterdir()) == []


def test_a_run_goes_on_where_it_was_killed(tmp_path):
    items = [Item(n) for n in (3, 1, 2)]
    with pytest.raises(RuntimeError), journal(tmp_path, "name", "command"):
        run_all(_work, [*items[:2], Item(9, 9)], 1, True)
    (path,) = tmp_path.iterdir()
    assert path.name.startswith("name-")
    assert current_journal() is None
    DONE.clear()
    with journal(tmp_path, "name", "command") as kept:
        assert len(kept.records) == 2
        found = run_all(_work, items, 1, True)
        assert DONE == [2]
        # whatever a run computed itself or read is the same, and in the order asked for
        assert found == [{"number": n, "third": n / 3, "pair": [1, 2]} for n in (3, 1, 2)]
        assert path.exists()
    assert list(tmp_path.iterdir()) == []


def test_other_work_commands_and_items_are_not_mixed_up(tmp_path):
    with pytest.raises(RuntimeError), journal(tmp_path, "name", "command"):
        run_all(_work, [Item(1), Item(9, 9)], 1, True)
    with journal(tmp_path, "name", "another command") as kept:
        assert kept.records == {}
    with journal(tmp_path, "name", "command"):
        assert run_all(_squared, [Item(1)], 1, True) == [{"square": 1}]
        assert run_all(_work, [Item(1, 5)], 1, True)[0]["number"] == 1
        assert DONE == [1, 1]


def test_half_a_line_is_left_out(tmp_path):
    path = tmp_path / "run.journal"
    Journal(path).add("a", {"x": 1.5})
    with path.open("a") as file:
        file.write('["b", {"x": 2')
    again = Journal(path)
    assert again.records == {"a": {"x": 1.5}}
    again.add("b", {"x": 3})
    assert Journal(path).records == {"a": {"x": 1.5}, "b": {"x": 3}}


def test_processes_give_the_same_in_the_same_order(tmp_path):
    items = [Item(n) for n in range(5)]
    with journal(tmp_path, "name", "command") as kept:
        kept.add(f"{__name__}._squared {items[2]!r}", {"square": -1})
        found = run_all(_squared, items, 2, True)
    assert [r["square"] for r in found] == [0, 1, -1, 9, 16]


def test_the_command_line_keeps_one_and_removes_it(tmp_path, monkeypatch, capsys):
    stop = [9]

    def experiment(command: str, jobs: int, quiet: bool) -> Report:
        kept = current_journal()
        assert kept is not None
        assert kept.path.parent == tmp_path
        found = run_all(_work, [Item(1), Item(2, stop[0])], jobs, quiet)
        return Report("twice", command, ["a table"], found)

    monkeypatch.setattr(reproduce, "EXPERIMENTS", {"twice": experiment})
    stop[0] = 2
    with pytest.raises(RuntimeError):
        main(["--debug", "reproduce", "twice", "-o", str(tmp_path)])
    assert len(list(tmp_path.iterdir())) == 1
    stop[0] = 9
    assert main(["reproduce", "twice", "-o", str(tmp_path)]) == 0
    assert "1 runs are taken from" in capsys.readouterr().err
    assert DONE == [1, 2]
    assert {Path(p).suffix for p in tmp_path.iterdir()} == {".json", ".txt"}
    assert len(json.loads((tmp_path / "twice.json").read_text())["records"]) == 2
