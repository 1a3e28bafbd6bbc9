"""GPSL in a folder: every kind comes back to the last bit, and no broken one is accepted."""

import copy
import json
import pickle
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import bayeseq
from bayeseq import GPSL, DataError
from bayeseq.kernels import RBF, Linear
from tests.labelers.conformance import NEW, X, Y, assert_same, easy_task
from tests.labelers.test_persistence import broken_tensors, read, rewrite

KINDS = {
    "linear": {},
    "block": {"covariance": "block", "dependencies": (-1, 1)},
    "diagonal": {"covariance": "diagonal", "groups": None},
    "lowrank": {"covariance": "lowrank", "rank": 3},
    "by label": {"by_label": True, "bound": "jensen"},
    "no dependencies": {"dependencies": ()},
    "rbf": {"kernel": "rbf(scale=0.3)"},
    "rbf as an object": {"kernel": RBF(scale=0.3), "learn": False},
    "inducing": {"kernel": "rbf(scale=0.3) + linear", "inducing": 4, "covariance": "block"},
    "rbf diagonal": {"kernel": "rbf", "covariance": "diagonal"},
    "rbf lowrank": {"kernel": "rbf", "covariance": "lowrank", "rank": 4},
    "gibbs": {"dependencies": (-3, 1), "prediction": "gibbs"},
    "rns": {"dependencies": (-1, 1), "prediction": "rns", "calibrate": False},
}


@pytest.fixture(scope="module")
def fitted():
    """A model of each kind; where a fit stops does not matter here."""
    return {
        kind: GPSL(**{"progress": False, "tol": 1e-2, **KINDS[kind]}).fit(X, Y) for kind in KINDS
    }


@pytest.fixture(params=sorted(KINDS))
def kind(request):
    return request.param


def test_it_comes_back_to_the_last_bit(kind, fitted, tmp_path):
    model = fitted[kind]
    model.save(tmp_path / "model")
    loaded = bayeseq.load(tmp_path / "model")
    assert isinstance(loaded, GPSL)
    assert_same(loaded.predict_proba(X + NEW), model.predict_proba(X + NEW))
    assert_same(
        loaded.posterior_predict(NEW, 5, random_state=1),
        model.posterior_predict(NEW, 5, random_state=1),
    )
    assert loaded.result_ == model.result_
    assert loaded.scales_ == model.scales_
    assert {k: str(v) for k, v in loaded.get_params().items()} == {
        k: str(v) for k, v in model.get_params().items()
    }
    assert loaded.dependencies == model.dependencies
    again = tmp_path / "again"
    loaded.save(again)
    assert (again / "model.safetensors").read_bytes() == (
        tmp_path / "model" / "model.safetensors"
    ).read_bytes()


def test_copies_answer_the_same_and_clones_know_nothing(kind, fitted):
    model = fitted[kind]
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert_same(twin.predict_proba(NEW), model.predict_proba(NEW))
    assert not hasattr(clone(model), "posterior_")


@pytest.mark.parametrize("kind", ["rbf as an object", "inducing"])
def test_a_clone_learns_the_same(kind, fitted):
    twin = clone(fitted[kind]).fit(X, Y)
    assert_same(twin.predict_proba(NEW), fitted[kind].predict_proba(NEW))


def test_a_kernel_is_saved_as_its_text(fitted, tmp_path):
    fitted["rbf as an object"].save(tmp_path / "model")
    params = read(tmp_path / "model" / "config.json")["params"]
    assert params["kernel"] == {"kernel": str(RBF(scale=0.3))}
    kernel = bayeseq.load(tmp_path / "model").kernel
    assert isinstance(kernel, RBF)
    assert kernel.scale == 0.3


def test_what_was_learned_is_in_the_config(kind, fitted, tmp_path):
    fitted[kind].save(tmp_path / "model")
    result = read(tmp_path / "model" / "config.json")["result"]
    assert result["hyperparameters"] == fitted[kind].result_.hyperparameters
    assert json.loads(json.dumps(result["hyperparameters"])) == result["hyperparameters"]


def test_grid_search_over_kernels_and_dependencies():
    data, labels = easy_task(0, 12)
    grid = {"kernel": [Linear(), "rbf(scale=0.5)"], "dependencies": [(), (-1, 1)]}
    quick = GPSL(progress=False, covariance="diagonal", tol=1e-2)
    search = GridSearchCV(quick, grid, cv=2, n_jobs=1)
    search.fit(data, labels)
    assert len(search.cv_results_["mean_test_score"]) == 4
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    twin = pickle.loads(pickle.dumps(search))
    assert twin.predict(data) == search.predict(data)


def groups_are_one(tensors, good):
    """Whether nothing was changed: all columns belong to one group."""
    return all(np.array_equal(tensors[key], good[key]) for key in tensors)


@pytest.mark.parametrize("kind", ["linear", "block", "diagonal", "lowrank", "inducing"])
def test_learned_numbers_that_do_not_fit(kind, fitted, tmp_path):
    folder = tmp_path / "model"
    fitted[kind].save(folder)
    good = load_file(folder / "model.safetensors")
    filled = {key: value for key, value in good.items() if value.size}
    accepted = []
    for case, tensors in broken_tensors(filled):
        if case.endswith(" twice") and groups_are_one(tensors, good):
            continue
        rewrite(folder, tensors=save({**good, **tensors} if "missing" not in case else tensors))
        try:
            bayeseq.load(folder)
        except DataError:
            continue
        accepted.append(case)
    assert accepted == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("curvature", -1e-9),
        ("curvature", np.nan),
        ("precision", 0.0),
        ("precision", -1.0),
        ("scales", 0.0),
        ("mean", np.inf),
        ("log_variance", np.nan),
        ("design.data", np.nan),
        ("design.indices", 10**6),
        ("design.indices", -1),
        ("design.indptr", 1),
    ],
)
@pytest.mark.parametrize("kind", ["linear", "inducing"])
def test_numbers_that_cannot_be(kind, name, value, fitted, tmp_path):
    folder = tmp_path / "model"
    fitted[kind].save(folder)
    good = load_file(folder / "model.safetensors")
    bad = good[name].copy()
    bad.flat[0] = value
    rewrite(folder, tensors=save({**good, name: bad}))
    with pytest.raises(DataError, match="does not fit together"):
        bayeseq.load(folder)


def test_params_of_another_model_are_noticed(fitted, tmp_path):
    fitted["linear"].save(tmp_path / "model")
    good = read(tmp_path / "model" / "config.json")
    for changes in (
        {"dependencies": {"tuple": [-1, 1]}},
        {"dependencies": {"tuple": [0]}},
        {"dependencies": "text"},
        {"covariance": "none such"},
        {"max_memory": 1e-9},
    ):
        folder = shutil.copytree(tmp_path / "model", tmp_path / "other", dirs_exist_ok=True)
        rewrite(folder, config={**good, "params": {**good["params"], **changes}})
        with pytest.raises(DataError):
            bayeseq.load(folder)


def test_a_kernel_that_is_no_kernel_is_refused(fitted, tmp_path):
    fitted["rbf"].save(tmp_path / "model")
    good = read(tmp_path / "model" / "config.json")
    for text in ("no_such", "__import__('os').abort()", "rbf(", 3):
        params = {**good["params"], "kernel": {"kernel": text}}
        rewrite(tmp_path / "model", config={**good, "params": params})
        with pytest.raises(DataError):
            bayeseq.load(tmp_path / "model")
