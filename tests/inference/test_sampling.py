"""Runs of the sampler: what is kept, checkpoints, kills, interrupts."""

import json
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bayeseq.inference import sampling
from bayeseq.inference.checkpoint import CheckpointError, fingerprint
from bayeseq.inference.reference import DenseReference
from bayeseq.inference.sampling import Plan, sample
from bayeseq.inference.variances import VariancePrior
from tests.inference.test_elliptical import regression, tiny_chain

PLAN = Plan(chains=3, draws=8, warmup=20, thin=5, variances=VariancePrior(), every=4, refresh=5)


def reference(model):
    D = int(np.prod(model.latent_shape))
    spread = 0.5 * torch.eye(D).double() + 0.1
    return DenseReference.of(torch.full(model.latent_shape, 0.1).double(), spread)


def assert_same_run(a, b):
    assert torch.equal(a.weights, b.weights)
    assert torch.equal(a.log_likelihood, b.log_likelihood)
    assert torch.equal(a.log_variance, b.log_variance)
    assert a.evaluations == b.evaluations


def test_what_a_run_keeps():
    model = tiny_chain()
    run = sample(model, PLAN)
    assert run.weights.shape == (3, 8, *model.latent_shape)
    assert run.log_variance.shape == (3, 8, 3)
    assert run.log_likelihood.shape == (60, 3)
    assert bool((run.elapsed.diff() >= 0).all())
    # the weights are in their own units: the likelihood of the last draw is the last of the trace
    last = replace(model, log_variance=torch.zeros_like(model.log_variance))
    found = last.log_likelihood(run.weights[:, -1]).sum(-1)
    np.testing.assert_allclose(found, run.log_likelihood[-1], atol=1e-5)
    assert_same_run(run, sample(model, PLAN))
    assert not torch.equal(run.weights, sample(model, replace(PLAN, seed=1)).weights)


def test_a_model_without_variances():
    run = sample(regression(), Plan(chains=2, draws=3, warmup=4, thin=2))
    assert run.weights.shape == (2, 3, 3)
    assert run.log_variance is None


@pytest.mark.parametrize("with_reference", [False, True])
def test_a_longer_run_goes_on_from_a_shorter_one(tmp_path, with_reference):
    model = tiny_chain()
    about = reference(model) if with_reference else None
    whole = sample(model, PLAN, reference=about)
    for draws in (1, 3, 8):
        found = sample(
            model, replace(PLAN, draws=draws), reference=about, checkpoint=tmp_path / "run"
        )
        assert torch.equal(found.weights, whole.weights[:, :draws])
    assert_same_run(found, whole)
    again = sample(model, replace(PLAN, draws=2), reference=about, checkpoint=tmp_path / "run")
    assert torch.equal(again.weights, whole.weights[:, :2])
    assert len(list((tmp_path / "run").iterdir())) == 2


SCRIPT = """
import sys
sys.path.insert(0, {root!r})
import torch
from dataclasses import replace
from tests.inference.test_elliptical import tiny_chain
from tests.inference.test_sampling import PLAN, reference
from bayeseq.inference.sampling import sample
model = tiny_chain()
print("ready", flush=True)
sample(model, replace(PLAN, draws=120), reference=reference(model), checkpoint={folder!r},
       checkpoint_seconds=0.0)
"""


def test_a_run_that_is_killed_gives_the_same_draws(tmp_path):
    """SIGKILL at random moments, again and again, then a run to the end."""
    folder, rng = tmp_path / "run", random.Random(0)
    root = str(Path(__file__).parents[2])
    script = SCRIPT.format(root=root, folder=str(folder))
    killed = 0
    for _ in range(2):
        process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        process.stdout.readline()
        time.sleep(rng.uniform(0.1, 0.8))
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        process.stdout.close()
    assert killed
    model, plan = tiny_chain(), replace(PLAN, draws=120)
    assert 0 < json.loads((folder / "checkpoint.json").read_bytes())["sweeps"] <= plan.sweeps
    resumed = sample(model, plan, reference=reference(model), checkpoint=folder)
    assert_same_run(resumed, sample(model, plan, reference=reference(model)))


def test_another_run_is_refused(tmp_path):
    model = tiny_chain()
    sample(model, PLAN, checkpoint=tmp_path)
    others = [
        (replace(model, weights=2 * model.weights), PLAN, None),
        (tiny_chain(seed=1), PLAN, None),
        (replace(model, log_variance=model.log_variance + 1), PLAN, None),
        (model, replace(PLAN, seed=1), None),
        (model, replace(PLAN, thin=2), None),
        (model, replace(PLAN, variances=VariancePrior(sd=1.0)), None),
        (model, PLAN, reference(model)),
    ]
    for other, plan, about in others:
        with pytest.raises(CheckpointError, match="other data or settings"):
            sample(other, plan, reference=about, checkpoint=tmp_path)
    sample(model, PLAN, checkpoint=tmp_path)


def test_damaged_checkpoints_are_refused(tmp_path):
    model, folder = tiny_chain(), tmp_path / "run"
    sample(model, PLAN, checkpoint=folder)
    index = folder / "checkpoint.json"
    good = index.read_bytes()
    content = json.loads(good)
    tensors = folder / content["tensors"]
    numbers = tensors.read_bytes()
    changes = [
        {"sweeps": 10},
        {"sweeps": "many"},
        {"random": {"state": [1], "has_uint32": 0, "uinteger": 0}},
        {"width": 0.0},
        {"tensors": "../x.safetensors"},
        {"format": 7},
        {"sha256": "0"},
    ]
    for change in changes:
        index.write_text(json.dumps({**content, **change}))
        with pytest.raises(CheckpointError, match="delete"):
            sample(model, PLAN, checkpoint=folder)
    for text in (b"", b"{", b"[]", b"\xff"):
        index.write_bytes(text)
        with pytest.raises(CheckpointError, match="damaged"):
            sample(model, PLAN, checkpoint=folder)
    index.write_bytes(good)
    tensors.write_bytes(numbers[:-1])
    with pytest.raises(CheckpointError, match="not the file"):
        sample(model, PLAN, checkpoint=folder)
    tensors.unlink()
    with pytest.raises(CheckpointError, match="damaged"):
        sample(model, PLAN, checkpoint=folder)


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("")
    with pytest.raises(CheckpointError, match="choose another folder"):
        sample(tiny_chain(), PLAN, checkpoint=tmp_path)


def test_an_interrupt_keeps_the_draws(monkeypatch):
    model, whole = tiny_chain(), sample(tiny_chain(), PLAN)
    step = sampling._Sampler.step

    def stopping(at):
        def stop(self):
            step(self)
            if self.sweeps == at:
                raise KeyboardInterrupt

        monkeypatch.setattr(sampling._Sampler, "step", stop)

    stopping(37)
    found = sample(model, PLAN)
    assert found.interrupted
    assert torch.equal(found.weights, whole.weights[:, :3])
    assert len(found.elapsed) == 37
    stopping(10)
    with pytest.raises(KeyboardInterrupt):
        sample(model, PLAN)


def test_fingerprints_tell_content_apart():
    model = tiny_chain()
    assert fingerprint(model) == fingerprint(tiny_chain())
    assert fingerprint(regression(0)) != fingerprint(regression(1))
    assert fingerprint([1, [2]]) != fingerprint([[1], 2])
    assert fingerprint(1) != fingerprint("1") != fingerprint(None)


@pytest.mark.parametrize("name", ["chains", "draws", "thin", "every", "refresh"])
def test_plans_that_make_no_sense(name):
    with pytest.raises(ValueError, match=name):
        Plan(**{name: 0})
    with pytest.raises(ValueError, match="warmup"):
        Plan(warmup=-1)
