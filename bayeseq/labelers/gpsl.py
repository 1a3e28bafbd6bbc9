"""GPSL: Gaussian-process sequence labelling by pseudo-likelihood, as an estimator."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from bayeseq.chain import Chain, ImpossibleSequenceError, forward_backward
from bayeseq.data.batch import SequenceBatch
from bayeseq.data.errors import DataError
from bayeseq.data.labels import Labels
from bayeseq.inference.covariance import CovarianceFamily
from bayeseq.inference.dependencies import Dependencies, RefinedScores, check_offsets, refine
from bayeseq.inference.expectations import Expectation, Tilted, expectation
from bayeseq.inference.heldout import leave_one_out, refitted
from bayeseq.inference.hyper import raise_bound
from bayeseq.inference.variational import GaussianPosterior, Solver, Trace
from bayeseq.kernels import Kernel, Linear, kernel_from_text
from bayeseq.kernels.design import Design
from bayeseq.kernels.maps import FeatureMap, InducingMap, LinearMap, exact_map, map_from_arrays
from bayeseq.kernels.points import Method, choose_points
from bayeseq.labelers.base import FitResult, TrainingData
from bayeseq.labelers.chain import (
    ChainLabeler,
    check_choice,
    numbered,
    require_positive,
    require_scheme,
)
from bayeseq.labelers.draws import chain_of_draws, to_arviz
from bayeseq.models.gpsl import GPSLModel, known_labels, with_dependencies

PREDICTIONS = ("chain", "rns", "average", "gibbs")
MISSING = ("drop", "expect")


@dataclass(frozen=True)
class Scales:
    """What the scores are multiplied with before labellings are summed over.

    Pseudo-likelihood learns every label next to its true neighbours; a prediction has none. So the
    two kinds of scores, right for the one, are weighed anew for the other: by the log loss of the
    training labels, each sequence predicted from all the others.
    """

    local: float = 1.0
    dependency: float = 1.0


class GPSL(ChainLabeler):
    """Gaussian-process sequence labelling by pseudo-likelihood ([gpsl]).

    Each label depends on the token's features through a Gaussian process, and on the labels at the
    offsets in `dependencies`. All weights have a Gaussian posterior, found by maximising a lower
    bound on the evidence, and the same bound chooses the prior variances: no cross-validation.

    Parameters
    ----------
    dependencies : offsets of the labels that a label depends on: (-1,) the one before ([gpsl]'s
        GPSL1), (-1, 1) both neighbours (GPSL2), (-2, -1, 1, 2) two on each side (GPSL4), () none.
    kernel : a kernel, or its text: "linear", "polynomial(degree=2)", "rbf(scale=0.1)", sums,
        products.
    groups : which features share a prior variance, all learned. "auto": those whose names begin
        alike, up to the first ":" or "=" (a template line, a kind of spelling feature); any other
        text: a regular expression, those with the same match; a list: a group for each column of X;
        None: all features together.
    covariance : "full", "block" (features and dependencies independent, as in [gpsl]), "lowrank"
        (of rank `rank`) or "diagonal".
    bound : how E[log Σ exp] is taken: "exact" (by quadrature, `points` points), "tilted" or
        "jensen" (as in [gpsl]).
    inducing : for other kernels than the linear one, use this many inducing points, chosen by
        `inducing_method` ("pivoted" Cholesky or "kmeans"); None uses all distinct training tokens.
    variance, dependency_variance : prior variances, of features and of dependencies, to start from.
    learn : learn the prior variances, and the shape of the kernel; otherwise they stay.
    learn_dependency : learn those of the dependencies too ([gpsl] holds them at 1).
    by_label : prior variances for each label ([gpsl]'s θ_j), not shared.
    missing : what a missing label means for its neighbours: "drop" the dependency, or "expect":
        carry a distribution over it, and update it between fits.
    prediction : "chain": sums over labellings, exactly, for offsets up to 2; "rns": [gpsl]'s
        iteration; "average": the same with E[softmax] inside; "gibbs": sampling, for any offsets.
    calibrate : weigh features and dependencies anew for prediction, by the log loss of training
        sequences that are each predicted from the others (see `Scales`). For "chain" only.
    min_count : features that occur fewer times in training are left out.
    scheme, decode : see `ChainLabeler`.
    max_iter, tol : stop after so many sweeps, or when one raises the bound by less than `tol` of
        it.
    max_memory : refuse covariances that need more gigabytes than this.
    random_state : decides the inducing points and the draws of "gibbs".
    progress : show a bar once training has run for two seconds.

    After `fit`, `result_.objective` is the bound by sweep and `result_.hyperparameters` what was
    learned; `posterior_` is the posterior of the weights, `scales_` the weighing for prediction.

    >>> X, y = [[["a"], ["b"]], [["b"], ["a"]]] * 3, [["A", "B"], ["B", "A"]] * 3
    >>> GPSL(progress=False).fit(X, y).predict([[["a"], ["a"], ["b"]]])
    [['A', 'A', 'B']]
    """

    feature_map_: FeatureMap
    posterior_: GaussianPosterior
    scales_: Scales

    def __init__(
        self,
        dependencies: tuple[int, ...] = (-1,),
        kernel: Kernel | str = "linear",
        groups: str | Sequence[Any] | None = "auto",
        covariance: str = "full",
        bound: str = "exact",
        inducing: int | None = None,
        inducing_method: str = "pivoted",
        variance: float = 1.0,
        dependency_variance: float = 1.0,
        learn: bool = True,
        learn_dependency: bool = True,
        by_label: bool = False,
        missing: str = "drop",
        prediction: str = "chain",
        calibrate: bool = True,
        rank: int = 20,
        points: int = 64,
        min_count: int = 1,
        scheme: str | None = None,
        decode: str = "marginal",
        max_iter: int = 100,
        tol: float = 1e-4,
        max_memory: float = 4.0,
        random_state: int = 0,
        progress: bool = True,
    ) -> None:
        self.dependencies = dependencies
        self.kernel = kernel
        self.groups = groups
        self.covariance = covariance
        self.bound = bound
        self.inducing = inducing
        self.inducing_method = inducing_method
        self.variance = variance
        self.dependency_variance = dependency_variance
        self.learn = learn
        self.learn_dependency = learn_dependency
        self.by_label = by_label
        self.missing = missing
        self.prediction = prediction
        self.calibrate = calibrate
        self.rank = rank
        self.points = points
        self.min_count = min_count
        self.scheme = scheme
        self.decode = decode
        self.max_iter = max_iter
        self.tol = tol
        self.max_memory = max_memory
        self.random_state = random_state
        self.progress = progress

    # ---- fitting --------------------------------------------------------------------------------

    def _learn(self, data: TrainingData) -> FitResult:
        offsets = self._checked(data)
        batch = data.batch
        assert batch.allowed is not None
        allowed = batch.allowed.numpy()
        groups, names = column_groups(self.groups, data.features.names, batch.features.shape[1])
        rule = expectation(self.bound, allowed.shape[1], self.points, self.random_state)
        feature_map = self._feature_map(batch, groups, offsets, rule)
        features, residual = feature_map.features(batch.features)
        model = self._model(feature_map, features, residual, batch, offsets)
        model = replace(model, log_variance=self._start(model, offsets))
        posterior, trace = self._solved(model, offsets, rule)
        if self.learn and isinstance(feature_map, InducingMap):
            feature_map, model, posterior, trace = self._learn_shape(
                feature_map, model, posterior, trace, batch, offsets, rule
            )
            features, residual = feature_map.features(batch.features)
        if self.missing == "expect" and not known_labels(allowed).any(-1).all():
            model, posterior, trace = self._expect(
                model, posterior, trace, features, batch, offsets, rule
            )
        scales = Scales()
        if self.calibrate and self.prediction == "chain" and not trace.interrupted:
            try:
                held_out = self._held_out(model, posterior, features, batch, offsets, rule)
                g = dependency_weights(posterior, offsets)
                scales = choose_scales(held_out, g, batch, offsets)
            except KeyboardInterrupt:
                trace = replace(trace, converged=False, interrupted=True)
        learned = self._hyperparameters(feature_map, posterior, scales, groups, names, offsets)
        result = self._result(trace, learned)
        self.feature_map_, self.posterior_, self.scales_ = feature_map, posterior, scales
        self._model_ = model
        return result

    def _checked(self, data: TrainingData) -> tuple[int, ...]:
        offsets = check_offsets(self.dependencies)
        check_choice("missing", self.missing, MISSING)
        check_choice("prediction", self.prediction, PREDICTIONS)
        check_choice("decode", self.decode, ("viterbi", "marginal"))
        check_choice("inducing_method", self.inducing_method, ("pivoted", "kmeans"))
        for name in ("variance", "dependency_variance", "tol", "max_memory"):
            if not 0 < getattr(self, name) < np.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0 and finite")
        for name in ("max_iter", "rank", "points"):
            require_positive(name, getattr(self, name))
        far = max(map(abs, offsets), default=0)
        if self.prediction == "chain" and far > 2:
            raise ValueError(
                f"dependencies {offsets} reach farther than two labels, and prediction='chain' "
                "sums over two at most; use prediction='gibbs', 'rns' or 'average'"
            )
        if self.scheme is not None:
            if self.prediction != "chain" or far > 1:
                raise ValueError(
                    "scheme needs prediction='chain' and dependencies up to 1 label away"
                )
            require_scheme(data, self.scheme)
        return offsets

    def _feature_map(
        self,
        batch: SequenceBatch,
        groups: np.ndarray,
        offsets: tuple[int, ...],
        rule: Expectation,
    ) -> FeatureMap:
        kernel = kernel_from_text(self.kernel) if isinstance(self.kernel, str) else self.kernel
        if not isinstance(kernel, Kernel):
            raise ValueError(f"kernel is {kernel!r}; expected a kernel or its text")
        kernel.check()
        if isinstance(kernel, Linear) and self.inducing is None:
            return LinearMap(groups)
        weights = self._group_weights(batch, groups, offsets, rule)[groups]
        if self.inducing is None:
            need = 8 * 4 * batch.features.shape[0] ** 2
            self._refuse_beyond(need, "a kernel matrix of all tokens", "inducing=1000")
            return exact_map(kernel, batch.features, weights)
        require_positive("inducing", self.inducing)
        method: Method = "kmeans" if self.inducing_method == "kmeans" else "pivoted"
        points = choose_points(
            kernel, batch.features, self.inducing, method, self.random_state, weights
        )
        return InducingMap(kernel, points, weights)

    def _group_weights(
        self,
        batch: SequenceBatch,
        groups: np.ndarray,
        offsets: tuple[int, ...],
        rule: Expectation,
    ) -> np.ndarray:
        """(G,) how much each feature group counts in the inner products of another kernel than the
        linear one: the prior variances that the linear kernel's bound gives them, at a diagonal
        covariance, which is the price of one quick fit; their mean over the columns is 1."""
        if not self.learn or not groups.any():
            return np.ones(groups.max(initial=0) + 1)
        linear = LinearMap(groups)
        model = self._model(linear, *linear.features(batch.features), batch, offsets)
        solver = self._solver(model, offsets, rule)
        solver.family = replace(solver.family, kind="diagonal")
        posterior, trace = solver.solve(self._start(model, offsets))
        if trace.interrupted:
            raise KeyboardInterrupt
        variance = posterior.log_variance[: groups.max() + 1].exp().mean(-1).numpy()
        return variance / variance[groups].mean()

    def _refuse_beyond(self, need: float, what: str, instead: str) -> None:
        if need > self.max_memory * 2**30:
            raise DataError(
                f"{what} would need about {need / 2**30:.1f} GB, and max_memory is "
                f"{self.max_memory:g}; use {instead}, or raise max_memory"
            )

    def _model(
        self,
        feature_map: FeatureMap,
        features: sp.csr_matrix | np.ndarray,
        residual: np.ndarray,
        batch: SequenceBatch,
        offsets: tuple[int, ...],
        beliefs: np.ndarray | None = None,
    ) -> GPSLModel:
        assert batch.allowed is not None
        return GPSLModel.of(
            features,
            feature_map.column_groups,
            batch.layout,
            batch.allowed.numpy(),
            offsets,
            beliefs=beliefs,
            weights=batch.weights[batch.layout.sequence].numpy(),
            residual=residual if residual.any() else None,
        )

    def _start(self, model: GPSLModel, offsets: tuple[int, ...]) -> Tensor:
        start = torch.full_like(model.log_variance, float(np.log(self.variance)))
        start[len(start) - len(offsets) :] = float(np.log(self.dependency_variance))
        return start

    def _solver(self, model: GPSLModel, offsets: tuple[int, ...], rule: Expectation) -> Solver:
        family = CovarianceFamily(
            self.covariance, model.design, model.n_dependent, self.rank, _NEGLIGIBLE
        )
        self._refuse_beyond(
            family.bytes(model.n_labels),
            f"covariance={self.covariance!r} of {model.n_labels} labels",
            "covariance='lowrank' or 'diagonal'"
            if isinstance(self.kernel, Linear) or self.inducing is None
            else "fewer inducing points",
        )
        learned = torch.full((len(model.log_variance),), self.learn)
        learned[len(learned) - len(offsets) :] = self.learn and self.learn_dependency
        return Solver(
            model,
            family,
            rule,
            learned,
            by_label=self.by_label,
            max_sweeps=self.max_iter,
            tol=self.tol,
            progress=self.progress,
            name=type(self).__name__,
        )

    def _solved(
        self, model: GPSLModel, offsets: tuple[int, ...], rule: Expectation
    ) -> tuple[GaussianPosterior, Trace]:
        """The posterior. A full covariance starts where a diagonal one, at a fraction of the price,
        has already found the order of magnitude of the prior variances."""
        solver = self._solver(model, offsets, rule)
        if self.covariance == "diagonal" or not self.learn:
            return solver.solve(model.log_variance)
        quick = replace(
            solver,
            family=replace(solver.family, kind="diagonal"),
            rule=Tilted(steps=12),
            tol=max(1e-3, self.tol),
        )
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
        batch: SequenceBatch,
        offsets: tuple[int, ...],
        rule: Expectation,
    ) -> tuple[InducingMap, GPSLModel, GaussianPosterior, Trace]:
        """Variational EM in the kernel's shape: raise the bound by gradients through Φ with the
        posterior held, then fit the posterior anew; as long as that raises the bound."""
        while not trace.interrupted:
            try:
                found = raise_bound(feature_map, model, posterior, batch.features[model.rows], rule)
            except KeyboardInterrupt:
                trace = replace(trace, converged=False, interrupted=True)
                break
            if found is None:
                break
            features, residual = found.features(batch.features)
            then = replace(
                self._model(found, features, residual, batch, offsets),
                log_variance=posterior.log_variance,
            )
            again, after = self._solver(then, offsets, rule).solve(
                posterior.log_variance, posterior
            )
            gain = after.bound[-1] - trace.bound[-1]
            if gain < 0:
                break
            feature_map, model, posterior = found, then, again
            trace = joined(trace, after)
            if gain <= 10 * self.tol * abs(trace.bound[-1]):
                break
        return feature_map, model, posterior, trace

    def _expect(
        self,
        model: GPSLModel,
        posterior: GaussianPosterior,
        trace: Trace,
        features: sp.csr_matrix | np.ndarray,
        batch: SequenceBatch,
        offsets: tuple[int, ...],
        rule: Expectation,
    ) -> tuple[GPSLModel, GaussianPosterior, Trace]:
        """Missing labels as distributions: predicted from what is known, then taken for the labels
        of neighbours in the next fit, until they settle. Bounds of different rounds do not compare,
        since their data differ; the trace is that of the last."""
        assert batch.allowed is not None
        allowed = batch.allowed
        deps = Dependencies(offsets, batch.layout)
        before: Tensor | None = None
        for _ in range(_ROUNDS):
            if trace.interrupted:
                break
            local = Design(_without_dependencies(features, model.n_dependent))
            beliefs = self._beliefs(deps, posterior, local, allowed)
            if before is not None and float((beliefs - before).abs().max()) < 0.01:
                break
            before = beliefs
            model = replace(
                self._model_of_beliefs(model, features, batch, offsets, beliefs.numpy()),
                log_variance=posterior.log_variance,
            )
            posterior, trace = self._solver(model, offsets, rule).solve(
                posterior.log_variance, posterior
            )
        return model, posterior, trace

    def _model_of_beliefs(
        self,
        model: GPSLModel,
        features: sp.csr_matrix | np.ndarray,
        batch: SequenceBatch,
        offsets: tuple[int, ...],
        beliefs: np.ndarray,
    ) -> GPSLModel:
        assert batch.allowed is not None
        groups = model.groups[: len(model.groups) - model.n_dependent].numpy()
        residual = None
        if model.residual is not None:
            residual = np.zeros(batch.layout.n_tokens)
            residual[model.rows] = model.residual.numpy()
        return GPSLModel.of(
            features,
            groups,
            batch.layout,
            batch.allowed.numpy(),
            offsets,
            beliefs=beliefs,
            weights=batch.weights[batch.layout.sequence].numpy(),
            residual=residual,
        )

    def _beliefs(
        self, deps: Dependencies, posterior: GaussianPosterior, local: Design, allowed: Tensor
    ) -> Tensor:
        """(N, C) label probabilities given all labels that are known."""
        mean = local.times(posterior.mean)
        g = dependency_weights(posterior, deps.offsets)
        if deps.is_chain:
            return deps.marginals(mean, g, allowed)
        zero = torch.zeros_like
        return refine(deps, mean, zero(mean), g, zero(g), allowed=allowed).proba

    def _held_out(
        self,
        model: GPSLModel,
        posterior: GaussianPosterior,
        features: sp.csr_matrix | np.ndarray,
        batch: SequenceBatch,
        offsets: tuple[int, ...],
        rule: Expectation,
    ) -> Tensor:
        """(N, C) mean scores of training tokens by their features, each sequence by the others."""
        local = Design(_without_dependencies(features, model.n_dependent))
        sequence = batch.layout.sequence.numpy()
        if self.covariance in ("full", "block"):
            scores, variance = posterior.scores(model.design, model.residual)
            p = rule(scores, variance.clamp_min(0.0)).probability
            allowed = scores.masked_fill(~model.allowed, -torch.inf)
            gradient = model.weights.unsqueeze(-1) * (torch.softmax(allowed, -1) - p)
            rows = _rows_by_sequence(sequence[model.rows], sequence, batch.layout.n_sequences)
            return leave_one_out(model, posterior, gradient, local, rows)
        return refitted(
            model,
            lambda part: self._solver(part, offsets, rule),
            posterior,
            local,
            sequence[model.rows],
            sequence,
        )

    def _result(self, trace: Trace, learned: dict[str, Any]) -> FitResult:
        message = ""
        if trace.interrupted:
            message = f"interrupted after {len(trace.bound)} sweeps; what was learned is kept"
        elif not trace.converged:
            message = f"{type(self).__name__} stopped after max_iter={self.max_iter} sweeps"
        if message:
            warnings.warn(message, ConvergenceWarning, stacklevel=2)
        return FitResult(
            trace.bound,
            trace.elapsed,
            trace.converged,
            trace.elapsed[-1],
            message,
            trace.interrupted,
            learned,
        )

    def _hyperparameters(
        self,
        feature_map: FeatureMap,
        posterior: GaussianPosterior,
        scales: Scales,
        groups: np.ndarray,
        names: Sequence[str],
        offsets: tuple[int, ...],
    ) -> dict[str, Any]:
        variance = posterior.log_variance.exp()
        values: list[Any] = variance.tolist() if self.by_label else variance[:, 0].tolist()
        n_features = len(values) - len(offsets)
        linear = isinstance(feature_map, LinearMap)
        found: dict[str, Any] = {
            "variance": dict(
                zip(names if linear else ["kernel"], values[:n_features], strict=False)
            ),
            "dependency_variance": {
                str(o): v for o, v in zip(offsets, values[n_features:], strict=True)
            },
            "scales": asdict(scales),
        }
        if isinstance(feature_map, InducingMap):
            found["kernel"] = str(feature_map.kernel)
            if feature_map.column_weights is not None:
                weight = dict(
                    zip(groups.tolist(), feature_map.column_weights.tolist(), strict=True)
                )
                found["group_weight"] = {name: weight.get(g, 1.0) for g, name in enumerate(names)}
        return found

    # ---- predicting -----------------------------------------------------------------------------

    def _local(self, batch: SequenceBatch) -> tuple[Design, Tensor | None]:
        """The design of new tokens with no dependency in it, and their residual variances."""
        features, residual = self.feature_map_.features(batch.features)
        n_dependent = self.posterior_.mean.shape[0] - features.shape[1]
        design = Design(_without_dependencies(features, n_dependent))
        return design, torch.from_numpy(residual) if residual.any() else None

    def _scores(self, batch: SequenceBatch) -> Chain:
        deps = Dependencies(check_offsets(self.dependencies), batch.layout)
        if deps.order > 1:
            raise ValueError(
                f"this needs a chain of single labels, and dependencies {deps.offsets} reach "
                "farther; predict, predict_proba, tag and posterior_predict work with them"
            )
        return deps.chain(*self._mean_scores(batch, deps))

    def _mean_scores(self, batch: SequenceBatch, deps: Dependencies) -> tuple[Tensor, Tensor]:
        """Posterior means of f (N, C) and g (R, C, C), weighed for prediction."""
        local, _ = self._local(batch)
        f = local.times(self.posterior_.mean) * self.scales_.local
        return f, dependency_weights(self.posterior_, deps.offsets) * self.scales_.dependency

    def _marginals(self, batch: SequenceBatch) -> np.ndarray:
        deps = Dependencies(check_offsets(self.dependencies), batch.layout)
        if self.prediction == "chain":
            if deps.order < 2:
                return super()._marginals(batch)
            f, g = self._mean_scores(batch, deps)
            return _possible(deps.marginals(f, g, batch.allowed), batch)
        if self.prediction == "gibbs":
            generator = torch.Generator().manual_seed(self.random_state)
            f, g = self._draw_scores(batch, deps, _GIBBS_DRAWS, generator)
            return _possible(deps.gibbs(f, g, generator, batch.allowed).mean(0), batch)
        return _possible(self._refined(batch, deps).proba, batch)

    def refined_scores(self, X: Iterable[Any], given: Labels | None = None) -> RefinedScores:
        """Algorithm 2 of [gpsl] on sequences, all at once, with the sweeps it took; its rows are
        the tokens in packed order."""
        batch = self._batch(X, given)
        return self._refined(batch, Dependencies(check_offsets(self.dependencies), batch.layout))

    def _refined(self, batch: SequenceBatch, deps: Dependencies) -> RefinedScores:
        local, residual = self._local(batch)
        mean, variance = self.posterior_.scores(local, residual)
        C = mean.shape[1]
        softmax = None
        if self.prediction == "average":
            softmax = expectation("exact", C, self.points, self.random_state).softmax
        return refine(
            deps,
            mean,
            variance,
            dependency_weights(self.posterior_, deps.offsets),
            _dependency_rows(self.posterior_.variances, deps.offsets),
            softmax=softmax,
            allowed=batch.allowed,
        )

    def _decode(self, batch: SequenceBatch) -> np.ndarray:
        check_choice("decode", self.decode, ("viterbi", "marginal"))
        deps = Dependencies(check_offsets(self.dependencies), batch.layout)
        if self.decode == "marginal":
            return self._marginals(batch).argmax(-1)
        if self.prediction != "chain":
            raise ValueError("decode='viterbi' needs prediction='chain'")
        if deps.order < 2:
            return super()._decode(batch)
        return deps.best(*self._mean_scores(batch, deps), batch.allowed).numpy()

    def _answers(self, batch: SequenceBatch) -> tuple[np.ndarray, np.ndarray]:
        proba = self._marginals(batch)
        labels = proba.argmax(-1) if self.decode == "marginal" else self._decode(batch)
        return labels, proba

    def posterior_predict(
        self,
        X: Iterable[Any],
        draws: int = 100,
        given: Labels | None = None,
        random_state: int | np.random.Generator | None = None,
    ) -> list[np.ndarray]:
        """(draws, T, C) label probabilities of each sequence, under draws from the posterior of the
        weights: how they vary from draw to draw is what the model does not know."""
        require_positive("draws", draws)
        batch = self._batch(X, given)
        seed = np.random.default_rng(random_state).integers(2**62)
        found = np.zeros((batch.layout.n_tokens, draws, len(self.classes_)))
        for rows, part in self._parts(batch, draws):
            generator = torch.Generator().manual_seed(int(seed))  # the same weights for every part
            deps = Dependencies(check_offsets(self.dependencies), part.layout)
            f, g = self._draw_scores(part, deps, draws, generator)
            if self.prediction == "chain":
                f, g = f * self.scales_.local, g * self.scales_.dependency
            if deps.order < 2:
                with numbered(part):
                    proba = forward_backward(chain_of_draws(self, deps, f, g, part.allowed)).unary
            elif deps.is_chain:
                proba = deps.marginals(f, g, part.allowed)
            else:
                proba = deps.gibbs(f, g, generator, part.allowed)
            found[rows] = proba.transpose(0, 1).numpy()
        return [np.ascontiguousarray(x.transpose(1, 0, 2)) for x in self._ragged(batch, found)]

    def to_arviz(
        self,
        X: Iterable[Any],
        y: Labels,
        draws: int = 200,
        random_state: int | np.random.Generator | None = None,
        weights: bool | int = False,
    ) -> Any:
        """Draws from the posterior with what they say of X and y, for arviz: an InferenceData, or
        a DataTree where arviz is version 1 or later.

        `posterior` holds `dependency` (offset, neighbour_label, label) and, with `weights` True or
        a number, `weight` (feature, label) of all features or of so many with the largest means.
        `log_likelihood` holds `labels`, log p(y | x) of each sentence, which is what to compare
        models by: `az.loo(found, var_name="labels")`; and `token_labels`, of each token by itself.
        Tokens without a known label are left out of `token_labels`, and sentences without any of
        `labels`; the coordinates are their places in X. The bound by sweep and the prior variances
        are in `constant_data`.
        """
        return to_arviz(self, X, y, draws, random_state, weights)

    def _draw_scores(
        self, batch: SequenceBatch, deps: Dependencies, draws: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Draws of f (S, N, C) and g (S, R, C, C)."""
        local, residual = self._local(batch)
        weights = self.posterior_.draws(draws, generator)
        f = torch.stack([local.times(w) for w in weights])
        if residual is not None:
            noise = torch.randn(f.shape, generator=generator, dtype=f.dtype)
            spread = residual.unsqueeze(-1) * self.posterior_.log_variance[0].exp()
            f = f + noise * spread.sqrt()
        return f, _dependency_rows(weights, deps.offsets)

    # ---- saving ---------------------------------------------------------------------------------

    def _tensors(self) -> dict[str, np.ndarray]:
        """The posterior by its N curvatures a label and the rows that they belong to."""
        posterior, model = self.posterior_, self._model_
        found = {f"map.{name}": array for name, array in self.feature_map_.arrays().items()}
        matrix = sp.csr_matrix(model.design.matrix)
        found |= {
            "mean": posterior.mean.numpy(),
            "curvature": posterior.curvature.numpy(),
            "precision": posterior.precision.numpy(),
            "log_variance": posterior.log_variance.numpy(),
            "scales": np.array([self.scales_.local, self.scales_.dependency]),
            "design.data": matrix.data,
            "design.indices": matrix.indices.astype(np.int64),
            "design.indptr": matrix.indptr.astype(np.int64),
        }
        return found

    def _restore(self, tensors: Mapping[str, np.ndarray]) -> None:
        maps = {name[4:]: array for name, array in tensors.items() if name.startswith("map.")}
        feature_map = map_from_arrays(maps)
        linear = isinstance(feature_map, LinearMap)
        if feature_map.n_inputs != self.feature_space_.n_features:
            raise ValueError("the feature map is not that of the features")
        if isinstance(feature_map, InducingMap) and feature_map.column_weights is None:
            raise ValueError("the columns' weights are missing")
        C, offsets = len(self.classes_), check_offsets(self.dependencies)
        D = feature_map.n_columns + len(offsets) * C
        n = len(np.atleast_1d(tensors["curvature"]))
        groups = _all_groups(feature_map.column_groups, offsets, C)
        n_groups = int(feature_map.column_groups.max(initial=-1)) + 1 + len(offsets)
        shapes = {
            "mean": (D, C),
            "curvature": (n, C),
            "precision": (D, C),
            "log_variance": (n_groups, C),
            "scales": (2,),
        }
        numbers = {name: _finite(tensors[name], name, shape) for name, shape in shapes.items()}
        if bool((numbers["curvature"] < 0).any()) or bool((numbers["precision"] <= 0).any()):
            raise ValueError("a curvature or precision is negative")
        if bool((numbers["scales"] <= 0).any()):
            raise ValueError("a scale is not above 0")
        matrix = _csr(tensors, (n, D))
        design = Design(matrix if linear else matrix.toarray())
        family = CovarianceFamily(self.covariance, design, len(offsets) * C, self.rank, _NEGLIGIBLE)
        self._refuse_beyond(
            family.bytes(C), "the posterior of this model", "a machine with more of it"
        )
        curvature, precision = numbers["curvature"], numbers["precision"]
        covariances = family(curvature, precision)
        self.feature_map_ = feature_map
        self.posterior_ = GaussianPosterior(
            numbers["mean"], covariances, curvature, precision, numbers["log_variance"]
        )
        self.scales_ = Scales(*numbers["scales"].tolist())
        self._model_ = GPSLModel(
            design,
            np.arange(n),
            torch.ones(n, C, dtype=torch.bool),
            torch.ones(n, dtype=torch.float64),
            torch.from_numpy(groups),
            len(offsets) * C,
            numbers["log_variance"],
        )


_NEGLIGIBLE = 1e-3
"""See `CovarianceFamily`."""

_ROUNDS = 10
"""Updates of the distributions over missing labels, at most."""

_GIBBS_DRAWS = 32
"""Posterior draws that Gibbs sampling averages over."""


def column_groups(
    groups: str | Sequence[Any] | None, names: Sequence[str] | None, n_columns: int
) -> tuple[np.ndarray, list[str]]:
    """(D,) the group of each column, and the names of the groups.

    >>> column_groups("auto", ["U00:a", "U00:b", "w=dog", "bias"], 4)
    (array([0, 0, 1, 2]), ['U00', 'w', 'bias'])
    """
    if groups is None or (groups == "auto" and names is None) or n_columns == 0:
        return np.zeros(n_columns, dtype=np.int64), ["all"]
    if isinstance(groups, str):
        if names is None:
            raise ValueError("groups is a text, and X holds numbers without names; give a list")
        try:
            pattern = re.compile(r"[^:=]*" if groups == "auto" else groups)
        except re.error as error:
            raise ValueError(f"groups is {groups!r}, no regular expression: {error}") from error
        found = [match.group() if (match := pattern.search(name)) else "" for name in names]
    else:
        found = list(map(str, groups))
        if len(found) != n_columns:
            raise ValueError(f"groups has {len(found)} entries, X has {n_columns} columns")
    number: dict[str, int] = {}
    for name in found:
        number.setdefault(name, len(number))
    return np.array([number[name] for name in found], dtype=np.int64), list(number)


def _all_groups(groups: np.ndarray, offsets: Sequence[int], n_labels: int) -> np.ndarray:
    """(D,) the groups of a feature map's columns, and after them one for each dependency."""
    after = int(groups.max(initial=-1)) + 1 + np.repeat(np.arange(len(offsets)), n_labels)
    return np.concatenate([groups, after]).astype(np.int64)


def _finite(array: np.ndarray, name: str, shape: tuple[int, ...]) -> Tensor:
    """A saved array, if it holds finite numbers in this shape."""
    if array.shape != shape or array.dtype != np.float64 or not np.isfinite(array).all():
        raise ValueError(f"{name} is not {shape} finite numbers")
    return torch.from_numpy(np.array(array))


def _csr(tensors: Mapping[str, np.ndarray], shape: tuple[int, int]) -> sp.csr_matrix:
    """The saved design, if its parts fit together."""
    data, indices, indptr = (tensors[f"design.{part}"] for part in ("data", "indices", "indptr"))
    _finite(data, "design.data", (len(np.atleast_1d(indices)),))
    if indices.dtype != np.int64 or indptr.dtype != np.int64:
        raise ValueError("the places in the design are not whole numbers")
    matrix = sp.csr_matrix((data, indices, indptr), shape=shape)
    matrix.check_format(full_check=True)
    if not matrix.has_canonical_format or matrix.nnz != len(data):
        raise ValueError("a place in the design stands twice")
    return matrix


def _dependency_rows(weights: Tensor, offsets: tuple[int, ...]) -> Tensor:
    """(…, R, C, C) the rows of (…, D, C) that belong to the dependencies."""
    C = weights.shape[-1]
    rows = weights[..., weights.shape[-2] - len(offsets) * C :, :]
    return rows.reshape(*rows.shape[:-2], len(offsets), C, C)


def dependency_weights(posterior: GaussianPosterior, offsets: tuple[int, ...]) -> Tensor:
    """(R, C, C) the posterior means of the dependencies, [label of the neighbour, label]."""
    return _dependency_rows(posterior.mean, offsets)


def _without_dependencies(
    features: sp.csr_matrix | np.ndarray, n_dependent: int
) -> sp.csr_matrix | np.ndarray:
    """Features with empty columns in place of the dependencies."""
    return with_dependencies(features, sp.csr_matrix((features.shape[0], n_dependent)))


def _rows_by_sequence(
    seen: np.ndarray, tokens: np.ndarray, n_sequences: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    def split(sequence: np.ndarray) -> list[np.ndarray]:
        order = np.argsort(sequence, kind="stable")
        counts = np.bincount(sequence, minlength=n_sequences)
        return np.split(order, np.cumsum(counts)[:-1])

    return list(zip(split(seen), split(tokens), strict=True))


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


def choose_scales(
    held_out: Tensor, g: Tensor, batch: SequenceBatch, offsets: tuple[int, ...]
) -> Scales:
    """The scales with the least log loss of the labels that are known, for held-out scores (N, C).

    With fewer than two sequences nothing is held out, and the scales are 1; so they are where no
    label is known that counts.
    """
    assert batch.allowed is not None
    if batch.layout.n_sequences < 2 or held_out.shape[-1] < 2:
        return Scales()
    known = (batch.allowed.sum(-1) == 1).nonzero().squeeze(-1)
    labels = batch.allowed[known].to(torch.int64).argmax(-1)
    weights = batch.weights[batch.layout.sequence[known]]
    if not float(weights.sum()) > 0:
        return Scales()
    deps = Dependencies(offsets, batch.layout)

    def loss(logs: np.ndarray) -> float:
        local, dependency = np.exp(logs[0]), np.exp(logs[-1])
        proba = deps.marginals(held_out * local, g * dependency)
        p = proba[known, labels].clamp_min(1e-12)
        return -float(weights @ p.log()) / float(weights.sum()) + 1e-3 * float(logs @ logs)

    n = 2 if offsets else 1
    simplex = np.vstack([np.zeros(n), -0.4 * np.eye(n)])
    found = minimize(
        loss,
        np.zeros(n),
        method="Nelder-Mead",
        bounds=[(-3.0, 2.0)] * n,
        options={"initial_simplex": simplex, "maxfev": 60, "xatol": 0.01, "fatol": 1e-5},
    )
    local, dependency = np.exp(found.x[0]), np.exp(found.x[-1])
    return Scales(float(local), float(dependency) if offsets else 1.0)


def _possible(proba: Tensor, batch: SequenceBatch) -> np.ndarray:
    """The probabilities, if every token has a label that it may have."""
    bad = (~proba.isfinite()).any(-1).nonzero().squeeze(-1)
    if len(bad):
        sequence = int(batch.layout.sequence[bad[0]])
        raise ImpossibleSequenceError(int(batch.numbers[sequence]), "no labelling is allowed")
    return proba.numpy()
