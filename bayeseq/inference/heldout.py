"""What a posterior would say of training sequences if it had not seen them.

Each sequence's likelihood entered a Gaussian posterior as a Gaussian factor: curvatures λ and
gradients ω (Y − p). Taking the factors of one sequence out again leaves the posterior that the
other sequences give, to first order, without fitting anything anew: with V = Ψ_i S Ψ_iᵀ at the
rows of sequence i,

    S_{−i} Ψ_iᵀ = S Ψ_iᵀ (I − ΛV)⁻¹,    w_{−i} = w − S_{−i} Ψ_iᵀ ω (Y − p).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from bayeseq.inference.covariance import Block, LabelCovariance
from bayeseq.inference.variational import GaussianPosterior, SoftmaxModel, Solver
from bayeseq.kernels.design import Design


def leave_one_out(
    model: SoftmaxModel,
    posterior: GaussianPosterior,
    gradient: Tensor,
    local: Design,
    rows: Sequence[tuple[np.ndarray, np.ndarray]],
) -> Tensor:
    """(N, C) the mean scores of all tokens by their features alone, each without its own sequence.

    `gradient` (n, C) is ω (Y − p) at the rows of the model; `local` (N, D) is the design of all
    tokens with no dependency in it; `rows` holds, for each sequence, the rows of its labelled
    tokens in the model and of all its tokens in `local`.
    """
    found = local.times(posterior.mean)
    for seen, tokens in rows:
        if len(seen) == 0 or len(tokens) == 0:
            continue
        own, here = model.design.select(seen), local.select(tokens)
        if isinstance(posterior.covariances[0], Block):
            own, here = (part.split(posterior.covariances[0].split)[0] for part in (own, here))
        both = Design(_stack(own, here))
        for c, S in enumerate(map(_features, posterior.covariances)):
            covariance = S.between(both, own)
            V, F = covariance[: len(seen)], covariance[len(seen) :]
            A = -posterior.curvature[seen, c].unsqueeze(-1) * V
            A.diagonal().add_(1.0)
            found[tokens, c] -= F @ torch.linalg.solve(A, gradient[seen, c])
    return found


def _features(S: LabelCovariance) -> LabelCovariance:
    """The covariance of the features' weights, where those of the dependencies are independent of
    them: the factors have no part in common, and only theirs are taken out."""
    return S.first if isinstance(S, Block) else S


def _stack(first: Design, second: Design) -> sp.csr_matrix | np.ndarray:
    if first.sparse and second.sparse:
        return sp.vstack([first.matrix, second.matrix], format="csr")
    return np.concatenate([first.dense(), second.dense()])


def refitted(
    model: Any,
    solver_of: Callable[[Any], Solver],
    posterior: GaussianPosterior,
    local: Design,
    seen_in: np.ndarray,
    token_in: np.ndarray,
    folds: int = 4,
    means_only: bool = False,
) -> Tensor:
    """The same by fitting to the other sequences, a fold at a time, with the prior variances held:
    for covariances that are no inverse of a precision, from which nothing can be taken out.
    `means_only` holds the curvatures of the other sequences too: covariances follow from them, and
    the means take a few Newton steps from the fitted ones.

    `seen_in` (n,) and `token_in` (N,) hold the sequence of each row of the model and of `local`.
    """
    found = local.times(posterior.mean)
    for fold in range(folds):
        keep = np.flatnonzero(seen_in % folds != fold)
        tokens = np.flatnonzero(token_in % folds == fold)
        if len(keep) == 0 or len(tokens) == 0:
            continue
        part = replace(
            model,
            design=model.design.select(keep),
            allowed=model.allowed[keep],
            weights=model.weights[keep],
            residual=None if model.residual is None else model.residual[keep],
        )
        solver = solver_of(part)
        solver.learned = torch.zeros_like(solver.learned)
        solver.progress = False
        if means_only:
            solver.max_sweeps, solver.mean_steps = 1, _STEPS
        start = replace(posterior, curvature=posterior.curvature[keep])
        refit, trace = solver.solve(posterior.log_variance, start)
        if trace.interrupted:
            raise KeyboardInterrupt
        found[tokens] = local.select(tokens).times(refit.mean)
    return found


_STEPS = 3
"""Newton steps from the fitted means to those without a fold: more change nothing to speak of."""
