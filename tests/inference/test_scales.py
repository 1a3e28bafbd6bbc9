"""The scales for prediction: no others nearby have a lower log loss, by enumeration."""

import itertools

import numpy as np
import pytest
import torch

from bayeseq.inference.dependencies import Dependencies
from bayeseq.inference.scales import Scales, choose_scales
from bayeseq.shapes import Layout
from tests.inference import oracles


def drawn(offsets, lengths, C=3):
    """Scores that tell too much, labels, sequence weights; in the order of the sequences."""
    rng = np.random.default_rng(len(lengths))
    labels = rng.integers(C, size=sum(lengths))
    f = 3 * rng.normal(size=(sum(lengths), C)) + 2 * np.eye(C)[labels]
    g = 2 * rng.normal(size=(len(offsets), C, C))
    return f, g, labels, 0.5 + rng.random(len(lengths))


def loss(logs, f, g, offsets, lengths, labels, weights):
    """The weighted log loss of each label by all labellings, and the small penalty."""
    total, count, start = 0.0, 0.0, 0
    for length, weight in zip(lengths, weights, strict=True):
        rows = slice(start, start + length)
        sets = [set(range(f.shape[1]))] * length
        joint = oracles.joint(np.exp(logs[0]) * f[rows], np.exp(logs[-1]) * g, offsets, sets)
        proba = oracles.label_marginals(joint, length, f.shape[1])
        total -= weight * np.log(proba[np.arange(length), labels[rows]]).sum()
        count += weight * length
        start += length
    return total / count + 1e-3 * np.square(logs).sum()


@pytest.mark.parametrize("offsets", [(), (-1,), (-1, 1)])
def test_no_other_scales_nearby_have_a_lower_loss(offsets):
    lengths = [4, 1, 3, 4, 2, 4]
    f, g, labels, weights = drawn(offsets, lengths)
    layout = Layout.of(lengths)
    allowed = torch.zeros(len(labels), 3, dtype=torch.bool)
    allowed[torch.arange(len(labels)), torch.tensor(labels)] = True
    found = choose_scales(
        layout.pack(torch.tensor(f)),
        torch.tensor(g),
        Dependencies(offsets, layout),
        layout.pack(allowed),
        torch.tensor(weights),
    )
    n = 2 if offsets else 1
    logs = np.log([found.local, found.dependency][:n])
    assert np.abs(logs).max() > 0.1
    least = loss(logs, f, g, offsets, lengths, labels, weights)
    for step in itertools.product([-0.03, 0.0, 0.03], repeat=n):
        there = np.clip(logs + np.array(step), -3.0, 2.0)  # the bounds of the search
        other = loss(there, f, g, offsets, lengths, labels, weights)
        assert other >= least - 1e-9
    assert loss(np.zeros(n), f, g, offsets, lengths, labels, weights) > least + 1e-3


def test_one_sequence_or_no_label_leaves_the_scores_alone():
    for lengths, known in (([3], True), ([2, 2], False)):
        layout = Layout.of(lengths)
        allowed = torch.ones(sum(lengths), 2, dtype=torch.bool)
        allowed[:, 1] = not known
        f, g = torch.zeros(sum(lengths), 2).double(), torch.zeros(1, 2, 2).double()
        weights = torch.ones(len(lengths)).double()
        assert choose_scales(f, g, Dependencies((-1,), layout), allowed, weights) == Scales()
