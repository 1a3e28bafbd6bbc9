"""The command line, run in this process on sentences cut from the embedded corpus."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bayeseq
from bayeseq import (
    CRF,
    GPSL,
    HMM,
    LABELERS,
    Corpus,
    Template,
    evaluate,
    load,
    read_columns,
    word_features,
)
from bayeseq.baselines.crf import CRFLoss
from bayeseq.cli.main import main
from bayeseq.cli.params import parse_params
from bayeseq.data import write_columns
from bayeseq.inference.variational import Solver
from bayeseq.labelers import ChainLabeler

REPOSITORY = Path(__file__).resolve().parents[2]
PLAIN = "U00:%x[0,0]\nU01:%x[-1,0]\nU02:%x[0,1]/%x[1,1]\n"
TEMPLATE = PLAIN + "B\n"
PAIRS = TEMPLATE + "B00:%x[0,1]\n"
PNG = b"\x89PNG\r\n\x1a\n"

Files = dict[str, Path]
Run = Callable[..., tuple[int, str, str]]


def two_columns(part: str, n: int) -> Corpus:
    """Words with a column for how they begin, and their labels."""
    corpus = bayeseq.load_dataset("newswire")[part][:n]
    sentences: list[list[tuple[str, ...]]] = [
        [(word, "Aa" if word[0].isupper() else "aa" if word.isalpha() else "?") for word in words]
        for words in corpus.tokens
    ]
    return Corpus(sentences, corpus.labels)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Small files, and a CRF that was fitted on one of them."""
    folder = tmp_path_factory.mktemp("files")
    names = ("train.conll", "test.conll", "bare.conll", "template", "plain", "pairs", "model")
    found = {name.split(".")[0]: folder / name for name in names}
    train, test = two_columns("train", 60), two_columns("test", 20)
    write_columns(found["train"], train)
    write_columns(found["test"], test)
    write_columns(found["bare"], Corpus(test.sentences))
    for name, text in (("template", TEMPLATE), ("plain", PLAIN), ("pairs", PAIRS)):
        found[name].write_text(text)
    command = ["fit", found["train"], "-t", found["template"], "-o", found["model"], "-q"]
    assert main([str(word) for word in [*command, "-p", "l2=0.1"]]) == 0
    return found


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command line; its exit code, what it printed, and what it complained of."""

    def run(*words: object) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert "Traceback" not in err or "--debug" in words
        return code, out, err

    return run


@pytest.fixture
def fails(run: Run) -> Callable[..., str]:
    """Run a command line that must fail; its one line of complaint."""

    def fails(*words: object) -> str:
        code, out, err = run(*words)
        assert code == 2
        assert out == ""
        *remarks, last = err.splitlines()
        assert last.startswith("bayeseq: error: ")
        assert not any(line.startswith("bayeseq: ") for line in remarks)
        return last.removeprefix("bayeseq: error: ")

    return fails


def features_of(path: Path, template: str = TEMPLATE) -> list:
    return Template.parse(template).transform(read_columns(path))


def labels_of(path: Path) -> list:
    labels = read_columns(path).labels
    assert labels is not None
    return labels


def model_of(path: Path) -> ChainLabeler:
    model = load(path)
    assert isinstance(model, ChainLabeler)
    return model


def gpsl_of(path: Path) -> GPSL:
    model = load(path)
    assert isinstance(model, GPSL)
    return model


QUICK = ["-p", "covariance=diagonal", "-p", "bound=tilted", "-p", "min_count=3", "-p", "tol=0.01"]


# fit


def test_fit_is_the_library_fit(files: Files) -> None:
    expected = CRF(l2=0.1).fit(features_of(files["train"]), labels_of(files["train"]))
    X = features_of(files["test"])
    for found, wanted in zip(
        load(files["model"]).predict_proba(X), expected.predict_proba(X), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)


def test_fit_remembers_how_the_file_was_read(files: Files) -> None:
    corpus = read_columns(files["train"])
    assert load(files["model"]).metadata_ == {
        "input": {
            "features": TEMPLATE,
            "encoding": "utf-8",
            "columns": 2,
            "label_column": 2,
            "missing": None,
            "comments": None,
            "source": str(files["train"]),
            "sha256": hashlib.sha256(files["train"].read_bytes()).hexdigest(),
            "sentences": 60,
            "tokens": corpus.n_tokens,
        }
    }


def test_fit_says_what_it_did(files: Files, tmp_path: Path, run: Run) -> None:
    code, out, err = run("fit", files["train"], "-t", files["template"], "-o", tmp_path / "m")
    model = model_of(tmp_path / "m")
    lines = err.splitlines()
    assert (code, out) == (0, "")
    tokens = f"{read_columns(files['train']).n_tokens:,}"
    assert f"60 sentences, {tokens} tokens, 2 feature columns, 7 labels" in lines[0]
    assert lines[1] == f"features: template {files['template']}"
    assert lines[2].startswith(f"CRF: {model.feature_space_.n_features:,} features, ")
    assert f"converged after {model.result_.iterations} iterations in " in lines[2]
    assert lines[2].endswith(f"objective {model.result_.objective[-1]:.6g}")
    assert lines[3] == f"model: {tmp_path / 'm'}"


def test_fit_quiet_says_nothing(files: Files, tmp_path: Path, run: Run) -> None:
    assert run("fit", files["train"], "-m", "hmm", "-q", "-o", tmp_path / "m") == (0, "", "")


def test_without_template_the_default_one_is_used_and_named(
    files: Files, tmp_path: Path, run: Run
) -> None:
    _, _, err = run("fit", files["train"], "-m", "hmm", "-o", tmp_path / "m")
    assert "features: a window of ±2 over 2 columns" in err
    assert load(tmp_path / "m").metadata_["input"]["features"] == Template.default(2).text


def test_spelling_features(files: Files, tmp_path: Path, run: Run) -> None:
    model = tmp_path / "m"
    assert run("fit", files["train"], "-m", "HMM", "--features", "spelling", "-o", model)[0] == 0
    train, test = read_columns(files["train"]), read_columns(files["test"])
    X = [word_features(words) for words in train.tokens]
    expected = HMM().fit(X, labels_of(files["train"]))
    _, out, _ = run("tag", model, files["test"])
    assert read_columns(io.StringIO(out)).labels == expected.predict(
        [word_features(words) for words in test.tokens]
    )


def test_a_template_without_b_line_has_no_transitions(
    files: Files, tmp_path: Path, run: Run
) -> None:
    assert run("fit", files["train"], "-t", files["plain"], "-o", tmp_path / "m")[0] == 0
    model = load(tmp_path / "m")
    assert isinstance(model, CRF)
    assert model.transitions is False
    assert model.transition_features_ == {}


def test_a_template_without_b_line_has_no_dependencies(
    files: Files, tmp_path: Path, run: Run
) -> None:
    command = ["fit", files["train"], "-t", files["plain"], "-m", "gpsl", *QUICK]
    assert run(*command, "-o", tmp_path / "m")[0] == 0
    assert gpsl_of(tmp_path / "m").dependencies == ()
    assert run(*command, "-p", "dependencies=1", "-o", tmp_path / "m")[0] == 0
    assert gpsl_of(tmp_path / "m").dependencies == (1,)
    assert run("tag", tmp_path / "m", files["bare"], "--nbest", 2)[0] == 0


@pytest.mark.parametrize("name", ["hmm", "memm"])
def test_a_template_without_b_line_is_not_for_all(
    name: str, files: Files, tmp_path: Path, fails: Callable[..., str]
) -> None:
    message = fails("fit", files["train"], "-t", files["plain"], "-m", name, "-o", tmp_path / "m")
    assert "no B line" in message
    assert "-m crf" in message
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("name", ["crf", "memm"])
def test_b_lines_with_macros_weigh_label_pairs(
    name: str, files: Files, tmp_path: Path, run: Run
) -> None:
    model = tmp_path / "m"
    command = ["fit", files["train"], "-t", files["pairs"], "-m", name, "-p", "max_iter=15"]
    assert run(*command, "-o", model)[0] == 0
    with pytest.warns(UserWarning, match="max_iter=15"):
        expected = bayeseq.LABELERS[name.upper()](max_iter=15, pair_prefix="B").fit(
            features_of(files["train"], PAIRS), labels_of(files["train"])
        )
    X = features_of(files["test"], PAIRS)
    for found, wanted in zip(load(model).predict_proba(X), expected.predict_proba(X), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", ["hmm", "gpsl"])
def test_b_lines_with_macros_are_not_for_all(
    name: str, files: Files, tmp_path: Path, fails: Callable[..., str]
) -> None:
    message = fails("fit", files["train"], "-t", files["pairs"], "-m", name, "-o", tmp_path / "m")
    assert "template line 5 'B00:%x[0,1]'" in message


def test_params_have_the_types_of_the_signature(files: Files, tmp_path: Path, run: Run) -> None:
    params = ["l2=2", "max_iter=3", "scheme=none", "all_possible_states=TRUE", "decode=marginal"]
    options = [word for param in params for word in ("-p", param)]
    code, _, err = run("fit", files["train"], *options, "-o", tmp_path / "m")
    assert code == 0
    assert "bayeseq: warning: not converged: CRF stopped after max_iter=3 iterations" in err
    saved = json.loads((tmp_path / "m" / "config.json").read_text())["params"]
    assert saved["l2"] == 2.0
    assert isinstance(saved["l2"], float)
    assert saved["max_iter"] == 3
    assert saved["scheme"] is None
    assert saved["all_possible_states"] is True
    assert saved["decode"] == "marginal"


@pytest.mark.parametrize(
    ("param", "message"),
    [
        ("c2=1", "-p c2=1: CRF has no parameter 'c2'; it has l2=1.0, objective=likelihood, "),
        ("l2=much", "-p l2=much: 'much' is not a number"),
        ("max_iter=1.5", "-p max_iter=1.5: '1.5' is not a whole number"),
        ("transitions=1", "-p transitions=1: '1' is not true or false"),
        ("l2", "-p l2: write NAME=VALUE, such as -p l2=…"),
        ("l2=-1", "l2 is -1.0; a penalty cannot be negative"),
    ],
)
def test_wrong_params(
    param: str, message: str, files: Files, tmp_path: Path, fails: Callable[..., str]
) -> None:
    assert fails("fit", files["train"], "-p", param, "-o", tmp_path / "m").startswith(message)


def test_params_of_gpsl(files: Files, tmp_path: Path, run: Run) -> None:
    command = ["fit", files["train"], "-t", files["template"], "-m", "gpsl", *QUICK, "-q"]
    params = ["dependencies=-1,1", "kernel=rbf(scale=0.1)", "groups=none", "inducing=5"]
    params += ["max_iter=2", "learn=false"]
    asked = list(chain.from_iterable(("-p", param) for param in params))
    code, _, err = run(*command, *asked, "-o", tmp_path / "m")
    assert code == 0
    assert "not converged: GPSL stopped after max_iter=2 sweeps; -p max_iter=N allows" in err
    model = gpsl_of(tmp_path / "m")
    assert model.dependencies == (-1, 1)
    assert model.kernel == "rbf(scale=0.1)"
    assert model.groups is None
    assert (model.inducing, model.covariance, model.progress) == (5, "diagonal", False)
    for text in ("none", "()"):
        assert parse_params(GPSL, [f"dependencies={text}"]) == {"dependencies": ()}
    assert parse_params(GPSL, ["dependencies=(-2, -1)"]) == {"dependencies": (-2, -1)}
    assert parse_params(GPSL, ["dependencies=-1,"]) == {"dependencies": (-1,)}
    assert parse_params(GPSL, ["groups=none", "inducing=none"]) == {
        "groups": None,
        "inducing": None,
    }


@pytest.mark.parametrize(
    ("param", "message"),
    [
        ("c2=1", "-p c2=1: GPSL has no parameter 'c2'; it has dependencies=-1, kernel=linear, "),
        ("dependencies=one", "-p dependencies=one: 'one' is not whole numbers with commas "),
        ("dependencies=0", "dependencies is (0,); expected different whole numbers other than 0"),
        ("kernel=cubic", "-p kernel=cubic: cannot read the kernel 'cubic': expected a kernel, "),
        ("kernel=rbf(scale=-1)", "-p kernel=rbf(scale=-1): "),
        ("covariance=round", "covariance is 'round'; expected one of 'full', 'block', "),
        ("max_memory=1e-9", "covariance='full' of 7 labels would need about "),
    ],
)
def test_wrong_params_of_gpsl(
    param: str, message: str, files: Files, tmp_path: Path, fails: Callable[..., str]
) -> None:
    command = ["fit", files["train"], "-m", "gpsl", "-p", param, "-o", tmp_path / "m"]
    assert fails(*command).startswith(message)
    assert not (tmp_path / "m").exists()


def test_fit_gpsl_says_what_it_learned(files: Files, tmp_path: Path, run: Run) -> None:
    command = ["fit", files["train"], "-t", files["template"], "-m", "gpsl", *QUICK]
    code, out, err = run(*command, "-o", tmp_path / "m")
    assert (code, out) == (0, "")
    model = gpsl_of(tmp_path / "m")
    lines = err.splitlines()
    assert lines[2].startswith(f"GPSL: {model.feature_space_.n_features:,} features; converged ")
    assert f"after {model.result_.iterations} sweeps in " in lines[2]
    assert lines[2].endswith(f"bound {model.result_.objective[-1]:.6g}")
    table = [line.split() for line in lines[3:-1]]
    variance = model.result_.hyperparameters["variance"]
    ranked = sorted(variance, key=variance.__getitem__, reverse=True)
    assert table[0] == ["prior", "variance", ranked[0], f"{variance[ranked[0]]:.3g}"]
    assert [row[0] for row in table[1 : len(ranked)]] == ranked[1:]
    dependency = model.result_.hyperparameters["dependency_variance"]["-1"]
    assert table[len(ranked)] == ["label", "at", "offset", "-1", f"{dependency:.3g}"]
    assert [row[-2] for row in table[-2:]] == ["local", "dependency"]
    assert lines[-1] == f"model: {tmp_path / 'm'}"


def test_ctrl_c_saves_the_last_sweep_of_gpsl(
    files: Files, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = iter(range(100))
    sweep = Solver._sweep

    def interrupted(self: Solver, *args: Any, **kwargs: Any) -> Any:
        if next(calls) == 3:
            raise KeyboardInterrupt
        return sweep(self, *args, **kwargs)

    monkeypatch.setattr(Solver, "_sweep", interrupted)
    command = ["fit", files["train"], "-t", files["template"], "-m", "gpsl", *QUICK]
    code, out, err = run(*command, "-o", tmp_path / "m")
    assert (code, out) == (130, "")
    model = gpsl_of(tmp_path / "m")
    assert model.result_.interrupted
    n = model.result_.iterations
    assert f"bayeseq: warning: not converged: interrupted after {n} sweeps; what was" in err
    assert run("tag", tmp_path / "m", files["test"])[0] == 0


def test_a_param_given_twice(files: Files, tmp_path: Path, fails: Callable[..., str]) -> None:
    message = fails("fit", files["train"], "-p", "l2=1", "-p", "l2=2", "-o", tmp_path / "m")
    assert message == "-p l2=2: l2 is given twice"


def test_unknown_model(files: Files, tmp_path: Path, fails: Callable[..., str]) -> None:
    message = fails("fit", files["train"], "-m", "svm", "-o", tmp_path / "m")
    known = ", ".join(name.lower() for name in LABELERS)
    assert message == f"there is no model 'svm'; choose one of {known}"


def test_help_names_every_model(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["fit", "--help"])
    text = capsys.readouterr().out
    assert all(name.lower() in text for name in bayeseq.LABELERS)


def test_a_folder_that_is_no_model_is_refused_before_training(
    files: Files, tmp_path: Path, fails: Callable[..., str]
) -> None:
    (tmp_path / "config.json").write_text("{}")  # as other programs have one too
    message = fails("fit", "not even looked at", "-o", tmp_path)
    assert message == f"{tmp_path} exists and is not a model folder alone; choose another name"
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    file = files["template"]
    assert fails("fit", files["train"], "-o", file).startswith(f"{file} exists and is not a model")
    assert fails("fit", files["train"], "-o", file / "m").startswith(f"{file / 'm'} cannot be")


def test_a_model_is_replaced(files: Files, tmp_path: Path, run: Run) -> None:
    for name in ("hmm", "crf"):
        command = ["fit", files["train"], "-m", name, "-p", "max_iter=2", "-o", tmp_path / "m"]
        assert run(*command)[0] == 0
        assert type(load(tmp_path / "m")).__name__ == name.upper()


def test_label_column_missing_mark_and_comments(tmp_path: Path, run: Run) -> None:
    lines = ["# about Ann", "B Ann", "O ran", "", "? Bob", "O ran"]
    (tmp_path / "train").write_text("\n".join(lines))
    (tmp_path / "t").write_text("U:%x[0,0]\nB\n")
    options = ["--label-column", "0", "--missing", "?", "--comments", "#", "-t", tmp_path / "t"]
    code, _, err = run("fit", tmp_path / "train", *options, "-o", tmp_path / "m")
    assert code == 0
    assert "2 sentences, 4 tokens, 1 feature column, 2 labels, 1 token without one" in err
    expected = CRF().fit(
        [[["U:Ann"], ["U:ran"]], [["U:Bob"], ["U:ran"]]], [["B", "O"], [None, "O"]]
    )
    _, out, _ = run("tag", tmp_path / "m", tmp_path / "train")
    predicted = expected.predict([[["U:Ann"], ["U:ran"]], [["U:Bob"], ["U:ran"]]])
    words = [("B", "Ann"), ("O", "ran"), ("?", "Bob"), ("O", "ran")]
    rows = [[*row, label] for row, label in zip(words, chain(*predicted), strict=True)]
    text = [" ".join(row) for row in rows]
    assert out == "\n".join([*text[:2], "", *text[2:], "", ""])
    code, out, err = run("evaluate", tmp_path / "m", tmp_path / "train")
    assert code == 0
    assert "some labels are missing, so entities are not scored" in err
    assert "tokens scored" in out
    assert out.splitlines()[1].split()[-1] == "3"


def test_a_file_in_another_encoding(tmp_path: Path, run: Run, fails: Callable[..., str]) -> None:
    text = "東京 B\n　 O\n\n大阪 B\n。 O\n"
    (tmp_path / "train").write_bytes(text.encode("euc-jp"))
    assert "line 1: byte 0xc5 at position 0 is not utf-8; the line can be read as euc-jp" in fails(
        "fit", tmp_path / "train", "-o", tmp_path / "m"
    )
    assert run("fit", tmp_path / "train", "--encoding", "euc-jp", "-o", tmp_path / "m")[0] == 0
    assert run("tag", tmp_path / "m", tmp_path / "train", "-o", tmp_path / "out")[0] == 0
    tagged = "東京 B B\n　 O O\n\n大阪 B B\n。 O O\n\n"
    assert (tmp_path / "out").read_bytes() == tagged.encode("euc-jp")
    (tmp_path / "new").write_text(text, encoding="utf-8")
    command = ["tag", tmp_path / "m", tmp_path / "new", "--encoding", "utf-8"]
    assert run(*command) == (0, tagged, "")


def test_fit_on_a_dataset_is_fit_on_its_file(tmp_path: Path, run: Run) -> None:
    dataset = bayeseq.load_dataset("newswire")
    write_columns(tmp_path / "train.conll", dataset["train"])
    models = []
    for source in ("dataset:newswire", tmp_path / "train.conll"):
        assert run("fit", source, "-m", "hmm", "-o", tmp_path / "m")[0] == 0
        models.append(load(tmp_path / "m"))
    a, b = (model.metadata_["input"] for model in models)
    assert a.pop("source") == "dataset:newswire:train"
    assert b.pop("source") == str(tmp_path / "train.conll")
    assert a == b
    X = Template.default(1).transform(dataset["test"])
    assert models[0].predict(X) == models[1].predict(X)
    code, out, _ = run("evaluate", tmp_path / "m", "dataset:newswire")
    assert code == 0
    assert out.split()[:2] == ["sequences", "100"]


def test_a_dataset_with_a_vocabulary(
    data_dir: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAYESEQ_DATA", str(data_dir))
    assert run("fit", "dataset:segmentation", "-m", "hmm", "-o", tmp_path / "m")[0] == 0
    dataset = bayeseq.load_dataset("segmentation")
    model = load(tmp_path / "m")
    assert set(model.feature_space_.names or ()) <= set(dataset.vocabulary or ())
    expected = HMM().fit(dataset.features("all"), dataset.labels("all"))
    assert model.predict(dataset.features("all")) == expected.predict(dataset.features("all"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["dataset:newswyre"], "there is no dataset 'newswyre'"),
        (["dataset:newswire:dev"], "newswire has no part 'dev'; it has train, test"),
        (["dataset:newswire", "--missing", "_"], "--missing is for files and dataset:newswire:tr"),
    ],
)
def test_wrong_datasets(
    words: list[str], message: str, tmp_path: Path, fails: Callable[..., str]
) -> None:
    assert fails("fit", *words, "-o", tmp_path / "m").startswith(message)


def test_wrong_files(tmp_path: Path, fails: Callable[..., str]) -> None:
    model = tmp_path / "m"
    assert fails("fit", tmp_path / "none", "-o", model) == (
        f"{tmp_path / 'none'}: No such file or directory"
    )
    assert fails("fit", tmp_path, "-o", model) == f"{tmp_path}: Is a directory"
    ragged = tmp_path / "ragged"
    ragged.write_text("Ann NNP B\nran VBD O\n\nBob B\n")
    assert fails("fit", ragged, "-o", model).startswith(
        f"{ragged}, line 4: 3 columns are expected, as on line 1, and 2 are found: 'Bob B'"
    )
    ragged.write_text("\n")
    assert "holds no token" in fails("fit", ragged, "-o", model)


def test_debug_shows_the_traceback(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["fit", "none", "-o", str(tmp_path / "m")]
    assert "Traceback" in run("--debug", *command)[2]
    assert "Traceback" in run(*command, "--debug")[2]
    monkeypatch.setenv("BAYESEQ_DEBUG", "1")
    assert main(command) == 2
    assert "Traceback" in capsys.readouterr().err


def test_ctrl_c_saves_what_there_is(
    files: Files, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = iter(range(100))
    compute = CRFLoss.__call__

    def interrupted(self: CRFLoss, weights: np.ndarray) -> tuple[float, np.ndarray]:
        if next(calls) == 8:
            raise KeyboardInterrupt
        return compute(self, weights)

    monkeypatch.setattr(CRFLoss, "__call__", interrupted)
    code, out, err = run("fit", files["train"], "-t", files["template"], "-o", tmp_path / "m")
    assert (code, out) == (130, "")
    model = model_of(tmp_path / "m")
    n = model.result_.iterations
    assert n > 0
    assert not model.result_.converged
    assert f"bayeseq: warning: not converged: interrupted after {n} iterations" in err
    assert err.endswith(f"model: {tmp_path / 'm'}\n")
    assert run("tag", tmp_path / "m", files["test"])[0] == 0
    # The weights are those of the last iteration: their objective is the last one noted.
    fit = model.log_likelihood(features_of(files["train"]), labels_of(files["train"])).sum()
    objective = -fit + model.weights_ @ model.weights_
    assert objective == pytest.approx(model.result_.objective[-1], rel=1e-10)


def test_ctrl_c_before_there_is_a_model(
    files: Files, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Template, sentences: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Template, "transform", interrupted)
    code, _, err = run("fit", files["train"], "-o", tmp_path / "m")
    assert code == 130
    assert err.endswith("bayeseq: interrupted; nothing was saved\n")
    assert not (tmp_path / "m").exists()


# tag


@pytest.mark.parametrize("kind", ["test", "bare"])
def test_tag_adds_the_predictions(kind: str, files: Files, run: Run) -> None:
    code, out, err = run("tag", files["model"], files[kind])
    assert (code, err) == (0, "")
    X = features_of(files["test"])
    tagged = read_columns(io.StringIO(out))
    assert tagged.labels == load(files["model"]).predict(X)
    assert tagged.sentences == read_columns(files[kind], label_column=None).sentences


def test_tag_in_small_chunks_and_into_a_file(
    files: Files, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, expected, _ = run("tag", files["model"], files["test"])
    monkeypatch.setattr("bayeseq.cli.tag.TOKENS_AT_ONCE", 30)
    assert run("tag", files["model"], files["test"], "-o", tmp_path / "out") == (0, "", "")
    assert (tmp_path / "out").read_text() == expected


def test_tag_standard_input(files: Files, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    _, expected, _ = run("tag", files["model"], files["test"])
    stdin = io.TextIOWrapper(io.BytesIO(files["test"].read_bytes()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert run("tag", files["model"], "-") == (0, expected, "")


def test_fit_standard_input(
    files: Files, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = files["train"].read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert run("fit", "-", "-m", "hmm", "-o", tmp_path / "m")[0] == 0
    about = load(tmp_path / "m").metadata_["input"]
    assert about["source"] == "standard input"
    assert about["sha256"] == hashlib.sha256(text).hexdigest()


def test_marginals_are_predict_proba(files: Files, run: Run) -> None:
    code, out, _ = run("tag", files["model"], files["test"], "--marginals")
    assert code == 0
    model = load(files["model"])
    classes = model.classes_.tolist()
    X = features_of(files["test"])
    rows = read_columns(io.StringIO(out), label_column=None).sentences
    for found, labels, proba in zip(rows, model.predict(X), model.predict_proba(X), strict=True):
        for row, label, p in zip(found, labels, proba, strict=True):
            assert len(row) == 3 + 1 + len(classes)
            assert row[3] == f"{label}/{p[classes.index(label)]:.6f}"
            assert list(row[4:]) == [f"{c}/{v:.6f}" for c, v in zip(classes, p, strict=True)]


def test_nbest_labellings_have_their_probabilities(files: Files, run: Run) -> None:
    code, out, _ = run("tag", files["model"], files["test"], "--nbest", "3")
    assert code == 0
    model = model_of(files["model"])
    X = features_of(files["test"])
    blocks = out.rstrip("\n").split("\n\n")
    assert len(blocks) == 3 * len(X)
    for i, best in enumerate(model.predict(X)):
        some = [block.split("\n") for block in blocks[3 * i : 3 * i + 3]]
        labels = [[line.split()[-1] for line in lines[1:]] for lines in some]
        assert labels[0] == best
        probability = np.exp(model.log_likelihood([X[i]] * 3, labels))
        heads = [f"# {rank} {p:.6f}" for rank, p in enumerate(probability.tolist())]
        assert [lines[0] for lines in some] == heads
        rows = read_columns(files["test"], label_column=None).sentences[i]
        assert [tuple(line.split()[:-1]) for line in some[0][1:]] == rows


def test_nbest_with_marginals(files: Files, run: Run) -> None:
    _, single, _ = run("tag", files["model"], files["test"], "--marginals")
    _, out, _ = run("tag", files["model"], files["test"], "--marginals", "-n", "1")
    assert "\n".join(line for line in out.split("\n") if not line.startswith("# 0 ")) == single


def test_decode_by_marginals(tmp_path: Path, run: Run) -> None:
    # Of ten labellings four are AA, three BC and three BD: AA is the most frequent one, B the most
    # frequent first label and A the most frequent second one.
    train = tmp_path / "train"
    train.write_text("".join(f"x {y[0]}\nx {y[1]}\n\n" for y in 4 * ["AA"] + 3 * ["BC", "BD"]))
    (tmp_path / "t").write_text("U:%x[0,0]\nB\n")
    options = ["-t", tmp_path / "t", "-p", "l2=0.01", "-o", tmp_path / "m"]
    assert run("fit", train, *options)[0] == 0
    (tmp_path / "new").write_text("x\nx\n")
    tagged = {
        decode: run("tag", tmp_path / "m", tmp_path / "new", *options)
        for decode, options in (("as fitted", []), ("other", ["--decode", "marginal"]))
    }
    assert tagged == {"as fitted": (0, "x A\nx A\n\n", ""), "other": (0, "x B\nx A\n\n", "")}


@pytest.mark.parametrize("n", ["0", "-1", "two"])
def test_nbest_is_a_number_above_zero(n: str, files: Files) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["tag", str(files["model"]), str(files["test"]), f"--nbest={n}"])


def test_wrong_columns(files: Files, tmp_path: Path, fails: Callable[..., str]) -> None:
    (tmp_path / "new").write_text("Ann\n")
    for verb in ("tag", "evaluate"):
        assert fails(verb, files["model"], tmp_path / "new").startswith(
            f"{tmp_path / 'new'}: 1 column found, and the model was fitted on 2 columns and a label"
        )
    assert fails("evaluate", files["model"], files["bare"]).startswith(
        f"{files['bare']}: 2 columns found, which the model takes for features, and no labels"
    )
    assert fails("evaluate", files["model"], "dataset:newswire").startswith(
        "dataset:newswire:test has 1 feature column, and the model was fitted on 2"
    )


def test_a_failed_tag_leaves_no_file(
    files: Files, tmp_path: Path, fails: Callable[..., str]
) -> None:
    (tmp_path / "new").write_text("Ann NNP\n\nran\n")
    assert "line 3" in fails("tag", files["model"], tmp_path / "new", "-o", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_models_from_elsewhere(files: Files, tmp_path: Path, fails: Callable[..., str]) -> None:
    assert "is not a folder" in fails("tag", tmp_path / "none", files["test"])
    assert "config.json" in fails("tag", tmp_path, files["test"])
    model = HMM().fit([[["a"]]], [["A"]])
    for metadata in ({}, {"input": 1}, {"input": {"features": "spelling"}}):
        model.metadata_ = metadata
        model.save(tmp_path / "m")
        assert "does not say how to make features" in fails("tag", tmp_path / "m", files["test"])


def test_a_pipe_gets_its_answers_early_and_may_close(files: Files) -> None:
    command = [sys.executable, "-m", "bayeseq.cli.main", "tag", str(files["model"]), "-"]
    process = subprocess.Popen(
        command,
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"Ann Aa\nran aa\n\n")
        process.stdin.flush()
        answer = [process.stdout.readline() for _ in range(3)]
        assert [line.split()[:2] for line in answer] == [[b"Ann", b"Aa"], [b"ran", b"aa"], []]
        process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(b"Bob Aa\n\n" * 20_000)
            process.stdin.close()
        complaints = process.stderr.read()
        assert process.wait() == 141
        assert b"Error" not in complaints
        assert b"bayeseq" not in complaints
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
        process.stderr.close()  # type: ignore[union-attr]


# evaluate


def test_evaluate_is_the_library_evaluate(files: Files, tmp_path: Path, run: Run) -> None:
    model = load(files["model"])
    y_true, X = labels_of(files["test"]), features_of(files["test"])
    y_pred, proba, classes = model.predict(X), model.predict_proba(X), model.classes_.tolist()
    expected = evaluate(y_true, y_pred, proba, classes)
    code, out, err = run("evaluate", files["model"], files["test"], "--json", tmp_path / "s.json")
    assert (code, out, err) == (0, expected.table() + "\n", "")
    assert json.loads((tmp_path / "s.json").read_text()) == expected.as_dict()

    strict = evaluate(y_true, y_pred, proba, classes, mode="strict", scheme="IOB2")
    _, out, _ = run("evaluate", files["model"], files["test"], "--strict", "IOB2")
    assert out == strict.table() + "\n"


def test_evaluate_predicts_in_chunks(
    files: Files, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run("evaluate", files["model"], files["test"])
    monkeypatch.setattr("bayeseq.cli.inputs.TOKENS_AT_ONCE", 30)
    assert run("evaluate", files["model"], files["test"]) == expected


def test_evaluate_draws(files: Files, tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "new" / "plots"
    code, _, err = run("evaluate", files["model"], files["test"], "--plots", folder)
    assert code == 0
    assert err == f"pictures: {folder}\n"
    names = ["confidence", "confusion", "entity-f1", "reliability", "risk-coverage"]
    assert sorted(path.name for path in folder.iterdir()) == [f"{name}.png" for name in names]
    assert all(path.read_bytes().startswith(PNG) for path in folder.iterdir())


def test_evaluate_labels_that_are_no_tags_and_unknown(tmp_path: Path, run: Run) -> None:
    (tmp_path / "train").write_text("Ann NOUN\nran VERB\n\nBob NOUN\nran VERB\n")
    (tmp_path / "test").write_text("Ann NOUN\nran VERB\nwell ADVERB\n")
    assert run("fit", tmp_path / "train", "-o", tmp_path / "m")[0] == 0
    folder = tmp_path / "plots"
    json_file = tmp_path / "scores.json"
    options = ["--plots", folder, "--json", json_file]
    assert run("evaluate", tmp_path / "m", tmp_path / "test", *options)[0] == 0
    scores = json.loads(json_file.read_text())
    assert scores["token_error"] == pytest.approx(1 / 3)
    assert scores["probabilities"]["unknown"] == 1
    assert scores["entities"] is None
    assert not (folder / "entity-f1.png").exists()


def test_wrong_scheme(files: Files, fails: Callable[..., str]) -> None:
    message = fails("evaluate", files["model"], files["test"], "--strict", "IOB3")
    assert message.startswith("there is no tag scheme 'IOB3'; the schemes are IOB2, ")


# datasets, demo, version


def test_datasets(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAYESEQ_DATA", str(tmp_path))
    code, short, _ = run("datasets")
    _, long, _ = run("datasets", "--addresses")
    assert code == 0
    for info in bayeseq.list_datasets():
        line = next(line for line in short.splitlines() if line.split()[0] == info.name)
        assert line.split()[1] == ("yes" if info.name == "newswire" else "no")
        assert line.endswith(info.description)
        assert f"terms: {info.terms}" in short
        for address, sha256 in zip(info.addresses, info.sha256, strict=True):
            assert address in long
            assert sha256 in long
            assert address not in short


def test_demo(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    code, out, _ = run("demo", "-q", "-o", folder)
    assert code == 0
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.split()}
    assert [name for name in rows if name in bayeseq.LABELERS] == ["HMM", "MEMM", "CRF", "GPSL"]
    assert rows["GPSL"][0] == "diagonal"
    assert float(rows["GPSL"][3]) < float(rows["HMM"][2])  # log loss
    dataset = bayeseq.load_dataset("newswire")
    X, y = ([word_features(words) for words in dataset[part].tokens] for part in ("train", "test"))
    hmm = HMM(smoothing=0.5).fit(X, dataset.labels("train"))
    assert rows["HMM"][0] == f"{100 * (1 - hmm.score(y, dataset.labels('test'))):.2f}"
    assert out.count("<- least sure") == 3
    for name in ("reliability.png", "risk-coverage.png"):
        assert (folder / name).read_bytes().startswith(PNG)
        assert str(folder / name) in out
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "<h1>GPSL on the newswire corpus</h1>" in page
    assert 'id="posterior"' in page
    assert str(folder / "report.html") in out


def test_version_in_a_process_of_its_own() -> None:
    command = [sys.executable, "-m", "bayeseq.cli.main", "--version"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"bayeseq {bayeseq.__version__}\n", "")


@pytest.mark.parametrize("words", [[], ["frobnicate"], ["fit"], ["fit", "x"]])
def test_wrong_usage(words: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
