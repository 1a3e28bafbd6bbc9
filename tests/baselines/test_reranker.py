"""The re-ranker: the base where it has nothing to add, better where it has."""

import itertools

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from bayeseq import CRF, HMM, HMSVM, Reranker, StructuredSVM
from bayeseq.baselines import reranker
from tests.labelers.conformance import assert_same, easy_task

QUIET = {"progress": False}


@pytest.mark.parametrize(
    "base", [CRF(l2=0.3, tol=1e-12, **QUIET), HMM(), StructuredSVM(tol=1e-8, **QUIET)]
)
def test_all_labellings_and_the_base_alone_are_the_base(base):
    X, y = easy_task(0, 20)
    X, y = [x[:4] for x in X], [row[:4] for row in y]
    model = Reranker(base, model="", k=3**4, **QUIET).fit(X, y)
    whole = base.fit(X, y)
    assert model.names_ == ("base",)
    assert model.weights_[0] > 0
    assert model.predict(X) == whole.predict(X)
    expected = []
    for x in X:
        ranked = whole.rank_labellings([x], 3 ** len(x))[0]
        p = np.exp(model.weights_[0] * (np.array([s for _, s in ranked]) - ranked[0].score))
        rows = np.zeros((len(x), 3))
        for (labels, _), mass in zip(ranked, p / p.sum(), strict=True):
            for t, label in enumerate(labels):
                rows[t, "ABC".index(label)] += mass
        expected.append(rows)
    assert_same(model.predict_proba(X), expected, 1e-9)


def test_an_unpenalised_base_weight_of_one_gives_the_base_probabilities():
    X, y = easy_task(0, 10)
    X, y = [x[:3] for x in X], [row[:3] for row in y]
    base = CRF(l2=0.3, **QUIET)
    model = Reranker(base, model="", k=27, l2=1e9, **QUIET).fit(X, y)
    assert_same(model.predict_proba(X), base.fit(X, y).predict_proba(X), 1e-5)


def far_task(seed, n):
    """The last label repeats the first, five tokens before: no chain of label pairs sees it."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        first = "AB"[int(rng.integers(2))]
        shown = first if rng.random() < 0.95 else "AB"[int(rng.integers(2))]
        X.append([[f"x={shown}"], ["m"], ["?"]])
        y.append([first, "O", first])
    return X, y


def test_label_ngrams_see_what_a_chain_cannot():
    train, test = far_task(0, 80), far_task(1, 100)
    base = CRF(l2=0.1, **QUIET).fit(*train)
    model = Reranker(CRF(l2=0.1, **QUIET), model="ngrams", k=8, l2=0.1, **QUIET).fit(*train)
    assert base.score(*test) < 0.87
    assert model.score(*test) > 0.93


def test_features_of_a_labelling():
    tags = ("B-P", "I-P", "O")
    describe = reranker._Describe(("ngrams", "spans", "strings"), 3, "w=", None, tags)
    tokens = [["w=Ann", "cap"], ["w=Lee", "cap"], ["w=ran"]]
    found = describe.features(["B-P", "I-P", "O"], tokens)
    for name in (
        ("n", "<", "B-P"),
        ("n", "B-P", "I-P", "O"),
        ("n", "I-P", "O", ">"),
        ("e", "P"),
        ("length", "P", 2),
        ("after", "<", "P"),
        ("first", "P", "w=Ann"),
        ("last", "P", "cap"),
        ("string", "P", "w=Ann", "w=Lee"),
    ):
        assert found[repr(name)] == 1
    assert repr(("n", "B-P", "I-P", "O", ">")) not in found
    runs = reranker._Describe(("spans",), 3, "w=", None, ("X", "Y")).features(
        ["X", "X", "Y"], tokens
    )
    assert runs[repr(("length", "X", 2))] == runs[repr(("after", "X", "Y"))] == 1


def test_the_objective_and_its_gradient(monkeypatch):
    taken = {}

    def catch(objective, start, **_):
        taken.update(objective=objective, start=start)
        raise KeyError

    monkeypatch.setattr(reranker, "minimise", catch)
    X, y = easy_task(3, 9)
    y[2][0] = None
    with pytest.raises(KeyError):
        Reranker(HMM(), k=4, l2=0.3).fit(X, y, sample_weight=np.linspace(0.5, 2, 9))
    rng = np.random.default_rng(0)
    v = taken["start"] + 0.1 * rng.normal(size=len(taken["start"]))
    _, gradient = taken["objective"](v)
    for d in rng.integers(len(v), size=10):

        def along(step, d=d):
            moved = v.copy()
            moved[d] += step[0]
            return taken["objective"](moved)[0]

        assert gradient[d] == pytest.approx(approx_fprime([0.0], along, 1e-6)[0], abs=1e-4)


def test_it_is_trained_on_what_the_base_did_not_see(monkeypatch):
    seen = []
    learn = HMM._learn
    monkeypatch.setattr(
        HMM,
        "_learn",
        lambda self, data: seen.append(set(data.batch.numbers.tolist())) or learn(self, data),
    )
    X, y = easy_task(0, 9)
    Reranker(HMM(), k=2, **QUIET).fit(X, y)
    assert len(seen) == 4
    assert seen[3] == set(range(9))
    assert [set(range(9)) - part for part in seen[:3]] == [{0, 3, 6}, {1, 4, 7}, {2, 5, 8}]


def test_settings_that_make_no_sense():
    data = easy_task(0, 4)
    for model, message in (
        (Reranker(), "give a chain labeler"),
        (Reranker(HMM(), model="ngrams,trees"), "trees"),
        (Reranker(HMM(), k=0), "k is 0"),
        (Reranker(HMM(), cv=1), "cv is 1"),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit(*data)


def test_margins_can_be_ranked_again():
    X, y = easy_task(0, 30)
    model = Reranker(HMSVM(**QUIET), k=5, **QUIET).fit(X, y)
    assert model.score(*easy_task(1, 50)) > 0.88
    for p in itertools.chain(model.predict_proba(X)):
        np.testing.assert_allclose(p.sum(1), 1)
