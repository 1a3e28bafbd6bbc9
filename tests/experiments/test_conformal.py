"""The experiment on conformal sets: divisions against the public functions, bands by simulation."""

import numpy as np
import pytest
from scipy.stats import betabinom

from bayeseq import CRF
from bayeseq.analysis.conformal import Conformal
from bayeseq.experiments import conformal
from tests.labelers.conformance import easy_task


@pytest.mark.parametrize("guarantee", ["token", "sentence"])
def test_a_division_is_what_the_wrapper_says(guarantee):
    X, y = easy_task(0, 60)
    names = sorted({label for labels in y for label in labels})
    tags = dict(zip(names, ("O", "B-x", "I-x"), strict=True))
    y = [[tags[label] for label in labels] for labels in y]
    crf = CRF(l2=3.0).fit(X[:8], y[:8])
    held = conformal.held_out(crf, X[8:], y[8:])
    found = conformal.divide(held, np.arange(30), np.arange(30, 52), guarantee)
    for nonempty, prefix in ((False, ""), (True, "nonempty_")):
        wrapper = Conformal(crf, guarantee=guarantee, nonempty=nonempty)
        scores = wrapper.calibrate(X[8:38], y[8:38]).evaluate(X[38:], y[38:])
        assert found[f"{prefix}coverage"] == pytest.approx(scores.coverage)
        assert found[f"{prefix}size"] == pytest.approx(scores.mean_size)
    assert held.error == pytest.approx(1 - crf.score(X[8:], y[8:]))


def test_the_band_holds_the_mean_of_divisions():
    """Coverages drawn as they are for one split: the mean is inside, a shifted one is not."""
    rng = np.random.default_rng(0)
    rank = int(np.ceil(0.9 * 101))
    draws = betabinom(50, rank, 101 - rank).rvs(size=(5, 40), random_state=rng) / 50
    mean, lower, upper = conformal.band_of_mean(draws, 100, 1)
    assert mean == pytest.approx(draws.mean())
    assert lower < mean < upper
    assert upper - lower == pytest.approx(1 / 101 + 2 * (0.9 - lower))
    assert not lower < conformal.band_of_mean(draws - 0.03, 100, 1)[0]
    assert conformal.share_in_band(draws.ravel(), 100, 50) >= 0.9
    assert conformal.share_in_band(np.zeros(3), 100, 50) == 0


def test_the_tables_say_what_was_not_reached():
    part = {"coverage": [0.9, 0.92], "size": 1.2, "empty": 0.0, "calibrate": 30}
    part |= {"nonempty_coverage": 0.92, "nonempty_size": 1.2}
    record = {"calibrate": 30, "judge": 20, "token": part, "sentence": part}
    assert conformal._cells([record], "token")[3] == "yes"
    assert len(conformal._cells([record], "sentence")) == 9
    summed = conformal._summed([{"coverage": np.nan, "calibrate": 30}] * 2)
    assert summed == {"coverage": [None, None], "calibrate": 30}
    record["entity"] = {"coverage": [None, 0.9], "calibrate": 30}
    assert conformal._cells([record], "entity")[1] == "not reached"
