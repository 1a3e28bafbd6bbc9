"""Labels that labelers make up, against probabilities by enumeration."""

import itertools

import numpy as np
import pytest

from bayeseq import CRF, GPSC, GPSL, Calibrated, GPStruct, predictive_check
from bayeseq.analysis.priors import prior_labellings
from bayeseq.labelers.draws import draw_labellings
from tests.analysis.problems import log_mean, prior_likelihoods, tiny
from tests.labelers.conformance import easy_task

GPSTRUCT = GPStruct(chains=30, draws=1, warmup=30, thin=1, learn=False, progress=False)


@pytest.mark.parametrize(
    "labeler",
    [GPSC(inference="laplace", learn=False, progress=False), GPSL(learn=False, progress=False)],
    ids=lambda m: type(m).__name__,
)
def test_prior_labellings(labeler):
    X, y = tiny()
    model = labeler.fit(X, y)
    sentence, n = [["a"], ["b"], ["c"]], 20_000
    drawn = prior_labellings(model, [sentence, [["a"]]], n, seed=0)
    codes = np.array([rows[0] for rows in drawn]) @ [4, 2, 1]
    for number, path in enumerate(itertools.product("AB", repeat=3)):
        each = prior_likelihoods([sentence], [list(path)], 100_000, isinstance(labeler, GPSL))
        p = float(np.exp(log_mean(each[:, 0])))
        assert abs(np.mean(codes == number) - p) < 5 * np.sqrt(p * (1 - p) / n)
    assert {len(row) for rows in drawn for row in rows} == {3, 1}


def test_one_draw_of_the_weights_makes_up_all_sentences():
    """The same sentence twice: labels of the two agree more often than under mean probabilities."""
    X, y = tiny()
    model = GPSC(inference="laplace", learn=False, progress=False).fit(X, y)
    drawn = draw_labellings(model, [[["c"]], [["c"]]], 4000, 0)
    first, second = (np.array([rows[k][0] for rows in drawn]) for k in (0, 1))
    proba = model.posterior_predict([[["c"]]], 4000, random_state=0)[0][:, 0]
    together = np.mean(first == second)
    assert together == pytest.approx(np.square(proba).sum(1).mean(), abs=0.03)
    assert together > np.square(proba.mean(0)).sum() + 0.03


@pytest.mark.parametrize(
    "labeler",
    [
        CRF(progress=False),
        GPSL(learn=False, progress=False),
        GPSL((-1, 1), learn=False, calibrate=False, progress=False),
        GPSL((-3,), prediction="gibbs", learn=False, progress=False),
        GPSC(inference="laplace", learn=False, progress=False),
        GPSC(inference="map", progress=False),
        GPSTRUCT,
    ],
    ids=lambda m: type(m).__name__,
)
def test_fitted_models_expect_their_own_labels(labeler):
    """The shares of labels in training data are what the model makes up."""
    X, y = easy_task(0, 25)
    model = labeler.fit(X, y)
    found = predictive_check(model, X, y, draws=60)
    assert len(found.replicated) == (30 if labeler is GPSTRUCT else 60)
    shares = found.p_values[:3]
    assert (shares > 0.02).all()
    again = predictive_check(model, X, y, draws=60)
    assert (again.replicated == found.replicated).all()


def test_a_model_without_pairs_does_not_expect_them():
    """Labels that alternate where the features say nothing."""
    X = [[["x"]] * 8] * 15
    y = [["A", "B"] * 4] * 15
    model = GPSL(dependency_variance=25.0, learn=False, calibrate=False, progress=False).fit(X, y)
    plain = predictive_check(GPSL((), learn=False, progress=False).fit(X, y), X, y)
    chain = predictive_check(model, X, y)
    assert "A, then B" in plain.surprising
    assert plain.p_values[plain.names.index("A, then B")] == 0
    assert "A, then B" not in chain.surprising
    prior = predictive_check(model, X, y, kind="prior")
    assert prior.kind == "prior"
    assert prior.replicated.std(0)[0] > 2 * chain.replicated.std(0)[0]


def test_missing_labels_and_own_statistics():
    X, y = tiny()
    model = CRF(progress=False).fit(X, y)
    y = [[None, *row[1:]] for row in y]
    count = {"As": lambda labels: sum(row.count("A") for row in labels)}
    found = predictive_check(model, X, y, draws=20, statistics=count)
    assert found.names == ("As",)
    assert found.observed[0] == sum(row.count("A") for row in y)
    unknown = predictive_check(model, X[:1], [["A", "Z", "A"]], draws=20)
    assert "share of Z" in unknown.surprising


def test_mistakes():
    X, y = tiny()
    model = CRF(progress=False).fit(X, y)
    with pytest.raises(TypeError, match="CRF has no posterior"):
        predictive_check(model, X, y, kind="prior")
    with pytest.raises(ValueError, match="kind is 'later'"):
        predictive_check(model, X, y, kind="later")
    with pytest.raises(TypeError, match="cannot draw whole labellings"):
        predictive_check(Calibrated(CRF(progress=False)).fit(X, y), X, y)
