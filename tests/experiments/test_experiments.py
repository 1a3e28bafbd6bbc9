"""The experiments: how data is cut, the CRF they compare with, what they write."""

import json
from collections import Counter

import numpy as np
import pytest

from bayeseq import CRF, HMM, load_dataset, word_features
from bayeseq.cli.main import main
from bayeseq.experiments import gpsc, margins, mlp
from bayeseq.experiments.rivals import CrossValidatedSSVM
from bayeseq.experiments.setting import (
    CRFsuite,
    Data,
    Report,
    by_sentence,
    chosen,
    cut_at_gaps,
    mean_sd,
    paired,
    table,
)
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


def test_the_ssvm_chooses_a_candidate_by_held_out_error(monkeypatch):
    monkeypatch.setattr(CrossValidatedSSVM, "candidates", (1e-6, 0.3))
    X, y = easy_task(0, 16)
    model = CrossValidatedSSVM(folds=2).fit(X, y)
    wrong = [model._wrong(X, y, C) for C in model.candidates]
    assert model.C == model.candidates[int(np.argmin(wrong))] == 0.3
    assert model.model.C == 0.3


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
        (["gpsc-table1", "--tasks", "basenp"], "one task"),
        (["mlp-ner", "--tasks", "basenp"], "leave out --tasks"),
        (["mlp-trees", "--protocols", "random"], "leave out --tasks and --protocols"),
    ],
)
def test_what_does_not_exist_is_named(arguments, words, capsys):
    assert main(["reproduce", *arguments]) == 2
    assert words in capsys.readouterr().err


# ---- [gpsc] -------------------------------------------------------------------------------------


def test_accents_leave_out_what_is_not_spoken():
    words, labels = ["Well", ",", "he", "LEFT", ".", "'"], ["1", None, "0", "2", None, None]
    tokens, found = gpsc._accents(words, labels)
    assert found == ["accented", "plain", "accented"]
    assert [len(tokens)] == [3]
    assert {"punctuation[1]=,", "punctuation[-1]=none", "length[0]=4"} <= set(tokens[0])
    assert {"punctuation[1]=none", "punctuation[-1]=,", "w[-1]=Well"} <= set(tokens[1])
    assert {"punctuation[1]=.'", "w[1]=_B+1", "length[-1]=2"} <= set(tokens[2])
    assert gpsc._accents(["."], [None]) == ([], [])


def test_a_setting_is_chosen_on_held_out_training_sequences():
    data = Data(*easy_task(0, 40), *easy_task(1, 5))
    seen = []

    def make(penalty):
        seen.append(penalty)
        return CRF(l2=penalty, progress=False)

    assert chosen(make, (1e3, 0.3), data) == 0.3
    assert seen == [1e3, 0.3]


def test_rows_say_how_sparse_they_are():
    assert gpsc._share("SGPS2 25%") == 0.25
    assert [gpsc._share(name) for name in gpsc.SPARSE] == [0.005, 0.01, 0.02, 0.04, 0.08]


def test_answers_of_all_folds_make_one_curve():
    records = [{"answers": [[1, 0.9], [0, 0.6]]}, {"answers": [[1, 0.8], [1, 0.7]]}]
    curve = gpsc._curve(records)
    assert curve.threshold.tolist() == [0.9, 0.8, 0.7, 0.6]
    assert curve.risk.tolist() == [0, 0, 0, 0.25]


def test_the_figure_is_made_of_records(tmp_path):
    records = [
        {
            "model": name,
            "fold": fold,
            "error": 0.2,
            "log_loss": 0.5,
            "ece": 0.02,
            "cpu": 1.0,
            "words": 3,
            "chosen": {"coordinates": 5, "share_of_tokens": 0.1, "coordinates_per_token": 1.25},
            "answers": [[1, 0.9], [0, 0.6], [1, 0.55]],
        }
        for name in (*gpsc.DENSE, *gpsc.SPARSE)
        for fold in range(2)
    ]
    report = gpsc._figure1("bayeseq reproduce gpsc-figure1", records)
    assert "pitch accents, 6 test words" in report.tables[0]
    assert "80.00±0.00" in report.tables[0]
    assert "10.0%" in report.tables[1]
    assert report.picture is not None
    report.picture(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_one_row_of_the_spanish_table(data_dir, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("BAYESEQ_DATA", str(data_dir))
    monkeypatch.setattr(gpsc, "N_SENTENCES", 60)
    arguments = ["reproduce", "gpsc-table1", "--models", "SGPS2 25%", "--splits", "1", "-q"]
    assert main([*arguments, "-o", str(tmp_path)]) == 0
    assert "what the sparse models chose" in capsys.readouterr().out
    (sparse,) = json.loads((tmp_path / "gpsc-table1.json").read_text())["records"]
    assert sparse["error"] < 0.2
    assert sparse["chosen"]["coordinates_per_token"] >= 1
    assert sparse["chosen"]["variance"] in gpsc.VARIANCES[2]


# ---- [mlp] --------------------------------------------------------------------------------------


def test_label_scores_of_one_fold(data_dir, monkeypatch):
    """Precision and recall of labels, counted over tokens, against a loop of another kind."""
    monkeypatch.setenv("BAYESEQ_DATA", str(data_dir))
    found = mlp._label_entities(mlp._Work("HMM, window 3", 0, 5))
    corpus = load_dataset("conll2002-esp")["train"][:300]
    assert corpus.n_tokens == 8541
    X = [word_features(words, window=1) for words in corpus.tokens]
    train = [i for i in range(300) if i % 5]
    model = HMM().fit([X[i] for i in train], [corpus.labels[i] for i in train])
    pairs = Counter()
    for i in range(0, 300, 5):
        pairs.update(zip(corpus.labels[i], model.predict_single(X[i]), strict=True))
    right = sum(n for (a, b), n in pairs.items() if a == b and a != "O")
    precision = right / sum(n for (_, b), n in pairs.items() if b != "O")
    recall = right / sum(n for (a, _), n in pairs.items() if a != "O")
    assert found["precision"] == pytest.approx(precision)
    assert found["recall"] == pytest.approx(recall)
    assert found["f1"] == pytest.approx(2 * precision * recall / (precision + recall))


def test_more_error_than_the_hm_svm_has_a_plus():
    truth = [["A", "B"], ["B", "B", "A"]]
    records = [
        {"model": "HM-SVM", "fold": 0, **by_sentence(truth, truth)},
        {"model": "HMM", "fold": 0, **by_sentence(truth, [["A", "A"], ["B", "A", "A"]])},
    ]
    assert records[1]["right"] == "1 2"
    assert records[1]["tokens"] == "2 3"
    line = margins._differences(records, ["HMM", "HM-SVM"]).splitlines()[-1]
    assert line.split()[:2] == ["HMM", "+40.00"]


def test_paired_differences_are_in_points():
    records = [
        {"model": "a", "fold": 1, "right": "8 9", "tokens": "10 10"},
        {"model": "a", "fold": 0, "right": "5 5", "tokens": "10 10"},
        {"model": "b", "fold": 0, "right": "4 5", "tokens": "10 10"},
        {"model": "b", "fold": 1, "right": "8 7", "tokens": "10 10"},
    ]
    difference, lower, upper = paired(records, "a", "b")
    assert difference == pytest.approx(7.5)
    assert 0 <= lower < difference < upper < 20
