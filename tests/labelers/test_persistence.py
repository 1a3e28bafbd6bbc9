"""Model folders: whole or not at all, readable, and harmless whatever they hold."""

import hashlib
import json
import os
import pickle
import shutil
import stat
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file, save

import bayeseq
from bayeseq import CRF, HMM, LABELERS, DataError
from bayeseq.labelers.persistence import params_from_json, params_to_json
from tests.labelers.conformance import NEW, X, Y, assert_same, make

FILES = ["config.json", "model.safetensors", "vocab.json"]


@pytest.fixture(scope="module")
def fitted():
    return {name: make(name).fit(X, Y) for name in LABELERS}


@pytest.fixture(scope="module")
def saved(fitted, tmp_path_factory):
    """One good folder for each labeler; tests copy before they break anything."""
    root = tmp_path_factory.mktemp("saved")
    for name, model in fitted.items():
        model.save(root / name)
    return root


@pytest.fixture
def folder(saved, tmp_path):
    """A good CRF folder, to be broken."""
    return shutil.copytree(saved / "CRF", tmp_path / "model")


def read(path):
    return json.loads(path.read_bytes())


def rewrite(folder, *, config=None, vocab=None, tensors=None):
    """Put other content into a folder, with hashes that agree, as an attacker would."""
    settings = read(folder / "config.json") if config is None else config
    for name, content in (("vocab.json", vocab), ("model.safetensors", tensors)):
        if content is not None:
            content = content if isinstance(content, bytes) else json.dumps(content).encode()
            (folder / name).write_bytes(content)
            settings["sha256"][name] = hashlib.sha256(content).hexdigest()
    (folder / "config.json").write_text(json.dumps(settings))


# ---- what is written --------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(LABELERS))
def test_the_folder_says_what_it_is(name, fitted, saved):
    model = fitted[name]
    config = read(saved / name / "config.json")
    parts = config.get("parts", {})
    assert sorted(path.name for path in (saved / name).iterdir()) == sorted([*FILES, *parts])
    assert config["class"] == name
    params = params_from_json(config["params"], LABELERS)
    assert str(params) == str(model.get_params(deep=False))
    assert config["classes"] == model.classes_.tolist() == ["B", "I", "O"]
    assert config["format"] == 1
    assert config["result"]["objective"] == list(model.result_.objective)
    assert config["metadata"] == {}
    for file, digest in config["sha256"].items():
        assert hashlib.sha256((saved / name / file).read_bytes()).hexdigest() == digest
    assert sorted(config["sha256"]) == FILES[1:]
    vocab = read(saved / name / "vocab.json")
    assert vocab == {
        "features": list(model.feature_space_.names),
        "n_features": len(model.feature_space_.names),
    }
    assert load_file(saved / name / "model.safetensors")


def test_the_config_is_readable(tmp_path):
    new = make("HMM").fit([[["naïve"], ["日本"]]], [["été", "冬"]])
    new.save(tmp_path / "model")
    text = (tmp_path / "model" / "config.json").read_text(encoding="utf-8")
    assert "été" in text
    assert text.count("\n") > 10
    assert "日本" in (tmp_path / "model" / "vocab.json").read_text(encoding="utf-8")


def test_others_may_read_the_folder(saved):
    assert stat.S_IMODE((saved / "CRF").stat().st_mode) & 0o555 == 0o555


# ---- where it is written ----------------------------------------------------------------------


@pytest.mark.parametrize("place", ["a b/c d", "naïve/日本", "deep/er/still", "dot.dot", "-x"])
def test_any_path_will_do(place, fitted, tmp_path):
    fitted["CRF"].save(tmp_path / place)
    for path in (tmp_path / place, str(tmp_path / place), f"{tmp_path / place}/"):
        assert_same(bayeseq.load(path).predict_proba(NEW), fitted["CRF"].predict_proba(NEW))


def test_relative_paths(fitted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fitted["HMM"].save("model")
    fitted["HMM"].save("model")
    assert_same(bayeseq.load("model").predict_proba(NEW), fitted["HMM"].predict_proba(NEW))
    assert os.listdir() == ["model"]


def test_an_empty_folder_is_filled(fitted, tmp_path):
    (tmp_path / "model").mkdir()
    fitted["HMM"].save(tmp_path / "model")
    assert sorted(os.listdir(tmp_path / "model")) == FILES


def test_reading_writes_nothing(folder, fitted):
    for file in folder.iterdir():
        file.chmod(0o444)
    folder.chmod(0o555)
    before = {path: path.stat().st_mtime_ns for path in [folder, *folder.iterdir()]}
    try:
        loaded = bayeseq.load(folder)
        assert_same(loaded.predict_proba(NEW), fitted["CRF"].predict_proba(NEW))
        assert {path: path.stat().st_mtime_ns for path in [folder, *folder.iterdir()]} == before
    finally:
        folder.chmod(0o755)


def test_a_link_to_a_model_can_be_saved_over(folder, fitted, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(folder, target_is_directory=True)
    fitted["HMM"].save(link)
    assert type(bayeseq.load(link)) is HMM
    assert {path.name for path in tmp_path.iterdir()} <= {"model", "link"}


# ---- what is never overwritten ----------------------------------------------------------------

FOREIGN = {
    "some file": {"notes.txt": "mine"},
    "another program's config": {"config.json": '{"theme": "dark"}', "notes.txt": "mine"},
    "another library's model": {
        "config.json": '{"model_type": "bert", "architectures": ["BertModel"]}',
        "model.safetensors": "x",
        "vocab.json": "{}",
    },
    "a config that is no JSON": {"config.json": "theme = dark"},
}


@pytest.mark.parametrize("case", sorted(FOREIGN))
def test_a_foreign_folder_is_left_alone(case, fitted, tmp_path):
    place = tmp_path / "work"
    place.mkdir()
    for name, text in FOREIGN[case].items():
        (place / name).write_text(text)
    with pytest.raises(DataError, match="work exists and is not a model folder"):
        fitted["CRF"].save(place)
    assert {path.name: path.read_text() for path in place.iterdir()} == FOREIGN[case]
    assert os.listdir(tmp_path) == ["work"]


def test_a_file_is_left_alone(fitted, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(DataError, match=r"thesis\.txt exists and is not a model folder"):
        fitted["CRF"].save(tmp_path / "thesis.txt")
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_notes_beside_a_model_are_not_lost(folder, fitted):
    (folder / "notes.txt").write_text("mine")
    try:
        fitted["HMM"].save(folder)
    except DataError:
        assert type(bayeseq.load(folder)) is CRF
    assert (folder / "notes.txt").read_text() == "mine"


# ---- whole or not at all ----------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="file size limits are a Unix thing")
@pytest.mark.parametrize("room", [0, 100, 400])
@pytest.mark.parametrize("exists", [True, False])
def test_a_full_disk_leaves_nothing_half_written(room, exists, folder, fitted, tmp_path):
    import resource

    target = folder if exists else tmp_path / "new"
    before = sorted(os.listdir(tmp_path))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            fitted["HMM"].save(target)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sorted(os.listdir(tmp_path)) == before
    assert_same(bayeseq.load(folder).predict_proba(NEW), fitted["CRF"].predict_proba(NEW))


@pytest.mark.parametrize("error", [OSError("broken"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", ["fsync", "rename"])
@pytest.mark.parametrize("call", [1, 2])
def test_a_failure_at_any_step_leaves_the_old_model(
    error, step, call, folder, fitted, tmp_path, monkeypatch
):
    """Writing out a file, moving the old folder away, moving the new one in."""
    right, calls = getattr(os, step), []

    def broken(*args, **kwargs):
        calls.append(args)
        if len(calls) == call:
            raise error
        return right(*args, **kwargs)

    monkeypatch.setattr(os, step, broken)
    with pytest.raises(type(error)):
        fitted["HMM"].save(folder)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["model"]
    assert_same(bayeseq.load(folder).predict_proba(NEW), fitted["CRF"].predict_proba(NEW))


def test_what_cannot_be_saved_leaves_the_old_model(folder, fitted, tmp_path):
    unsaveable = make("HMM").fit(X, Y)
    unsaveable.metadata_ = {"when": object()}
    with pytest.raises(DataError, match="metadata_"):
        unsaveable.save(folder)
    unsaveable.metadata_ = {}
    unsaveable.set_params(smoothing=object())
    with pytest.raises(DataError, match="smoothing"):
        unsaveable.save(folder)
    assert os.listdir(tmp_path) == ["model"]
    assert_same(bayeseq.load(folder).predict_proba(NEW), fitted["CRF"].predict_proba(NEW))


# ---- params and metadata ----------------------------------------------------------------------


def test_numpy_scalars_become_plain_ones(tmp_path):
    new = CRF(
        l2=np.float32(0.5),
        min_count=np.int64(1),
        decode=np.str_("marginal"),
        transitions=np.bool_(True),
        progress=False,
    ).fit(X, Y)
    new.save(tmp_path / "model")
    loaded = bayeseq.load(tmp_path / "model")
    assert loaded.get_params() == new.get_params()
    plain = {type(value) for value in loaded.get_params().values()}
    assert plain <= {int, float, str, bool, type(None)}
    assert_same(loaded.predict_proba(NEW), new.predict_proba(NEW))


def test_params_come_back_as_they_were():
    params = {
        "none": None,
        "truth": True,
        "number": -3,
        "real": 0.1,
        "infinite": float("inf"),
        "text": "naïve\n",
        "tuple": (-1, 1),
        "nested": ((1, (2.5, "x")), [(), [None]]),
        "list": [1, [2]],
        "empty": (),
    }
    through = params_from_json(json.loads(json.dumps(params_to_json(params))))
    assert through == params
    assert [type(value) for value in through.values()] == [type(v) for v in params.values()]
    numpy = {"a": np.int32(3), "b": (np.float64(0.5), np.bool_(False)), "c": np.str_("x")}
    assert params_to_json(numpy) == {"a": 3, "b": {"tuple": [0.5, False]}, "c": "x"}


@pytest.mark.parametrize("value", [object(), {"a": 1}, {1}, np.ones(2), b"x", (1, object())])
def test_params_that_cannot_be_kept_are_named(value):
    with pytest.raises(DataError, match="parameter kernel is a"):
        params_to_json({"kernel": value})


def test_metadata_survives(tmp_path):
    new = make("HMM").fit(X, Y)
    new.metadata_ = {"corpus": "naïve 日本", "sizes": [1, 2.5, None], "more": {"deep": True}}
    new.save(tmp_path / "model")
    assert bayeseq.load(tmp_path / "model").metadata_ == new.metadata_
    new.fit(X, Y)
    assert new.metadata_ == {}


@pytest.mark.parametrize("kind", ["circular", "deep", "number as a key"])
def test_metadata_that_would_not_survive_is_refused(kind, tmp_path):
    new = make("HMM").fit(X, Y)
    if kind == "circular":
        new.metadata_["me"] = new.metadata_
    elif kind == "deep":
        for _ in range(5000):
            new.metadata_ = {"deeper": new.metadata_}
    else:
        new.metadata_ = {1: "one"}
    with pytest.raises(DataError, match="metadata_"):
        new.save(tmp_path / "model")
    assert not os.listdir(tmp_path)


def test_half_a_character_is_kept_or_refused(tmp_path):
    """Text that was decoded with errors="surrogateescape" cannot be written as UTF-8."""
    x = [[["half \udce9"], ["b"]]]
    new = make("HMM").fit(x, [["A", "B"]])
    try:
        new.save(tmp_path / "model")
    except DataError:
        assert not os.listdir(tmp_path)
    else:
        assert_same(bayeseq.load(tmp_path / "model").predict_proba(x), new.predict_proba(x))


# ---- broken folders ---------------------------------------------------------------------------


def test_no_folder(tmp_path):
    with pytest.raises(DataError, match=r"nowhere is not a folder"):
        bayeseq.load(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="file is not a folder"):
        bayeseq.load(tmp_path / "file")
    with pytest.raises(DataError, match=r"config\.json"):
        bayeseq.load(tmp_path)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("harm", ["missing", "empty", "truncated", "changed", "a folder"])
def test_a_damaged_file_is_named(file, harm, folder):
    path = folder / file
    content = bytearray(path.read_bytes())
    path.unlink()
    if harm == "a folder":
        path.mkdir()
    elif harm == "changed":
        content[len(content) // 2] ^= 0xFF
        path.write_bytes(content)
    elif harm != "missing":
        path.write_bytes(b"" if harm == "empty" else content[:-7])
    with pytest.raises(DataError, match=file.replace(".", r"\.")):
        bayeseq.load(folder)


def test_files_of_another_model_are_noticed(saved, folder):
    shutil.copy(saved / "HMM" / "model.safetensors", folder / "model.safetensors")
    with pytest.raises(DataError, match=r"model\.safetensors is not the file that was saved"):
        bayeseq.load(folder)


# ---- hostile folders --------------------------------------------------------------------------

MISSING = object()


CONFIGS = {
    **{f"{key} missing": {key: MISSING} for key in ("format", "class", "params", "classes")},
    **{f"{key} missing": {key: MISSING} for key in ("result", "metadata", "sha256")},
    "newer format": {"format": 2},
    "format is text": {"format": "1"},
    "format is a list": {"format": [1]},
    "unknown class": {"class": "LSTM"},
    "another class": {"class": "HMM"},
    "class is code": {"class": "__import__('os').abort()"},
    "class is no text": {"class": ["CRF"]},
    "class of the library, not a labeler": {"class": "Corpus"},
    "params are a list": {"params": []},
    "params are missing": {"params": None},
    "unknown param": {"params": {"no_such": 1}},
    "param with a private name": {"params": {"__class__": "x"}},
    "param is an object": {"params": {"l2": {"call": "os.abort"}}},
    "param tuple of nothing": {"params": {"l2": {"tuple": 3}}},
    "classes are text": {"classes": "BIO"},
    "classes are numbers": {"classes": [1, 2, 3]},
    "a class is None": {"classes": ["B", None, "O"]},
    "no classes": {"classes": []},
    "a class fewer": {"classes": ["B", "I"]},
    "classes twice the same": {"classes": ["B", "B", "O"]},
    "classes in another order": {"classes": ["O", "I", "B"]},
    "hashes are a list": {"sha256": []},
    "a hash is missing": {"sha256": {"vocab.json": "0"}},
    "a hash is a number": {"sha256": {"vocab.json": 0, "model.safetensors": 0}},
    "result is a list": {"result": []},
    "result without objective": {"result": lambda r: {k: r[k] for k in r if k != "objective"}},
    "result has more": {"result": lambda r: {**r, "extra": 1}},
    "objective is a number": {"result": lambda r: {**r, "objective": 1}},
    "objective is text": {"result": lambda r: {**r, "objective": "123"}},
    "hyperparameters are a list": {"result": lambda r: {**r, "hyperparameters": []}},
    "objective holds text": {"result": lambda r: {**r, "objective": ["1", None]}},
    "metadata is a list": {"metadata": []},
}


@pytest.mark.parametrize("case", sorted(CONFIGS))
def test_a_config_that_makes_no_sense(case, folder):
    config = read(folder / "config.json")
    for key, value in CONFIGS[case].items():
        if value is MISSING:
            del config[key]
        else:
            config[key] = value(config[key]) if callable(value) else value
    rewrite(folder, config=config)
    with pytest.raises(DataError):
        bayeseq.load(folder)


def test_params_nested_deeply(folder):
    config = read(folder / "config.json")
    config["params"]["l2"] = "HERE"
    deep = '{"tuple": [' * 3000 + "0" + "]}" * 3000
    (folder / "config.json").write_text(json.dumps(config).replace('"HERE"', deep))
    with pytest.raises(DataError):
        bayeseq.load(folder)


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "[]",
        "3",
        '"text"',
        "{",
        "[" * 100_000,
        '{"format": ' * 100_000,
        '{"format": ' + "9" * 10_000 + "}",
        "\ufeff\x00",
    ],
    ids=["null", "list", "number", "text", "open", "deep list", "deep dict", "digits", "noise"],
)
@pytest.mark.parametrize("file", ["config.json", "vocab.json"])
def test_json_that_is_no_model(file, text, folder):
    if file == "config.json":
        (folder / file).write_text(text, encoding="utf-8")
    else:
        rewrite(folder, vocab=text.encode())
    with pytest.raises(DataError):
        bayeseq.load(folder)


VOCABULARIES = {
    "no features": {"features": []},
    "a feature fewer": {"features": lambda names: names[:-1]},
    "a feature more": {"features": lambda names: [*names, "more"]},
    "a feature twice": {"features": lambda names: [*names[:-1], names[0]]},
    "features are text": {"features": "abc"},
    "features are a dict": {"features": {"a": 0}},
    "a feature is a number": {"features": lambda names: [*names[:-1], 7]},
    "count is less": {"n_features": 3},
    "count is more": {"n_features": 10**6},
    "count is far more": {"n_features": 10**15},
    "count is negative": {"n_features": -1},
    "count is text": {"n_features": "15"},
    "count is a fraction": {"n_features": 15.0},
    "count is missing": {"n_features": MISSING},
    "features are missing": {"features": MISSING},
    "names gone and count less": {"features": None, "n_features": 3},
}


@pytest.mark.parametrize("case", sorted(VOCABULARIES))
@pytest.mark.parametrize("name", sorted(LABELERS))
def test_a_vocabulary_that_makes_no_sense(name, case, saved, tmp_path):
    folder = shutil.copytree(saved / name, tmp_path / "model")
    vocab = read(folder / "vocab.json")
    for key, value in VOCABULARIES[case].items():
        if value is MISSING:
            del vocab[key]
        else:
            vocab[key] = value(vocab[key]) if callable(value) else value
    rewrite(folder, vocab=vocab)
    with pytest.raises(DataError):
        bayeseq.load(folder)


def test_a_pickle_is_not_unpickled(folder, tmp_path):
    class Trap:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "sprung"),))

    for content in (pickle.dumps(Trap()), b"PK\x03\x04" + pickle.dumps(Trap()), b"\x93NUMPY"):
        rewrite(folder, tensors=content)
        with pytest.raises(DataError):
            bayeseq.load(folder)
    assert not (tmp_path / "sprung").exists()


def with_header(header, data=b""):
    """A safetensors file: the length of the header, the header, the data."""
    return len(header).to_bytes(8, "little") + header + data


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 100,
        (2**60).to_bytes(8, "little") + b"{}",
        with_header(b"{}"),
        with_header(b'{"weights":{"dtype":"F64","shape":[9],"data_offsets":[0,8]}}', b"\0" * 8),
        with_header(b'{"weights":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}', b"\0" * 2),
    ],
    ids=["nothing", "noise", "giant header", "no tensors", "short data", "another dtype"],
)
@pytest.mark.parametrize("name", sorted(LABELERS))
def test_tensors_that_are_no_tensors(name, content, saved, tmp_path):
    folder = shutil.copytree(saved / name, tmp_path / "model")
    rewrite(folder, tensors=content)
    with pytest.raises(DataError):
        bayeseq.load(folder)


def broken_tensors(tensors):
    """Each tensor missing, of another shape or dtype, or not finite."""
    for key, value in tensors.items():
        yield f"{key} missing", {k: v for k, v in tensors.items() if k != key}
        yield f"{key} cut", {**tensors, key: value[:-1].copy()}
        yield f"{key} with an axis more", {**tensors, key: value[None].copy()}
        yield f"{key} a scalar", {**tensors, key: np.array(value.flat[0])}
        if value.dtype.kind == "f":
            bad = value.copy()
            bad.flat[0] = np.nan
            yield f"{key} not a number", {**tensors, key: bad}
            bad = value.copy()
            bad.flat[-1] = -np.inf
            yield f"{key} infinite", {**tensors, key: bad}
        else:
            yield f"{key} real", {**tensors, key: value.astype(np.float64)}
            if value.dtype != np.uint8:
                yield f"{key} narrow", {**tensors, key: value.astype(np.uint8)}
            for wrong in (-1, 10**6, 2**62):
                bad = value.copy()
                bad[0] = np.array(wrong).astype(value.dtype)
                yield f"{key} at {wrong}", {**tensors, key: bad}
            yield f"{key} twice", {**tensors, key: np.full_like(value, value[0])}


@pytest.mark.parametrize("name", sorted(LABELERS))
def test_learned_numbers_that_do_not_fit(name, saved, tmp_path):
    folder = shutil.copytree(saved / name, tmp_path / "model")
    good = load_file(folder / "model.safetensors")
    filled = {key: value for key, value in good.items() if value.size}
    accepted = []
    for case, tensors in broken_tensors(filled):
        rewrite(folder, tensors=save({**good, **tensors} if "missing" not in case else tensors))
        try:
            bayeseq.load(folder)
        except DataError:
            continue
        accepted.append(case)
    assert accepted == []


def test_a_model_that_loads_again_after_all_this(folder, fitted):
    rewrite(folder)
    assert_same(bayeseq.load(folder).predict_proba(NEW), fitted["CRF"].predict_proba(NEW))
