"""GPSL's behaviour: what it learns, what it promises of its answers, and hard inputs."""

import dataclasses
import io
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from bayeseq import GPSL, DataError
from bayeseq.inference.variational import Solver
from bayeseq.labelers import gpsl_training
from tests.labelers.conformance import NEW, X, Y, assert_same, easy_task

TRAIN, TEST = easy_task(0, 40), easy_task(1, 60)
OFFSETS = [(), (-1,), (1,), (-1, 1), (-2, -1), (-2, -1, 1, 2)]


def fit(data=TRAIN, **params):
    return GPSL(**{"progress": False, **params}).fit(*data)


@pytest.fixture(scope="module")
def models():
    return {offsets: fit(dependencies=offsets) for offsets in OFFSETS}


def check(model, data):
    """Probabilities that are some, and labels that are the most probable."""
    for x, p, labels in zip(data, model.predict_proba(data), model.predict(data), strict=True):
        assert p.shape == (len(x), len(model.classes_))
        assert (p >= 0).all()
        np.testing.assert_allclose(p.sum(1), 1, rtol=0, atol=1e-9)
        assert labels == model.classes_[p.argmax(1)].tolist()


# ---- learning ---------------------------------------------------------------------------------


@pytest.mark.parametrize("offsets", OFFSETS)
def test_it_learns_with_any_dependencies(offsets, models):
    model = models[offsets]
    check(model, TEST[0])
    assert model.score(*TEST) > 0.8
    assert model.result_.converged
    assert (np.diff(model.result_.objective) >= 0).all()
    assert set(model.result_.hyperparameters["dependency_variance"]) == set(map(str, offsets))


def test_neighbours_help(models):
    fits = {
        offsets: model.log_likelihood(*TEST).sum()
        for offsets, model in models.items()
        if max(map(abs, offsets), default=0) < 2
    }
    assert fits[(-1,)] > fits[()]
    assert fits[(-1, 1)] > fits[()]


@pytest.mark.parametrize("covariance", ["full", "block", "lowrank", "diagonal"])
@pytest.mark.parametrize("bound", ["exact", "tilted", "jensen"])
def test_every_covariance_and_bound(covariance, bound):
    model = fit(covariance=covariance, bound=bound, tol=1e-3)
    check(model, TEST[0][:10])
    assert model.score(*TEST) > 0.85


@pytest.mark.parametrize("prediction", ["chain", "rns", "average", "gibbs"])
def test_every_prediction(prediction):
    model = fit(dependencies=(-1, 1), prediction=prediction, tol=1e-3)
    check(model, TEST[0][:10])
    assert model.score(*TEST) > 0.85


def test_far_dependencies_by_sampling():
    model = fit(dependencies=(-3,), prediction="gibbs", tol=1e-3)
    check(model, TEST[0][:10])
    assert model.score(*TEST) > 0.8
    with pytest.raises(ValueError, match="reach farther"):
        model.predict_nbest(TEST[0][:2], 2)


@pytest.mark.parametrize("kernel", ["rbf(scale=0.3)", "polynomial(degree=2)", "linear + rbf"])
def test_other_kernels(kernel):
    for inducing in (None, 10):
        model = fit(kernel=kernel, inducing=inducing, tol=1e-3)
        check(model, TEST[0][:10])
        assert model.score(*TEST) > 0.8


# ---- posterior draws --------------------------------------------------------------------------


@pytest.mark.parametrize("offsets", OFFSETS)
def test_posterior_predict(offsets, models):
    model, data = models[offsets], [*TEST[0][:5], []]
    found = model.posterior_predict(data, 20, random_state=3)
    assert [p.shape for p in found] == [(20, len(x), 3) for x in data]
    for p in found:
        np.testing.assert_allclose(p.sum(-1), 1, rtol=0, atol=1e-9)
    assert_same(found, model.posterior_predict(data, 20, random_state=3))
    assert np.abs(found[0] - model.posterior_predict(data, 20, random_state=4)[0]).max() > 1e-3
    with pytest.raises(ValueError, match="draws is 0"):
        model.posterior_predict(data, 0)


def test_draws_average_to_about_the_prediction():
    """Scores' means are predicted with and draws averaged: they agree as far as the posterior is
    narrow, and on an easy task it is. With S draws the error of the average is at most 0.5 / √S."""
    model = fit(easy_task(0, 300), calibrate=False, covariance="diagonal", tol=1e-3)
    drawn = np.concatenate([p.mean(0) for p in model.posterior_predict(TEST[0], 400, None, 0)])
    proba = np.concatenate(model.predict_proba(TEST[0]))
    assert np.abs(drawn - proba).mean() < 0.02
    assert np.abs(drawn - proba).max() < 0.15 + 3 * 0.5 / np.sqrt(400)


def test_draws_obey_what_is_given_and_the_scheme():
    model = fit((X, Y), scheme="IOB2")
    given = [["B", None, None], [None], [None] * 5]
    found = model.posterior_predict(NEW, 10, given, 0)
    np.testing.assert_allclose(found[0][:, 0], [[1, 0, 0]] * 10, rtol=0, atol=1e-12)
    free = model.posterior_predict(NEW, 10, random_state=0)
    assert (free[1][:, 0, 1] == 0).all()  # I cannot begin a sentence
    check(model, NEW)


# ---- answers of a chain -----------------------------------------------------------------------


@pytest.mark.parametrize("offsets", [(-1,), (-1, 1)])
def test_answers_of_a_chain(offsets, models):
    model, (data, labels) = models[offsets], TEST
    data, labels = data[:6], labels[:6]
    best = model.predict_nbest(data, 3)
    log_likelihood = model.log_likelihood(data, [rows[0].labels for rows in best])
    np.testing.assert_allclose(
        np.exp(log_likelihood), [rows[0].probability for rows in best], rtol=1e-9
    )
    assert (model.log_likelihood(data, labels) <= log_likelihood + 1e-12).all()
    assert (model.predict_entropy(data) >= 0).all()
    assert len(model.sample_labels(data, 4, random_state=0)[0]) == 4
    model = fit((X, Y), dependencies=offsets, decode="viterbi")
    entities = model.predict_entities(NEW)
    assert all(0 < entity.score <= 1 for row in entities for entity in row)
    assert model.predict(NEW) == [rows[0].labels for rows in model.predict_nbest(NEW, 1)]


@pytest.mark.parametrize("offsets", [(), (-1,), (-1, 1), (-2, -1, 1, 2)])
@pytest.mark.parametrize("prediction", ["chain", "rns", "average", "gibbs"])
def test_given_labels_hold(offsets, prediction, models):
    model = models[offsets]
    before = model.prediction
    data = [TEST[0][0], *TEST[0][3:6]]
    given = [[None] * len(x) for x in data]
    given[0][0], given[1][-1] = "C", {"A", "B"}
    try:
        model.prediction = prediction
        proba = model.predict_proba(data, given)
        assert proba[0][0].tolist() == pytest.approx([0, 0, 1])
        assert proba[1][-1][2] == 0
        assert model.predict(data, given)[0][0] == "C"
    finally:
        model.prediction = before


# ---- missing labels ---------------------------------------------------------------------------


def test_missing_labels_dropped_or_expected():
    full = [fit(missing=missing).predict_proba(TEST[0]) for missing in ("drop", "expect")]
    assert_same(*full)
    rng = np.random.default_rng(0)
    some = [[label if rng.random() < 0.6 else None for label in row] for row in TRAIN[1]]
    partial = [fit((TRAIN[0], some), missing=missing) for missing in ("drop", "expect")]
    drop, expect = (np.concatenate(model.predict_proba(TEST[0])) for model in partial)
    assert np.abs(drop - expect).max() > 1e-3
    assert all(model.score(*TEST) > 0.8 for model in partial)


@pytest.mark.parametrize("missing", ["drop", "expect"])
def test_sentences_without_any_label(missing):
    labels = [[None] * len(row) if i % 3 == 0 else row for i, row in enumerate(TRAIN[1])]
    model = fit((TRAIN[0], labels), missing=missing)
    check(model, TEST[0])
    assert model.score(*TEST) > 0.8


def test_a_class_known_only_from_a_set():
    labels = [[{"A", "Z"} if label == "A" else label for label in row] for row in TRAIN[1]]
    model = fit((TRAIN[0], labels), tol=1e-3)
    assert model.classes_.tolist() == ["A", "B", "C", "Z"]
    check(model, TEST[0])
    found = [[{"A": "Z"}.get(t, t) for t in row] for row in model.predict(TEST[0])]
    truth = [[{"A": "Z"}.get(t, t) for t in row] for row in TEST[1]]
    agree = [a == b for f, t in zip(found, truth, strict=True) for a, b in zip(f, t, strict=True)]
    assert np.mean(agree) > 0.8


# ---- hard inputs ------------------------------------------------------------------------------

HARD = {
    "a constant column": ([[[*t, "always"] for t in x] for x in TRAIN[0]], TRAIN[1]),
    "columns twice": ([[[*t, *(f"{f}'" for f in t)] for t in x] for x in TRAIN[0]], TRAIN[1]),
    "sentences many times": (TRAIN[0][:3] * 10, TRAIN[1][:3] * 10),
    "huge values": ([[dict.fromkeys(t, 1e6) for t in x] for x in TRAIN[0]], TRAIN[1]),
    "tiny values": ([[dict.fromkeys(t, 1e-6) for t in x] for x in TRAIN[0]], TRAIN[1]),
    "huge and small": (
        [[{f: 1e6 if f.startswith("hint") else 1.0 for f in t} for t in x] for x in TRAIN[0]],
        TRAIN[1],
    ),
    "a label seen once": ([*TRAIN[0], [["rare"]]], [*TRAIN[1], ["R"]]),
    "one sentence": ([X[3]], [Y[3]]),
    "one token": ([[["a"]]], [["A"]]),
    "one token a sentence": ([x[:1] for x in TRAIN[0]], [row[:1] for row in TRAIN[1]]),
    "one class": (TRAIN[0], [["A"] * len(row) for row in TRAIN[1]]),
    "no features": ([[[] for _ in x] for x in TRAIN[0]], TRAIN[1]),
    "contradictions": ([[["same"]]] * 10, [["A"], ["B"]] * 5),
    "negative values": ([[dict.fromkeys(t, -1.0) for t in x] for x in TRAIN[0]], TRAIN[1]),
}


@pytest.mark.parametrize(
    "params",
    [{}, {"covariance": "diagonal"}, {"covariance": "lowrank"}, {"kernel": "rbf", "inducing": 8}],
    ids=["full", "diagonal", "lowrank", "rbf"],
)
@pytest.mark.parametrize("case", sorted(HARD))
def test_hard_inputs(case, params):
    data, labels = HARD[case]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a bound may creep for ever
        model = fit((data, labels), max_iter=4, dependencies=(-1, 1), **params)
    check(model, data)
    check(model, [[["never seen"]], []])
    assert np.isfinite(model.result_.objective).all()
    for p in model.posterior_predict(data[:2], 3, random_state=0):
        assert np.isfinite(p).all()


@pytest.mark.parametrize("case", ["columns twice", "huge values", "negative values"])
def test_units_do_not_matter_much(case):
    data, _ = HARD[case]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = fit(HARD[case], tol=1e-3)
    assert model.score(data, TRAIN[1]) > 0.85


def test_values_that_are_no_numbers_are_named():
    arrays = [np.ones((3, 2)), np.array([[1.0, np.nan], [0.0, 1.0]])]
    with pytest.raises(DataError, match="sequence 1, token 0, column 1"):
        fit((arrays, [["A", "B", "A"], ["A", "B"]]))


def test_numbers_without_names():
    rng = np.random.default_rng(0)
    data = [rng.normal(size=(len(row), 4)) for row in TRAIN[1]]
    for x, row in zip(data, TRAIN[1], strict=True):
        x[:, :3] += 4 * np.eye(3)[["ABC".index(label) for label in row]]
    for groups in ("auto", None, [0, 1, 1, 1], ["a", "b", "b", "b"]):
        model = fit((data, TRAIN[1]), groups=groups, tol=1e-2)
        check(model, data)
        assert model.score(data, TRAIN[1]) > 0.85
    with pytest.raises(ValueError, match="without names"):
        fit((data, TRAIN[1]), groups="[a-z]+")
    with pytest.raises(ValueError, match="groups has 3 entries, X has 4 columns"):
        fit((data, TRAIN[1]), groups=[0, 1, 1])


def test_too_large_is_refused_before_it_starts(monkeypatch):
    monkeypatch.setattr(Solver, "solve", lambda *_: pytest.fail("it began"))
    with pytest.raises(DataError, match=r"about .* GB.*max_memory is 1e-06.*'diagonal'"):
        fit(max_memory=1e-6)
    with pytest.raises(DataError, match=r"kernel matrix .*max_memory is 1e-06.*inducing=1000"):
        fit(max_memory=1e-6, kernel="rbf", groups=None)


BAD = {
    "dependencies": [(0,), (-1, -1), ("a",), (1.5,), (True,), "-1", -1],
    "kernel": ["cubic", "", 3],
    "groups": [[1, 2], "("],
    "covariance": ["round", None],
    "bound": ["none"],
    "inducing_method": ["random"],
    "missing": ["guess"],
    "prediction": ["magic"],
    "decode": ["best"],
    "variance": [0, -1.0, np.nan, np.inf],
    "dependency_variance": [0.0, np.inf],
    "tol": [0, np.nan],
    "max_memory": [0],
    "max_iter": [0, -3],
    "points": [0],
    "rank": [0],
    "scheme": ["IOB9"],
}


@pytest.mark.parametrize(("name", "value"), [(k, v) for k, vs in BAD.items() for v in vs])
def test_bad_parameters_are_named(name, value):
    with pytest.raises((ValueError, TypeError, DataError)) as error:
        fit((X, Y), **{name: value})
    assert name in str(error.value) or str(value) in str(error.value)


def test_parameters_that_do_not_go_together():
    with pytest.raises(ValueError, match="reach farther than two labels"):
        fit((X, Y), dependencies=(-3,))
    with pytest.raises(ValueError, match="scheme needs"):
        fit((X, Y), scheme="IOB2", prediction="gibbs")
    with pytest.raises(ValueError, match="inducing is 0"):
        fit((X, Y), kernel="rbf", inducing=0)


def test_weights_of_sequences():
    """What has a large weight is learned, whatever the others say."""
    data, labels = [[["a"]]] * 6, [["A"]] * 3 + [["B"]] * 3
    heavy = fit((data, labels)).set_params(calibrate=False)
    heavy.fit(data, labels, sample_weight=[9, 9, 9, 1, 1, 1])
    assert heavy.predict_proba([[["a"]]])[0][0, 0] > 0.7
    nothing = GPSL(progress=False).fit(data, labels, sample_weight=[0] * 6)
    assert nothing.predict_proba([[["a"]]])[0][0].tolist() == pytest.approx([0.5, 0.5])


# ---- stopping early ---------------------------------------------------------------------------


def test_an_interrupt_keeps_what_was_learned(monkeypatch):
    sweep, calls = Solver._sweep, []

    def interrupted(self, *args, **kwargs):
        calls.append(self)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return sweep(self, *args, **kwargs)

    monkeypatch.setattr(Solver, "_sweep", interrupted)
    with pytest.warns(ConvergenceWarning, match="interrupted after .* sweeps; what was learned"):
        model = fit(covariance="diagonal")
    assert model.result_.interrupted
    assert not model.result_.converged
    monkeypatch.undo()
    check(model, TEST[0])
    assert model.score(*TEST) > 0.7


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_an_interrupt_while_scales_are_chosen_keeps_the_posterior(covariance, monkeypatch):
    expected = fit(covariance=covariance, calibrate=False)
    refits, solve = [], Solver.solve

    def interrupted(self, *args, **kwargs):
        found, trace = solve(self, *args, **kwargs)
        refit = not bool(self.learned.any())
        refits.extend([self] * refit)
        return found, dataclasses.replace(trace, interrupted=refit)

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Solver, "solve", interrupted)
    monkeypatch.setattr(gpsl_training, "choose_scales", stop)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model = fit(covariance=covariance)
    assert len(refits) == {"full": 0, "diagonal": 1}[covariance]
    assert model.result_.interrupted
    assert_same(model.predict_proba(TEST[0]), expected.predict_proba(TEST[0]))


def test_max_iter_is_told():
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        model = fit(max_iter=2)
    assert not model.result_.converged
    check(model, TEST[0])


def test_the_bar_can_be_switched_off(monkeypatch, capsys):
    shown = []

    def bars(**kwargs):
        shown.append(kwargs["disable"])
        return tqdm(**{**kwargs, "delay": 0, "file": io.StringIO()})

    from bayeseq.inference import optimise

    tqdm = optimise.tqdm
    monkeypatch.setattr(optimise, "tqdm", bars)
    fit((X, Y), progress=False)
    assert set(shown) == {True}
    shown.clear()
    fit((X, Y), progress=True)
    assert None in shown  # only on a terminal
    monkeypatch.setattr(optimise, "tqdm", tqdm)
    monkeypatch.setenv("TQDM_DISABLE", "1")
    fit((X, Y), progress=True)
    assert capsys.readouterr().err == ""


def test_neighbours_are_hidden_only_where_they_lie_on_both_sides():
    X_train, y_train = easy_task(1, 20)

    def columns(**settings):
        model = GPSL(learn=False, calibrate=False, progress=False, **settings).fit(X_train, y_train)
        return model._model_.design.matrix[:, -model._model_.n_dependent :].nnz

    assert columns(dependencies=(-1,)) == columns(dependencies=(-1,), hidden=0.0)
    shown, half = columns(dependencies=(-1, 1), hidden=0.0), columns(dependencies=(-1, 1))
    assert shown == 2 * sum(len(labels) - 1 for labels in y_train)
    assert 0.3 * shown < half < 0.7 * shown


@pytest.mark.parametrize("hidden", [-0.1, 1.0])
def test_a_share_outside_its_bounds_is_refused(hidden):
    X_train, y_train = easy_task(1, 3)
    with pytest.raises(ValueError, match="hidden"):
        GPSL(hidden=hidden, progress=False).fit(X_train, y_train)
