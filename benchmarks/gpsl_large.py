"""GPSL with independent weights on the first 50,000 tokens of CoNLL-2000: time, memory, quality.

    python benchmarks/gpsl_large.py [--tokens 50000]

The CRF++ chunking template; the test part of the corpus for quality; one CRFsuite fit (c2 = 0.5)
beside it. "defaults" are GPSL's but for the covariance; "quick" takes a cheaper bound, stops
earlier and chooses no scales. Also shows that a full covariance of this size is refused before
anything is computed. Writes benchmarks/results/gpsl_large.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bayeseq import GPSL, DataError, evaluate, load_dataset
from bayeseq.experiments.setting import CRFsuite

RESULTS = Path(__file__).parent / "results" / "gpsl_large.json"
SETTINGS: dict[str, dict[str, Any]] = {
    "quick": {"bound": "tilted", "calibrate": False, "tol": 1e-3},
    "defaults": {},
}
COMMON: dict[str, Any] = {"covariance": "diagonal", "min_count": 2}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tokens", type=int, default=50_000)
    options = parser.parse_args()
    dataset = load_dataset("conll2000")
    X, y, n_tokens = [], [], 0
    for x, labels in zip(dataset.features("train"), dataset.labels("train"), strict=True):
        if n_tokens >= options.tokens:
            break
        X.append(x)
        y.append(labels)
        n_tokens += len(labels)
    refusal = "not refused"
    try:
        GPSL(min_count=2, max_memory=4.0).fit(X, y)
    except DataError as error:
        refusal = str(error)
    fits = {name: fitted(X, y, dataset, {**COMMON, **more}) for name, more in SETTINGS.items()}
    record = {
        "what": f"CoNLL-2000, first {n_tokens} tokens, GPSL with {COMMON}",
        "command": f"python benchmarks/gpsl_large.py --tokens {options.tokens}",
        "machine": f"{platform.machine()}, {platform.system()}, {os.cpu_count()} cores",
        "versions": {name: version(name) for name in ("bayeseq", "torch", "scipy")},
        "seed": GPSL().random_state,
        **fits,
        "CRFsuite": crfsuite(X, y, dataset),
        "full covariance refused": refusal,
    }
    RESULTS.write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record, indent=2))


def fitted(X: list, y: list, dataset: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """A fit, its price and its scores on the test part; the peak of memory is the process's so
    far."""
    model = GPSL(**settings)
    began, cpu = time.perf_counter(), time.process_time()
    model.fit(X, y)
    seconds = {"wall": time.perf_counter() - began, "cpu": time.process_time() - cpu}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    tagged = model.tag(dataset.features("test"))
    labels, proba = [t.labels for t in tagged], [t.proba for t in tagged]
    return {
        "settings": settings,
        "features": model.feature_space_.n_features,
        "labels": len(model.classes_),
        "sweeps": model.result_.iterations,
        "converged": model.result_.converged,
        "bound": model.result_.objective[-1],
        "seconds": seconds,
        "peak_gb": peak,
        **scores(dataset, labels, proba, model.classes_.tolist()),
    }


def crfsuite(X: list, y: list, dataset: Any) -> dict[str, Any]:
    """One CRFsuite fit, which has all features, and its scores."""
    cpu = time.process_time()
    model = CRFsuite(c2=0.5).fit(X, y)
    seconds = {"cpu": time.process_time() - cpu}
    test = dataset.features("test")
    return {
        "seconds": seconds,
        **scores(dataset, model.predict(test), model.predict_proba(test), model.classes),
    }


def scores(dataset: Any, labels: list, proba: list, classes: list[str]) -> dict[str, float]:
    """How well the test part was labelled."""
    found = evaluate(dataset.labels("test"), labels, proba, classes)
    return {
        "token_error": found.token_error,
        "entity_f1": found.entities.overall.f1,
        "log_loss": found.probabilities.log_loss,
        "ece": found.probabilities.ece,
    }


if __name__ == "__main__":
    main()
