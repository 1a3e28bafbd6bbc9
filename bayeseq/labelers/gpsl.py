"""GPSL: Gaussian-process sequence labelling by pseudo-likelihood, as an estimator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from bayeseq.chain import Chain, ImpossibleSequenceError, forward_backward
from bayeseq.data.batch import SequenceBatch
from bayeseq.data.labels import Labels
from bayeseq.inference.covariance import CovarianceFamily
from bayeseq.inference.dependencies import Dependencies, RefinedScores, check_offsets, refine
from bayeseq.inference.expectations import expectation
from bayeseq.inference.scales import Scales
from bayeseq.inference.variational import GaussianPosterior
from bayeseq.kernels import Kernel
from bayeseq.kernels.choice import map_from_arrays
from bayeseq.kernels.design import Design
from bayeseq.kernels.maps import FeatureMap, InducingMap, LinearMap
from bayeseq.labelers.base import FitResult, TrainingData
from bayeseq.labelers.chain import (
    ChainLabeler,
    check_choice,
    obey_scheme,
    require_positive,
    require_scheme,
)
from bayeseq.labelers.draws import (
    Answers,
    answers_of_chains,
    answers_of_pseudo_likelihood,
    to_arviz,
)
from bayeseq.labelers.gpsl_training import NEGLIGIBLE, Training, refuse_beyond
from bayeseq.labelers.outcome import finite, fit_result
from bayeseq.labelers.uncertain import Draws, position_noise, prior_sd, token_draws
from bayeseq.models.gpsl import GPSLModel, dependency_rows, without_dependencies

PREDICTIONS = ("chain", "rns", "average", "gibbs")
MISSING = ("drop", "expect")


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
    hidden : share of the neighbours' labels that training does not look at, chosen at random. A
        neighbour on each side, always known, explains away what the features should learn, and no
        neighbour is known at prediction; None hides half where dependencies lie on both sides, and
        nothing otherwise. 0 is [gpsl].
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
        hidden: float | None = None,
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
        self.hidden = hidden
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
        found = Training(self, data, self._checked(data)).run()
        result = fit_result(self, found.trace, found.hyperparameters)
        self.feature_map_, self.posterior_ = found.feature_map, found.posterior
        self.scales_, self._model_ = found.scales, found.model
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
        if self.hidden is not None and not 0 <= self.hidden < 1:
            raise ValueError(f"hidden is {self.hidden}; it must be at least 0 and below 1")
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

    # ---- predicting -----------------------------------------------------------------------------

    def _local(self, batch: SequenceBatch) -> tuple[Design, Tensor | None]:
        """The design of new tokens with no dependency in it, and their residual variances."""
        features, residual = self.feature_map_.features(batch.features)
        n_dependent = self.posterior_.mean.shape[0] - features.shape[1]
        design = Design(without_dependencies(features, n_dependent))
        return design, torch.from_numpy(residual) if residual.any() else None

    def _scores(self, batch: SequenceBatch) -> Chain:
        deps = Dependencies(check_offsets(self.dependencies), batch.layout)
        _require_single_labels(deps)
        return deps.chain(*self._mean_scores(batch, deps))

    def _mean_scores(self, batch: SequenceBatch, deps: Dependencies) -> tuple[Tensor, Tensor]:
        """Posterior means of f (N, C) and g (R, C, C), weighed for prediction."""
        local, _ = self._local(batch)
        f = local.times(self.posterior_.mean) * self.scales_.local
        return f, dependency_rows(self.posterior_.mean, deps.offsets) * self.scales_.dependency

    def _marginals(self, batch: SequenceBatch) -> np.ndarray:
        deps = Dependencies(check_offsets(self.dependencies), batch.layout)
        if self.prediction == "chain":
            if deps.order < 2:
                return super()._marginals(batch)
            f, g = self._mean_scores(batch, deps)
            return _possible(deps.marginals(f, g, batch.allowed), batch)
        if self.prediction == "gibbs":
            generator = torch.Generator().manual_seed(self.random_state)
            weights = self._drawn_weights(_GIBBS_DRAWS, self.random_state)
            _, f, g = self._drawn_scores(batch, weights, self.random_state)
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
            dependency_rows(self.posterior_.mean, deps.offsets),
            dependency_rows(self.posterior_.variances, deps.offsets),
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
        weights: how they vary from draw to draw is what the model does not know.

        With prediction="chain" each draw is weighed by `scales_`, as `predict_proba` weighs the
        mean of the weights. That takes the probabilities of the mean, not the mean of these.
        """
        return token_draws(Draws(self, X, draws, given, random_state))

    def _require_posterior(self) -> None:
        """There is one."""

    def _prior_sd(self, names: Sequence[str]) -> np.ndarray:
        return prior_sd(self, names)

    def _drawn_weights(self, draws: int, seed: int) -> Tensor:
        return self.posterior_.draws(draws, torch.Generator().manual_seed(seed))

    def _drawn_chain(
        self, part: SequenceBatch, weights: Tensor, seed: int, noise: Tensor | None
    ) -> Chain:
        deps, f, g = self._drawn_scores(part, weights, seed, noise)
        _require_single_labels(deps)
        return self._chain_of(deps, f, g, part.allowed)

    def _drawn_marginals(
        self, part: SequenceBatch, weights: Tensor, seed: int, noise: Tensor | None
    ) -> Tensor:
        deps, f, g = self._drawn_scores(part, weights, seed, noise)
        if deps.order < 2:
            return forward_backward(self._chain_of(deps, f, g, part.allowed)).unary
        if deps.is_chain:
            return deps.marginals(f, g, part.allowed)
        return deps.gibbs(f, g, torch.Generator().manual_seed(seed), part.allowed)

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

        `posterior` holds `dependency` (offset, neighbour_label, own_label) and, with `weights` True
        or a number, `weight` (feature, own_label) of all features or of so many with the largest
        means. `log_likelihood` holds `labels`, log p(y | x) of each sentence, which is what to
        compare models by: `az.loo(found, var_name="labels")`, or `bayeseq.loo`, which corrects for
        the approximation; and `token_labels`, of each token by itself. Tokens without a known label
        are left out of `token_labels`, and sentences without any of `labels`; the coordinates are
        their places in X. The bound by sweep and the prior variances are in `constant_data`:
        `sample_stats` is for what each draw has.
        """
        return to_arviz(self, X, y, draws, random_state, weights)

    @property
    def _offsets(self) -> tuple[int, ...]:
        return check_offsets(self.dependencies)

    @property
    def _n_chains(self) -> int:
        return 1

    def _draw_answers(self, part: SequenceBatch, draws: int, generator: torch.Generator) -> Answers:
        seed = generator.initial_seed()
        deps, f, g = self._drawn_scores(part, self._drawn_weights(draws, seed), seed)
        if not deps.is_chain:
            return answers_of_pseudo_likelihood(deps, f, g, part, generator)
        free, held = (self._chain_of(deps, f, g, allowed) for allowed in (None, part.allowed))
        log_likelihood, proba, drawn = answers_of_chains(free, held, generator)
        C = f.shape[-1]
        if deps.order == 2:
            proba = proba.reshape(*proba.shape[:-1], C, C).sum(-2)
        if deps.is_backwards:
            reversal = deps.layout.reversal.numpy()
            drawn, proba = drawn[..., reversal], proba[..., reversal, :]
        return log_likelihood, proba, drawn % C

    def _chain_of(
        self, deps: Dependencies, f: Tensor, g: Tensor, allowed: Tensor | None = None
    ) -> Chain:
        """The chain of scores (S, N, C) and (S, R, C, C); a scheme's forbidden pairs are taken
        out."""
        chain = deps.chain(f, g, allowed)
        if deps.order < 2:
            chain = obey_scheme(chain, self.scheme, self.label_space_.classes)
        return chain

    def _drawn_scores(
        self, part: SequenceBatch, weights: Tensor, seed: int, noise: Tensor | None = None
    ) -> tuple[Dependencies, Tensor, Tensor]:
        """f (S, N, C) and g (S, R, C, C) of draws of the weights, weighed for prediction; what the
        feature map leaves out of new tokens is drawn too, and `noise` (S, N, C) added to f."""
        deps = Dependencies(self._offsets, part.layout)
        local, residual = self._local(part)
        f, g = local.product(weights), dependency_rows(weights, deps.offsets)
        if residual is not None:
            spread = residual.unsqueeze(-1) * self.posterior_.log_variance[0].exp()
            f = f + position_noise(part.layout, len(f), f.shape[-1], seed) * spread.sqrt()
        if noise is not None:
            f = f + noise
        if self.prediction == "chain":
            f, g = f * self.scales_.local, g * self.scales_.dependency
        return deps, f, g

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
        numbers = {name: finite(tensors[name], name, shape) for name, shape in shapes.items()}
        if bool((numbers["curvature"] < 0).any()) or bool((numbers["precision"] <= 0).any()):
            raise ValueError("a curvature or precision is negative")
        if bool((numbers["scales"] <= 0).any()):
            raise ValueError("a scale is not above 0")
        matrix = _csr(tensors, (n, D))
        design = Design(matrix if linear else matrix.toarray())
        family = CovarianceFamily(self.covariance, design, len(offsets) * C, self.rank, NEGLIGIBLE)
        what, instead = "the posterior of this model", "a machine with more of it"
        refuse_beyond(self.max_memory, family.bytes(C), what, instead)
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


_GIBBS_DRAWS = 32
"""Posterior draws that Gibbs sampling averages over."""


def _require_single_labels(deps: Dependencies) -> None:
    if deps.order > 1:
        raise ValueError(
            f"this needs a chain of single labels, and dependencies {deps.offsets} reach farther; "
            "predict, predict_proba, tag, posterior_predict and predict_uncertainty work with them"
        )


def _all_groups(groups: np.ndarray, offsets: Sequence[int], n_labels: int) -> np.ndarray:
    """(D,) the groups of a feature map's columns, and after them one for each dependency."""
    after = int(groups.max(initial=-1)) + 1 + np.repeat(np.arange(len(offsets)), n_labels)
    return np.concatenate([groups, after]).astype(np.int64)


def _csr(tensors: Mapping[str, np.ndarray], shape: tuple[int, int]) -> sp.csr_matrix:
    """The saved design, if its parts fit together."""
    data, indices, indptr = (tensors[f"design.{part}"] for part in ("data", "indices", "indptr"))
    finite(data, "design.data", (len(np.atleast_1d(indices)),))
    if indices.dtype != np.int64 or indptr.dtype != np.int64:
        raise ValueError("the places in the design are not whole numbers")
    matrix = sp.csr_matrix((data, indices, indptr), shape=shape)
    matrix.check_format(full_check=True)
    if not matrix.has_canonical_format or matrix.nnz != len(data):
        raise ValueError("a place in the design stands twice")
    return matrix


def _possible(proba: Tensor, batch: SequenceBatch) -> np.ndarray:
    """The probabilities, if every token has a label that it may have."""
    bad = (~proba.isfinite()).any(-1).nonzero().squeeze(-1)
    if len(bad):
        sequence = int(batch.layout.sequence[bad[0]])
        raise ImpossibleSequenceError(int(batch.numbers[sequence]), "no labelling is allowed")
    return proba.numpy()
