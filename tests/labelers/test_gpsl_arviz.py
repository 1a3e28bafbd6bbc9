"""GPSL's draws in arviz: against answers computed by hand, and through arviz's own functions."""

import json
import os
import subprocess
import types
import warnings
from pathlib import Path

import numpy as np
import pytest
import xarray

from bayeseq import GPSC, GPSL, DataError, GPStruct
from bayeseq.diagnostics import arviz as converter
from bayeseq.diagnostics.arviz import inference_data
from tests.labelers.conformance import easy_task

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)
    import arviz as az

GROUPS = [
    "posterior",
    "posterior_predictive",
    "log_likelihood",
    "sample_stats",
    "observed_data",
    "constant_data",
]


@pytest.fixture(scope="module")
def data():
    X, y = easy_task(1, 25)
    y[0][0] = None
    y[1] = [None] * len(y[1])
    y[2][0] = {"A", "B"}
    return X, y


@pytest.fixture(scope="module")
def model():
    return GPSL(progress=False).fit(*easy_task(0, 30))


@pytest.fixture(scope="module")
def found(model, data):
    return model.to_arviz(*data, draws=50, random_state=0, weights=3)


def test_groups_and_axes(found, data, model):
    X, _ = data
    assert [group for group in GROUPS if group in found.groups()] == GROUPS
    posterior = found["posterior"]
    assert posterior["dependency"].dims == (
        "chain",
        "draw",
        "offset",
        "neighbour_label",
        "own_label",
    )
    assert posterior["dependency"].shape == (1, 50, 1, 3, 3)
    assert posterior["weight"].shape == (1, 50, 3, 3)
    assert set(posterior["feature"].values) <= set(model.feature_space_.names)
    assert posterior["own_label"].values.tolist() == ["A", "B", "C"]
    assert posterior["offset"].values.tolist() == [-1]
    likelihood = found["log_likelihood"]
    assert 1 not in likelihood["sentence"].values  # nothing is known of it
    assert likelihood["labels"].shape == (1, 50, len(X) - 1)
    assert all(np.isfinite(likelihood[name]).all() for name in ("labels", "token_labels"))
    assert found["constant_data"]["bound"].values.tolist() == list(model.result_.objective)
    groups = found["constant_data"]["feature_group"].values.tolist()
    assert groups == list(model.result_.hyperparameters["variance"])


def test_tokens_are_those_with_a_label(found, data):
    X, y = data
    constant, observed = found["constant_data"], found["observed_data"]["token_labels"]
    expected = [
        (i, t, label)
        for i, row in enumerate(y)
        for t, label in enumerate(row)
        if isinstance(label, str)
    ]
    places = zip(
        constant["token_sentence"].values.tolist(),
        constant["token_position"].values.tolist(),
        ["ABC"[k] for k in observed.values],
        strict=True,
    )
    assert list(places) == expected
    assert constant["sentence_length"].sel(sentence=0) == len(X[0])


def test_token_likelihoods_are_the_probabilities_of_the_draws(found, data, model):
    X, _ = data
    proba = model.posterior_predict(X, 50, random_state=0)
    constant, observed = found["constant_data"], found["observed_data"]["token_labels"].values
    for k, (i, t) in enumerate(
        zip(constant["token_sentence"].values, constant["token_position"].values, strict=True)
    ):
        np.testing.assert_allclose(
            np.exp(found["log_likelihood"]["token_labels"].values[0, :, k]),
            proba[i][:, t, observed[k]],
            rtol=1e-9,
        )


@pytest.mark.parametrize("offsets", [(), (-1,), (1,), (-1, 1), (-2, -1), (1, 2), (-2, -1, 1, 2)])
def test_sentence_likelihoods_are_sums_over_labellings(offsets):
    """Against conditionals (one side) or scores (both sides) written out for every labelling."""
    X, y = (
        [[["a"], ["b"], ["a", "b"]]] * 4,
        [["A", "B", "B"], ["A", None, "A"], ["B"] * 3, ["A"] * 3],
    )
    model = GPSL(dependencies=offsets, learn=False, progress=False, covariance="diagonal").fit(X, y)
    found = model.to_arviz(X, y, draws=4, random_state=3, weights=True)
    posterior = found["posterior"]
    w = posterior["weight"].values[0]
    assert posterior["feature"].values.tolist() == ["a", "b"]
    f = np.stack([w[:, 0], w[:, 1], w[:, 0] + w[:, 1]], 1)
    f = f * model.scales_.local  # (S, T, C)
    g = posterior["dependency"].values[0] * model.scales_.dependency if offsets else None
    directed = len({o > 0 for o in offsets}) == 1
    labellings = [(a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1)]
    for s in range(4):
        logs = {}
        for labels in labellings:
            total = 0.0
            for t in range(3):
                row = f[s, t].copy()
                for r, o in enumerate(offsets):
                    if 0 <= t + o < 3:
                        # g of both sides is the mean of the two, and counted from each side
                        one_sided = directed or -o not in offsets
                        row += g[s, r, labels[t + o]] * (1.0 if one_sided else 0.5)
                total += row[labels[t]]
                if directed:
                    total -= np.logaddexp(*row)
            logs[labels] = total
        joint = np.array([logs[labels] for labels in labellings])
        p = np.exp(joint - np.logaddexp.reduce(joint))
        for i, row in enumerate(y):
            agree = [
                all(label is None or "AB"[k] == label for k, label in zip(ls, row, strict=True))
                for ls in labellings
            ]
            np.testing.assert_allclose(
                found["log_likelihood"]["labels"].values[0, s, i], np.log(p[agree].sum()), atol=1e-9
            )


def test_far_offsets_give_the_pseudo_likelihood():
    X, y = easy_task(2, 8)
    model = GPSL(dependencies=(-3,), prediction="gibbs", progress=False, learn=False).fit(X, y)
    found = model.to_arviz(X, y, draws=5, random_state=0, weights=True)
    assert "pseudo-log-likelihood" in found["posterior"].attrs["likelihood"]
    w = found["posterior"]["weight"].values[0]
    g = found["posterior"]["dependency"].values[0, :, 0]
    column = {name: k for k, name in enumerate(found["posterior"]["feature"].values.tolist())}
    for i, (x, labels) in enumerate(zip(X, y, strict=True)):
        for s in range(5):
            total = 0.0
            for t, token in enumerate(x):
                scores = sum(w[s, column[name]] for name in token)
                if t >= 3:
                    scores = scores + g[s, "ABC".index(labels[t - 3])]
                total += scores["ABC".index(labels[t])] - np.logaddexp.reduce(scores)
            assert found["log_likelihood"]["labels"].values[0, s, i] == pytest.approx(total)


def test_without_dependencies_there_are_weights_to_show():
    X, y = easy_task(0, 10)
    found = GPSL(dependencies=(), progress=False).fit(X, y).to_arviz(X, y, draws=5)
    assert list(found["posterior"]) == ["weight"]
    assert len(found["posterior"]["feature"]) == 10


def test_kernels_show_basis_functions():
    X, y = easy_task(0, 6)
    model = GPSL(kernel="rbf", inducing=4, learn=False, progress=False).fit(X, y)
    found = model.to_arviz(X, y, draws=3, weights=2)
    assert all(name.startswith("basis ") for name in found["posterior"]["feature"].values)


def test_the_same_seed_gives_the_same_draws(model, data, found):
    again = model.to_arviz(*data, draws=50, random_state=0, weights=3)
    for group in ("posterior", "posterior_predictive", "log_likelihood"):
        assert found[group].identical(again[group])
    other = model.to_arviz(*data, draws=50, random_state=1)
    assert not np.allclose(other["posterior"]["dependency"], found["posterior"]["dependency"])


def test_predicted_labels_follow_the_probabilities(model, data):
    X, y = data
    found = model.to_arviz(X, y, draws=400, random_state=0)
    drawn = found["posterior_predictive"]["token_labels"].values[0]
    proba = model.posterior_predict(X, 400, random_state=0)
    expected = np.concatenate([p.mean(0) for p in proba])[found["observed_data"]["token"].values]
    share = np.stack([(drawn == c).mean(0) for c in range(3)], -1)
    assert np.abs(share - expected).max() < 5 * np.sqrt(0.25 / 400)  # five standard errors


def test_nothing_known_is_an_error(model, data):
    X, _ = data
    with pytest.raises(DataError, match="no token of y has a label"):
        model.to_arviz(X, [[None] * len(x) for x in X], draws=3)
    with pytest.raises(ValueError, match="draws is 0"):
        model.to_arviz(*data, draws=0)
    with pytest.raises(ValueError, match="weights is -1"):
        model.to_arviz(*data, draws=2, weights=-1)


# ---- arviz's own functions --------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore:The inplace keyword")  # arviz with a newer pandas
def test_summary_loo_and_compare(model, data, found):
    table = az.summary(found, kind="stats")
    assert "dependency[-1, A, B]" in table.index
    by_sentence = az.loo(found, var_name="labels")
    assert by_sentence.n_data_points == len(data[0]) - 1
    assert az.loo(found, var_name="token_labels").n_data_points > len(data[0])
    plain = GPSL(dependencies=(), progress=False).fit(*easy_task(0, 30))
    other = plain.to_arviz(*data, draws=50, random_state=0)
    ranked = az.compare({"chain": found, "plain": other}, var_name="labels", ic="loo")
    assert set(ranked.index) == {"chain", "plain"}
    assert np.isfinite(ranked["elpd_loo"]).all()
    assert az.extract(found).sizes["sample"] == 50
    assert found.sel(draw=slice(0, 10))["posterior"].sizes["draw"] == 11


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # arviz 0.23 with a newer matplotlib
@pytest.mark.parametrize(
    ("labeler", "chains"),
    [
        (GPSC(inference="laplace", learn=False, progress=False), 1),
        (GPSC(learn=False, calibrate=False, progress=False), 1),
        (GPStruct(chains=6, draws=5, warmup=20, thin=3, learn=False, progress=False), 6),
    ],
    ids=["laplace", "vg", "mcmc"],
)
def test_other_posteriors_in_arviz(labeler, chains, data):
    """Groups, names and arviz's functions, with a Gaussian's one chain and a sampler's several."""
    X, y = data
    labeler.fit(*easy_task(0, 15))
    found = labeler.to_arviz(X, y, draws=30, weights=2, random_state=0)
    assert [group for group in GROUPS if group in found.groups()] == GROUPS
    assert dict(found["posterior"].sizes)["chain"] == chains
    assert found["posterior"]["dependency"].shape == (chains, 30 // chains, 1, 3, 3)
    assert found["posterior"]["own_label"].values.tolist() == ["A", "B", "C"]
    assert set(found["posterior"]["feature"].values) <= set(labeler.feature_space_.names)
    assert found["log_likelihood"]["labels"].sizes["sentence"] == len(X) - 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MPLBACKEND", "Agg")
        import matplotlib.pyplot as plt

        az.plot_trace(found, var_names=["dependency"], compact=True)
        az.plot_ppc(found, num_pp_samples=5)
        az.plot_forest(found, var_names=["weight"])
        plt.close("all")
    table = az.summary(found, kind="all" if chains > 1 else "stats")
    assert "dependency[-1, A, B]" in table.index
    assert az.loo(found, var_name="labels").n_data_points == len(X) - 1
    with pytest.raises(TypeError, match="var_name cannot be None"):
        az.loo(found)  # never tokens by accident: those of a sentence depend on each other
    assert az.summary(found, group="sample_stats", kind="stats").shape[0] == 1


# ---- both versions ----------------------------------------------------------------------------

SMALL = {
    "posterior": {"w": (("chain", "draw", "label"), np.zeros((1, 4, 2)))},
    "constant_data": {"bound": (("sweep",), np.arange(3.0))},
}


def test_from_version_one_on_it_is_a_tree(model, data, found, monkeypatch):
    tree = inference_data(SMALL, {"label": ["A", "B"]}, {"note": "x"}, fake("1.3.0"))
    assert isinstance(tree, xarray.DataTree)
    assert tree["posterior"]["w"].dims == ("chain", "draw", "label")
    assert tree["posterior"]["label"].values.tolist() == ["A", "B"]
    assert tree["constant_data"]["bound"].dims == ("sweep",)
    assert tree["posterior"].attrs == {"note": "x"}
    monkeypatch.setattr("bayeseq.diagnostics.arviz._installed", lambda: fake("1.0"))
    tree = model.to_arviz(*data, draws=50, random_state=0, weights=3)
    assert isinstance(tree, xarray.DataTree)
    for group in GROUPS:
        assert tree[group].to_dataset().identical(found[group])


def fake(version):
    return types.SimpleNamespace(__version__=version, InferenceData=az.InferenceData)


def test_before_version_one_it_is_inference_data():
    made = inference_data(SMALL, {}, None, fake("0.23.4"))
    assert isinstance(made, az.InferenceData)
    assert made.groups() == ["posterior", "constant_data"]
    assert made["posterior"]["label"].values.tolist() == [0, 1]


def test_arrays_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match="w has shape"):
        inference_data({"posterior": {"w": (("chain",), np.zeros((1, 2)))}}, {})
    with pytest.raises(ValueError, match="coords name 3 places along label, there are 2"):
        inference_data(SMALL, {"label": ["A", "B", "C"]})
    mixed = {"posterior": {"a": (("chain",), np.zeros(1)), "b": (("chain",), np.zeros(2))}}
    with pytest.raises(ValueError, match="b has 2 places along chain, others have 1"):
        inference_data(mixed, {})


def test_stats_of_the_new_family_take_the_tree(model, data):
    pytest.importorskip("arviz_base", reason="needs arviz-stats[xarray] (arviz 1 is made of it)")
    import arviz_stats as stats

    tree = inference_data(
        {
            group: {
                name: (tuple(v.dims), v.values)
                for name, v in model.to_arviz(*data, draws=100, random_state=0)[group].items()
            }
            for group in ("posterior", "log_likelihood")
        },
        {},
        None,
        fake("1.0.0"),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert stats.loo(tree, var_name="labels").n_data_points == len(data[0]) - 1


def python_with_arviz_one():
    """A Python of its own that has arviz 1, which wants a newer Python than we do."""
    python = os.environ.get("BAYESEQ_ARVIZ1")
    if python is None:
        pytest.skip("set BAYESEQ_ARVIZ1 to a python in whose environment arviz 1 is installed")
    return python


def test_arviz_one_takes_what_is_built(found, data, tmp_path):
    """Its summary, loo, compare, plots and k-hat, in a process of its own."""
    python = python_with_arviz_one()
    arrays, coords = {}, {}
    for group in GROUPS:
        for name, v in found[group].items():
            arrays[f"{group}/{name}"] = v.values
        coords |= {name: v.values for name, v in found[group].coords.items()}
    coords = {name: v.astype(str) if v.dtype == object else v for name, v in coords.items()}
    about = {
        "groups": {g: {n: list(v.dims) for n, v in found[g].items()} for g in GROUPS},
        "coords": list(coords),
    }
    arrays |= {f"coords/{name}": v for name, v in coords.items()}
    np.savez(tmp_path / "arrays.npz", about=json.dumps(about), **arrays)
    script = Path(__file__).with_name("arviz_one.py")
    call = [python, str(script), converter.__file__, str(tmp_path / "arrays.npz")]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    out = subprocess.run(call, capture_output=True, text=True, env=environment, timeout=300)
    assert out.returncode == 0, out.stderr
    said = json.loads(out.stdout.splitlines()[-1])
    assert int(said["version"].split(".")[0]) >= 1
    assert said["rows"][0] == "dependency[-1, A, A]"
    assert (said["sentences"], said["draws"]) == (len(data[0]) - 1, 50)
    assert said["ranked"] == ["one", "two"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        here = az.loo(found, var_name="labels")
    assert said["elpd"] == pytest.approx(float(here.elpd_loo), abs=0.2)
    ratios = np.log(np.random.default_rng(0).exponential(size=1000))
    assert said["k"] == pytest.approx(converter.pareto_k(ratios)[0], abs=0.05)
