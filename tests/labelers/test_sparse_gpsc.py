"""SparseGPSC beyond the contract: how sparse it is, what it refuses, what it keeps."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import bayeseq
from bayeseq import CRF, GPSC, DataError, Polynomial, SparseGPSC
from bayeseq.inference.greedy import Greedy
from tests.labelers.conformance import NEW, X, Y, easy_task


def make(**changes):
    return SparseGPSC(**{"progress": False, **changes})


def test_so_many_coordinates_as_asked_for():
    data, labels = easy_task(0, 40)
    N = sum(map(len, labels))
    for fraction in (0.02, 0.1, 0.5):
        model = make(fraction=fraction, threshold=0.0).fit(data, labels)
        chosen = model.result_.hyperparameters
        assert chosen["coordinates"] == int(np.ceil(fraction * N))
        assert model.points_.shape[0] == model.coefficients_.shape[0] == chosen["tokens"]
        assert chosen["share_of_tokens"] == pytest.approx(chosen["tokens"] / N)
        product = chosen["share_of_tokens"] * chosen["coordinates_per_token"]
        assert product == pytest.approx(chosen["coordinates"] / N)


@pytest.mark.parametrize("update", ["new", "all"])
@pytest.mark.parametrize("sequences", [None, 1, 5])
def test_the_objective_never_rises(update, sequences):
    data, labels = easy_task(0, 30)
    model = make(update=update, sequences=sequences).fit(data, labels)
    assert np.diff(model.result_.objective).max() <= 0


def test_more_coordinates_come_nearer_to_the_optimum():
    data, labels = easy_task(0, 30)
    dense = make(fraction=None, sequences=1000, directions=10**6).fit(data, labels)
    best = dense.result_.objective[-1]
    gaps = [
        make(fraction=fraction).fit(data, labels).result_.objective[-1] - best
        for fraction in (0.05, 0.2, 0.6)
    ]
    assert gaps[0] > 3 * gaps[1] > 0
    assert gaps[1] > gaps[2] >= -1e-6


def test_with_a_linear_kernel_it_is_a_crf():
    """Prior variance 1 / (2 l2) on every weight, all label pairs and features."""
    settings = {"kernel": "linear", "variance": 2.0, "transition_variance": 2.0}
    full = make(fraction=None, sequences=1000, directions=10**6, threshold=1e-9, tol=1e-15)
    model = full.set_params(max_iter=5000, **settings).fit(X, Y)
    crf = CRF(
        l2=0.25,
        tol=1e-14,
        all_possible_states=True,
        all_possible_transitions=True,
        progress=False,
    ).fit(X, Y)
    for found, expected in zip(model.predict_proba(NEW), crf.predict_proba(NEW), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("kernel", ["polynomial(degree=2)", "rbf(scale=0.3)"])
def test_with_all_coordinates_it_is_the_dense_map(kernel):
    settings = {"kernel": kernel, "variance": 0.5, "transition_variance": 2.0, "progress": False}
    full = SparseGPSC(fraction=None, sequences=1000, directions=10**6, threshold=1e-9, **settings)
    sparse = full.set_params(max_iter=5000, tol=1e-15).fit(X, Y)
    dense = GPSC(inference="map", groups=None, tol=1e-14, max_iter=5000, **settings).fit(X, Y)
    assert sparse.result_.objective[-1] == pytest.approx(dense.result_.objective[-1], rel=1e-6)
    for found, expected in zip(sparse.predict_proba(NEW), dense.predict_proba(NEW), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_new_coordinates_alone_and_no_refit_are_the_papers_algorithm():
    data, labels = easy_task(0, 30)
    fitted = [
        make(update="new", sequences=1, directions=2, refit=refit).fit(data, labels)
        for refit in (False, True)
    ]
    first, second = (model.result_.objective for model in fitted)
    assert first[:-1] == second[:-1]
    assert second[-1] < first[-1] == first[-2]


def test_exchanges_lower_the_objective_with_as_many_coordinates():
    data, labels = easy_task(0, 40)
    none, some, default = (
        make(fraction=0.1, exchanges=n).fit(data, labels).result_ for n in (0, 3, None)
    )
    assert some.hyperparameters["coordinates"] == none.hyperparameters["coordinates"]
    assert some.objective[-1] < none.objective[-1]
    assert some.objective == default.objective
    assert np.diff(some.objective).max() <= 0


def test_new_coordinates_alone_are_not_exchanged_unless_asked_for():
    data, labels = easy_task(0, 30)
    none, default, some = (
        make(update="new", refit=False, exchanges=n).fit(data, labels).result_.objective
        for n in (0, None, 2)
    )
    assert none == default
    assert some[: len(none) - 1] == none[:-1]
    assert some[-1] < none[-1]


def test_a_kernel_object_and_its_variance_do_not_matter():
    data, labels = easy_task(0, 10)
    text = make().fit(data, labels).predict_proba(data)
    own = make(kernel=Polynomial(2, 1.0, variance=7.0)).fit(data, labels).predict_proba(data)
    for a, b in zip(text, own, strict=True):
        np.testing.assert_array_equal(a, b)


def test_many_points_are_scored_in_pieces(monkeypatch):
    model = make().fit(X, Y)
    expected = model.predict_proba(X + NEW)
    monkeypatch.setattr(bayeseq.labelers.sparse_gpsc, "_NUMBERS_AT_ONCE", 1)
    for a, b in zip(model.predict_proba(X + NEW), expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fraction": 0.0}, "fraction is 0.0"),
        ({"fraction": -1.0}, "fraction is -1.0"),
        ({"variance": np.inf}, "variance is inf"),
        ({"transition_variance": 0}, "transition_variance is 0"),
        ({"threshold": -1}, "threshold is -1"),
        ({"tol": np.nan}, "tol is nan"),
        ({"directions": 0}, "directions is 0"),
        ({"sequences": 0}, "sequences is 0"),
        ({"exchanges": -1}, "exchanges is -1"),
        ({"max_iter": 0}, "max_iter is 0"),
        ({"update": "some"}, "update is 'some'"),
        ({"decode": "best"}, "decode is 'best'"),
        ({"kernel": 3}, "kernel is 3"),
        ({"kernel": "cubic"}, "cannot read the kernel"),
        ({"kernel": "rbf", "max_memory": 1e-9}, "the kernel at 4 tokens would need"),
    ],
)
def test_settings_that_make_no_sense(change, words):
    with pytest.raises((ValueError, DataError), match=words):
        make(**change).fit(X, Y)


def test_steps_that_run_out_are_told():
    data, labels = easy_task(0, 20)
    with pytest.warns(ConvergenceWarning, match="max_iter=1 steps"):
        model = make(update="new", max_iter=1, tol=0.0).fit(data, labels)
    assert not model.result_.converged


def test_an_interrupt_keeps_what_was_found(monkeypatch):
    data, labels = easy_task(0, 20)
    right, moves = Greedy.moved, []

    def broken(self, found, *rest):
        if len(found.gamma) > 8:
            raise KeyboardInterrupt
        moves.append(len(found.gamma))
        return right(self, found, *rest)

    monkeypatch.setattr(Greedy, "moved", broken)
    with pytest.warns(ConvergenceWarning, match="interrupted after 8 coordinates"):
        model = make(directions=2, sequences=1).fit(data, labels)
    assert model.result_.interrupted
    assert not model.result_.converged
    assert model.result_.hyperparameters["coordinates"] == moves[-1] == 8
    assert model.score(data, labels) > 0.5


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("coefficients", np.zeros((1, 3))),
        ("coefficients", None),
        ("transitions", np.full((3, 3), np.nan)),
        ("transitions", np.zeros((3, 3), dtype=np.float32)),
        ("points.indices", np.array([0])),
        ("points.shape", np.array([4, 2])),
        ("points.data", np.array(["x"])),
    ],
)
def test_numbers_that_do_not_fit_are_refused(name, wrong):
    model = make().fit(X, Y)
    tensors = {**model._tensors(), name: wrong}
    if wrong is None:
        del tensors[name]
    with pytest.raises((ValueError, KeyError)):
        model._restore(tensors)
