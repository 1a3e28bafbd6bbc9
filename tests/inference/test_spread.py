"""How far draws spread: chosen by folds that were not seen."""

import numpy as np
import pytest
import torch

from bayeseq.inference import spread
from bayeseq.inference.chain_gaussian import ChainSolver
from bayeseq.inference.information import JointFamily
from bayeseq.inference.spread import choose_spread
from tests.inference.chains import chain_model


def fitted(model, draws=64):
    family = JointFamily("full")
    learned = torch.zeros(len(model.log_variance), dtype=torch.bool)
    found, _ = ChainSolver(model, family, learned, draws=draws, tol=1e-7).variational()
    return found, family


def test_the_posterior_without_a_fold_is_that_of_a_fit_without_it(monkeypatch):
    """The held-out mean scores, against a fit to the other sequences from the start."""
    model = chain_model(6, (4,) * 12, C=2, D=3, variance=1.0)
    posterior, family = fitted(model)
    seen = []
    of = spread._HeldOut.of.__func__

    def watched(cls, part, *rest):
        seen.append((part, of(cls, part, *rest)))
        return seen[-1][1]

    monkeypatch.setattr(spread._HeldOut, "of", classmethod(watched))
    choose_spread(model, posterior, family, draws=64)
    assert len(seen) == spread.FOLDS
    part, found = seen[1]
    others = model.select(torch.tensor([i for i in range(12) if i % 4 != 1]))
    refit, _ = fitted(others)
    want = part.seen(refit.whitened_mean)
    sd = float(torch.stack([d.std() for d in found.deviation]).mean())
    for got, expected in zip(found.mean, want, strict=True):
        assert float((got - expected).abs().max()) < 0.15 * sd


def test_the_spread_has_the_least_held_out_loss(monkeypatch):
    model = chain_model(7, (5, 4, 6, 3) * 3, C=3, D=4, variance=4.0)
    posterior, family = fitted(model, 16)
    parts = []
    of = spread._HeldOut.of.__func__

    def watched(cls, *args):
        parts.append(of(cls, *args))
        return parts[-1]

    monkeypatch.setattr(spread._HeldOut, "of", classmethod(watched))
    chosen = choose_spread(model, posterior, family)

    def loss(kappa):
        return sum(p.loss(kappa) for p in parts) + 0.5 * ((1 - kappa) / 0.25) ** 2

    grid = [loss(kappa) for kappa in np.linspace(0, 1, 21)]
    assert loss(chosen) < min(grid) + 0.01
    assert 0 <= chosen <= 1


@pytest.mark.parametrize("lengths", [(4,), (3, 3)])
def test_with_nothing_to_hold_out_the_spread_is_the_posteriors(lengths):
    model = chain_model(0, lengths, missing=0.0 if len(lengths) == 1 else 1.1)
    posterior, family = fitted(model, 8)
    assert choose_spread(model, posterior, family) == 1.0
