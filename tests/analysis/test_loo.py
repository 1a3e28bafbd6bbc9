"""Leave-one-sentence-out scores, against the definition: log p(y) − log p(y without sentence i)."""

import sys

import numpy as np
import pytest

from bayeseq import CRF, GPSC, GPSL, DataError, GPStruct
from bayeseq.analysis.loo import loo
from tests.analysis.problems import log_mean, prior_likelihoods, tiny

pytest.importorskip("arviz_stats", reason="leave-one-out scores need arviz-stats")


def exact(X, y, directed=False):
    """log p(y_i | the others), both evidences as means over the prior."""
    each = prior_likelihoods(X, y, 300_000, directed)
    whole = each.sum(1)
    return np.array([log_mean(whole) - log_mean(whole - each[:, i]) for i in range(len(X))])


@pytest.fixture(scope="module")
def data():
    return tiny()


@pytest.fixture(scope="module")
def expected(data):
    return exact(*data)


@pytest.mark.parametrize("inference", ["laplace", "vg"])
def test_gaussian_posteriors_are_corrected(data, expected, inference):
    model = GPSC(inference=inference, learn=False, progress=False).fit(*data)
    found = loo(model, *data, draws=20_000)
    assert found.corrected
    assert len(found.doubtful) == 0
    np.testing.assert_allclose(found.elpd_by_sentence, expected, atol=0.04)
    plain = loo(model, *data, draws=20_000, corrected=False)
    assert not plain.corrected
    if inference == "laplace":  # what the correction is for
        far = np.abs(plain.elpd_by_sentence - expected).max()
        assert far > 2 * np.abs(found.elpd_by_sentence - expected).max()


def test_gpsl_with_a_label_before(data):
    model = GPSL(learn=False, progress=False, tol=1e-8).fit(*data)
    found = loo(model, *data, draws=20_000)
    np.testing.assert_allclose(found.elpd_by_sentence, exact(*data, directed=True), atol=0.06)
    assert found.likelihood == "log p(y | x) of whole sentences"


def test_draws_of_a_sampler_are_taken_as_they_are(data, expected):
    model = GPStruct(
        chains=16, draws=50, warmup=60, thin=5, learn=False, progress=False, random_state=1
    ).fit(*data)
    found = loo(model, *data)
    assert (found.corrected, found.draws) == (False, 800)
    np.testing.assert_allclose(found.elpd_by_sentence, expected, atol=0.1)


def test_the_record(data):
    model = GPSC(inference="laplace", learn=False, progress=False).fit(*data)
    found = loo(model, *data, draws=500)
    assert found.elpd == pytest.approx(found.elpd_by_sentence.sum())
    spread = found.elpd_by_sentence.std(ddof=1)
    assert found.se == pytest.approx(spread * np.sqrt(6))
    assert found.p > 0
    assert found.minus(found) == (0.0, 0.0)
    assert found.good_k == pytest.approx(1 - 1 / np.log10(500))
    assert str(found).splitlines()[3].split() == ["sentences", "6"]
    again = loo(model, *data, draws=500)
    assert (again.elpd_by_sentence == found.elpd_by_sentence).all()


def test_sentences_without_labels_are_left_out(data):
    X, y = data
    y = [[None] * len(y[0]), *y[1:]]
    model = GPSC(inference="laplace", learn=False, progress=False).fit(X, y)
    found = loo(model, X, y, draws=500)
    assert found.sentences.tolist() == [1, 2, 3, 4, 5]
    whole = loo(model.fit(*data), *data, draws=500)
    with pytest.raises(DataError, match="different sentences"):
        found.minus(whole)


def test_what_cannot_be_judged(data, monkeypatch):
    X, y = data
    with pytest.raises(TypeError, match="CRF has no posterior"):
        loo(CRF(progress=False).fit(X, y), X, y)
    with pytest.raises(TypeError, match="no posterior of its weights"):
        loo(GPSC(inference="map", progress=False).fit(X, y), X, y)
    model = GPSL(learn=False, progress=False).fit(X, y)
    with pytest.raises(DataError, match="not what this GPSL was fitted to"):
        loo(model, X[:4], y[:4])
    with pytest.raises(DataError, match="fewer than two sentences"):
        loo(model, X, [[None] * len(labels) for labels in y])
    with pytest.raises(ValueError, match="draws is 0"):
        loo(model, X, y, draws=0)
    both = loo(GPSL((-1, 1), learn=False, progress=False).fit(X, y), X, y, draws=200)
    assert both.likelihood.startswith("pseudo-likelihood")
    monkeypatch.setitem(sys.modules, "arviz_stats.base", None)
    with pytest.raises(ImportError, match=r"bayeseq\[loo\]"):
        loo(model, X, y, draws=200)
