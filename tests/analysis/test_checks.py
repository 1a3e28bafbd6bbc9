"""k-hat of guides: against posteriors that are known, and guides that are wrong on purpose."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bayeseq import CRF, GPSC, GPSL, DataError, GPStruct, load
from bayeseq.analysis.checks import khat, khat_of
from bayeseq.inference.density import densities
from tests.analysis.problems import log_mean, prior_likelihoods, tiny
from tests.inference.test_density import regression


@pytest.fixture(scope="module")
def data():
    return tiny()


def ratios_of(posterior, model, draws=4000):
    return densities(model, posterior, draws, torch.Generator().manual_seed(0)).log_ratios.numpy()


def test_a_guide_that_is_the_posterior():
    model, posterior, evidence = regression()
    found = khat_of(ratios_of(posterior, model))
    assert found.k == -np.inf
    assert found.verdict == "good"
    assert found.effective_draws == pytest.approx(4000)
    assert found.log_ratios.mean() == pytest.approx(evidence)


def test_guides_that_are_too_wide_and_too_narrow():
    """With a times the true standard deviations the weights are exp(½ z² (1 − a²)) but for a
    constant: bounded for a > 1, and with a tail of index 1 − a² for a < 1."""
    model, posterior, _ = regression()
    wide = khat_of(ratios_of(replace(posterior, root=posterior.root * 1.5), model))
    assert wide.k < 0.5
    assert wide.verdict == "good"
    narrow = khat_of(ratios_of(replace(posterior, root=posterior.root * 0.3), model))
    assert narrow.k > 0.7
    assert narrow.verdict == "do not trust"
    assert narrow.effective_draws < wide.effective_draws
    assert "do not trust" in str(narrow)


@pytest.mark.parametrize(
    "labeler",
    [
        GPSC(inference="laplace", learn=False, progress=False),
        GPSC(inference="vg", learn=False, progress=False),
        GPSL(learn=False, progress=False),
        GPSL(learn=False, progress=False, covariance="diagonal"),
    ],
    ids=lambda m: f"{type(m).__name__}-{getattr(m, 'inference', m.covariance)}",
)
def test_importance_weights_give_the_evidence(labeler, data):
    """Their mean is p(y), which the prior's draws give too."""
    found = khat(labeler.fit(*data), *data, draws=20_000)
    directed = isinstance(labeler, GPSL)
    expected = log_mean(prior_likelihoods(*data, 300_000, directed).sum(1))
    assert log_mean(found.log_ratios) == pytest.approx(expected, abs=0.04)
    assert found.log_ratios.mean() < expected  # the bound
    assert found.k < 0.7


def test_half_the_standard_deviation_is_noticed(data):
    model = GPSC(inference="vg", learn=False, progress=False).fit(*data)
    good = khat(model, *data)
    q = model.posterior_
    model.posterior_ = replace(q, root=q.root / 2, alone=q.alone / 4)
    bad = khat(model, *data)
    assert good.k < 0.7  # it varies by a tenth with the draws, around 0.5
    assert good.effective_draws > 0.85 * good.draws
    assert bad.k > 0.7
    assert bad.effective_draws < 0.5 * good.effective_draws


def test_saved_models_and_missing_labels(data, tmp_path):
    X, y = data
    y = [list(labels) for labels in y]
    y[2][0] = None
    y[3] = [None] * len(y[3])
    for model in (
        GPSL(learn=False, progress=False, missing="expect"),
        GPSL((-1, 1), kernel="rbf", progress=False),
        GPSC(inference="laplace", learn=False, progress=False),
    ):
        model.fit(X, y)
        found = khat(model, X, y, draws=300)
        model.save(tmp_path / "model")
        again = khat(load(tmp_path / "model"), X, y, draws=300)
        np.testing.assert_allclose(again.log_ratios, found.log_ratios, atol=1e-6)


def test_sample_weights_count(data):
    X, y = data
    weights = [2.0, 0.5, 1.0, 0.0, 1.0, 1.0]
    model = GPSC(inference="laplace", learn=False, progress=False).fit(X, y, weights)
    right = khat(model, X, y, sample_weight=weights)
    wrong = khat(model, X, y)
    assert right.log_ratios.std() < wrong.log_ratios.std()


def test_what_cannot_be_judged(data):
    X, y = data
    with pytest.raises(TypeError, match="CRF has no posterior"):
        khat(CRF(progress=False).fit(X, y), X, y)
    sampled = GPStruct(chains=4, draws=3, warmup=5, thin=1, learn=False, progress=False)
    sampled.fit(X, y)
    with pytest.raises(TypeError, match="draws from the posterior itself"):
        khat(sampled, X, y)
    model = GPSL(learn=False, progress=False).fit(X, y)
    with pytest.raises(DataError, match="not what this GPSL was fitted to"):
        khat(model, X[1:], y[1:])
    with pytest.raises(ValueError, match="at least 100"):
        khat(model, X, y, draws=20)
