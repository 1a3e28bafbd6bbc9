"""The covariance of one label's weights in a variational Gaussian, in four families.

The optimum of the bound over covariances has the form of Opper & Archambeau: with one curvature
λ_n a token and prior precisions p_k, the precision of a label's weights is P = diag(p) + Ψᵀ
diag(λ) Ψ, so N free numbers a label say it all. Families that leave entries of the covariance out
take the part of P that they keep, which is the optimum among them:

- "full": S = P⁻¹, by a D × D or an N × N factorisation, whichever is the smaller;
- "block": the weights of the features as "full", those of the dependencies independent of them and
  of each other, as in [gpsl];
- "diagonal": S = diag(P)⁻¹;
- "lowrank": the leading eigenvectors of the data's part of P, and the diagonal of the rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse.linalg as spla
import torch
from torch import Tensor

from bayeseq.chain.threads import in_threads
from bayeseq.kernels.design import Design
from bayeseq.linalg import cholesky, inverse

FAMILIES = ("full", "block", "lowrank", "diagonal")


class LabelCovariance(ABC):
    """S (D, D), the covariance of one label's weights."""

    diagonal: Tensor
    """(D,) variances of the weights"""
    log_det: float
    """log |S|"""

    @abstractmethod
    def times(self, columns: Tensor) -> Tensor:
        """(D, k) S X."""

    @abstractmethod
    def row_variances(self, design: Design) -> Tensor:
        """(N,) the variances of the scores of any rows, ψᵀ S ψ."""

    @abstractmethod
    def sample(self, noise: Tensor) -> Tensor:
        """(D, S) draws from N(0, S), made of standard normal noise (D + N, S)."""

    def between(self, left: Design, right: Design) -> Tensor:
        """(n, m) the covariance of the scores of some rows with those of others."""
        return left.times(self.times(torch.from_numpy(np.ascontiguousarray(right.dense().T))))


class ByColumns(LabelCovariance):
    """S from the D × D precision. Columns of which the data says next to nothing (their share of
    the precision is below `negligible` of the prior's) are taken as independent of the others."""

    def __init__(
        self, design: Design, curvature: Tensor, precision: Tensor, negligible: float = 0.0
    ) -> None:
        scale = precision.rsqrt()
        A = design.columns_gram(curvature) * scale * scale.unsqueeze(-1)
        known = A.diagonal().clone()
        A.diagonal().add_(1.0)
        strong = (known > negligible).nonzero().squeeze(-1)
        if len(strong) == len(known) or negligible == 0:
            S, log_det = inverse(A, "the precision of a label's weights")
        else:
            part, log_det = inverse(
                A[strong][:, strong].contiguous(), "the precision of a label's weights"
            )
            weak = (known <= negligible).nonzero().squeeze(-1)
            log_det += float(known[weak].log1p().sum())
            S = torch.diag(1 / (1 + known))
            S[strong.unsqueeze(-1), strong] = part
        self.log_det = -log_det - float(precision.log().sum())
        self.S = S.mul_(scale).mul_(scale.unsqueeze(-1))
        self.diagonal = self.S.diagonal().clone()

    @cached_property
    def _factor(self) -> Tensor:
        return cholesky(self.S, "the covariance of a label's weights")

    def times(self, columns: Tensor) -> Tensor:
        """(D, k) S X."""
        return self.S @ columns

    def between(self, left: Design, right: Design) -> Tensor:
        """(n, m) Ψ S Ψ'ᵀ, without a full right-hand side."""
        return left.times(torch.from_numpy(np.ascontiguousarray((right.matrix @ self.S.numpy()).T)))

    def row_variances(self, design: Design) -> Tensor:
        """(N,) ψᵀ S ψ."""
        return design.row_forms(self.S)

    def sample(self, noise: Tensor) -> Tensor:
        """(D, S) draws from N(0, S)."""
        return self._factor @ noise[: len(self.diagonal)]


class ByRows(LabelCovariance):
    """S from an N × N factorisation: S = T − T Ψᵀ R Ψ T with T = diag(p)⁻¹, K = Ψ T Ψᵀ and
    R = Λ^½ (I + Λ^½ K Λ^½)⁻¹ Λ^½. No division by a curvature that may be zero. Rows that say next
    to nothing (λ_n K_nn below `negligible`) are left out."""

    def __init__(
        self,
        design: Design,
        curvature: Tensor,
        precision: Tensor,
        gram: Tensor | None = None,
        negligible: float = 0.0,
    ) -> None:
        self.whole, self.variance = design, 1 / precision
        self.gram = design.rows_gram(self.variance) if gram is None else gram
        strong = (curvature * self.gram.diagonal() > negligible).nonzero().squeeze(-1)
        self.rows = strong if negligible > 0 else torch.arange(len(curvature))
        self.design, self.curvature = design, curvature
        K = self.gram
        if len(self.rows) < len(curvature):
            self.design, self.curvature = design.select(self.rows.numpy()), curvature[self.rows]
            K = K[self.rows][:, self.rows]
        root = self.curvature.sqrt()
        B = K * root * root.unsqueeze(-1)
        B.diagonal().add_(1.0)
        R, log_det = inverse(B, "the precision of the scores of a label")
        self.log_det = -log_det - float(precision.log().sum())
        self._inverse_diagonal = R.diagonal().clone()
        self.R = R.mul_(root).mul_(root.unsqueeze(-1))
        self.diagonal = self.variance - self.variance.square() * self.design.column_forms(self.R)

    def times(self, columns: Tensor) -> Tensor:
        """(D, k) S X."""
        scaled = self.variance.unsqueeze(-1) * columns
        seen = self.R @ self.design.times(scaled)
        return scaled - self.variance.unsqueeze(-1) * self.design.transpose_times(seen)

    def row_variances(self, design: Design) -> Tensor:
        """(N,) ψᵀ S ψ."""
        if design is not self.whole:
            return self._other_variances(design)
        # At the rows seen it is (1 − (B⁻¹)_nn) / λ_n, unless λ_n is too small for the difference.
        large = self.curvature >= _SMALL
        found = torch.full_like(self.gram.diagonal(), torch.nan)
        found[self.rows[large]] = (1 - self._inverse_diagonal[large]) / self.curvature[large]
        rest = found.isnan().nonzero().squeeze(-1)
        if len(rest):
            K = self.gram[rest][:, self.rows]
            found[rest] = self.gram.diagonal()[rest] - ((K @ self.R) * K).sum(-1)
        return found

    def _other_variances(self, design: Design) -> Tensor:
        prior = design.squared_times(self.variance)
        K = design.rows_gram(self.variance, self.design)
        return (prior - ((K @ self.R) * K).sum(-1)).clamp_min(0.0)

    def sample(self, noise: Tensor) -> Tensor:
        """(D, S) draws from N(0, S): a draw from the prior, corrected by what was seen."""
        D = len(self.variance)
        prior = self.variance.sqrt().unsqueeze(-1) * noise[:D]
        root = self.curvature.sqrt().unsqueeze(-1)
        noise = noise[D : D + len(root)]
        error = torch.where(root > 0, noise / root, torch.zeros_like(noise))
        seen = self.R @ (self.design.times(prior) + error)
        return prior - self.variance.unsqueeze(-1) * self.design.transpose_times(seen)


class Diagonal(LabelCovariance):
    """Independent weights."""

    def __init__(self, design: Design, curvature: Tensor, precision: Tensor) -> None:
        self.diagonal = 1 / (precision + design.squared_transpose_times(curvature))
        self.log_det = float(self.diagonal.log().sum())

    def times(self, columns: Tensor) -> Tensor:
        """(D, k) S X."""
        return self.diagonal.unsqueeze(-1) * columns

    def row_variances(self, design: Design) -> Tensor:
        """(N,) ψᵀ S ψ."""
        return design.squared_times(self.diagonal)

    def sample(self, noise: Tensor) -> Tensor:
        """(D, S) draws from N(0, S)."""
        return self.diagonal.sqrt().unsqueeze(-1) * noise[: len(self.diagonal)]


class LowRank(LabelCovariance):
    """S = (E⁻¹ + U Uᵀ)⁻¹ with a diagonal E and U (D, r)."""

    def __init__(self, design: Design, curvature: Tensor, precision: Tensor, rank: int) -> None:
        scale = precision.rsqrt()
        U = _leading(design, curvature, scale, rank)
        whole = scale.square() * design.squared_transpose_times(curvature)
        rest = (whole - U.square().sum(-1)).clamp_min(0.0)
        E = 1 / (1 + rest)
        inner = torch.eye(U.shape[1], dtype=U.dtype) + U.T @ (E.unsqueeze(-1) * U)
        factor = cholesky(inner, "the low-rank part of a label's precision")
        self.log_det = (
            float(E.log().sum())
            - 2 * float(factor.diagonal().log().sum())
            - float(precision.log().sum())
        )
        self.E = scale.square() * E
        self.EU = torch.linalg.solve_triangular(factor, (E.unsqueeze(-1) * U).T, upper=False).T
        self.EU = scale.unsqueeze(-1) * self.EU  # S = diag(E) − EU EUᵀ
        self.diagonal = self.E - self.EU.square().sum(-1)

    def times(self, columns: Tensor) -> Tensor:
        """(D, k) S X."""
        return self.E.unsqueeze(-1) * columns - self.EU @ (self.EU.T @ columns)

    def row_variances(self, design: Design) -> Tensor:
        """(N,) ψᵀ S ψ."""
        found = design.squared_times(self.E) - design.times(self.EU).square().sum(-1)
        return found.clamp_min(0.0)

    def sample(self, noise: Tensor) -> Tensor:
        """(D, S) draws from N(0, S), by the square root of I minus a projection-like part."""
        root = self.E.sqrt().unsqueeze(-1)
        V = self.EU / root  # S = √E (I − V Vᵀ) √E
        values, basis = torch.linalg.eigh(V.T @ V)
        keep = values > 1e-14
        values, basis = values[keep].clamp_max(1.0), basis[:, keep]
        Q = V @ basis / values.sqrt()
        white = noise[: len(self.diagonal)]
        return root * (white + Q @ (((1 - values).sqrt() - 1).unsqueeze(-1) * (Q.T @ white)))


def _leading(design: Design, curvature: Tensor, scale: Tensor, rank: int) -> Tensor:
    """(D, r) the leading eigenvectors of diag(s) Ψᵀ diag(λ) Ψ diag(s), times the roots of their
    eigenvalues; all of them where there are no more than `rank`."""
    D = design.shape[1]
    if rank >= D:
        gram = design.columns_gram(curvature) * scale * scale.unsqueeze(-1)
        values, vectors = np.linalg.eigh(gram.numpy())
        return torch.from_numpy(vectors * np.sqrt(np.maximum(values, 0.0)))

    def data_part(x: np.ndarray) -> np.ndarray:
        seen = design.times(scale * torch.from_numpy(x.ravel()))
        return (scale * design.transpose_times(curvature * seen)).numpy()

    start = data_part(np.random.default_rng(0).normal(size=D))  # the same search every time
    if not start.any():  # no data to speak of; the search would refuse to start
        return torch.zeros(D, 0, dtype=scale.dtype)
    operator = spla.LinearOperator((D, D), matvec=data_part, dtype=np.float64)
    values, vectors = spla.eigsh(operator, k=rank, v0=start)
    return torch.from_numpy(vectors * np.sqrt(np.maximum(values, 0.0)))


class Block(LabelCovariance):
    """The first D − k weights by one covariance, the last k independent."""

    def __init__(self, first: LabelCovariance, last: Diagonal, split: int) -> None:
        self.first, self.last, self.split = first, last, split
        self.diagonal = torch.cat([first.diagonal, last.diagonal])
        self.log_det = first.log_det + last.log_det

    def times(self, columns: Tensor) -> Tensor:
        """(D, k) S X."""
        head, tail = columns[: self.split], columns[self.split :]
        return torch.cat([self.first.times(head), self.last.times(tail)])

    def row_variances(self, design: Design) -> Tensor:
        """(N,) ψᵀ S ψ."""
        head, tail = design.split(self.split)
        return self.first.row_variances(head) + self.last.row_variances(tail)

    def sample(self, noise: Tensor) -> Tensor:
        """(D, S) draws from N(0, S)."""
        k = len(self.last.diagonal)
        return torch.cat([self.first.sample(noise[k:]), self.last.sample(noise[:k])])


_SMALL = 1e-9
"""Below this curvature, 1 − (B⁻¹)_nn has lost too many digits."""


@dataclass(frozen=True, eq=False)
class CovarianceFamily:
    """How the covariances of all labels are made from curvatures and prior precisions."""

    kind: str
    design: Design
    n_dependent: int = 0
    """How many of the last columns are label dependencies"""
    rank: int = 20
    negligible: float = 0.0
    """What the data may say of a weight, or a row of a label, and still be passed over"""
    n_threads: int = 1
    """How many labels are worked on at once, a thread each"""

    def __post_init__(self) -> None:
        if self.kind not in FAMILIES:
            raise ValueError(
                f"covariance is {self.kind!r}; expected one of {', '.join(map(repr, FAMILIES))}"
            )

    @property
    def by_rows(self) -> bool:
        """Whether the N × N factorisation is the cheaper one: with sparse rows it has to be rather
        smaller, since it needs a product of full matrices besides."""
        n, d = self.design.shape
        return d > n * (1.5 if self.design.sparse else 1.0)

    def bytes(self, n_labels: int) -> int:
        """Roughly the memory that the covariances of all labels take."""
        n, d = self.design.shape
        if self.kind == "diagonal":
            return 8 * n_labels * d
        if self.kind == "lowrank":
            return 8 * n_labels * d * (self.rank + 2)
        side = n if self.by_rows else d
        return 8 * side * side * (n_labels + 3)

    def __call__(self, curvature: Tensor, precision: Tensor) -> list[LabelCovariance]:
        """The covariance of each label; curvature (N, C), precision (D, C)."""
        gram = None
        if self.by_rows and self.kind in ("full", "block"):
            local = self._local
            shared = bool((precision == precision[:, :1]).all())
            gram = local.rows_gram(1 / precision[: local.shape[1], 0]) if shared else None
        columns = zip(curvature.T.contiguous(), precision.T.contiguous(), strict=True)
        return in_threads(lambda column: self._of_label(*column, gram), columns, self.n_threads)

    def _of_label(
        self, curvature: Tensor, precision: Tensor, gram: Tensor | None
    ) -> LabelCovariance:
        if self.kind == "diagonal":
            return Diagonal(self.design, curvature, precision)
        if self.kind == "lowrank":
            return LowRank(self.design, curvature, precision, self.rank)
        head = self._local.shape[1]
        full = (
            ByRows(self._local, curvature, precision[:head], gram, self.negligible)
            if self.by_rows
            else ByColumns(self._local, curvature, precision[:head], self.negligible)
        )
        if self.kind == "full":
            return full
        dependent = self.design.split(head)[1]
        return Block(full, Diagonal(dependent, curvature, precision[head:]), head)

    @cached_property
    def _local(self) -> Design:
        """The columns that have a full covariance."""
        if self.kind == "full":
            return self.design
        return self.design.split(self.design.shape[1] - self.n_dependent)[0]
