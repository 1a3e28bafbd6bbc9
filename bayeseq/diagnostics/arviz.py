"""Draws as arviz has them: an InferenceData (arviz 0.x) or a DataTree (arviz 1 and later)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Variable = tuple[Sequence[str], np.ndarray]
"""The names of an array's axes, and the array."""


def inference_data(
    groups: Mapping[str, Mapping[str, Variable]],
    coords: Mapping[str, Any],
    attrs: Mapping[str, Any] | None = None,
    arviz: Any = None,
) -> Any:
    """What arviz's functions take, from arrays by group and name.

    `coords` names the places along each axis (an axis without them is numbered), `attrs` is noted
    in every group, and `arviz` is the module to build for: the one that is installed, if None.

    >>> draws = {"posterior": {"w": (("chain", "draw", "label"), np.zeros((1, 5, 2)))}}
    >>> found = inference_data(draws, {"label": ["A", "B"]})
    >>> found["posterior"]["w"].sel(label="B").shape
    (1, 5)
    """
    import xarray

    arviz = _installed() if arviz is None else arviz
    datasets = {
        name: _dataset(xarray, group, coords, attrs or {}) for name, group in groups.items()
    }
    if _major(arviz) < 1:
        return arviz.InferenceData(**datasets)
    return xarray.DataTree.from_dict({f"/{name}": data for name, data in datasets.items()})


def convergence_of(draws: np.ndarray, arviz: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """R-hat and bulk effective sample sizes (K,) of K quantities, draws (chain, draw, K): by ranks,
    split chains (Vehtari et al. 2021). A quantity that never changes has R-hat 1.

    >>> rng = np.random.default_rng(0)
    >>> r_hat, ess = convergence_of(rng.normal(size=(4, 500, 1)))
    >>> bool(r_hat[0] < 1.01), bool(ess[0] > 1500)
    (True, True)
    """
    arviz = _installed() if arviz is None else arviz
    S, n, K = draws.shape
    r_hat, ess = np.ones(K), np.full(K, float(S * n))
    for k in np.flatnonzero(np.ptp(draws, axis=(0, 1)) > 0):
        found = np.ascontiguousarray(draws[..., k])
        ess[k] = float(arviz.ess(found, method="bulk"))
        if S > 1:
            r_hat[k] = float(arviz.rhat(found, method="rank"))
    return r_hat, ess


def pareto_k(log_ratios: np.ndarray, arviz: Any = None) -> tuple[float, np.ndarray]:
    """The tail index k̂ of importance ratios, given by their logarithms (S,), and the smoothed log
    weights, which sum to 1 (Vehtari et al. 2024, "Pareto smoothed importance sampling").

    Ratios that are all equal have no tail: k̂ is −∞.

    >>> rng = np.random.default_rng(0)
    >>> k, weights = pareto_k(-np.log(rng.random(4000)) / 2)      # a Pareto tail of index 1/2
    >>> round(k, 1), round(float(np.exp(weights).sum()), 6)
    (0.5, 1.0)
    """
    ratios = np.asarray(log_ratios, dtype=np.float64)
    if ratios.ndim != 1 or len(ratios) < FEWEST_RATIOS:
        raise ValueError(
            f"log_ratios has shape {ratios.shape}; the tail of at least {FEWEST_RATIOS} is needed"
        )
    if not np.isfinite(ratios).all():
        raise ValueError("log_ratios must be finite")
    if np.ptp(ratios) < 1e-9:
        return -np.inf, np.full(len(ratios), -np.log(len(ratios)))
    arviz = _installed() if arviz is None else arviz
    if _major(arviz) < 1:
        weights, k = arviz.psislw(ratios)
    else:
        from arviz_stats.base import array_stats

        weights, k = array_stats.psislw(-ratios)
    return float(k), np.asarray(weights)


FEWEST_RATIOS = 100


def leave_one_out(
    log_likelihood: np.ndarray, log_ratios: np.ndarray | None = None, r_eff: float = 1.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """PSIS-LOO of B observations: log p(y_i | the others), k̂ and the effective numbers of
    parameters, (B,) each, from log-likelihoods (chain, draw, B).

    `log_ratios` (chain, draw), log p − log q, correct draws that come from an approximation q of
    the posterior (Magnusson et al. 2019); None takes them as they are, with relative efficiency
    `r_eff`. Needs arviz-stats.
    """
    try:
        from arviz_stats.base import array_stats
    except ImportError as error:
        raise ImportError(
            "leave-one-out scores need arviz-stats; install it with: pip install 'bayeseq[loo]'"
        ) from error
    values = np.moveaxis(log_likelihood, -1, 0)
    if log_ratios is None:
        found = array_stats.loo(values, r_eff=r_eff)
    else:
        log_p = np.broadcast_to(log_ratios, values.shape)
        found = array_stats.loo_approximate_posterior(values, log_p, np.zeros_like(values))
    elpd, k, p = (np.asarray(part, dtype=np.float64) for part in found)
    return elpd, k, p


def _major(arviz: Any) -> int:
    return int(str(arviz.__version__).split(".")[0])


def _installed() -> Any:
    """arviz, imported only now: it takes seconds, and announces its next version at import."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module="arviz")
        warnings.filterwarnings("ignore", r"[\s\S]*ArviZ", FutureWarning)
        import arviz
    return arviz


def _dataset(
    xarray: Any,
    group: Mapping[str, Variable],
    coords: Mapping[str, Any],
    attrs: Mapping[str, Any],
) -> Any:
    sizes: dict[str, int] = {}
    for name, (dims, values) in group.items():
        if len(dims) != np.ndim(values):
            raise ValueError(f"{name} has shape {np.shape(values)}, and its axes are {dims}")
        for dim, size in zip(dims, np.shape(values), strict=True):
            if sizes.setdefault(dim, size) != size:
                raise ValueError(f"{name} has {size} places along {dim}, others have {sizes[dim]}")
    places = {dim: np.asarray(coords.get(dim, range(size))) for dim, size in sizes.items()}
    for dim, size in sizes.items():
        if places[dim].shape != (size,):
            raise ValueError(f"coords name {len(places[dim])} places along {dim}, there are {size}")
    return xarray.Dataset(
        {name: (tuple(dims), values) for name, (dims, values) in group.items()},
        coords=places,
        attrs=dict(attrs),
    )
