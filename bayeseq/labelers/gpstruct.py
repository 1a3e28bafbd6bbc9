"""GPstruct: the Gaussian-process chain with its posterior sampled, as an estimator."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from bayeseq.data.labels import Labels
from bayeseq.inference.chain_gaussian import ChainSolver
from bayeseq.inference.information import JointFamily
from bayeseq.inference.joint import JointPosterior
from bayeseq.inference.reference import JointReference
from bayeseq.inference.sampling import Plan, Run, sample
from bayeseq.inference.variances import VariancePrior
from bayeseq.kernels import Kernel
from bayeseq.kernels.choice import map_from_arrays
from bayeseq.labelers.base import FitResult, TrainingData
from bayeseq.labelers.chain import check_choice, require_positive, require_scheme
from bayeseq.labelers.gpsc import chain_model, feature_map_of, hyperparameters
from bayeseq.labelers.outcome import finite
from bayeseq.labelers.posterior import PosteriorLabeler
from bayeseq.labelers.sampled import KeptDraws, convergence
from bayeseq.models.gpsc import GPSCModel

REFERENCES = ("variational", "laplace", "prior")
LEARNS = (True, False, "sample")
_LEAST_LOG_VARIANCE = {True: -6.0, "sample": -3.0}
"""Where variances start that the evidence sends to zero: their posterior is broad."""


class GPStruct(PosteriorLabeler):
    """The Gaussian-process chain of GPstruct, its posterior sampled by elliptical slice sampling.

    The model is [gpsc]'s: f = ΦW and transitions A, all weights Gaussian, and the softmax over
    whole labellings. Nothing about the posterior is approximated: predictions are averages over
    draws of the weights, of exact chain probabilities.

    Parameters
    ----------
    kernel : a kernel, or its text: "linear", "polynomial(degree=2)", "rbf(scale=0.1)", …
    groups : which features share a prior variance; see `GPSL`. For the linear kernel only.
    chains, draws : how many chains are run side by side, and how many draws each keeps.
    warmup, thin : sweeps before the first that counts, and between two draws that are kept.
    learn : prior variances by group. True: learned from the evidence that the reference gives, and
        then held. "sample": sampled together with the weights, under log σ² ~ N(0, 2²), as
        GPstruct does. False: held at `variance` and `transition_variance`.
    reference : the Gaussian around which ellipses are drawn: a "variational" one or a "laplace" one
        of the same model, or the "prior", as GPstruct does. The answer is the same; the first two
        get there far sooner.
    inducing, inducing_method : see `GPSL`.
    min_count : features that occur fewer times in training are left out.
    scheme, decode : see `ChainLabeler`.
    checkpoint : a folder in which the run is kept while it lasts. `fit` with the same data and
        settings goes on from what it finds there, and gives what it would have given at one go.
    random_state : decides everything that is random.
    progress : show a bar once training has run for two seconds.

    After `fit`, `posterior_.weights` (chains, draws, D + C, C) are the draws of the weights, those
    of the transitions last, and `result_.objective` the mean log-likelihood of the chains by sweep.
    `result_.hyperparameters` holds prior variances and `r_hat` and `ess` of the log-likelihood, of
    the variances where they were sampled, and of the transitions.

    >>> X, y = [[["a"], ["b"]], [["b"], ["a"]]] * 3, [["A", "B"], ["B", "A"]] * 3
    >>> model = GPStruct(chains=8, warmup=20, thin=4, progress=False).fit(X, y)
    >>> model.predict([[["a"], ["a"], ["b"]]])
    [['A', 'A', 'B']]
    """

    posterior_: KeptDraws

    def __init__(
        self,
        kernel: Kernel | str = "linear",
        groups: str | Sequence[Any] | None = "auto",
        chains: int = 16,
        draws: int = 25,
        warmup: int = 500,
        thin: int = 150,
        learn: bool | str = True,
        reference: str = "variational",
        variance: float = 1.0,
        transition_variance: float = 1.0,
        inducing: int | None = None,
        inducing_method: str = "pivoted",
        min_count: int = 1,
        scheme: str | None = None,
        decode: str = "marginal",
        checkpoint: str | None = None,
        random_state: int = 0,
        progress: bool = True,
    ) -> None:
        self.kernel = kernel
        self.groups = groups
        self.chains = chains
        self.draws = draws
        self.warmup = warmup
        self.thin = thin
        self.learn = learn
        self.reference = reference
        self.variance = variance
        self.transition_variance = transition_variance
        self.inducing = inducing
        self.inducing_method = inducing_method
        self.min_count = min_count
        self.scheme = scheme
        self.decode = decode
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.progress = progress

    # ---- fitting --------------------------------------------------------------------------------

    def _learn(self, data: TrainingData) -> FitResult:
        self._check(data)
        feature_map, names = feature_map_of(self, data)
        model = chain_model(self, data, feature_map)
        model, reference = self._reference(model)
        prior = VariancePrior() if self.learn == "sample" else None
        plan = Plan(
            chains=self.chains,
            draws=self.draws,
            warmup=self.warmup,
            thin=self.thin,
            variances=prior,
            seed=self.random_state,
        )
        run = sample(
            model,
            plan,
            reference=reference,
            checkpoint=self.checkpoint,
            progress=self.progress,
            name=type(self).__name__,
        )
        held = model.log_variance[:, 0].expand(*run.weights.shape[:2], -1)
        posterior = KeptDraws(
            run.weights.to(torch.float32),  # half the memory, and far below the spread of draws
            held.clone() if run.log_variance is None else run.log_variance,
        )
        result = self._result(run, hyperparameters(posterior.log_variance, names, feature_map))
        self._set_posterior(feature_map, posterior, 1.0)
        return result

    def _check(self, data: TrainingData) -> None:
        check_choice("reference", self.reference, REFERENCES)
        check_choice("decode", self.decode, ("viterbi", "marginal"))
        check_choice("inducing_method", self.inducing_method, ("pivoted", "kmeans"))
        if self.learn not in LEARNS:
            raise ValueError(f"learn is {self.learn!r}; expected True, False or 'sample'")
        for name in ("variance", "transition_variance"):
            if not 0 < getattr(self, name) < np.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0 and finite")
        for name in ("chains", "draws", "thin"):
            require_positive(name, getattr(self, name))
        if self.warmup < 0:
            raise ValueError(f"warmup is {self.warmup}; it must not be negative")
        if self.scheme is not None:
            require_scheme(data, self.scheme)

    def _reference(self, model: GPSCModel) -> tuple[GPSCModel, JointReference | None]:
        """The model with learned prior variances, and the Gaussian that they were learned by."""
        if self.reference == "prior" and not self.learn:
            return model, None
        found = self._gaussian(model, bool(self.learn))
        if self.learn:
            least = _LEAST_LOG_VARIANCE[self.learn]
            model = replace(model, log_variance=found.log_variance.clamp_min(least))
            if bool((found.log_variance < least).any()) and self.reference != "prior":
                found = self._gaussian(model, False)
        return model, None if self.reference == "prior" else JointReference(found)

    def _gaussian(self, model: GPSCModel, learn: bool) -> JointPosterior:
        solver = ChainSolver(
            model,
            JointFamily("full"),
            torch.full((len(model.log_variance),), learn),
            seed=self.random_state,
            progress=self.progress,
            name=type(self).__name__,
        )
        posterior, trace = solver.laplace() if self.reference == "laplace" else solver.variational()
        if trace.interrupted:
            raise KeyboardInterrupt
        return posterior

    def _result(self, run: Run, learned: dict[str, Any]) -> FitResult:
        found = convergence(run, run.log_likelihood[self.warmup :])
        limit = found.pop("largest_r_hat")
        learned |= found
        learned |= {"evaluations": run.evaluations, "cpu_seconds": run.cpu_seconds}
        message, name = "", type(self).__name__
        apart = {kind: r for kind, r in found["r_hat"].items() if not r <= limit[kind]}
        if run.interrupted:
            message = f"interrupted after {len(run.elapsed)} sweeps; the draws so far are kept"
        elif apart:
            kind, r_hat = max(apart.items(), key=lambda item: item[1])
            message = (
                f"the chains of {name} do not agree yet: R-hat of the {kind.replace('_', '-')} is "
                f"{r_hat:.2f}, above {limit[kind]:.2f}; raise warmup and thin"
                + (", or use reference='variational'" if self.reference == "prior" else "")
            )
        if message:
            warnings.warn(message, ConvergenceWarning, stacklevel=4)
        return FitResult(
            tuple(run.log_likelihood.mean(1).tolist()),
            tuple(run.elapsed.tolist()),
            not message,
            float(run.elapsed[-1]),
            message,
            run.interrupted,
            learned,
        )

    # ---- predicting -----------------------------------------------------------------------------

    @property
    def _averages(self) -> int:
        return self.posterior_.n_draws if hasattr(self, "posterior_") else 0

    @property
    def _n_chains(self) -> int:
        return self.posterior_.n_chains

    @property
    def _default_draws(self) -> int:
        return min(100, self.posterior_.n_draws)

    def posterior_predict(
        self,
        X: Iterable[Any],
        draws: int | None = None,
        given: Labels | None = None,
        random_state: int | np.random.Generator | None = None,
    ) -> list[np.ndarray]:
        """(draws, T, C) label probabilities of each sequence under draws from the posterior: all
        that were kept, chain after chain, or so many of them."""
        return super().posterior_predict(X, self._kept(draws), given, random_state)

    def to_arviz(
        self,
        X: Iterable[Any],
        y: Labels,
        draws: int | None = None,
        random_state: int | np.random.Generator | None = None,
        weights: bool | int = False,
    ) -> Any:
        """The kept draws, or so many of them, chain by chain, with what they say of X and y, for
        arviz; see `GPSL.to_arviz`. `dependency` at offset −1 holds the transitions."""
        return super().to_arviz(X, y, self._kept(draws), random_state, weights)

    def _kept(self, draws: int | None) -> int:
        return max(1, self._averages) if draws is None else draws

    # ---- saving ---------------------------------------------------------------------------------

    def _tensors(self) -> dict[str, np.ndarray]:
        found = {f"map.{name}": array for name, array in self.feature_map_.arrays().items()}
        found["draws"] = self.posterior_.weights.numpy()
        return found | {"log_variances": self.posterior_.log_variances.numpy()}

    def _restore(self, tensors: Mapping[str, np.ndarray]) -> None:
        maps = {name[4:]: array for name, array in tensors.items() if name.startswith("map.")}
        feature_map = map_from_arrays(maps)
        if feature_map.n_inputs != self.feature_space_.n_features:
            raise ValueError("the feature map is not that of the features")
        C, draws = len(self.classes_), tensors["draws"]
        n_groups = int(feature_map.column_groups.max(initial=-1)) + 2
        lead = draws.shape[:2]
        if draws.shape != (*lead, feature_map.n_columns + C, C) or 0 in lead:
            raise ValueError("the draws do not fit the features and labels")
        if draws.dtype != np.float32 or not np.isfinite(draws).all():
            raise ValueError("the draws are not finite numbers")
        log_variances = finite(tensors["log_variances"], "log_variances", (*lead, n_groups))
        posterior = KeptDraws(torch.from_numpy(np.array(draws)), log_variances)
        self._set_posterior(feature_map, posterior, 1.0)
