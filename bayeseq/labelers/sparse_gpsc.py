"""SparseGPSC: the sparse greedy Gaussian-process sequence classifier of [gpsc], as an estimator."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.exceptions import ConvergenceWarning
from tqdm import tqdm

from bayeseq.chain import Chain, one_thread
from bayeseq.data.batch import SequenceBatch
from bayeseq.inference.chain_loss import ChainLoss
from bayeseq.inference.exchange import exchanged
from bayeseq.inference.greedy import Greedy, SparseScores
from bayeseq.kernels import Kernel, Linear, kernel_from_text, prefers_conjunctions
from bayeseq.kernels.columns import kernel_columns
from bayeseq.kernels.maps import rows_as_arrays, rows_from_arrays
from bayeseq.labelers.base import FitResult, TrainingData
from bayeseq.labelers.chain import (
    ChainLabeler,
    check_choice,
    obey_scheme,
    require_positive,
    require_scheme,
)
from bayeseq.labelers.gpsl_training import refuse_beyond


class SparseGPSC(ChainLabeler):
    """Gaussian-process sequence classification by a sparse greedy algorithm ([gpsc], SGPS).

    The MAP of a chain whose label scores are Gaussian processes is a sum of kernel functions at
    training tokens, one for each label pair there: the coordinates (token, label, next label). This
    labeler chooses some of them, the steepest of a few sequences at a time, and predicts with the
    kernel at the tokens of those alone.

    Parameters
    ----------
    kernel : a kernel, or its text: "polynomial(degree=2)", "rbf(scale=0.1)", sums, products. Its
        overall variance is not used: `variance` stands for it.
    fraction : how many coordinates, as a share of the training *tokens* (see docs/sgps.md; above 1
        is legal); None takes all that are steep enough.
    directions : coordinates added for each sequence visited; None visits each about twice.
    sequences : sequences visited at once. 1 is [gpsc]'s Algorithm 2; None begins with one, and then
        looks at as many as make the coordinates grow by a twentieth, up to twenty; with a linear or
        polynomial kernel on sparse features it adds as many, but looks at all sequences for them.
    update : what is optimised after each visit: "all" coordinates, or the "new" ones, as [gpsc]
        prefers.
    exchanges : so many times, after the search, a part of the coordinates that others can stand in
        for makes room for steeper ones; None is three times with `update="all"`, else none.
    refit : optimise all chosen coordinates together at the end.
    threshold : stop when no coordinate of any sequence has a gradient steeper than this.
    variance, transition_variance : prior variances of label scores (times the kernel) and of
        label-pair scores. Variances are what they say; [gpsc] leaves out a ½, so that its 1 is
        0.5 here.
    min_count : features that occur fewer times in training are left out.
    scheme, decode : see `ChainLabeler`.
    max_iter, tol : the last optimisation stops after so many steps, or when one lowers the
        objective by less than `tol` of it.
    max_memory : refuse kernel columns that need more gigabytes than this.
    random_state : decides the order in which sequences are visited.
    progress : show a bar once training has run for two seconds.

    After `fit`, `points_` holds the features of the chosen tokens, `coefficients_` (m, C) what they
    weigh, `transitions_` (C, C) the label-pair scores; `result_.objective` the penalised negative
    log-likelihood by visit and exchange, and `result_.hyperparameters` how many coordinates and
    tokens were chosen.

    >>> X, y = [[["a"], ["b"]], [["b"], ["a"]]] * 3, [["A", "B"], ["B", "A"]] * 3
    >>> SparseGPSC(progress=False).fit(X, y).predict([[["a"], ["a"], ["b"]]])
    [['A', 'A', 'B']]
    """

    points_: sp.csr_matrix
    coefficients_: np.ndarray
    transitions_: np.ndarray

    def __init__(
        self,
        kernel: Kernel | str = "polynomial(degree=2)",
        fraction: float | None = 0.25,
        directions: int | None = None,
        sequences: int | None = None,
        update: str = "all",
        exchanges: int | None = None,
        refit: bool = True,
        threshold: float = 1e-3,
        variance: float = 1.0,
        transition_variance: float = 1.0,
        min_count: int = 1,
        scheme: str | None = None,
        decode: str = "viterbi",
        max_iter: int = 200,
        tol: float = 1e-6,
        max_memory: float = 4.0,
        random_state: int = 0,
        progress: bool = True,
    ) -> None:
        self.kernel = kernel
        self.fraction = fraction
        self.directions = directions
        self.sequences = sequences
        self.update = update
        self.exchanges = exchanges
        self.refit = refit
        self.threshold = threshold
        self.variance = variance
        self.transition_variance = transition_variance
        self.min_count = min_count
        self.scheme = scheme
        self.decode = decode
        self.max_iter = max_iter
        self.tol = tol
        self.max_memory = max_memory
        self.random_state = random_state
        self.progress = progress

    # ---- fitting --------------------------------------------------------------------------------

    @one_thread()
    def _learn(self, data: TrainingData) -> FitResult:
        self._check(data)
        batch, classes = data.batch, data.labels.classes
        assert batch.allowed is not None
        kernel = self._kernel()
        N, C = batch.allowed.shape
        n_sequences = int((batch.layout.lengths > 0).sum())
        every = batch.layout.n_pairs * C**2 + n_sequences * C
        most = every if self.fraction is None else min(every, int(np.ceil(self.fraction * N)))
        if not (isinstance(kernel, Linear) or prefers_conjunctions(kernel, batch.features)):
            need = 16.0 * N * min(most, N)  # the columns, and room to make them
            what = f"the kernel at {min(most, N)} tokens"
            refuse_beyond(self.max_memory, need, what, "a smaller fraction")
        loss = ChainLoss(
            batch.layout,
            batch.allowed,
            batch.weights,
            lambda chain: obey_scheme(chain, self.scheme, classes),
        )
        search = Greedy(
            loss,
            kernel_columns(kernel, batch.features),
            self.variance,
            self.transition_variance,
            self.directions or max(1, round(most / (2 * n_sequences))),
            self.sequences,
            self.update,
        )
        found, result = self._searched(search, most)
        tokens, gamma = found.by_token()
        self.points_ = batch.features[tokens]
        self.coefficients_ = self.variance * gamma
        self.transitions_ = found.A
        return result

    def _check(self, data: TrainingData) -> None:
        check_choice("update", self.update, ("new", "all"))
        check_choice("decode", self.decode, ("viterbi", "marginal"))
        for name in ("variance", "transition_variance", "fraction", "max_memory"):
            value = getattr(self, name)
            if not (value is None and name == "fraction") and not 0 < value < np.inf:
                raise ValueError(f"{name} is {value}; it must be above 0 and finite")
        for name in ("threshold", "tol"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be 0 or more")
        if self.exchanges is not None and self.exchanges < 0:
            raise ValueError(f"exchanges is {self.exchanges}; it must be 0 or more")
        for name in ("directions", "sequences", "max_iter"):
            if getattr(self, name) is not None:
                require_positive(name, getattr(self, name))
        if self.scheme is not None:
            require_scheme(data, self.scheme)

    def _kernel(self) -> Kernel:
        kernel = self.kernel
        kernel = kernel_from_text(kernel) if isinstance(kernel, str) else kernel
        if not isinstance(kernel, Kernel):
            raise ValueError(f"kernel is {kernel!r}; expected a kernel or its text")
        kernel.check()
        return kernel.unit()

    def _n_exchanges(self) -> int:
        default = 3 if self.update == "all" else 0
        return default if self.exchanges is None else self.exchanges

    def _searched(self, search: Greedy, most: int) -> tuple[SparseScores, FitResult]:
        """The search, and the last optimisation; an interrupt keeps what was found until then."""
        order = np.random.default_rng(self.random_state)
        visits = order.permutation(search.loss.layout.n_sequences)
        found, trace, elapsed = search.start(), [], []
        began, message, interrupted = time.perf_counter(), "", False
        bar = tqdm(
            total=most,
            desc=type(self).__name__,
            unit="coordinate",
            disable=None if self.progress else True,
            delay=2,
            leave=False,
        )
        try:
            with bar:
                for visit in search.search(visits, most, self.threshold):
                    bar.update(len(visit.found.gamma) - len(found.gamma))
                    found = visit.found
                    trace.append(found.objective)
                    elapsed.append(time.perf_counter() - began)
                for _ in range(self._n_exchanges()):
                    found = exchanged(search, found, visits, self.threshold)
                    trace.append(found.objective)
                    elapsed.append(time.perf_counter() - began)
            if self.refit and len(found.gamma):
                every = np.arange(len(found.gamma))
                found, converged = search.moved(found, every, self.max_iter, self.tol)
                if not converged:
                    message = f"{type(self).__name__} stopped after max_iter={self.max_iter} steps"
                    warnings.warn(message, ConvergenceWarning, stacklevel=2)
        except KeyboardInterrupt:
            message = f"interrupted after {len(found.gamma)} coordinates; what was found is kept"
            warnings.warn(message, ConvergenceWarning, stacklevel=2)
            interrupted = True
        trace.append(found.objective)
        elapsed.append(time.perf_counter() - began)
        n_tokens = len(np.unique(found.coordinates.token))
        chosen = {
            "coordinates": len(found.gamma),
            "tokens": n_tokens,
            "share_of_tokens": n_tokens / search.loss.layout.n_tokens,
            "coordinates_per_token": len(found.gamma) / max(n_tokens, 1),
        }
        return found, FitResult(
            tuple(trace), tuple(elapsed), not message, elapsed[-1], message, interrupted, chosen
        )

    # ---- predicting -----------------------------------------------------------------------------

    def _scores(self, batch: SequenceBatch) -> Chain:
        kernel, Z = self._kernel(), self.points_
        N, C = batch.layout.n_tokens, len(self.classes_)
        f = np.zeros((N, C))
        at_once = max(1, _NUMBERS_AT_ONCE // max(1, Z.shape[0]))
        for first in range(0, N if Z.shape[0] else 0, at_once):
            rows = slice(first, first + at_once)
            f[rows] = kernel(batch.features[rows], Z) @ self.coefficients_
        return Chain(torch.from_numpy(f), torch.from_numpy(self.transitions_), batch.layout)

    # ---- saving ---------------------------------------------------------------------------------

    def _tensors(self) -> dict[str, np.ndarray]:
        return {
            **rows_as_arrays(self.points_),
            "coefficients": self.coefficients_,
            "transitions": self.transitions_,
        }

    def _restore(self, tensors: Mapping[str, np.ndarray]) -> None:
        self._kernel()
        points = rows_from_arrays(tensors)
        C = len(self.classes_)
        if points.shape[1] != self.feature_space_.n_features:
            raise ValueError("the points are not of these features")
        wanted: dict[str, Any] = {
            "points.data": (points.nnz,),
            "coefficients": (points.shape[0], C),
            "transitions": (C, C),
        }
        for name, shape in wanted.items():
            array = tensors[name]
            if array.shape != shape or array.dtype != np.float64 or not np.isfinite(array).all():
                raise ValueError(f"{name} is not {shape} finite numbers")
        self.points_ = points
        self.coefficients_ = np.array(tensors["coefficients"])
        self.transitions_ = np.array(tensors["transitions"])


_NUMBERS_AT_ONCE = 2**24
"""Kernel values that a prediction holds in memory at once (128 MB)."""
