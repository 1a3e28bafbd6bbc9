"""Simulation-based calibration: right inferences pass, wrong ones fail, and labels are drawn from
the model."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from bayeseq import CRF, GPSC, GPSL, GPStruct, sbc
from bayeseq.analysis.sbc import _simulated, _unlabelled
from bayeseq.diagnostics.sbc import SBC
from tests.analysis.problems import log_mean, prior_likelihoods

X = [[["a"], ["b"], ["a"]], [["b"], ["a", "c"]], [["c"], ["b"]], [["a"]]]
SAMPLER = GPStruct(
    chains=39, draws=1, warmup=25, thin=1, learn=False, reference="prior", progress=False
)
GAUSSIAN = GPSL(learn=False, progress=False)


def test_a_sampler_passes():
    found = sbc(SAMPLER, X, ["A", "B"], simulations=40, draws=39)
    assert found.ranks.shape == (40, 1 + 4 + 6)
    assert (found.ranks.min(), found.ranks.max() <= 39) == (0, True)
    assert found.p_value > 0.01
    assert all(found.check(name, level=0.999).is_uniform for name in found.names)


class Narrow(GPSL):
    """A GPSL that is twice as sure of its weights as it should be."""

    def _learn(self, data):
        result = super()._learn(data)
        q = self.posterior_
        draws = type(q).draws
        narrow = replace(q)
        object.__setattr__(
            narrow, "draws", lambda n, generator: q.mean + (draws(q, n, generator) - q.mean) / 2
        )
        self.posterior_ = narrow
        return result


def test_half_the_standard_deviation_fails():
    wide = sbc(GAUSSIAN, X, ["A", "B"], simulations=40)
    narrow = sbc(Narrow(learn=False, progress=False), X, ["A", "B"], simulations=40)
    assert wide.p_value > 0.001
    assert narrow.p_value < 1e-4
    outer = [np.mean((found.ranks < 10) | (found.ranks >= 90)) for found in (wide, narrow)]
    assert outer[0] < 0.3
    assert outer[1] > 0.4


def test_a_biased_posterior_fails():
    class Shifted(GPSL):
        def _learn(self, data):
            result = super()._learn(data)
            self.posterior_ = replace(self.posterior_, mean=self.posterior_.mean + 0.8)
            return result

    found = sbc(Shifted(learn=False, progress=False), X, ["A", "B"], simulations=40)
    assert found.p_value < 1e-3
    assert found.ranks[:, 1:].mean() < 0.4 * 99


@pytest.mark.parametrize(
    "labeler",
    [GPSC(inference="laplace", learn=False, progress=False), GAUSSIAN],
    ids=lambda m: type(m).__name__,
)
def test_labels_are_drawn_from_the_model(labeler):
    """Each labelling of a sentence as often as its mean probability under the prior says."""
    sentence = [["a"], ["b"]]
    data = _unlabelled(labeler, [sentence], ["A", "B"])
    generator = torch.Generator().manual_seed(0)
    n = 500
    codes = []
    for _ in range(n):
        _, told = _simulated(labeler, data, generator)
        codes.append(tuple(told.batch.allowed.to(torch.int64).argmax(-1).tolist()))
    for path in itertools.product((0, 1), repeat=2):
        y = ["AB"[k] for k in path]
        each = prior_likelihoods([sentence], [y], 30_000, isinstance(labeler, GPSL))
        p = float(np.exp(log_mean(each[:, 0])))
        error = np.sqrt(p * (1 - p) / n)
        assert abs(codes.count(path) / n - p) < 4 * error


def test_other_inferences_and_offsets():
    """Labels that do not occur in a simulation do not matter; nor does the side of the label."""
    short = X[2:]
    for labeler in (
        GPSC(inference="laplace", learn=False, progress=False),
        GPSC(inference="vg", learn=False, progress=False),
        GPSL((1, 2), learn=False, progress=False),
        GPSL((), learn=False, progress=False),
    ):
        found = sbc(labeler, short, ["A", "B", "C"], simulations=3, draws=20)
        assert found.ranks.shape[0] == 3
        assert found.names[0] == "log-likelihood"
        again = sbc(labeler, short, ["A", "B", "C"], simulations=3, draws=20)
        assert (again.ranks == found.ranks).all()
    assert "b for A" in found.names


def test_the_record():
    rng = np.random.default_rng(0)
    uniform, ends = rng.integers(0, 100, size=200), rng.choice([0, 99], size=200)
    found = SBC(("one", "two"), np.stack([uniform, ends], 1), 99, 3)
    counts = np.bincount(uniform // 10, minlength=10)
    statistic = ((counts - 20.0) ** 2 / 20).sum()
    assert found.p_values[0] == pytest.approx(chi2.sf(statistic, 9))
    assert found.p_value == 2 * found.p_values[1] < 1e-20
    lines = found.table().splitlines()
    assert lines[2].split()[0] == "two"
    assert lines[2].split()[-1] == "100"
    assert "3 fits did not converge" in str(found)
    with pytest.raises(KeyError, match="none of the quantities: one, two"):
        found.check("three")


def test_mistakes():
    with pytest.raises(TypeError, match="sbc judges a posterior"):
        sbc(CRF(), X, ["A", "B"])
    with pytest.raises(TypeError, match="sbc judges a posterior"):
        sbc(GPSC(inference="map", learn=False), X, ["A", "B"])
    with pytest.raises(ValueError, match="learn=False"):
        sbc(GPSC(), X, ["A", "B"])
    with pytest.raises(ValueError, match="all dependencies lie on one side"):
        sbc(GPSL((-1, 1), learn=False), X, ["A", "B"])
    with pytest.raises(ValueError, match="hidden and scheme"):
        sbc(GPSL(hidden=0.5, learn=False), X, ["A", "B"])
    with pytest.raises(ValueError, match="the labeler keeps 39"):
        sbc(SAMPLER, X, ["A", "B"])
    with pytest.raises(ValueError, match="simulations is 0"):
        sbc(GAUSSIAN, X, ["A", "B"], simulations=0)
