"""Gaussian guides of Pyro over the weights of a model, in the same four families as the solver.

The site is "weights" (D, C): whitened, so that the prior is N(0, I). Labels are independent, and
every family is a precision of one form, a diagonal and a factor,

    S_c⁻¹ = diag(d_c) + U_c U_cᵀ,

and differs only in what is free: with Φ̃_c the design times the prior standard deviations,

- `PrecisionGuide`: d = 1, U = Φ̃ᵀ diag(λ)^½, one λ > 0 a row: a full covariance, in the form of
  Opper & Archambeau;
- `BlockGuide`: as that for the features; the dependencies independent of them and of each other;
- `LowRankGuide`: d and r columns of U;
- `DiagonalGuide`: d alone.

A guide starts near the prior, or from the solver's answer (`from_posterior`, `guide_of`), and
serves `SVI`, `Predictive`, importance sampling and its diagnostics.
"""

from __future__ import annotations

import itertools
from typing import Any, ClassVar, Protocol, Self

import pyro
import torch
from pyro.distributions import TorchDistribution, constraints
from pyro.nn import PyroModule, PyroParam
from torch import Tensor, nn

from bayeseq.inference.covariance import (
    Block,
    ByColumns,
    ByRows,
    CovarianceFamily,
    Diagonal,
    LabelCovariance,
    LowRank,
)
from bayeseq.inference.variational import GaussianPosterior
from bayeseq.kernels.design import Design
from bayeseq.linalg import cholesky


class LinearModel(Protocol):
    """What a guide needs to know of a model: how its whitened weights become scores."""

    @property
    def design(self) -> Design:
        """Ψ (N, D)"""

    @property
    def groups(self) -> Tensor:
        """(D,) the prior-variance group of each column"""

    @property
    def log_variance(self) -> Tensor:
        """(G, C) log prior variances"""

    @property
    def n_dependent(self) -> int:
        """How many of the last columns are label dependencies"""


class PrecisionNormal(TorchDistribution):
    """Columns W[:, c] ~ N(loc_c, (diag(d_c) + U_c U_cᵀ)⁻¹), independent of each other.

    Parameters are loc (D, C), diagonal d (D, C) and factor U (C, D, r); one factorisation of the
    smaller of r × r and D × D a column, whatever the number of draws.

    >>> one = torch.ones(1, 1, dtype=torch.float64)
    >>> PrecisionNormal(0 * one, one, 3 * one.unsqueeze(0)).variance.item()      # 1 / (1 + 3²)
    0.1
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "loc": constraints.independent(constraints.real, 2),
        "diagonal": constraints.independent(constraints.positive, 2),
        "factor": constraints.independent(constraints.real, 3),
    }
    support = constraints.independent(constraints.real, 2)
    has_rsample = True

    def __init__(
        self, loc: Tensor, diagonal: Tensor, factor: Tensor, validate_args: bool | None = None
    ) -> None:
        self.loc, self.diagonal, self.factor = loc, diagonal, factor
        self._by_rows = factor.shape[-1] < factor.shape[-2]
        if self._by_rows:  # S = d^-½ (I + V Vᵀ)⁻¹ d^-½
            self._root = diagonal.T.sqrt().unsqueeze(-1)
            self._V = factor / self._root
            inner = self._V.mT @ self._V
        else:
            inner = torch.diag_embed(diagonal.T - 1) + factor @ factor.mT
        self._identity = torch.eye(inner.shape[-1], dtype=loc.dtype)
        self._L = cholesky(inner + self._identity, "the precision of a guide")
        super().__init__(torch.Size(), loc.shape, validate_args=validate_args)

    def rsample(self, sample_shape: torch.Size | list[int] | tuple[int, ...] = ()) -> Tensor:
        """(*sample_shape, D, C) draws."""
        (D, C), n = self.loc.shape, torch.Size(sample_shape).numel()
        white = torch.randn(C, D, n, dtype=self.loc.dtype)
        found = self._coloured(white).permute(2, 1, 0)
        return self.loc + found.reshape(*sample_shape, D, C)

    def _coloured(self, white: Tensor) -> Tensor:
        """(C, D, n) F x with F Fᵀ = S."""
        if not self._by_rows:
            return torch.linalg.solve_triangular(self._L.mT, white, upper=True)
        # With L Lᵀ = I + VᵀV, F = I − V L⁻ᵀ (I + L)⁻¹ Vᵀ has F Fᵀ = (I + V Vᵀ)⁻¹: no eigenvectors,
        # whose derivatives are undefined where eigenvalues meet.
        inner = torch.linalg.solve_triangular(
            self._L + self._identity, self._V.mT @ white, upper=False
        )
        inner = torch.linalg.solve_triangular(self._L.mT, inner, upper=True)
        return (white - self._V @ inner) / self._root

    def log_prob(self, value: Tensor) -> Tensor:
        """(…) the log density of values (…, D, C)."""
        if self._validate_args:
            self._validate_sample(value)
        error = value - self.loc
        along = torch.einsum("...dc,cdr->...cr", error, self.factor)
        form = (self.diagonal * error.square()).sum((-2, -1)) + along.square().sum((-2, -1))
        return -0.5 * (form - self._log_det + self.loc.numel() * _LOG_TWO_PI)

    @property
    def _log_det(self) -> Tensor:
        """log |S⁻¹| of all columns together."""
        found = 2 * self._L.diagonal(dim1=-2, dim2=-1).log().sum()
        return found + self.diagonal.log().sum() if self._by_rows else found

    @property
    def mean(self) -> Tensor:
        """(D, C)."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """(D, C) the diagonals of the S_c."""
        right = self._V.mT if self._by_rows else self._identity.expand_as(self._L)
        squares = torch.linalg.solve_triangular(self._L, right, upper=False).square().sum(-2).T
        return (1 - squares) / self.diagonal if self._by_rows else squares


_LOG_TWO_PI = 1.8378770664093453


class GaussianGuide(PyroModule):
    """A Gaussian over the site "weights"; a subclass writes `_take` and `precision`.

    The parameters live in the guide; the names under which Pyro's store knows them are its own, so
    that several guides can be trained side by side.
    """

    made_of: ClassVar[tuple[type[LabelCovariance], ...]]
    """The covariances of the solver that the guide can stand for"""
    kind: ClassVar[str]
    """What `CovarianceFamily` calls them"""
    scale: Tensor
    """(D, C) prior standard deviations"""

    def __init__(self, model: LinearModel, start: GaussianPosterior | None = None) -> None:
        super().__init__(unused_name())
        start = cold_start(model, self.kind) if start is None else start
        self._check(model, start)
        self.register_buffer("scale", torch.exp(model.log_variance / 2)[model.groups])
        self.whitened_mean = nn.Parameter(start.mean / self.scale)
        self._take(model, start)

    @classmethod
    def from_posterior(cls, model: LinearModel, posterior: GaussianPosterior) -> Self:
        """The guide that has the moments of a posterior which the solver found.

        Its bound is then the solver's, if the model has no residual variance: that is no part of
        the program.
        """
        return cls(model, start=posterior)

    def _check(self, model: LinearModel, start: GaussianPosterior) -> None:
        found = type(start.covariances[0])
        if not issubclass(found, self.made_of):
            wanted = " or ".join(cls.__name__ for cls in self.made_of)
            raise TypeError(
                f"{type(self).__name__} stands for covariances that are {wanted}, those of the "
                f"posterior are {found.__name__}; guide_of picks the guide that fits"
            )
        if not torch.equal(model.log_variance, start.log_variance):
            raise ValueError(
                "the posterior was found with other prior variances than the model's; "
                "give dataclasses.replace(model, log_variance=posterior.log_variance)"
            )

    def _take(self, model: LinearModel, start: GaussianPosterior) -> None:
        """Make the parameters of the precision from a posterior."""
        raise NotImplementedError

    def precision(self) -> tuple[Tensor, Tensor]:
        """The diagonal (D, C) and the factor (C, D, r) of the precisions."""
        raise NotImplementedError

    def distribution(self) -> PrecisionNormal:
        """The Gaussian of the whitened weights."""
        return PrecisionNormal(self.whitened_mean, *self.precision())

    def forward(self) -> Tensor:
        """The program; returns the whitened weights."""
        return pyro.sample("weights", self.distribution())

    @property
    def mean(self) -> Tensor:
        """(D, C) means of the weights in their own units."""
        return self.scale * self.whitened_mean.detach()

    @property
    def variances(self) -> Tensor:
        """(D, C) variances of the weights in their own units."""
        return self.scale.square() * self.distribution().variance.detach()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy is another guide: it takes a name of its own."""
        super().__setstate__(state)
        self.__dict__["_pyro_name"] = unused_name()


class DiagonalGuide(GaussianGuide):
    """Independent weights."""

    made_of: ClassVar[tuple[type[LabelCovariance], ...]] = (Diagonal,)
    kind = "diagonal"
    diagonal: Tensor

    def _take(self, model: LinearModel, start: GaussianPosterior) -> None:
        self.diagonal = _positive(self.scale.square() / start.variances)

    def precision(self) -> tuple[Tensor, Tensor]:
        """A free diagonal and no factor."""
        D, C = self.scale.shape
        return self.diagonal, self.scale.new_zeros(C, D, 0)


class LowRankGuide(GaussianGuide):
    """A diagonal and r directions that the data tell more of."""

    made_of: ClassVar[tuple[type[LabelCovariance], ...]] = (LowRank,)
    kind = "lowrank"
    diagonal: Tensor
    factor: nn.Parameter

    def __init__(
        self, model: LinearModel, rank: int = 20, start: GaussianPosterior | None = None
    ) -> None:
        super().__init__(model, cold_start(model, self.kind, rank) if start is None else start)

    def _take(self, model: LinearModel, start: GaussianPosterior) -> None:
        E = torch.stack([S.E for S in start.covariances if isinstance(S, LowRank)], -1)
        self.diagonal = _positive(self.scale.square() / E)
        columns = zip(start.covariances, self.scale.T, strict=True)
        self.factor = nn.Parameter(torch.stack([_factor(S) * s.unsqueeze(-1) for S, s in columns]))

    def precision(self) -> tuple[Tensor, Tensor]:
        """A free diagonal and a free factor."""
        return self.diagonal, self.factor


class PrecisionGuide(GaussianGuide):
    """A full covariance a label, said by one curvature a row and label."""

    made_of: ClassVar[tuple[type[LabelCovariance], ...]] = (ByColumns, ByRows)
    kind = "full"
    columns: Tensor
    prior_precision: Tensor
    curvature: Tensor

    def _take(self, model: LinearModel, start: GaussianPosterior) -> None:
        matrix: Any = model.design.matrix
        dense = torch.from_numpy(matrix.toarray() if model.design.sparse else matrix)
        self.register_buffer("columns", dense.T.contiguous())
        # 1, but where the solver stopped between two prior variances.
        self.register_buffer("prior_precision", start.precision * self.scale.square())
        self.curvature = _positive(start.curvature)

    def precision(self) -> tuple[Tensor, Tensor]:
        """The prior's diagonal, and Φ̃ᵀ diag(λ)^½."""
        scaled = self.scale.T.unsqueeze(-1) * self.columns
        return self.prior_precision, scaled * self.curvature.T.sqrt().unsqueeze(1)


class BlockGuide(PrecisionGuide):
    """The features as in `PrecisionGuide`, the dependencies independent ([gpsl])."""

    made_of: ClassVar[tuple[type[LabelCovariance], ...]] = (Block,)
    kind = "block"
    dependent: Tensor

    def _take(self, model: LinearModel, start: GaussianPosterior) -> None:
        super()._take(model, start)
        split = len(self.columns) - model.n_dependent
        self.columns[split:] = 0.0
        self.prior_precision = self.prior_precision[:split]
        self.dependent = _positive((self.scale.square() / start.variances)[split:])

    def precision(self) -> tuple[Tensor, Tensor]:
        """The prior's diagonal and then a free one; a factor of the features alone."""
        prior, factor = super().precision()
        return torch.cat([prior, self.dependent]), factor


def guide_of(model: LinearModel, posterior: GaussianPosterior) -> GaussianGuide:
    """The guide that has the moments of a posterior, of the family that the posterior is of."""
    families: tuple[type[GaussianGuide], ...] = (
        PrecisionGuide,
        BlockGuide,
        LowRankGuide,
        DiagonalGuide,
    )
    fitting = [cls for cls in families if isinstance(posterior.covariances[0], cls.made_of)]
    return fitting[0].from_posterior(model, posterior)


def cold_start(model: LinearModel, kind: str, rank: int = 20) -> GaussianPosterior:
    """Means of zero, and the covariances of a softmax whose labels are all as probable."""
    C = model.log_variance.shape[1]
    N, D = model.design.shape
    share = (1 - 1 / C) / C if C > 1 else 1.0
    curvature = torch.full((N, C), share, dtype=torch.float64)
    precision = torch.exp(-model.log_variance)[model.groups]
    covariances = CovarianceFamily(kind, model.design, model.n_dependent, rank)(
        curvature, precision
    )
    mean = torch.zeros(D, C, dtype=torch.float64)
    return GaussianPosterior(mean, covariances, curvature, precision, model.log_variance)


def _factor(S: LabelCovariance) -> Tensor:
    """(D, r) U of S⁻¹ = diag(E)⁻¹ + U Uᵀ, from S = diag(E) − W Wᵀ: U = E⁻¹ W (I − Wᵀ E⁻¹ W)^-½."""
    assert isinstance(S, LowRank)
    scaled = S.EU / S.E.unsqueeze(-1)
    inner = torch.eye(S.EU.shape[1], dtype=S.E.dtype) - S.EU.T @ scaled
    L = cholesky(inner, "the low-rank part of a label's covariance")
    return torch.linalg.solve_triangular(L, scaled.T, upper=False).T


def _positive(value: Tensor) -> Any:
    """A parameter that is kept positive by its logarithm."""
    return PyroParam(value.clamp_min(torch.finfo(value.dtype).tiny), constraints.positive)


def unused_name() -> str:
    """A name that no guide has had yet."""
    return f"guide_{next(_numbers)}"


_numbers = itertools.count()
