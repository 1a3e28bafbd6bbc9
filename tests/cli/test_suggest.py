"""bayeseq suggest, run in this process on sentences cut from the embedded corpus."""

from __future__ import annotations

import pytest

import bayeseq
from bayeseq import Corpus, load, read_columns, suggest, word_features, write_columns
from bayeseq.cli.main import main
from bayeseq.cli.suggest import _text


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("suggest")
    corpus = bayeseq.load_dataset("newswire")["train"]
    write_columns(folder / "train.conll", corpus[:40])
    write_columns(folder / "pool.conll", Corpus(corpus[40:80].sentences))
    for name in ("crf", "gpsl"):
        fit = ["fit", str(folder / "train.conll"), "--features", "spelling", "-q", "-m", name]
        options = ["-p", "covariance=diagonal"] if name == "gpsl" else []
        assert main([*fit, *options, "-o", str(folder / name)]) == 0
    return folder


@pytest.fixture
def run(capsys):
    def call(*args):
        code = main(["suggest", *map(str, args)])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_the_ranking_is_that_of_the_function(files, run):
    code, out, err = run(files / "crf", files / "pool.conll", "-n", 4, "--strategy", "entropy")
    assert code == 0
    lines = out.rstrip("\n").split("\n")
    assert lines[0].split() == ["rank", "sentence", "line", "tokens", "score", "text"]
    pool = read_columns(files / "pool.conll", label_column=None)
    X = [word_features(words) for words in pool.tokens]
    found = suggest(load(files / "crf"), X, n=4, strategy="entropy")
    text = (files / "pool.conll").read_text().split("\n")
    assert len(lines) == 5
    for line, item in zip(lines[1:], found, strict=True):
        _, sentence, number, tokens, score = line.split()[:5]
        assert (int(sentence), int(tokens)) == (item.sentence, item.tokens)
        assert float(score) == pytest.approx(item.score, abs=5e-5)
        assert text[int(number) - 1] == pool.tokens[item.sentence][0]
        assert f"({item.reason})" in line
    assert "4 sentences of 40 sentences" in err


def test_chosen_sentences_are_ready_to_be_corrected(files, run, tmp_path):
    out = tmp_path / "next.conll"
    assert run(files / "crf", files / "pool.conll", "--tokens", 60, "-o", out, "-q")[0] == 0
    written = read_columns(out)
    assert 40 < written.n_tokens <= 60
    X = [word_features(words) for words in written.tokens]
    assert written.labels == load(files / "crf").predict(X)
    run(files / "crf", files / "pool.conll", "--tokens", 60, "-o", out, "--fill", "missing")
    blank = read_columns(out, missing="_")
    assert blank.sentences == written.sentences
    assert {label for row in blank.labels for label in row} == {None}


@pytest.mark.parametrize("fill", ["predicted", "missing"])
def test_tokens_that_are_asked_for_are_marked(files, run, tmp_path, fill):
    out = tmp_path / "next.conll"
    options = ["--unit", "token", "-n", 8, "--strategy", "bald", "-o", out, "--fill", fill]
    code, printed, _ = run(files / "gpsl", files / "pool.conll", *options)
    assert code == 0
    assert printed.split("\n")[0].split()[3] == "token"
    assert printed.count("[") == 8
    written = read_columns(out, missing="_")
    asked = [label for row in written.labels for label in row if label is not None]
    assert len(asked) == 8
    assert set(asked) <= ({"?"} if fill == "missing" else set(load(files / "gpsl").classes_))
    # the line that is printed is the token's
    text = (files / "pool.conll").read_text().split("\n")
    for line in printed.rstrip("\n").split("\n")[1:]:
        assert f"[{text[int(line.split()[2]) - 1]}]" in line


def test_known_labels_are_kept_and_not_asked_for(files, run, tmp_path):
    pool, out = tmp_path / "pool.conll", tmp_path / "next.conll"
    pool.write_text("Ann B-PER\nsaw _\nRavel _\n\nDone O\n\n")
    code, printed, _ = run(files / "crf", pool, "-o", out, "--fill", "missing")
    assert code == 0
    assert printed.split("\n")[1].split()[:4] == ["1", "0", "1", "2"]
    assert out.read_text() == "Ann B-PER\nsaw _\nRavel _\n\n"
    assert run(files / "crf", pool, "-o", out, "--unit", "token", "-n", 1, "-q")[0] == 0
    assert read_columns(out, missing="_").labels[0].count(None) == 1


def test_a_file_that_was_annotated_can_be_fitted(files, run, tmp_path):
    out = tmp_path / "next.conll"
    run(files / "crf", files / "pool.conll", "--unit", "token", "-n", 30, "-o", out)
    fit = ["fit", str(out), "--features", "spelling", "--missing", "_", "-q"]
    assert main([*fit, "-o", str(tmp_path / "model")]) == 0


def test_what_cannot_be_suggested(files, run, tmp_path):
    code, _, err = run(files / "crf", files / "pool.conll", "--strategy", "bald")
    assert code == 2
    assert "this CRF has one set" in err
    code, _, err = run(files / "crf", files / "train.conll")
    assert code == 2
    assert "every token has a label" in err
    code, _, err = run(files / "crf", files / "pool.conll", "--missing", "O")
    assert code == 2
    assert "'O' is a label" in err
    code, _, err = run(files / "crf", files / "pool.conll", "--diversity", 2)
    assert code == 2
    assert "diversity is 2" in err
    out = tmp_path / "next.conll"
    (tmp_path / "long.conll").write_text("word\n" * 9)
    code, _, err = run(files / "crf", tmp_path / "long.conll", "--tokens", 3, "-o", out)
    assert code == 2
    assert "allow more --tokens" in err
    assert not out.exists()


def test_long_sentences_are_cut():
    words = ["word"] * 30
    assert len(_text(words, None)) == 60
    assert "[word]" in _text(words, 15)
    assert _text(["a", "b"], 0) == "[a] b"
    assert _text(["a", "b"], 1) == "a [b]"
    assert len(_text(["long" * 40, "b"], 1)) < 70
