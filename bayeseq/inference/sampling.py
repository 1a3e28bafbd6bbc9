"""A run of the elliptical slice sampler: warm-up, thinning, checkpoints, interrupts."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from bayeseq.chain import one_thread
from bayeseq.inference.checkpoint import (
    CheckpointError,
    fingerprint,
    read_checkpoint,
    write_checkpoint,
)
from bayeseq.inference.ensemble import CIRCLE, REFRESH, Ensemble, Reference
from bayeseq.inference.variances import VarianceMoves, VariancePrior
from bayeseq.models.latent import LatentModel, WeightModel


@dataclass(frozen=True)
class Plan:
    """How long to sample, and what."""

    chains: int = 16
    draws: int = 25
    """Kept in each chain"""
    warmup: int = 1000
    """Sweeps before the first that counts"""
    thin: int = 40
    """Sweeps between two draws that are kept"""
    variances: VariancePrior | None = None
    """The prior of log prior variances; None holds the variances"""
    every: int = 20
    """Sweeps between two moves of the prior variances"""
    refresh: int = REFRESH
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("chains", "draws", "thin", "every", "refresh"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.warmup < 0:
            raise ValueError(f"warmup is {self.warmup}; it must not be negative")

    @property
    def sweeps(self) -> int:
        """Of each chain, in all."""
        return self.warmup + self.draws * self.thin

    @property
    def key(self) -> dict[str, Any]:
        """All that decides the draws but their number: a finished run can be made longer."""
        return {k: v for k, v in asdict(self).items() if k != "draws"}


@dataclass(frozen=True, eq=False)
class Run:
    """What a run kept. Draws are (S, n, …): S chains, n draws of each."""

    weights: Tensor
    """(S, n, *latent_shape) in their own units: whitened times the prior standard deviations"""
    log_variance: Tensor | None
    """(S, n, G) log prior variances, where they were sampled"""
    log_likelihood: Tensor
    """(sweeps, S) after each sweep, warm-up included"""
    elapsed: Tensor
    """(sweeps,) seconds from the start to the end of each sweep"""
    cpu_seconds: float
    evaluations: int
    """Of the likelihood of one chain's state"""
    interrupted: bool


CHECKPOINT_SECONDS = 30.0
_RANDOM_WORDS = 4
"""The size of SFC64's state."""


@torch.no_grad()
@one_thread()
def sample(
    model: LatentModel,
    plan: Plan,
    *,
    reference: Reference | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    progress: bool = False,
    name: str = "sampling",
) -> Run:
    """Draws from the posterior of a model's weights.

    With a `checkpoint` folder the state is written there about every so many seconds, at multiples
    of `plan.refresh` sweeps, where it does not depend on the sweeps before; a run that finds a
    state of itself goes on from it, and gives exactly what it would have given uninterrupted. An
    interrupt (Ctrl-C) keeps the draws so far, if every chain has one.
    """
    sampler = _Sampler(model, plan, reference)
    folder = None if checkpoint is None else Path(checkpoint)
    key = "" if folder is None else fingerprint(model, str(plan.key), reference)
    if folder is not None:
        found = read_checkpoint(folder, key)
        if found is not None:
            sampler.restore(*found)
    written = time.perf_counter()
    bar = tqdm(
        total=plan.sweeps,
        initial=min(sampler.sweeps, plan.sweeps),
        desc=name,
        unit="sweep",
        disable=None if progress else True,
        delay=2,
        leave=False,
    )
    interrupted = False
    with bar:
        try:
            while sampler.sweeps < plan.sweeps:
                sampler.step()
                bar.update()
                due = time.perf_counter() - written >= checkpoint_seconds
                last = sampler.sweeps == plan.sweeps
                if folder is not None and sampler.resumable and (due or last):
                    write_checkpoint(folder, key, sampler.numbers(), sampler.tensors())
                    written = time.perf_counter()
        except KeyboardInterrupt:
            if not sampler.kept:
                raise
            interrupted = True
    return sampler.run(interrupted)


class _Sampler:
    """An ensemble, its moves in turn, and what is kept of them."""

    def __init__(self, model: LatentModel, plan: Plan, reference: Reference | None) -> None:
        self.plan = plan
        rng = np.random.Generator(np.random.SFC64(plan.seed))
        self.ensemble = Ensemble(model, plan.chains, rng, reference=reference, refresh=plan.refresh)
        self.moves: VarianceMoves | None = None
        if plan.variances is not None:
            self.moves = VarianceMoves(self.ensemble, plan.variances)
        self.kept: list[Tensor] = []
        self.kept_variances: list[Tensor] = []
        self.trace: list[Tensor] = []
        self.elapsed: list[float] = []
        self.began, self.cpu = time.perf_counter(), time.process_time()
        self.before = (0.0, 0.0)

    @property
    def sweeps(self) -> int:
        return self.ensemble.sweeps

    @property
    def resumable(self) -> bool:
        """Whether the state is the same when computed anew from the weights."""
        return self.sweeps % self.plan.refresh == 0

    def step(self) -> None:
        """A sweep, and whatever is due after it."""
        plan, ensemble = self.plan, self.ensemble
        if self.sweeps == plan.warmup // 2:
            ensemble.tune(True)
        if self.sweeps == plan.warmup:
            ensemble.tune(False)
        ensemble.sweep()
        if self.moves is not None and self.sweeps % plan.every == 0:
            self.moves.sweep()
        self.trace.append(ensemble.log_likelihood.clone())
        self.elapsed.append(self._used()[0])
        after = self.sweeps - plan.warmup
        if after > 0 and after % plan.thin == 0:
            self.kept.append(self._weights())
            if self.moves is not None:
                self.kept_variances.append(ensemble.log_variance[..., 0].clone())

    def _weights(self) -> Tensor:
        model, weights = self.ensemble.model, self.ensemble.weights
        return model.scaled(weights) if isinstance(model, WeightModel) else weights.clone()

    # ---- checkpoints ----------------------------------------------------------------------------

    def numbers(self) -> dict[str, Any]:
        """What of the state JSON holds."""
        state = self.ensemble.rng.bit_generator.state
        return {
            "sweeps": self.sweeps,
            "evaluations": self.ensemble.evaluations,
            "width": self.ensemble.width,
            "tuning": self.ensemble.tuning,
            "random": {
                "state": [int(x) for x in state["state"]["state"]],
                "has_uint32": int(state["has_uint32"]),
                "uinteger": int(state["uinteger"]),
            },
            "seconds": self._used(),
        }

    def tensors(self) -> dict[str, np.ndarray]:
        """The rest of it."""
        shape = (0, self.plan.chains, *self.ensemble.model.latent_shape)
        found = {
            "white": self.ensemble.white.numpy(),
            "trace": torch.stack(self.trace).numpy(),
            "elapsed": np.array(self.elapsed),
            "weights": _stacked(self.kept, shape).numpy(),
        }
        if self.moves is not None:
            G = len(self.moves.counts)
            found["log_variance"] = self.ensemble.log_variance[..., 0].numpy()
            found["variances"] = _stacked(self.kept_variances, (0, self.plan.chains, G)).numpy()
        return found

    def restore(self, index: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        """Go back to a state that was written."""
        try:
            self._restore(index, tensors)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CheckpointError(
                f"the checkpoint does not fit together ({error}); delete its folder to start afresh"
            ) from error

    def _restore(self, index: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        plan, ensemble = self.plan, self.ensemble
        sweeps = int(index["sweeps"])
        n = max(0, sweeps - plan.warmup) // plan.thin
        shape = (plan.chains, *ensemble.model.latent_shape)
        white = _checked(tensors, "white", shape)
        self.trace = list(_checked(tensors, "trace", (sweeps, plan.chains)))
        self.elapsed = _checked(tensors, "elapsed", (sweeps,)).tolist()
        self.kept = list(_checked(tensors, "weights", (n, *shape)))
        if self.moves is not None:
            G = len(self.moves.counts)
            ensemble.log_variance[:] = _checked(
                tensors, "log_variance", (plan.chains, G)
            ).unsqueeze(-1)
            self.kept_variances = list(_checked(tensors, "variances", (n, plan.chains, G)))
        ensemble.set_white(white)
        ensemble.sweeps, ensemble.evaluations = sweeps, int(index["evaluations"])
        ensemble.width = float(index["width"])
        tuning = index["tuning"]
        ensemble.tuning = None if tuning is None else (float(tuning[0]), int(tuning[1]))
        if not 0 < ensemble.width <= CIRCLE:
            raise ValueError(f"the bracket is {ensemble.width}")
        random = index["random"]
        if len(random["state"]) != _RANDOM_WORDS:
            raise ValueError("the state of the random numbers is not whole")
        ensemble.rng.bit_generator.state = {
            "bit_generator": "SFC64",
            "state": {"state": np.array(random["state"], dtype=np.uint64)},
            "has_uint32": int(random["has_uint32"]),
            "uinteger": int(random["uinteger"]),
        }
        self.before = (float(index["seconds"][0]), float(index["seconds"][1]))
        # a run that is asked for fewer draws than it has made gives the first ones
        self.kept, self.kept_variances = self.kept[: plan.draws], self.kept_variances[: plan.draws]

    # ---- the end --------------------------------------------------------------------------------

    def _used(self) -> tuple[float, float]:
        wall, cpu = time.perf_counter() - self.began, time.process_time() - self.cpu
        return self.before[0] + wall, self.before[1] + cpu

    def run(self, interrupted: bool) -> Run:
        """What was kept."""
        return Run(
            torch.stack(self.kept, 1),
            torch.stack(self.kept_variances, 1) if self.moves is not None else None,
            torch.stack(self.trace),
            torch.tensor(self.elapsed, dtype=torch.float64),
            self._used()[1],
            self.ensemble.evaluations,
            interrupted,
        )


def _stacked(tensors: list[Tensor], empty: tuple[int, ...]) -> Tensor:
    return torch.stack(tensors) if tensors else torch.zeros(empty, dtype=torch.float64)


def _checked(tensors: dict[str, np.ndarray], name: str, shape: tuple[int, ...]) -> Tensor:
    array = tensors[name]
    if array.shape != shape or array.dtype != np.float64 or not np.isfinite(array).all():
        raise ValueError(f"{name} is not {shape} finite numbers")
    return torch.from_numpy(np.array(array))
