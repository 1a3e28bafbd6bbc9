"""The hidden Markov model: counts, smoothed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bayeseq.baselines.optimise import interrupted_message, max_iter_message
from bayeseq.chain import Chain, constrain, forward_backward, one_thread
from bayeseq.data.batch import SequenceBatch
from bayeseq.labelers.base import FitResult, TrainingData
from bayeseq.labelers.chain import ChainLabeler, obey_scheme, require_scheme


class HMM(ChainLabeler):
    """Hidden Markov model with discrete emissions, fitted by smoothed counts.

    A token emits its features independently given its label, each from the label's distribution
    over all features; overlapping features (a window of words, spelling) are simply all emitted,
    which breaks the model's assumption and still beats the word alone ([hmsvm] section 8.1).
    Features that are unknown at prediction emit nothing. Where labels are missing, or are sets,
    the counts are expected counts, and EM repeats until the likelihood settles.

    Parameters
    ----------
    smoothing : added to every count of an emission, transition and first label.
    min_count : features that occur fewer times in training are left out.
    scheme, decode : see `ChainLabeler`.
    max_iter, tol : EM stops after so many rounds, or when the log-likelihood rises by less than
        `tol` of itself; with all labels known one round is exact.

    `result_.objective` holds the penalised log-likelihood of features and known labels by round:
    log p(x, y) plus the log-prior of the smoothing.

    >>> hmm = HMM().fit([[["a"], ["b"]], [["b"], ["a"]]], [["A", "B"], ["B", "A"]])
    >>> hmm.predict([[["a"], ["a"], ["b"]]])
    [['A', 'A', 'B']]
    """

    log_initial_: np.ndarray
    log_transitions_: np.ndarray
    log_emissions_: np.ndarray

    def __init__(
        self,
        smoothing: float = 0.1,
        min_count: int = 1,
        scheme: str | None = None,
        decode: str = "viterbi",
        max_iter: int = 100,
        tol: float = 1e-6,
    ) -> None:
        self.smoothing = smoothing
        self.min_count = min_count
        self.scheme = scheme
        self.decode = decode
        self.max_iter = max_iter
        self.tol = tol

    @one_thread()
    def _learn(self, data: TrainingData) -> FitResult:
        batch = data.batch
        if self.smoothing <= 0:
            raise ValueError(f"smoothing is {self.smoothing}; it must be above 0")
        if batch.features.nnz and batch.features.data.min() < 0:
            raise ValueError("an HMM emits features; their values cannot be negative")
        if self.scheme is not None:
            require_scheme(data, self.scheme)
        assert batch.allowed is not None
        began = time.perf_counter()
        # The first round's counts: known labels as they are, the others spread over what is allowed
        spread = batch.allowed.to(torch.float64)
        spread /= spread.sum(-1, keepdim=True)
        first = batch.layout.n_tokens - batch.layout.n_pairs
        weights = batch.weights[batch.layout.sequence].unsqueeze(-1)
        pairs = spread[batch.layout.previous].T @ (spread[first:] * weights[first:])
        tables = _Tables.counted(batch, spread * weights, pairs, self.smoothing)
        complete = bool((batch.allowed.sum(-1) == 1).all())
        trace: list[float] = []
        elapsed: list[float] = []
        converged, message, interrupted = False, "", False
        try:
            while not converged and len(trace) < self.max_iter:
                chain = constrain(tables.scores(batch), allowed=batch.allowed)
                chain = obey_scheme(chain, self.scheme, data.labels.classes)
                found = forward_backward(chain, "sum", batch.weights)
                log_likelihood = float(batch.weights @ found.log_partition)
                trace.append(log_likelihood + self.smoothing * tables.sum())
                elapsed.append(time.perf_counter() - began)
                change = trace[-1] - trace[-2] if len(trace) > 1 else np.inf
                converged = complete or change <= self.tol * abs(trace[-1])
                if not converged:
                    assert found.pairs is not None
                    tables = _Tables.counted(
                        batch, found.unary * weights, found.pairs, self.smoothing
                    )
        except KeyboardInterrupt:
            message, interrupted = interrupted_message(len(trace)), True
        if not converged and not interrupted:
            message = max_iter_message("HMM", self.max_iter)
        self.log_initial_, self.log_transitions_, self.log_emissions_ = tables
        seconds = time.perf_counter() - began
        return FitResult(tuple(trace), tuple(elapsed), converged, seconds, message, interrupted)

    def _scores(self, batch: SequenceBatch) -> Chain:
        tables = _Tables(self.log_initial_, self.log_transitions_, self.log_emissions_)
        return tables.scores(batch)

    def _tensors(self) -> dict[str, np.ndarray]:
        return {
            "log_initial": self.log_initial_,
            "log_transitions": self.log_transitions_,
            "log_emissions": self.log_emissions_,
        }

    def _restore(self, tensors: Mapping[str, np.ndarray]) -> None:
        C, D = len(self.classes_), self.feature_space_.n_features
        for name, shape in (("initial", (C,)), ("transitions", (C, C)), ("emissions", (C, D))):
            table = tensors[f"log_{name}"].astype(np.float64)
            if table.shape != shape or not np.isfinite(table).all():
                raise ValueError(f"log_{name} is not a finite table of shape {shape}")
            setattr(self, f"log_{name}_", table)


class _Tables(NamedTuple):
    """The log-probabilities of an HMM."""

    initial: np.ndarray
    """(C,)"""
    transitions: np.ndarray
    """(C, C)"""
    emissions: np.ndarray
    """(C, D)"""

    @classmethod
    def counted(
        cls, batch: SequenceBatch, labels: Tensor, pairs: Tensor, smoothing: float
    ) -> _Tables:
        """From weighted label counts (N, C) and label-pair counts (C, C)."""

        def normalised(counts: np.ndarray) -> np.ndarray:
            counts = counts + smoothing
            return np.log(counts) - np.log(counts.sum(-1, keepdims=True, initial=1e-300))

        first = labels[: batch.layout.n_tokens - batch.layout.n_pairs].sum(0).numpy()
        emitted = (batch.features.T @ labels.numpy()).T
        return cls(normalised(first), normalised(pairs.numpy()), normalised(emitted))

    def sum(self) -> float:
        """The sum of all log-probabilities: the log-prior of the smoothing, for each unit of it."""
        return float(sum(table.sum() for table in self))

    def scores(self, batch: SequenceBatch) -> Chain:
        """log p(x_t | c), with log p(first label) at the first tokens, and the transitions."""
        unary = torch.from_numpy(np.ascontiguousarray(batch.features @ self.emissions.T))
        unary[: batch.layout.n_tokens - batch.layout.n_pairs] += torch.from_numpy(self.initial)
        return Chain(unary, torch.from_numpy(self.transitions), batch.layout)
