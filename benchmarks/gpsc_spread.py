"""What GPSC's probabilities are worth, by how far draws spread around the posterior mean.

    python benchmarks/gpsc_spread.py [--tasks segmentation,basenp] [--splits 1]

Each model is fitted once; the spread of its draws is then set by hand. 0 is the mean of the
posterior alone, 1 the posterior itself, "chosen" what held-out folds of the training part asked
for. Writes benchmarks/results/gpsc-spread.json and .txt.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import torch

from bayeseq import GPSC
from bayeseq.experiments.setting import NAMES, TASKS, Case, Report, load, scored, table

SPREADS = (0.0, 0.5, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--splits", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    tasks = options.tasks.split(",")
    command = f"python benchmarks/gpsc_spread.py --tasks {options.tasks} --splits {options.splits}"
    report = Report("gpsc-spread", command)
    for task in tasks:
        for split in range(options.splits):
            data = load(Case(task, "gpstruct", split))
            for inference in ("laplace", "vg"):
                model = GPSC(inference=inference, prediction="average", progress=False)
                model.fit(data.X, data.y)
                for spread in (*SPREADS, model.spread_):
                    chosen = spread not in SPREADS or spread is model.spread_
                    posterior, feature_map = model.posterior_, model.feature_map_
                    model._set_posterior(feature_map, posterior, spread)
                    proba = model.predict_proba(data.X_test)
                    labels = [model.classes_[p.argmax(-1)].tolist() for p in proba]
                    found = scored(data, labels, proba, model.classes_.tolist())
                    report.records.append(
                        {
                            "task": task,
                            "split": split,
                            "inference": inference,
                            "spread": spread,
                            "what": "chosen" if chosen else f"{spread:g}",
                            **found._asdict(),
                        }
                    )
    rows = [["log loss (ECE %)", *(NAMES[task] for task in tasks)]]
    for inference in ("laplace", "vg"):
        for what in (*(f"{s:g}" for s in SPREADS), "chosen"):
            cells = []
            for task in tasks:
                mine = [
                    r
                    for r in report.records
                    if (r["task"], r["inference"], r["what"]) == (task, inference, what)
                ]
                loss, ece = (np.mean([r[key] for r in mine]) for key in ("log_loss", "ece"))
                cells.append(f"{loss:.3f} ({100 * ece:.1f})")
            rows.append([f"{inference}, spread {what}", *cells])
    report.tables.append(table(rows, f"mean of {options.splits} split(s)"))
    print(report.tables[0])
    report.write(Path(__file__).parent / "results")


if __name__ == "__main__":
    main()
