"""GPSL with independent weights on the first 50,000 tokens of CoNLL-2000: time, memory, quality.

    python benchmarks/gpsl_large.py [--tokens 50000]

The CRF++ chunking template; the test part of the corpus for quality. Also shows that a full
covariance of this size is refused before anything is computed. Writes
benchmarks/results/gpsl_large.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import time
from importlib.metadata import version
from pathlib import Path

from bayeseq import GPSL, DataError, evaluate, load_dataset

RESULTS = Path(__file__).parent / "results" / "gpsl_large.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tokens", type=int, default=50_000)
    options = parser.parse_args()
    dataset = load_dataset("conll2000")
    X, y = [], []
    for x, labels in zip(dataset.features("train"), dataset.labels("train"), strict=True):
        if sum(map(len, y)) >= options.tokens:
            break
        X.append(x)
        y.append(labels)
    try:
        GPSL(min_count=2, max_memory=4.0).fit(X, y)
    except DataError as error:
        refusal = str(error)
    settings = {
        "covariance": "diagonal",
        "min_count": 2,
        "bound": "tilted",
        "calibrate": False,
        "tol": 1e-3,
    }
    model = GPSL(**settings)
    began, cpu = time.perf_counter(), time.process_time()
    model.fit(X, y)
    seconds = {"wall": time.perf_counter() - began, "cpu": time.process_time() - cpu}
    X_test, y_test = dataset.features("test"), dataset.labels("test")
    tagged = model.tag(X_test)
    found = evaluate(
        y_test, [t.labels for t in tagged], [t.proba for t in tagged], model.classes_.tolist()
    )
    record = {
        "what": f"CoNLL-2000, first {sum(map(len, y))} tokens, {settings}",
        "machine": f"{platform.machine()}, {platform.system()}",
        "versions": {name: version(name) for name in ("bayeseq", "torch", "scipy")},
        "features": model.feature_space_.n_features,
        "labels": len(model.classes_),
        "sweeps": model.result_.iterations,
        "converged": model.result_.converged,
        "seconds": seconds,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "token_error": found.token_error,
        "entity_f1": found.entities.overall.f1,
        "log_loss": found.probabilities.log_loss,
        "ece": found.probabilities.ece,
        "full covariance refused": refusal,
    }
    RESULTS.write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
