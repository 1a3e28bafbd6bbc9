"""Marginalized kernels: CPU time and memory of whole position Grams, and growth with length.

    python benchmarks/marginalized.py

The first 300 sentences of conll2002-esp (sequences) and of wsj-dependencies (trees, DAGs), with
word and spelling features; then one structure of T and 2 T positions, whose Gram should take four
times as long. Each kernel has a process of its own, so that the peak memory is its own. Writes
benchmarks/results/marginalized.json.
"""

from __future__ import annotations

import json
import platform
import resource
import subprocess
import sys
import time
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

import numpy as np

from bayeseq import corpus_trees, load_dataset, word_features
from bayeseq.data import FeatureSpace
from bayeseq.data.structures import edges_of
from bayeseq.kernels.marginalized import MARGINALIZED, Graph, Positions

RESULTS = Path(__file__).parent / "results" / "marginalized.json"
LENGTHS = (500, 1000, 2000, 4000)


def corpus_positions(kernel: str) -> Positions:
    if kernel in ("sequence", "gappy"):
        sentences = load_dataset("conll2002-esp")["train"][:300].tokens
        _, rows, lengths = FeatureSpace.learn([word_features(s, window=0) for s in sentences])
        return Positions.of(rows, Graph.chains(lengths), 9)
    trees = corpus_trees(load_dataset("wsj-dependencies")["all"][:300])
    X = [tree.with_nodes(word_features([row[0] for row in tree], window=0)) for tree in trees]
    _, rows, lengths = FeatureSpace.learn(X)
    return Positions.of(rows, Graph.of(lengths, edges_of(X)), 40)


def long_positions(kernel: str, T: int) -> Positions:
    """One structure of T positions: a chain, or a tree in which each node has two children."""
    rows = np.random.default_rng(0).integers(0, 2, size=(T, 20)).astype(float)
    parent = (np.arange(1, T) - 1) // (2 if kernel == "tree" else 1)
    edges = np.stack([parent, np.arange(1, T)], 1)
    return Positions.of(rows, Graph.of([T], [edges]), 9)


def measure(kernel: str) -> dict[str, object]:
    positions = corpus_positions(kernel)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    gram = MARGINALIZED[kernel]().gram(positions)
    corpus = {
        "positions": len(gram),
        "cpu_seconds": time.process_time() - began,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "gb_before": before / 2**20,
    }
    del gram
    seconds = []
    for T in LENGTHS:
        positions = long_positions(kernel, T)
        times = []
        for _ in range(3):
            began = time.process_time()
            MARGINALIZED[kernel]().gram(positions)
            times.append(time.process_time() - began)
        seconds.append(min(times))
    return {
        "corpus": corpus,
        "length": list(LENGTHS),
        "cpu_seconds": seconds,
        "ratio_when_length_doubles": [b / a for a, b in pairwise(seconds)],
    }


def main() -> None:
    if len(sys.argv) == 2:
        print(json.dumps(measure(sys.argv[1])))
        return
    found = {}
    for kernel in MARGINALIZED:
        command = [sys.executable, __file__, kernel]
        found[kernel] = json.loads(subprocess.check_output(command))
        print(kernel, json.dumps(found[kernel]), flush=True)
    record = {
        "what": "position Grams of 300 sentences, and of one structure of growing length",
        "machine": f"{platform.machine()}, {platform.system()}",
        "versions": {name: version(name) for name in ("bayeseq", "numpy", "scipy", "torch")},
        "kernels": found,
    }
    RESULTS.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
