"""Labelers without probabilities, and labelers inside labelers, on the command line."""

from __future__ import annotations

import pytest

from bayeseq import HMSVM, load, load_dataset
from bayeseq.cli.main import main
from bayeseq.cli.params import labeler_named, parse_params
from bayeseq.data import DataError, write_columns


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A few sentences and an HM-SVM that was fitted on them."""
    path = tmp_path_factory.mktemp("files")
    write_columns(path / "train.conll", load_dataset("newswire")["train"][:12])
    write_columns(path / "test.conll", load_dataset("newswire")["test"][:4])
    command = ["fit", path / "train.conll", "-o", path / "model", "-m", "hmsvm", "-p", "tol=0.05"]
    assert main([*map(str, command), "-q"]) == 0
    return path


def test_fit_evaluate_and_tag_without_probabilities(folder, capsys):
    model, test = str(folder / "model"), str(folder / "test.conll")
    assert isinstance(load(model), HMSVM)
    assert main(["evaluate", model, test, "--plots", str(folder / "plots")]) == 0
    printed = capsys.readouterr()
    assert "token error" in printed.out
    assert "log loss" not in printed.out
    assert "has no probabilities" in printed.err
    names = {path.name for path in (folder / "plots").iterdir()}
    assert "confusion.png" in names
    assert "reliability.png" not in names
    assert main(["tag", model, test, "--nbest", "2"]) == 0
    ranks = [line for line in capsys.readouterr().out.splitlines() if line.startswith("# ")]
    assert [line.split()[1] for line in ranks] == ["0", "1"] * 4
    assert main(["tag", model, test, "--marginals"]) == 2
    assert "-m calibrated -p labeler=hmsvm" in capsys.readouterr().err


def test_labelers_inside_labelers():
    calibrated = labeler_named("calibrated")
    found = parse_params(
        calibrated, ["labeler__C=2", "labeler=hmsvm", "labeler__slack=none", "cv=2"]
    )
    assert found["cv"] == 2
    assert isinstance(found["labeler"], HMSVM)
    assert (found["labeler"].C, found["labeler"].slack) == (2.0, None)
    for arguments, message in (
        (["labeler__C=2"], "which labeler"),
        (["labeler=svm"], "no model 'svm'"),
        (["labeler=crf", "labeler__C=2"], "CRF has no parameter 'C'"),
    ):
        with pytest.raises(DataError, match=message):
            parse_params(calibrated, arguments)
