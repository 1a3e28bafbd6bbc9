"""How GPSL is fitted: feature map, posterior, kernel shape, missing labels, scales."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from bayeseq.data.errors import DataError
from bayeseq.data.groups import column_groups
from bayeseq.inference.covariance import CovarianceFamily
from bayeseq.inference.dependencies import Dependencies, refine
from bayeseq.inference.expectations import Tilted, expectation
from bayeseq.inference.heldout import leave_one_out, refitted
from bayeseq.inference.hyper import raise_bound
from bayeseq.inference.scales import Scales, choose_scales
from bayeseq.inference.variational import GaussianPosterior, Solver, Trace
from bayeseq.kernels import Kernel, Linear, kernel_from_text
from bayeseq.kernels.design import Design
from bayeseq.kernels.maps import FeatureMap, InducingMap, LinearMap, exact_map
from bayeseq.kernels.points import Method, choose_points
from bayeseq.labelers.base import TrainingData
from bayeseq.labelers.chain import possible_labels, require_positive
from bayeseq.models.gpsl import GPSLModel, dependency_rows, known_labels, without_dependencies

if TYPE_CHECKING:
    from bayeseq.labelers.gpsl import GPSL

NEGLIGIBLE = 1e-3
"""See `CovarianceFamily`."""

HIDDEN = 0.5
"""Share of neighbours' labels hidden in training, with dependencies on both sides."""

_ROUNDS = 10
"""Updates of the distributions over missing labels, at most."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a fit found."""

    feature_map: FeatureMap
    model: GPSLModel
    posterior: GaussianPosterior
    trace: Trace
    scales: Scales
    hyperparameters: dict[str, Any]


def refuse_beyond(max_memory: float, need: float, what: str, instead: str) -> None:
    """Refuse what would need more memory than allowed, before any of it is taken."""
    if need > max_memory * 2**30:
        raise DataError(
            f"{what} would need about {need / 2**30:.1f} GB, and max_memory is "
            f"{max_memory:g}; use {instead}, or raise max_memory"
        )


class Training:
    """One fit of a GPSL with these settings."""

    def __init__(self, settings: GPSL, data: TrainingData, offsets: tuple[int, ...]) -> None:
        batch = data.batch
        if settings.scheme is not None:  # what a missing label may be, its neighbours tell
            batch = replace(batch, allowed=possible_labels(data, settings.scheme))
        assert batch.allowed is not None
        self.settings, self.batch, self.offsets = settings, batch, offsets
        self.allowed: Tensor = batch.allowed
        self.dependencies = Dependencies(offsets, data.batch.layout)
        self.groups, self.names = column_groups(
            settings.groups, data.features.names, data.batch.features.shape[1]
        )
        self.rule = expectation(
            settings.bound, self.allowed.shape[1], settings.points, settings.random_state
        )

    def run(self) -> Fitted:
        """Fit. An interrupt keeps what was learned, once there is a posterior to keep."""
        settings = self.settings
        feature_map = self._feature_map()
        model = self._model(feature_map)
        posterior, trace = self._solve(model)
        if settings.learn and isinstance(feature_map, InducingMap):
            feature_map, model, posterior, trace = self._learn_shape(
                feature_map, model, posterior, trace
            )
        if settings.missing == "expect" and not known_labels(self.allowed.numpy()).any(-1).all():
            model, posterior, trace = self._expect_labels(feature_map, model, posterior, trace)
        scales = Scales()
        if settings.calibrate and settings.prediction == "chain" and not trace.interrupted:
            try:
                scales = self._scales(feature_map, model, posterior)
            except KeyboardInterrupt:
                trace = replace(trace, converged=False, interrupted=True)
        learned = self._hyperparameters(feature_map, posterior, scales)
        return Fitted(feature_map, model, posterior, trace, scales, learned)

    # ---- the feature map ------------------------------------------------------------------------

    def _feature_map(self) -> FeatureMap:
        settings, X = self.settings, self.batch.features
        kernel = settings.kernel
        kernel = kernel_from_text(kernel) if isinstance(kernel, str) else kernel
        if not isinstance(kernel, Kernel):
            raise ValueError(f"kernel is {kernel!r}; expected a kernel or its text")
        kernel.check()
        if isinstance(kernel, Linear) and settings.inducing is None:
            return LinearMap(self.groups)
        if settings.inducing is None:
            what = "a kernel matrix of all tokens"
            refuse_beyond(settings.max_memory, 32 * X.shape[0] ** 2, what, "inducing=1000")
            return exact_map(kernel, X, self._group_weights()[self.groups])
        require_positive("inducing", settings.inducing)
        weights = self._group_weights()[self.groups]
        method: Method = "kmeans" if settings.inducing_method == "kmeans" else "pivoted"
        points = choose_points(kernel, X, settings.inducing, method, settings.random_state, weights)
        return InducingMap(kernel, points, weights)

    def _group_weights(self) -> np.ndarray:
        """(G,) how much each feature group counts in the inner products of another kernel than the
        linear one: the prior variances that the linear kernel's bound gives them, at a diagonal
        covariance, which is the price of one quick fit; their mean over the columns is 1."""
        groups = self.groups
        if not self.settings.learn or not groups.any():
            return np.ones(groups.max(initial=0) + 1)
        model = self._model(LinearMap(groups))
        solver = self._solver(model)
        solver.family = replace(solver.family, kind="diagonal")
        posterior, trace = solver.solve(model.log_variance)
        if trace.interrupted:
            raise KeyboardInterrupt
        variance = posterior.log_variance[: groups.max() + 1].exp().mean(-1).numpy()
        return variance / variance[groups].mean()

    # ---- the posterior --------------------------------------------------------------------------

    def _model(self, feature_map: FeatureMap, beliefs: np.ndarray | None = None) -> GPSLModel:
        """The model of the training tokens, with prior variances to start from."""
        features, residual = feature_map.features(self.batch.features)
        layout = self.batch.layout
        beliefs = known_labels(self.allowed.numpy()) if beliefs is None else beliefs
        model = GPSLModel.of(
            features,
            feature_map.column_groups,
            layout,
            self.allowed.numpy(),
            self.offsets,
            beliefs=beliefs * self._shown(),
            weights=self.batch.weights[layout.sequence].numpy(),
            residual=residual if residual.any() else None,
        )
        start = torch.full_like(model.log_variance, float(np.log(self.settings.variance)))
        first = len(start) - len(self.offsets)
        start[first:] = float(np.log(self.settings.dependency_variance))
        return replace(model, log_variance=start)

    def _shown(self) -> np.ndarray:
        """(N, 1) whether a token's label is shown to its neighbours."""
        hidden = self.settings.hidden
        if hidden is None:
            hidden = HIDDEN if len({offset > 0 for offset in self.offsets}) == 2 else 0.0
        rng = np.random.default_rng(self.settings.random_state)
        return rng.random((self.batch.layout.n_tokens, 1)) >= hidden

    def _solver(self, model: GPSLModel) -> Solver:
        settings = self.settings
        family = CovarianceFamily(
            settings.covariance, model.design, model.n_dependent, settings.rank, NEGLIGIBLE
        )
        refuse_beyond(
            settings.max_memory,
            family.bytes(model.n_labels),
            f"covariance={settings.covariance!r} of {model.n_labels} labels",
            "covariance='lowrank' or 'diagonal'"
            if settings.inducing is None
            else "fewer inducing points",
        )
        learned = torch.full((len(model.log_variance),), settings.learn)
        learned[len(learned) - len(self.offsets) :] = settings.learn and settings.learn_dependency
        return Solver(
            model,
            family,
            self.rule,
            learned,
            by_label=settings.by_label,
            max_sweeps=settings.max_iter,
            tol=settings.tol,
            progress=settings.progress,
            name=type(settings).__name__,
        )

    def _solve(self, model: GPSLModel) -> tuple[GaussianPosterior, Trace]:
        """The posterior. A full covariance starts where a diagonal one, at a fraction of the price,
        has already found the order of magnitude of the prior variances."""
        solver = self._solver(model)
        if self.settings.covariance == "diagonal" or not self.settings.learn:
            return solver.solve(model.log_variance)
        quick = replace(
            solver,
            family=replace(solver.family, kind="diagonal"),
            rule=Tilted(steps=12),
            tol=max(1e-3, self.settings.tol),
        )
        quick.mean_steps = solver.mean_steps  # means that lag would put groups to sleep too early
        start, trace = quick.solve(model.log_variance)
        if trace.interrupted:
            raise KeyboardInterrupt
        return solver.solve(start.log_variance, start)

    def _learn_shape(
        self,
        feature_map: InducingMap,
        model: GPSLModel,
        posterior: GaussianPosterior,
        trace: Trace,
    ) -> tuple[InducingMap, GPSLModel, GaussianPosterior, Trace]:
        """Variational EM in the kernel's shape: raise the bound by gradients through Φ with the
        posterior held, then fit the posterior anew; as long as that raises the bound."""
        while not trace.interrupted:
            rows = self.batch.features[model.rows]
            try:
                found = raise_bound(feature_map, model, posterior, rows, self.rule)
            except KeyboardInterrupt:
                trace = replace(trace, converged=False, interrupted=True)
                break
            if found is None:
                break
            then = replace(self._model(found), log_variance=posterior.log_variance)
            again, after = self._solver(then).solve(posterior.log_variance, posterior)
            gain = after.bound[-1] - trace.bound[-1]
            if gain < 0:
                break
            feature_map, model, posterior = found, then, again
            trace = joined(trace, after)
            if gain <= 10 * self.settings.tol * abs(trace.bound[-1]):
                break
        return feature_map, model, posterior, trace

    def _expect_labels(
        self,
        feature_map: FeatureMap,
        model: GPSLModel,
        posterior: GaussianPosterior,
        trace: Trace,
    ) -> tuple[GPSLModel, GaussianPosterior, Trace]:
        """Missing labels as distributions: predicted from what is known, then taken for the labels
        of neighbours in the next fit, until they settle. Bounds of different rounds do not compare,
        since their data differ; the trace is that of the last."""
        local = self._local(feature_map, model)
        before: Tensor | None = None
        for _ in range(_ROUNDS):
            if trace.interrupted:
                break
            beliefs = self._beliefs(posterior, local)
            if before is not None and float((beliefs - before).abs().max()) < 0.01:
                break
            before = beliefs
            log_variance = posterior.log_variance
            model = replace(self._model(feature_map, beliefs.numpy()), log_variance=log_variance)
            posterior, trace = self._solver(model).solve(log_variance, posterior)
        return model, posterior, trace

    def _beliefs(self, posterior: GaussianPosterior, local: Design) -> Tensor:
        """(N, C) label probabilities given all labels that are known."""
        mean, deps = local.times(posterior.mean), self.dependencies
        g = dependency_rows(posterior.mean, self.offsets)
        if deps.is_chain:
            return deps.marginals(mean, g, self.allowed)
        zero = torch.zeros_like
        return refine(deps, mean, zero(mean), g, zero(g), allowed=self.allowed).proba

    def _local(self, feature_map: FeatureMap, model: GPSLModel) -> Design:
        """The design of all training tokens with no dependency in it."""
        features, _ = feature_map.features(self.batch.features)
        return Design(without_dependencies(features, model.n_dependent))

    # ---- scales ---------------------------------------------------------------------------------

    def _scales(
        self, feature_map: FeatureMap, model: GPSLModel, posterior: GaussianPosterior
    ) -> Scales:
        held_out = self._held_out(model, posterior, self._local(feature_map, model))
        g = dependency_rows(posterior.mean, self.offsets)
        return choose_scales(held_out, g, self.dependencies, self.allowed, self.batch.weights)

    def _held_out(self, model: GPSLModel, posterior: GaussianPosterior, local: Design) -> Tensor:
        """(N, C) mean scores of training tokens by their features, each sequence by the others."""
        sequence = self.batch.layout.sequence.numpy()
        seen = sequence[model.rows]
        if self.settings.covariance not in ("full", "block"):
            quick = self.settings.covariance == "diagonal"
            return refitted(model, self._solver, posterior, local, seen, sequence, means_only=quick)
        scores, variance = posterior.scores(model.design, model.residual)
        p = self.rule(scores, variance.clamp_min(0.0)).probability
        allowed = scores.masked_fill(~model.allowed, -torch.inf)
        gradient = model.weights.unsqueeze(-1) * (torch.softmax(allowed, -1) - p)
        n = self.batch.layout.n_sequences
        rows = list(zip(_by_sequence(seen, n), _by_sequence(sequence, n), strict=True))
        return leave_one_out(model, posterior, gradient, local, rows)

    # ---- what was learned -----------------------------------------------------------------------

    def _hyperparameters(
        self, feature_map: FeatureMap, posterior: GaussianPosterior, scales: Scales
    ) -> dict[str, Any]:
        """Prior variances by group, those of the dependencies, scales, and the kernel's shape."""
        variance = posterior.log_variance.exp()
        by_label = self.settings.by_label
        values: list[Any] = variance.tolist() if by_label else variance[:, 0].tolist()
        n_features = len(values) - len(self.offsets)
        linear = isinstance(feature_map, LinearMap)
        names = self.names if linear else ["kernel"]
        dependent = zip(self.offsets, values[n_features:], strict=True)
        found: dict[str, Any] = {
            "variance": dict(zip(names, values[:n_features], strict=False)),
            "dependency_variance": {str(offset): value for offset, value in dependent},
            "scales": asdict(scales),
        }
        if isinstance(feature_map, InducingMap):
            found["kernel"] = str(feature_map.kernel)
            if feature_map.column_weights is not None:
                columns = zip(
                    self.groups.tolist(), feature_map.column_weights.tolist(), strict=True
                )
                weight = dict(columns)
                found["group_weight"] = {
                    name: weight.get(g, 1.0) for g, name in enumerate(self.names)
                }
        return found


def _by_sequence(sequence: np.ndarray, n_sequences: int) -> list[np.ndarray]:
    """The rows of each sequence, from the sequence of each row."""
    counts = np.bincount(sequence, minlength=n_sequences)
    return np.split(np.argsort(sequence, kind="stable"), np.cumsum(counts)[:-1])


def joined(first: Trace, second: Trace) -> Trace:
    """One trace after another; what the second lost in its first sweeps is left out."""
    better = [k for k, bound in enumerate(second.bound) if bound >= first.bound[-1]]
    start = first.elapsed[-1]
    return Trace(
        (*first.bound, *(second.bound[k] for k in better)),
        (*first.elapsed, *(start + second.elapsed[k] for k in better)),
        second.converged,
        second.interrupted,
    )
