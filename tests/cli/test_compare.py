"""bayeseq compare, in this process, on sentences of the embedded corpus."""

import io
import json

import pytest

from bayeseq import compare, load, load_dataset
from bayeseq.cli.main import main
from bayeseq.data import write_columns
from bayeseq.data.spelling import word_features


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    corpus = load_dataset("newswire")
    for part, n in (("train", 60), ("test", 25)):
        write_columns(folder / part, corpus[part][:n])
    for name, kind in (("hmm", "hmm"), ("crf", "crf"), ("svm", "structuredsvm")):
        options = ["--features", "spelling", "-m", kind, "-q", "-o", str(folder / name)]
        assert main(["fit", str(folder / "train"), *options]) == 0
    return folder


def run(capsys, *arguments):
    code = main(list(map(str, arguments)))
    return code, *capsys.readouterr()


def test_it_is_the_library_compare(files, capsys, monkeypatch):
    test = load_dataset("newswire")["test"][:25]
    X = [word_features(words) for words in test.tokens]
    models = {name: load(files / name) for name in ("hmm", "crf")}
    expected = compare(models, X, test.labels)
    json_file = files / "scores.json"
    arguments = ("compare", files / "hmm", files / "crf", files / "test", "--json", json_file)
    code, out, err = run(capsys, *arguments)
    assert (code, out, err) == (0, expected.table() + "\n", "")
    assert json.loads(json_file.read_text()) == expected.as_dict()
    assert expected.difference("crf", "log loss").value < 0
    monkeypatch.setattr("bayeseq.cli.inputs.TOKENS_AT_ONCE", 30)
    assert run(capsys, *arguments)[:2] == (0, out)


def test_models_without_probabilities(files, capsys):
    code, out, err = run(capsys, "compare", files / "svm", f"{files / 'crf'}/", files / "test")
    assert code == 0
    assert err == "svm has no probabilities, so only its labels are scored\n"
    rows = {line.split()[0]: line.split() for line in out.splitlines()[1:3]}
    assert rows["svm"][3:] == ["-", "-", "-"]
    assert "-" not in rows["crf"]
    assert "log loss" not in out.split("differences")[1]


def test_standard_input(files, capsys, monkeypatch):
    expected = run(capsys, "compare", files / "hmm", files / "crf", files / "test")

    class Input:
        buffer = io.BytesIO((files / "test").read_bytes())

    monkeypatch.setattr("sys.stdin", Input())
    assert run(capsys, "compare", files / "hmm", files / "crf", "-") == expected


def test_mistakes(files, capsys, monkeypatch, tmp_path):
    assert "nothing to compare it with" in run(capsys, "compare", files / "crf", files / "test")[2]
    twice = run(capsys, "compare", files / "crf", files / "crf", files / "test")
    assert twice[0] == 2
    assert "named twice" in twice[2]
    missing = run(capsys, "compare", files / "crf", files / "hmm", files / "none")
    assert missing[0] == 2
    assert "none: No such file" in missing[2]
    labels_first = tmp_path / "train"
    rows = [line.split() for line in (files / "train").read_text().splitlines()]
    labels_first.write_text("\n".join(" ".join(reversed(row)) for row in rows) + "\n")
    other = tmp_path / "other"
    fit = ["fit", labels_first, "--label-column", 0, "--features", "spelling", "-q", "-o", other]
    assert run(capsys, *fit)[0] == 0
    code, _, err = run(capsys, "compare", files / "crf", other, files / "test")
    assert code == 2
    assert "takes other labels" in err
    code, _, err = run(capsys, "compare", files / "crf", other, "-")
    assert "standard input can be read only once" in err
