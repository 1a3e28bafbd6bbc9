"""The experiments: how data is cut, the CRF they compare with, what they write."""

import json

import numpy as np
import pytest

from bayeseq.cli.main import main
from bayeseq.experiments.setting import CRFsuite, Report, cut_at_gaps, mean_sd, table
from tests.labelers.conformance import easy_task


def test_sentences_are_cut_where_a_label_is_missing():
    X = [["a", "b", "c", "d"], ["e"], ["f", "g"]]
    y = [["A", None, "B", "A"], [None], ["B", "B"]]
    assert cut_at_gaps(X, y) == (
        [["a"], ["c", "d"], ["f", "g"]],
        [["A"], ["B", "A"], ["B", "B"]],
    )


def test_crfsuite_chooses_a_candidate_by_held_out_log_loss():
    X, y = easy_task(0, 40)
    model = CRFsuite().fit(X, y)
    losses = [model._loss(X, y, c2) for c2 in CRFsuite.candidates]
    assert model.c2 == CRFsuite.candidates[int(np.argmin(losses))]
    proba = model.predict_proba(X[:3])
    assert [p.shape for p in proba] == [(len(x), 3) for x in X[:3]]
    np.testing.assert_allclose(np.concatenate(proba).sum(-1), 1, atol=1e-6)


def test_a_report_is_written_whole(tmp_path):
    report = Report(
        "name", "bayeseq reproduce name", [table([["", "A"], ["x", "1"]], "title")], [{"a": 1}]
    )
    paths = report.write(tmp_path / "new")
    content = json.loads(paths[0].read_text())
    assert content["records"] == [{"a": 1}]
    assert content["command"] == "bayeseq reproduce name"
    assert "title" in paths[1].read_text()


def test_mean_and_standard_deviation():
    assert mean_sd([0.1, 0.3], 100.0) == "20.00±14.14"
    assert mean_sd([0.5]) == "0.50±0.00"


def test_one_table_on_real_data(data_dir, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("BAYESEQ_DATA", str(data_dir))
    arguments = ["reproduce", "gpsl-table3", "--tasks", "segmentation", "--splits", "1", "-q"]
    assert main([*arguments, "-o", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "Algorithm 2" in printed
    (record,) = json.loads((tmp_path / "gpsl-table3.json").read_text())["records"]
    # A CRF has 16.6 % here, with whatever penalty.
    assert record["chain marginals"]["error"] < 0.165
    assert record["chain marginals"]["log_loss"] < 0.36


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gpsl-table9"], "gpsl-table1"),
        (["gpsl-table1", "--tasks", "base"], "basenp"),
        (["gpsl-table1", "--protocols", "none"], "gpstruct"),
    ],
)
def test_what_does_not_exist_is_named(arguments, words, capsys):
    assert main(["reproduce", *arguments]) == 2
    assert words in capsys.readouterr().err
