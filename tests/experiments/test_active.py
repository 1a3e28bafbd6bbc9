"""The loop of asking, labelling and fitting, on few sentences; and what is read off the curves."""

import json

import numpy as np
import pytest

from bayeseq.cli.main import main
from bayeseq.experiments import active
from bayeseq.experiments.active import Choice, Work, count_labels, first_labels, run_curve, summary
from bayeseq.experiments.setting import Data
from tests.labelers.conformance import easy_task


@pytest.fixture
def tiny(monkeypatch):
    """Thirty sentences to choose from."""
    monkeypatch.setattr(active, "SHARES", (0.2, 0.4))
    monkeypatch.setattr(active, "TOKEN_SHARES", (0.2, 0.3))
    monkeypatch.setattr(active, "SEED_SHARE", 0.1)
    data = Data(*easy_task(0, 30), *easy_task(1, 20))
    monkeypatch.setattr(active, "load_pool", lambda task, seed: data)
    return data


def test_the_first_labels():
    y = [["A"] * 5, ["B"] * 5, ["A"] * 190]
    assert first_labels(y) == [["A"] * 5, [None] * 5, [None] * 190]
    assert count_labels(first_labels(y)) == 5


@pytest.mark.parametrize(
    ("choice", "shares"),
    [
        (Choice("CRF", "random"), [0.2, 0.4, 1.0]),
        (Choice("CRF", "mnlp"), [0.2, 0.4]),
        (Choice("GPSC", "bald"), [0.2, 0.4]),
        (Choice("GPSC", "bald", "token"), [0.2, 0.3]),
    ],
    ids=lambda value: value.name if isinstance(value, Choice) else "",
)
def test_a_curve(tiny, choice, shares):
    record = run_curve(Work("easy", choice, 0))
    total = sum(map(len, tiny.y))
    assert record["pool_tokens"] == total
    assert [p["share"] for p in record["points"]] == shares
    for point in record["points"]:
        # tokens fill the share; sentences stay below it by less than the longest
        assert 0 <= round(point["share"] * total) - point["tokens"] <= 8
        assert 0 <= point["error"] < 0.7
    if choice.unit == "token":
        assert [p["tokens"] for p in record["points"]] == [round(s * total) for s in shares]
    if 1.0 in shares:
        model = active.make_model("CRF").fit(tiny.X, tiny.y)
        wanted = 1 - model.score(tiny.X_test, tiny.y_test)
        assert record["points"][-1]["error"] == pytest.approx(wanted, abs=1e-12)


def test_the_same_seed_gives_the_same_curve(tiny):
    work = Work("easy", Choice("GPSC", "bald", "token"), 3)
    assert run_curve(work)["points"] == run_curve(work)["points"]


def record(choice, seed, shares, errors):
    points = [{"share": s, "tokens": 1, "error": e} for s, e in zip(shares, errors, strict=True)]
    return {**choice._asdict(), "seed": seed, "points": points}


def test_what_is_read_off_the_curves(tmp_path):
    random, mnlp = Choice("CRF", "random"), Choice("CRF", "mnlp")
    tokens = Choice("CRF", "entropy", "token")
    records = [
        record(random, 0, [0.1, 0.6, 1.0], [0.3, 0.2, 0.1]),
        record(random, 1, [0.1, 0.6, 1.0], [0.3, 0.3, 0.12]),
        record(mnlp, 0, [0.1, 0.6], [0.2, 0.1]),
        record(mnlp, 1, [0.1, 0.6], [0.2, 0.08]),
        record(tokens, 0, [0.1, 0.3], [0.2, 0.15]),
        record(tokens, 1, [0.1, 0.3], [0.2, 0.13]),
    ]
    report = summary("active-learning", "command", records, (random, mnlp, tokens))
    errors, beside, needed = (text.split("\n") for text in report.tables)
    assert errors[1].split()[0] == "labelled"
    assert errors[3].split()[-3:] == ["20.00±0.00", "9.00±1.41", "11.00±1.41"]
    assert beside[2].split() == ["labels", "by", "lot", "60%", "100%"]
    # 0.25 is passed before 10 %, and 0.11 on the way from 0.20 at 10 % to 0.09 at 60 %
    assert beside[3].split()[-2:] == ["17%", "51%"]
    row = next(line for line in needed if line.startswith("CRF, MNLP"))
    # 0.20 against 0.11 at 10 % and 0.09 at 60 %, where the differences are 0.00 and −0.04
    assert row.split()[2:] == ["60%", "never", "+9.00±1.00", "-2.00±2.00"]
    row = next(line for line in needed if line.startswith("CRF, entropy of tokens"))
    assert row.split()[4:] == ["never", "never", "+9.00±1.00", "+3.00±2.00"]
    report.picture(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_the_verb_on_real_data(data_dir, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("BAYESEQ_DATA", str(data_dir))
    monkeypatch.setattr(active, "SHARES", (0.05, 0.1))
    monkeypatch.setattr(active, "TOKEN_SHARES", (0.05, 0.1))
    monkeypatch.setattr(active, "BASENP", active.BASENP[:1] + active.BASENP[4:5])
    arguments = ["reproduce", "active-learning", "--splits", "1", "-q", "-o", str(tmp_path)]
    assert main(arguments) == 0
    assert "CRF, entropy of tokens" in capsys.readouterr().out
    records = json.loads((tmp_path / "active-learning.json").read_text())["records"]
    random, tokens = records
    assert random["pool_tokens"] > 12_000
    # a tenth of the labels, asked for token by token, against a tenth by lot
    assert tokens["points"][1]["error"] < random["points"][1]["error"] - 0.005
    assert np.isclose(tokens["points"][1]["tokens"], 0.1 * tokens["pool_tokens"], atol=1)
