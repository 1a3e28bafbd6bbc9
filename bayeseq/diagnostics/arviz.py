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
    if int(str(arviz.__version__).split(".")[0]) < 1:
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
