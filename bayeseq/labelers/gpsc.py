"""GPSC: Gaussian-process sequence classification, as an estimator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayeseq.data.errors import DataError
from bayeseq.data.groups import column_groups
from bayeseq.data.schemes import scheme_constraints
from bayeseq.inference.chain_gaussian import ChainSolver
from bayeseq.inference.information import JointFamily
from bayeseq.inference.joint import Basis, JointPosterior, mirrored_draws
from bayeseq.inference.spread import choose_spread
from bayeseq.kernels import Kernel, Linear, kernel_from_text
from bayeseq.kernels.choice import cheapest_map, map_from_arrays
from bayeseq.kernels.maps import FeatureMap, InducingMap, LinearMap
from bayeseq.kernels.points import Method, choose_points
from bayeseq.labelers.base import FitResult, TrainingData
from bayeseq.labelers.chain import check_choice, require_positive, require_scheme
from bayeseq.labelers.guards import NoPosteriorError
from bayeseq.labelers.outcome import finite, fit_result
from bayeseq.labelers.posterior import PosteriorLabeler
from bayeseq.models.gpsc import GPSCModel, Rules

INFERENCES = ("map", "laplace", "vg")


@dataclass(frozen=True, eq=False)
class PointPosterior:
    """Weights (D + C, C) that are a point, and the prior variances they were found with."""

    mean: Tensor
    log_variance: Tensor

    def draws(self, n: int, generator: torch.Generator) -> Tensor:
        """n times the point."""
        return self.mean.expand(n, *self.mean.shape)


class GPSC(PosteriorLabeler):
    """Gaussian-process sequence classification ([gpsc]): a chain with a Gaussian-process prior.

    The probability of a labelling is a softmax over all labellings of its score, local scores plus
    transitions, both with Gaussian priors: a conditional random field with a posterior. Missing
    labels and label sets are summed over.

    Parameters
    ----------
    kernel : a kernel, or its text: "linear", "polynomial(degree=2)", "rbf(scale=0.1)", sums,
        products. A polynomial kernel is written out as conjunctions where that is cheaper.
    groups : which features share a prior variance; see `GPSL`. With another kernel than the linear
        one all features share it.
    inference : "map": the most probable weights ([gpsc]'s DGPS; with the linear kernel a CRF of
        penalty 1 / (2 · variance)); "laplace": a Gaussian around them; "vg": a variational
        Gaussian.
    covariance : "full": the `together` weights that the data says most of (contrasts of labels, and
        transitions) depend on each other; "diagonal": none.
    inducing, inducing_method : inducing points for other kernels; see `GPSL`.
    variance, transition_variance : prior variances, of features and of transitions, to start from.
        [gpsc] has 1/2.
    learn : learn the prior variances by the evidence; None: where there is a posterior to learn
        them from, so not with "map". With "map" and True, by Laplace's evidence.
    prediction : "average" over draws from the posterior, or the "mean" of the weights; None: the
        average with "vg", the mean with "laplace", whose draws are under-confident (docs/gpsc.md).
    calibrate : choose how far the draws of an average spread by held-out folds of the training
        sequences (see `inference.spread`); otherwise as far as the posterior does.
    draws : draws that predictions average over, in mirrored pairs; half as many stand for the
        posterior in training.
    together : see `covariance`.
    min_count : features that occur fewer times in training are left out.
    scheme, decode : see `ChainLabeler`.
    max_iter, tol : stop after so many iterations ("map") or sweeps, or when ten iterations change
        the objective by less than `tol` of it, or one sweep by less than ten times that.
    random_state : decides the draws and the inducing points.
    progress : show a bar once training has run for two seconds.

    After `fit`, `result_.objective` is the objective of "map" by iteration (what is minimised), or
    the evidence or bound by sweep; `result_.hyperparameters` what was learned; `posterior_` the
    posterior of the weights, `spread_` how far predictions let it spread.

    >>> X, y = [[["a"], ["b"]], [["b"], ["a"]]] * 3, [["A", "B"], ["B", "A"]] * 3
    >>> GPSC(progress=False).fit(X, y).predict([[["a"], ["a"], ["b"]]])
    [['A', 'A', 'B']]
    """

    def __init__(
        self,
        kernel: Kernel | str = "linear",
        groups: str | Sequence[Any] | None = "auto",
        inference: str = "vg",
        covariance: str = "full",
        inducing: int | None = None,
        inducing_method: str = "pivoted",
        variance: float = 1.0,
        transition_variance: float = 1.0,
        learn: bool | None = None,
        prediction: str | None = None,
        calibrate: bool = True,
        draws: int = 64,
        together: int = 1200,
        min_count: int = 1,
        scheme: str | None = None,
        decode: str = "marginal",
        max_iter: int = 200,
        tol: float = 1e-4,
        random_state: int = 0,
        progress: bool = True,
    ) -> None:
        self.kernel = kernel
        self.groups = groups
        self.inference = inference
        self.covariance = covariance
        self.inducing = inducing
        self.inducing_method = inducing_method
        self.variance = variance
        self.transition_variance = transition_variance
        self.learn = learn
        self.prediction = prediction
        self.calibrate = calibrate
        self.draws = draws
        self.together = together
        self.min_count = min_count
        self.scheme = scheme
        self.decode = decode
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.progress = progress

    # ---- fitting --------------------------------------------------------------------------------

    def _learn(self, data: TrainingData) -> FitResult:
        self._check(data)
        feature_map, names = feature_map_of(self, data)
        model = chain_model(self, data, feature_map)
        solver = self._solver(model)
        posterior: PointPosterior | JointPosterior
        spread = 1.0
        if self.inference == "map" and not self.learn:
            u, search = solver.mode(max_iter=self.max_iter, tol=self.tol)
            posterior = PointPosterior(u * model.scale, model.log_variance)
            result = fit_result(self, search)
        else:
            vg = self.inference == "vg"
            found, trace = solver.variational() if vg else solver.laplace()
            posterior = found
            if self.inference == "map":
                posterior = PointPosterior(found.mean, found.log_variance)
            elif self.calibrate and self._averages and not trace.interrupted:
                spread = choose_spread(solver.model, found, solver.family, seed=self.random_state)
            result = fit_result(self, trace)
        learned = hyperparameters(posterior.log_variance, names, feature_map)
        self._set_posterior(feature_map, posterior, spread)
        if self._averages:
            learned["spread"] = spread
        return replace(result, hyperparameters=learned)

    def _solver(self, model: GPSCModel) -> ChainSolver:
        learns = self.inference != "map" if self.learn is None else self.learn
        return ChainSolver(
            model,
            JointFamily(self.covariance, self.together),
            torch.full((len(model.log_variance),), learns),
            draws=self._training_draws,
            max_sweeps=self.max_iter,
            tol=10 * self.tol,
            seed=self.random_state,
            progress=self.progress,
            name=type(self).__name__,
        )

    @property
    def _training_draws(self) -> int:
        """Even: they come in mirrored pairs."""
        return 2 * max(1, self.draws // 4)

    def _check(self, data: TrainingData) -> None:
        check_choice("inference", self.inference, INFERENCES)
        check_choice("prediction", self.prediction, (None, "average", "mean"))
        check_choice("decode", self.decode, ("viterbi", "marginal"))
        check_choice("inducing_method", self.inducing_method, ("pivoted", "kmeans"))
        for name in ("variance", "transition_variance", "tol"):
            if not 0 < getattr(self, name) < np.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0 and finite")
        for name in ("max_iter", "draws", "together"):
            require_positive(name, getattr(self, name))
        if self.inference == "map" and self.prediction == "average":
            raise ValueError(
                "inference='map' has one set of weights and nothing to average over; use "
                "inference='vg' or 'laplace', or prediction='mean'"
            )
        if self.scheme is not None:
            require_scheme(data, self.scheme)

    # ---- predicting -----------------------------------------------------------------------------

    @property
    def _averages(self) -> int:
        by_default = "average" if self.inference == "vg" else "mean"
        return self.draws if (self.prediction or by_default) == "average" else 0

    def _averaged_weights(self) -> Tensor:
        posterior = self.posterior_
        assert isinstance(posterior, JointPosterior)
        white = mirrored_draws(self.draws, len(posterior.alone), self.random_state)
        return posterior.mean + self.spread_ * posterior.coloured(white) * posterior.scale

    def _require_posterior(self) -> None:
        if isinstance(getattr(self, "posterior_", None), PointPosterior):
            raise NoPosteriorError(
                "inference='map' has one set of weights and no posterior; fit with inference='vg' "
                "or 'laplace' to draw from one"
            )

    # ---- saving ---------------------------------------------------------------------------------

    def _tensors(self) -> dict[str, np.ndarray]:
        posterior = self.posterior_
        found = {f"map.{name}": array for name, array in self.feature_map_.arrays().items()}
        found |= {
            "mean": posterior.mean.contiguous().numpy(),
            "log_variance": posterior.log_variance.contiguous().numpy(),
            "spread": np.array([self.spread_]),
        }
        if isinstance(posterior, JointPosterior):
            lower = np.tril_indices(len(posterior.root))
            found |= {
                "turn": posterior.basis.turn.numpy(),
                "places": posterior.basis.places.numpy(),
                "root": posterior.root.numpy()[lower],
                "alone": posterior.alone.numpy(),
            }
        return found

    def _restore(self, tensors: Mapping[str, np.ndarray]) -> None:
        maps = {name[4:]: array for name, array in tensors.items() if name.startswith("map.")}
        feature_map = map_from_arrays(maps)
        if feature_map.n_inputs != self.feature_space_.n_features:
            raise ValueError("the feature map is not that of the features")
        C = len(self.classes_)
        shape = (feature_map.n_columns + C, C)
        n_groups = int(feature_map.column_groups.max(initial=-1)) + 2
        mean = finite(tensors["mean"], "mean", shape)
        log_variance = finite(tensors["log_variance"], "log_variance", (n_groups, C))
        (spread,) = finite(tensors["spread"], "spread", (1,)).tolist()
        if not 0 <= spread <= 1:
            raise ValueError(f"the spread is {spread}, not between 0 and 1")
        posterior: PointPosterior | JointPosterior = PointPosterior(mean, log_variance)
        if "places" in tensors:
            scale = torch.exp(log_variance / 2)[row_groups(feature_map, C)]
            places = tensors["places"]
            n = places.size
            if places.dtype != np.int64 or places.ndim != 1 or (np.diff(places) <= 0).any():
                raise ValueError("the places of the weights are not rising whole numbers")
            if n and (places[0] < 0 or places[-1] >= mean.numel()):
                raise ValueError("a weight belongs to a feature or label that does not exist")
            root = torch.zeros(n, n, dtype=torch.float64)
            lower = torch.tril_indices(n, n)
            root[lower[0], lower[1]] = finite(tensors["root"], "root", (n * (n + 1) // 2,))
            alone = finite(tensors["alone"], "alone", (mean.numel(),))
            if bool((alone <= 0).any()) or bool((root.diagonal() <= 0).any()):
                raise ValueError("a variance is not above 0")
            turn = finite(tensors["turn"], "turn", (C, C))
            if not torch.allclose(turn.T @ turn, torch.eye(C, dtype=torch.float64)):
                raise ValueError("the contrasts of labels are not orthogonal")
            basis = Basis(turn, torch.from_numpy(np.array(places)))
            posterior = JointPosterior(mean / scale, log_variance, scale, basis, root, alone)
        elif self.inference != "map":
            raise ValueError("the posterior is missing")
        self._set_posterior(feature_map, posterior, spread)


# ---- what labelers with a Gaussian-process chain share ------------------------------------------


def feature_map_of(settings: Any, data: TrainingData) -> tuple[FeatureMap, list[str]]:
    """The feature map of a labeler's kernel on its training data, and the names of the groups."""
    X = data.batch.features
    kernel = settings.kernel
    kernel = kernel_from_text(kernel) if isinstance(kernel, str) else kernel
    if not isinstance(kernel, Kernel):
        raise ValueError(f"kernel is {kernel!r}; expected a kernel or its text")
    kernel.check()
    if settings.inducing is not None:
        require_positive("inducing", settings.inducing)
        method: Method = "kmeans" if settings.inducing_method == "kmeans" else "pivoted"
        points = choose_points(kernel, X, settings.inducing, method, settings.random_state, None)
        return InducingMap(kernel, points), ["kernel"]
    if isinstance(kernel, Linear):
        groups, names = column_groups(settings.groups, data.features.names, X.shape[1])
        return LinearMap(groups), list(names)
    found = cheapest_map(kernel, X)
    if isinstance(found, InducingMap) and found.n_columns > _LARGEST_KERNEL_MATRIX:
        raise DataError(
            f"a kernel matrix of {found.n_columns} different tokens is too large; use inducing=1000"
        )
    return found, ["kernel"]


_LARGEST_KERNEL_MATRIX = 20_000


def chain_model(settings: Any, data: TrainingData, feature_map: FeatureMap) -> GPSCModel:
    """The chain model of training data, with the prior variances to start from."""
    batch = data.batch
    assert batch.allowed is not None
    features, _ = feature_map.features(batch.features)
    rules = Rules()
    if settings.scheme is not None:
        found = scheme_constraints(data.labels.classes, settings.scheme)
        rules = Rules(*map(torch.from_numpy, (found.pairs, found.start, found.end)))
    model = GPSCModel.of(
        features,
        feature_map.column_groups,
        batch.layout,
        batch.allowed,
        weights=batch.weights,
        rules=rules,
    )
    start = torch.full_like(model.log_variance, float(np.log(settings.variance)))
    start[-1] = float(np.log(settings.transition_variance))
    return replace(model, log_variance=start)


def row_groups(feature_map: FeatureMap, n_labels: int) -> Tensor:
    """(D + C,) the prior-variance group of each row of the weights, the transitions' last."""
    groups = feature_map.column_groups
    last = int(groups.max(initial=-1)) + 1
    return torch.from_numpy(np.concatenate([groups, np.full(n_labels, last)]).astype(np.int64))


def hyperparameters(
    log_variance: Tensor, names: Sequence[str], feature_map: FeatureMap
) -> dict[str, Any]:
    """Prior variances by group, and that of the transitions."""
    values = log_variance[:, 0].exp().tolist()
    found: dict[str, Any] = {
        "variance": dict(zip(names, values[:-1], strict=False)),
        "dependency_variance": {"-1": values[-1]},
    }
    if not isinstance(feature_map, LinearMap):
        found["kernel"] = str(feature_map.kernel)  # type: ignore[attr-defined]
    return found
