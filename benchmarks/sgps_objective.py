"""How near SGPS comes to the dense optimum with a coordinate for every four tokens, by its rule.

    python benchmarks/sgps_objective.py

The training part of fold 0 of the Spanish task, kernel of degree 2, prior variance 0.03: the
regularised risk R before exchanges, after each and in the end, and CPU-seconds. Nothing is
predicted. Writes benchmarks/results/sgps-objective.json and .txt.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch

from bayeseq import GPSC, SparseGPSC
from bayeseq.experiments.gpsc import FOLDS, spanish
from bayeseq.experiments.setting import Report, table

SETTINGS: dict[str, Any] = {"kernel": "polynomial(degree=2)", "variance": 0.03, "progress": False}
MODELS = {
    "the dense optimum": GPSC(inference="map", groups=None, tol=1e-7, max_iter=2000, **SETTINGS),
    "20 sequences a visit, no exchange": SparseGPSC(sequences=20, exchanges=0, **SETTINGS),
    "the default, three exchanges": SparseGPSC(exchanges=3, **SETTINGS),
}


def main() -> None:
    argparse.ArgumentParser(description=__doc__.split("\n")[0]).parse_args()
    torch.set_num_threads(1)
    X, y = spanish()
    train = [i for i in range(len(X)) if i % FOLDS != 0]
    report = Report("sgps-objective", "python benchmarks/sgps_objective.py")
    rows = [["", "before exchanges, after each", "R", "coordinates", "of tokens", "CPU s"]]
    for name, model in MODELS.items():
        began = time.process_time()
        result = model.fit([X[i] for i in train], [y[i] for i in train]).result_
        cpu = time.process_time() - began
        steps: list[float] = []
        if isinstance(model, SparseGPSC):  # the last is the last optimisation
            assert model.exchanges is not None
            steps = list(result.objective[-2 - model.exchanges : -1])
        found = {key: result.hyperparameters.get(key) for key in ("coordinates", "tokens")}
        objective = result.objective[-1]
        report.records.append({"model": name, "objective": objective, "cpu": cpu, "steps": steps})
        report.records[-1].update(found)
        counts = ["" if count is None else str(count) for count in found.values()]
        path = " ".join(f"{step:.0f}" for step in steps)
        rows.append([name, path, f"{objective:.1f}", *counts, f"{cpu:.0f}"])
        print(*rows[-1], flush=True)
    report.tables.append(table(rows, "800 Spanish sentences, degree 2, prior variance 0.03"))
    report.write(Path(__file__).parent / "results")


if __name__ == "__main__":
    main()
