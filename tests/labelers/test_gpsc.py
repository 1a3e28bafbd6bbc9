"""GPSC as a labeler: what it equals, what its draws say, what it refuses."""

import itertools
import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

import bayeseq
from bayeseq import CRF, GPSC, DataError
from bayeseq.chain import Chain, forward_backward
from tests.labelers.conformance import NEW, X, Y, assert_same, easy_task

QUIET = {"progress": False}


@pytest.fixture(scope="module")
def data():
    return easy_task(0, 30)


@pytest.fixture(scope="module", params=["laplace", "vg"])
def bayesian(request, data):
    return GPSC(inference=request.param, prediction="average", **QUIET).fit(*data)


@pytest.fixture(scope="module")
def vg(data):
    return GPSC(**QUIET).fit(*data)


def test_map_with_the_linear_kernel_is_a_crf(data):
    """A prior variance of 1 / (2 l2) is CRFsuite's penalty l2."""
    crf = CRF(
        l2=0.25,
        all_possible_states=True,
        all_possible_transitions=True,
        decode="marginal",
        tol=1e-13,
        **QUIET,
    ).fit(*data)
    gpsc = GPSC(
        inference="map", variance=2.0, transition_variance=2.0, tol=1e-13, max_iter=2000, **QUIET
    ).fit(*data)
    assert_same(gpsc.predict_proba(data[0]), crf.predict_proba(data[0]), 1e-5)


def test_kernels_by_different_maps_agree():
    rng = np.random.default_rng(0)
    X = [[[f"w={10 * i + t}", f"end={rng.integers(3)}"] for t in range(4)] for i in range(10)]
    y = [["A" if "end=0" in token else "B" for token in x] for x in X]
    params = {"inference": "map", "tol": 1e-12, "max_iter": 2000, **QUIET}
    written_out = GPSC(kernel="polynomial(degree=2)", **params).fit(X, y)
    # a sum has no explicit map: half and half is the same kernel through Cholesky
    same = "polynomial(degree=2, variance=0.5) + polynomial(degree=2, variance=0.5)"
    dense = GPSC(kernel=same, **params).fit(X, y)
    assert type(written_out.feature_map_) is not type(dense.feature_map_)
    assert_same(written_out.predict_proba(X), dense.predict_proba(X), 1e-4)


def test_missing_labels_are_summed_over(data):
    X, y = data
    rng = np.random.default_rng(0)
    part = [[None if rng.random() < 0.3 else label for label in row] for row in y]
    crf = CRF(
        l2=0.5, all_possible_states=True, all_possible_transitions=True, tol=1e-13, **QUIET
    ).fit(X, part)
    gpsc = GPSC(inference="map", tol=1e-13, max_iter=2000, **QUIET).fit(X, part)
    assert_same(gpsc.predict_proba(X), crf.predict_proba(X), 1e-5)
    for inference in ("laplace", "vg"):
        found = GPSC(inference=inference, **QUIET).fit(X, part)
        assert found.score(X, y) > 0.8


# ---- predictions are averages over draws --------------------------------------------------------


def of_draws(model, x, given=None):
    """Every labelling of a short sequence with its mean probability over the model's draws."""
    batch = model._batch([x], None)
    chain = model._scores(batch)
    f, A = chain.unary.numpy(), chain.transitions.numpy()
    C, T = f.shape[-1], f.shape[-2]
    total = {}
    for s in range(len(f)):
        scores = {}
        for labelling in itertools.product(range(C), repeat=T):
            value = sum(f[s, t, c] for t, c in enumerate(labelling))
            value += sum(A[s, a, b] for a, b in itertools.pairwise(labelling))
            scores[labelling] = value
        log_z = np.logaddexp.reduce(list(scores.values()))
        for labelling, value in scores.items():
            total[labelling] = total.get(labelling, 0.0) + np.exp(value - log_z) / len(f)
    return total


@pytest.fixture(scope="module")
def short(data):
    return next(x for x in data[0] if len(x) == 4)


def test_every_probability_is_the_mean_over_draws(bayesian, short):
    p = of_draws(bayesian, short)
    classes = bayesian.classes_.tolist()
    want = np.zeros((4, 3))
    for labelling, probability in p.items():
        for t, c in enumerate(labelling):
            want[t, c] += probability
    np.testing.assert_allclose(bayesian.predict_proba([short])[0], want, atol=1e-10)
    for labels, probability in bayesian.predict_nbest([short], 5)[0]:
        assert probability == pytest.approx(p[tuple(map(classes.index, labels))], abs=1e-10)
    best = max(p, key=p.get)
    nbest = bayesian.predict_nbest([short], 5)[0]
    assert nbest[0].probability == pytest.approx(p[best], abs=1e-10)
    assert nbest == sorted(nbest, key=lambda found: -found.probability)
    label = [classes[c] for c in best]
    assert bayesian.log_likelihood([short], [label])[0] == pytest.approx(np.log(p[best]))
    entropy = -sum(q * np.log(q) for q in p.values())
    spread = sum(q * np.log(q) ** 2 for q in p.values()) - entropy**2
    error = (spread / bayesian.draws) ** 0.5  # of the mean over one labelling a draw
    assert bayesian.predict_entropy([short])[0] == pytest.approx(entropy, abs=4 * error)


def test_drawn_labellings_follow_the_mixture(bayesian, short):
    """2000 labellings: the standard error of a frequency is at most 0.012."""
    p = of_draws(bayesian, short)
    drawn = bayesian.sample_labels([short], 2000, random_state=0)[0]
    classes = bayesian.classes_.tolist()
    for labelling, probability in sorted(p.items(), key=lambda item: -item[1])[:3]:
        found = np.mean([[classes[c] for c in labelling] == labels for labels in drawn])
        assert found == pytest.approx(probability, abs=0.05)


def test_entities_are_weighed_by_the_mixture():
    y = [[label if label == "O" else f"{label}-X" for label in row] for row in Y]
    model = GPSC(**QUIET).fit(X * 3, y * 3)
    classes, want = model.classes_.tolist(), 0.0
    for labelling, probability in of_draws(model, X[0]).items():
        _, before, label, after = (classes[c] for c in labelling)
        begins = label == "B-X" or (label == "I-X" and before == "O")
        want += probability * (begins and after != "I-X")
    found = model.entity_proba([X[0]], [[(2, 3, "X")]])[0][0]
    assert found == pytest.approx(want, abs=1e-10)


def test_an_answer_does_not_depend_on_what_else_is_asked(bayesian, data):
    alone = [bayesian.predict_proba([x])[0] for x in data[0][:5]]
    assert_same(bayesian.predict_proba(data[0])[:5], alone, 1e-12)


def test_inducing_points_leave_a_variance_that_draws_have(data):
    model = GPSC(kernel="rbf(scale=0.5)", inducing=4, calibrate=False, **QUIET).fit(*data)
    new = [[["never seen"]]]
    draws = model.posterior_predict(new, draws=200, random_state=0)[0]
    assert draws.std(0).max() > 0.02
    alone = [model.predict_proba([x])[0] for x in data[0][:3]]
    assert_same(model.predict_proba(data[0])[:3], alone, 1e-12)


def test_posterior_predict_is_what_predictions_average(vg, data):
    draws = vg.posterior_predict(data[0][:4], draws=400, random_state=1)
    assert [d.shape for d in draws] == [(400, len(x), 3) for x in data[0][:4]]
    for drawn, proba in zip(draws, vg.predict_proba(data[0][:4]), strict=True):
        np.testing.assert_allclose(drawn.sum(-1), 1.0)
        error = drawn.std(0) * (1 / 400 + 1 / vg.draws) ** 0.5
        assert (np.abs(drawn.mean(0) - proba) < 5 * error + 1e-3).all()


def test_means_are_a_chain_of_the_posteriors_mean(data):
    model = GPSC(inference="laplace", **QUIET).fit(*data)
    batch = model._batch(data[0][:3], None)
    W = model.posterior_.mean
    D = batch.features.shape[1]
    f = torch.from_numpy(batch.features @ W[:D].numpy())
    want = forward_backward(Chain(f, W[D:], batch.layout)).unary
    found = model._marginals(batch)
    np.testing.assert_allclose(found, want, atol=1e-12)


# ---- what is learned, kept, refused -------------------------------------------------------------


def test_prior_variances_are_learned_by_group(vg, data):
    found = vg.result_.hyperparameters
    assert set(found["variance"]) == {"word", "hint"}
    assert found["variance"]["hint"] > found["variance"]["word"]  # the hint says more
    assert (np.diff(vg.result_.objective) >= 0).all()
    held = GPSC(learn=False, variance=0.7, **QUIET).fit(*data)
    assert held.result_.hyperparameters["variance"]["word"] == pytest.approx(0.7)
    learned = GPSC(inference="map", learn=True, **QUIET).fit(*data)
    assert learned.result_.hyperparameters["variance"]["word"] != pytest.approx(1.0)


@pytest.mark.parametrize("inference", ["map", "laplace", "vg"])
def test_saved_models_say_the_same(inference, data, tmp_path):
    model = GPSC(inference=inference, **QUIET).fit(*data)
    model.save(tmp_path / "model")
    again = bayeseq.load(tmp_path / "model")
    assert_same(again.predict_proba(NEW), model.predict_proba(NEW), 1e-12)
    assert again.spread_ == model.spread_
    if inference != "map":
        draws = (m.posterior_predict(data[0][:2], 5, random_state=0) for m in (model, again))
        assert_same(*draws, 1e-12)


def test_arviz_has_one_variable_for_the_transitions(vg, data):
    X, y = data[0][:6], data[1][:6]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = vg.to_arviz(X, y, draws=50, random_state=0, weights=3)
    assert found["posterior"]["dependency"].dims == (
        "chain",
        "draw",
        "offset",
        "neighbour_label",
        "own_label",
    )
    assert found["posterior"]["weight"].shape == (1, 50, 3, 3)
    assert found["log_likelihood"]["labels"].shape == (1, 50, 6)
    drawn = found["log_likelihood"]["labels"].values[0]
    mixed = np.logaddexp.reduce(drawn, 0) - np.log(50)
    np.testing.assert_allclose(mixed, vg.log_likelihood(X, y), atol=1.0)


def test_a_point_has_no_draws(data):
    model = GPSC(inference="map", **QUIET).fit(*data)
    for use in (model.posterior_predict, lambda X: model.to_arviz(X, data[1])):
        with pytest.raises(TypeError, match="no posterior"):
            use(data[0])
    with pytest.raises(ValueError, match="nothing to average"):
        GPSC(inference="map", prediction="average", **QUIET).fit(*data)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"inference": "svi"}, "'map', 'laplace', 'vg'"),
        ({"covariance": "block"}, "'full', 'diagonal'"),
        ({"variance": 0.0}, "above 0"),
        ({"draws": 0}, "at least 1"),
        ({"kernel": 3}, "a kernel or its text"),
        ({"prediction": "median"}, "expected one of"),
    ],
)
def test_settings_that_make_no_sense_are_refused(params, words, data):
    with pytest.raises(ValueError, match=words):
        GPSC(**{**params, **QUIET}).fit(*data)


def test_running_out_of_sweeps_is_said(data):
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        GPSC(max_iter=2, tol=1e-12, **QUIET).fit(*data)


def test_a_scheme_forbids_in_training_and_prediction():
    y = [["B-X", "I-X", "O"], ["O", "B-X"]] * 3
    X = [[["a"], ["b"], ["c"]], [["c"], ["a"]]] * 3
    model = GPSC(scheme="IOB2", **QUIET).fit(X, y)
    draws = model.sample_labels([[["b"], ["b"], ["b"]]], 200, random_state=0)[0]
    for labels in draws:
        for before, now in zip(["O", *labels], labels, strict=False):
            assert not (now == "I-X" and before == "O")
    with pytest.raises(DataError, match="not IOB2"):
        GPSC(scheme="IOB2", **QUIET).fit(X, [["I-X", "I-X", "O"], ["O", "B-X"]] * 3)


def test_degenerate_data():
    one = GPSC(**QUIET).fit([[["a"], ["b"]]], [["A", "B"]])
    assert one.predict([[["a"]]]) == [["A"]]
    same = GPSC(**QUIET).fit([[["a"]], [["a"]]], [["A"], ["A"]])
    assert same.predict_proba([[["a"]]])[0].tolist() == [[1.0]]
    empty = GPSC(**QUIET).fit([[[]], [["a"]]], [["A"], ["B"]])
    assert empty.predict([[["a"]]]) == [["B"]]
