"""GPStruct: its averages against enumeration, its ways to the same posterior, its checkpoints."""

import copy
import itertools
import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

import bayeseq
from bayeseq import GPStruct
from bayeseq.inference import sampling
from bayeseq.inference.checkpoint import CheckpointError
from tests.labelers.conformance import NEW, SETTINGS, X, Y, easy_task

QUICK = {**SETTINGS["GPStruct"], "decode": "marginal"}


@pytest.fixture(scope="module")
def model():
    return GPStruct(**QUICK).fit(X, Y)


def enumerated(model, x, weights):
    """(T, C) marginals under one draw of the weights, by a loop over all labellings."""
    names, C = model.feature_space_.names, len(model.classes_)
    f = np.zeros((len(x), C))
    for t, token in enumerate(x):
        for name in token:
            if name in names:
                f[t] += weights[names.index(name)]
    A = weights[len(names) :]
    labellings = list(itertools.product(range(C), repeat=len(x)))
    scores = np.array(
        [
            sum(f[t, c] for t, c in enumerate(labels))
            + sum(A[a, b] for a, b in itertools.pairwise(labels))
            for labels in labellings
        ]
    )
    p = np.exp(scores - np.logaddexp.reduce(scores))
    found = np.zeros((len(x), C))
    for labels, q in zip(labellings, p, strict=True):
        for t, c in enumerate(labels):
            found[t, c] += q
    return found


def test_probabilities_are_averages_over_the_draws(model):
    draws = model.posterior_.weights.flatten(0, 1).numpy().astype(np.float64)
    for x, found, each in zip(
        NEW, model.predict_proba(NEW), model.posterior_predict(NEW), strict=True
    ):
        want = np.array([enumerated(model, x, w) for w in draws])
        np.testing.assert_allclose(each, want, atol=1e-10)
        np.testing.assert_allclose(found, want.mean(0), atol=1e-10)


def test_fewer_draws_are_some_of_those_kept(model):
    whole = model.posterior_predict(NEW)[0]
    assert whole.shape[0] == 8 * 20
    some = model.posterior_predict(NEW, 16)[0]
    assert all(any(np.array_equal(a, b) for b in whole) for a in some)
    assert len(model.posterior_predict(NEW, 3)[0]) == 3
    with pytest.raises(ValueError, match="160 were kept"):
        model.posterior_predict(NEW, 161)


def test_arviz_sees_the_chains(model):
    found = model.to_arviz(X, Y, weights=2)
    assert found["posterior"]["dependency"].shape == (8, 20, 1, 3, 3)
    assert found["posterior"]["weight"].shape == (8, 20, 2, 3)
    labels = found["log_likelihood"]["labels"]
    assert labels.shape == (8, 20, len(X))
    # what the sampler saw of its last draws, to the precision in which they are kept
    total = labels.sum("sentence").values[:, -1].mean()
    np.testing.assert_allclose(total, model.result_.objective[-1], rtol=1e-5)


def test_references_lead_to_the_same_posterior():
    """Probabilities from three references, and from GPstruct's own way, with their standard errors
    from the chains' means."""
    data, labels = easy_task(0, 8)
    means, errors = [], []
    for reference, seed in (("prior", 0), ("laplace", 1), ("variational", 2)):
        settings = {"chains": 12, "draws": 20, "warmup": 80, "thin": 6, "learn": False}
        fitted = GPStruct(reference=reference, random_state=seed, progress=False, **settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fitted.fit(data, labels)
        each = np.concatenate(fitted.posterior_predict(data[:3]), 1)
        by_chain = each.reshape(12, 20, *each.shape[1:]).mean(1)
        means.append(by_chain.mean(0))
        errors.append(by_chain.std(0, ddof=1) / np.sqrt(12))
    for a, b in itertools.combinations(range(3), 2):
        error = np.hypot(errors[a], errors[b])
        assert error.max() < 0.05
        np.testing.assert_array_less(np.abs(means[a] - means[b]), 5 * error + 1e-3)


def test_sampled_variances_are_kept_and_saved(tmp_path):
    settings = {**QUICK, "learn": "sample", "groups": None, "thin": 10}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = GPStruct(**settings).fit(X, Y)
    assert fitted.posterior_.log_variances.shape == (8, 20, 2)
    assert float(fitted.posterior_.log_variances.std()) > 0.3
    assert {"log_likelihood", "transitions", "log_variance"} == set(
        fitted.result_.hyperparameters["r_hat"]
    )
    fitted.save(tmp_path / "model")
    loaded = bayeseq.load(tmp_path / "model")
    for a, b in zip(loaded.predict_proba(NEW), fitted.predict_proba(NEW), strict=True):
        assert np.array_equal(a, b)
    assert torch.equal(loaded.posterior_.log_variances, fitted.posterior_.log_variances)


def test_learned_variances_are_those_of_the_reference():
    data, labels = easy_task(1, 12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = GPStruct(**{**QUICK, "learn": True, "thin": 2}).fit(data, labels)
    variance = fitted.result_.hyperparameters["variance"]
    assert set(variance) == {"word", "hint"}
    assert variance["hint"] > variance["word"]


def test_a_fit_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    whole = GPStruct(**QUICK).fit(X, Y)
    settings = {**QUICK, "checkpoint": str(tmp_path / "run")}
    step = sampling._Sampler.step

    def stop(self):
        step(self)
        if self.sweeps == 150:
            raise KeyboardInterrupt

    monkeypatch.setattr(sampling._Sampler, "step", stop)
    with pytest.warns(ConvergenceWarning, match="interrupted after 150 sweeps"):
        part = GPStruct(**settings).fit(X, Y)
    assert part.result_.interrupted
    assert part.posterior_.weights.shape[1] == (150 - 20) // QUICK["thin"]
    monkeypatch.setattr(sampling._Sampler, "step", step)
    again = GPStruct(**settings).fit(X, Y)
    assert torch.equal(again.posterior_.weights, whole.posterior_.weights)
    with pytest.raises(CheckpointError, match="other data or settings"):
        GPStruct(**settings).fit(X[1:], Y[1:])


def test_chains_that_do_not_agree_are_told_of():
    data, labels = easy_task(2, 20)
    with pytest.warns(
        ConvergenceWarning, match=r"R-hat .* raise warmup and thin, or use reference"
    ):
        fitted = GPStruct(
            chains=4, draws=20, warmup=0, thin=1, reference="prior", learn=False, progress=False
        ).fit(data, labels)
    assert not fitted.result_.converged


def test_kernels_with_residual_variance():
    fitted = GPStruct(**{**QUICK, "kernel": "rbf(scale=0.5)", "inducing": 4}).fit(X, Y)
    for proba, again in zip(fitted.predict_proba(NEW), fitted.predict_proba(NEW), strict=True):
        np.testing.assert_allclose(proba.sum(-1), 1.0)
        assert np.array_equal(proba, again)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"reference": "mode"}, "reference"),
        ({"learn": "yes"}, "learn"),
        ({"variance": 0.0}, "variance"),
        ({"chains": 0}, "chains"),
        ({"warmup": -1}, "warmup"),
        ({"thin": 0}, "thin"),
        ({"kernel": 3}, "kernel"),
    ],
)
def test_settings_that_make_no_sense(change, says):
    with pytest.raises(ValueError, match=says):
        GPStruct(**{**QUICK, **change}).fit(X, Y)


def test_saved_draws_are_checked(model):
    tensors = model._tensors()
    bad = [
        {"draws": tensors["draws"][:, :, 1:]},
        {"draws": tensors["draws"][:0]},
        {"draws": tensors["draws"].astype(np.float64)},
        {"draws": np.full_like(tensors["draws"], np.nan)},
        {"log_variances": tensors["log_variances"][..., 1:]},
    ]
    for change in bad:
        with pytest.raises(ValueError, match=r"draws|log_variances"):
            copy.copy(model)._restore({**tensors, **change})
