"""The experiment on kinds of uncertainty, on a few sentences."""

import json

import pytest

from bayeseq import GPSL
from bayeseq.cli.main import main
from bayeseq.experiments import uncertainty


@pytest.fixture
def small(data_dir, monkeypatch):
    monkeypatch.setenv("BAYESEQ_DATA", str(data_dir))
    monkeypatch.setattr(uncertainty, "N_TRAIN", 40)
    monkeypatch.setattr(uncertainty, "N_TEST", 20)
    monkeypatch.setattr(uncertainty, "DOMAINS", tuple(uncertainty.OTHER))
    monkeypatch.setattr(uncertainty, "PENALTIES", (0.3,))
    monkeypatch.setattr(uncertainty, "_LARGE", 0)
    monkeypatch.setattr(uncertainty, "DRAWS", 20)


def test_both_tables_on_real_data(small, tmp_path, capsys):
    arguments = ["reproduce", "uncertainty", "--models", "CRF,GPSL", "-q", "-o", str(tmp_path)]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "Spanish names → Dutch" in printed
    records = json.loads((tmp_path / "uncertainty.json").read_text())["records"]
    by_name = {(r["domain"], r["model"]): r for r in records}
    assert len(by_name) == 4
    assert "epistemic" not in by_name[uncertainty.SPANISH, "CRF"]["alike"]
    assert "log_loss" not in by_name[uncertainty.WORDS, "GPSL"]["other"]  # there are no labels
    for record in by_name.values():
        assert 0 < record["alike"]["error"] < 0.3
    ours = by_name[uncertainty.SPANISH, "GPSL"]
    assert 0 < ours["other"]["epistemic"] < ours["other"]["total"]
    assert ours["other"]["share_of_seen"] < ours["other"]["share"]


def test_nats_are_those_of_the_model(small):
    data, other = uncertainty._load(uncertainty.SPANISH, 0)
    model = GPSL(covariance="diagonal", learn=False, progress=False).fit(data.X, data.y)
    found = uncertainty._measured(model, other)
    doubt = model.predict_uncertainty(other.X, uncertainty.DRAWS, random_state=0)
    tokens = sum(map(len, other.X))
    assert found["total"] == pytest.approx(sum(r.sum() for r in doubt.total) / tokens)
    assert found["error"] == pytest.approx(1 - model.score(other.X, other.y))
