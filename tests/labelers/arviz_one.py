"""Run by a Python that has arviz 1 or later: `python arviz_one.py path/to/diagnostics/arviz.py
arrays.npz`. Builds what `to_arviz` would build there, and uses it as its users would."""

import importlib.util
import json
import sys
import warnings

import matplotlib
import numpy as np

matplotlib.use("Agg")


def tree_of(converter: str, archive: str):
    """The tree of the arrays that a test wrote, by the function that `to_arviz` uses."""
    spec = importlib.util.spec_from_file_location("converter", converter)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with np.load(archive) as arrays:
        about = json.loads(str(arrays["about"]))
        groups = {
            group: {
                name: (tuple(dims), arrays[f"{group}/{name}"]) for name, dims in variables.items()
            }
            for group, variables in about["groups"].items()
        }
        coords = {name: arrays[f"coords/{name}"] for name in about["coords"]}
    return module, module.inference_data(groups, coords, {"inference_library": "bayeseq"})


def main(converter: str, archive: str) -> None:
    """Print what arviz says of the tree, as JSON."""
    import arviz as az
    import xarray

    module, tree = tree_of(converter, archive)
    assert isinstance(tree, xarray.DataTree)
    ratios = np.log(np.random.default_rng(0).exponential(size=1000))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        summary = az.summary(tree)
        by_sentence = az.loo(tree, var_name="labels")
        ranked = az.compare({"one": tree, "two": tree}, var_name="labels")
        az.plot_trace(tree, var_names=["dependency"])
        az.plot_ppc_dist(tree, var_names=["token_labels"], num_samples=5)
        az.plot_forest(tree, var_names=["dependency"])
        k = module.pareto_k(ratios)[0]
    found = {
        "version": az.__version__,
        "rows": list(summary.index),
        "sentences": int(by_sentence.n_data_points),
        "elpd": float(by_sentence.elpd),
        "ranked": sorted(ranked.index),
        "draws": int(az.extract(tree).sizes["sample"]),
        "k": k,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
