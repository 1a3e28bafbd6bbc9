"""Calibration maps: what is held out, what the maps are, and that they are saved safely."""

import json
import shutil

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.isotonic import IsotonicRegression

import bayeseq
from bayeseq import CRF, HMM, HMSVM, Calibrated, DataError, HMPerceptron, evaluate
from bayeseq.labelers.calibrated import apply_isotonic, fit_isotonic, fit_temperature
from tests.labelers.conformance import assert_same, easy_task

QUIET = {"progress": False}
DATA, TEST = easy_task(0, 40), easy_task(1, 60)


def softmax(rows):
    e = np.exp(rows - rows.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def held_out_scores(labeler, X, y, folds):
    """Scores of each fold by a labeler that is fitted to the other folds, and the true columns."""
    rows, true = [], []
    for fold in range(folds):
        inner = [i for i in range(len(X)) if i % folds != fold]
        fitted = clone(labeler).fit([X[i] for i in inner], [y[i] for i in inner])
        for i in range(fold, len(X), folds):
            if fitted.has_probabilities:
                rows.append(np.log(fitted.predict_proba([X[i]])[0]))
            else:
                rows.append(fitted.decision_scores([X[i]])[0])
            true += [fitted.classes_.tolist().index(label) for label in y[i]]
    return np.concatenate(rows), np.array(true)


@pytest.mark.parametrize("labeler", [HMSVM(tol=1e-8, **QUIET), CRF(l2=0.01, tol=1e-12, **QUIET)])
def test_the_temperature_is_that_of_held_out_scores(labeler):
    X, y = DATA
    model = Calibrated(labeler, cv=4).fit(X, y)
    scores, true = held_out_scores(labeler, X, y, 4)

    def loss(log_t):
        p = softmax(scores / np.exp(log_t[0]))
        return -np.log(p[np.arange(len(true)), true]).mean()

    best = minimize(loss, [0.0], method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-12})
    assert model.temperature_ == pytest.approx(np.exp(best.x[0]), rel=1e-3)
    whole = clone(labeler).fit(X, y)
    assert model.predict(TEST[0]) == whole.predict(TEST[0])
    ask = whole.predict_proba if whole.has_probabilities else whole.decision_scores
    raw = ask(TEST[0][:5])
    raw = [np.log(p) for p in raw] if whole.has_probabilities else raw
    expected = [softmax(s / model.temperature_) for s in raw]
    assert_same(model.predict_proba(TEST[0][:5]), expected, 1e-6)


def test_isotonic_steps_are_those_of_held_out_scores():
    X, y = DATA
    labeler = HMPerceptron(**QUIET)
    model = Calibrated(labeler, method="isotonic", cv=2).fit(X, y)
    scores, true = held_out_scores(labeler, X, y, 2)
    p, n = softmax(scores), len(scores)
    raw = softmax(np.concatenate(clone(labeler).fit(X, y).decision_scores(TEST[0])))
    columns = []
    for c in range(3):
        fitted = IsotonicRegression(y_min=1 / (n + 2), y_max=1 - 1 / (n + 2), out_of_bounds="clip")
        columns.append(fitted.fit(p[:, c], true == c).predict(raw[:, c]))
    expected = np.stack(columns, 1)
    expected /= expected.sum(1, keepdims=True)
    np.testing.assert_allclose(np.concatenate(model.predict_proba(TEST[0])), expected, atol=1e-9)


@pytest.mark.parametrize("method", ["temperature", "isotonic"])
def test_calibrated_probabilities_are_better(method):
    """An HMM with features that repeat each other is far too sure."""
    X, y = easy_task(0, 120)
    repeat = [[token * 4 for token in x] for x in X]
    test = [[token * 4 for token in x] for x in TEST[0]]
    before = HMM().fit(repeat, y)
    after = Calibrated(HMM(), method=method).fit(repeat, y)
    losses = [
        evaluate(
            TEST[1], m.predict(test), m.predict_proba(test), m.classes_.tolist()
        ).probabilities.log_loss
        for m in (before, after)
    ]
    assert losses[1] < 0.8 * losses[0]


def test_temperature_finds_the_scale_that_scores_were_multiplied_by():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(20000, 4)) * 2
    true = (softmax(scores).cumsum(1) > rng.random((20000, 1))).argmax(1)
    allowed = np.eye(4, dtype=bool)[true]
    found = fit_temperature(scores * 5, allowed, np.ones(20000))
    assert found == pytest.approx(5, rel=0.03)  # the standard error is about 1 %


def test_tokens_that_no_label_explains_are_left_out():
    scores = np.array([[0.0, -1.0], [-np.inf, 0.0], [0.0, -2.0], [-1.0, 0.0]])
    allowed = np.array([[True, False], [True, False], [False, True], [False, True]])
    weights = np.array([1.0, 5.0, 1.0, 1.0])
    keep = [0, 2, 3]
    assert fit_temperature(scores, allowed, weights) == fit_temperature(
        scores[keep], allowed[keep], weights[keep]
    )
    p = apply_isotonic(scores, fit_isotonic(scores, allowed, weights))
    assert p[1].tolist() == [0.0, 1.0]
    np.testing.assert_allclose(p.sum(1), 1)


def test_a_fitted_labeler_is_calibrated_as_it_is(tmp_path):
    fitted = HMSVM(tol=1e-6, **QUIET).fit(*DATA)
    model = Calibrated(fitted, cv=None).fit(*TEST)
    assert model.labeler_ is fitted
    scores = np.concatenate(fitted.decision_scores(TEST[0]))
    true = [fitted.classes_.tolist().index(label) for row in TEST[1] for label in row]
    allowed = np.eye(3, dtype=bool)[true]
    expected = fit_temperature(scores, allowed, np.ones(len(true)))
    assert model.temperature_ == pytest.approx(expected, rel=1e-5)
    model.save(tmp_path / "model")
    loaded = bayeseq.load(tmp_path / "model")
    assert_same(loaded.predict_proba(TEST[0]), model.predict_proba(TEST[0]))
    assert_same(loaded.fit(*TEST).predict_proba(TEST[0]), model.predict_proba(TEST[0]))
    with pytest.raises(NotFittedError):
        Calibrated(HMSVM(), cv=None).fit(*TEST)


def test_nothing_to_hold_out():
    X, y = [[["a"], ["b"]]], [["A", "B"]]
    kept = Calibrated(HMM()).fit(X, y)
    assert kept.temperature_ == 1.0
    assert_same(kept.predict_proba(X), HMM().fit(X, y).predict_proba(X), 1e-12)
    with pytest.raises(DataError, match="at least two labelled sequences"):
        Calibrated(HMSVM(**QUIET)).fit(X, y)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Calibrated(), "give the labeler"),
        (Calibrated("crf"), "give the labeler"),
        (Calibrated(HMM(), method="platt"), "method is 'platt'"),
        (Calibrated(HMM(), cv=1), "cv is 1"),
    ],
)
def test_settings_that_make_no_sense(model, message):
    with pytest.raises(ValueError, match=message):
        model.fit(*DATA)


# ---- a model inside a model's folder ----------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "model"
    inner = Calibrated(HMSVM(kernel="rbf(scale=0.5)", **QUIET), method="isotonic", cv=2)
    Calibrated(inner, cv=2).fit(*easy_task(0, 12)).save(path)
    return path


def test_models_lie_in_models(folder):
    files = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
    assert len(files) == 9
    assert "labeler/labeler/model.safetensors" in files
    loaded = bayeseq.load(folder)
    assert isinstance(loaded.labeler_.labeler_, HMSVM)
    assert bayeseq.load(folder / "labeler" / "labeler").predict(TEST[0]) == loaded.predict(TEST[0])


def test_a_changed_inner_model_is_refused(folder, tmp_path):
    for name in ("config.json", "vocab.json", "model.safetensors"):
        copy = tmp_path / name
        shutil.copytree(folder, copy)
        path = copy / "labeler" / name
        path.write_bytes(path.read_bytes() + b" ")
        with pytest.raises(DataError, match="not the file that was saved"):
            bayeseq.load(copy)
    copy = tmp_path / "gone"
    shutil.copytree(folder, copy)
    shutil.rmtree(copy / "labeler")
    with pytest.raises(DataError, match="cannot be read"):
        bayeseq.load(copy)


def rewritten(folder, copy, change):
    shutil.copytree(folder, copy)
    config = json.loads((copy / "config.json").read_text())
    change(config)
    (copy / "config.json").write_text(json.dumps(config))
    return copy


@pytest.mark.parametrize(
    "change",
    [
        lambda config: config["parts"].update({"../labeler": "0"}),
        lambda config: config.update(parts=["labeler"]),
        lambda config: config.update(parts={}),
        lambda config: config["params"].update(labeler={"labeler": "os", "params": {}}),
        lambda config: config["params"].update(labeler={"labeler": "HMM", "params": {"x": 1}}),
        lambda config: config.update({"class": "HMM", "params": {}}),
    ],
)
def test_a_config_that_does_not_fit_its_parts_is_refused(folder, tmp_path, change):
    with pytest.raises(DataError):
        bayeseq.load(rewritten(folder, tmp_path / "copy", change))


def test_a_link_that_leads_back_is_not_followed_for_ever(folder, tmp_path):
    copy = tmp_path / "loop"
    shutil.copytree(folder, copy)
    shutil.rmtree(copy / "labeler")
    (copy / "labeler").symlink_to(copy)
    # no file can hold its own hash, so the first look inside refuses it
    with pytest.raises(DataError):
        bayeseq.load(copy)


def test_a_folder_with_other_files_inside_is_not_overwritten(folder, tmp_path):
    copy = tmp_path / "model"
    shutil.copytree(folder, copy)
    bayeseq.load(folder).save(copy)
    (copy / "labeler" / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match="not a model folder alone"):
        bayeseq.load(folder).save(copy)
