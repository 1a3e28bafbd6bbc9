"""CRF against CRFsuite on full CoNLL-2000, side by side: time, memory, throughput, quality.

    python benchmarks/crf.py [--c2 1.0] [--runs 1]

Each system runs in its own process, from the same extracted features (the CRF++ chunking template,
written to a file once), and reports its own wall time, CPU time and peak memory. CRFsuite runs on
one core (it has no other way), bayeseq on as many as torch is given. Writes
benchmarks/results/crf.json and prints a table.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "crf.json"


def write_features(folder: Path) -> None:
    """One line a token: its label, then its features, by tabs; a blank line after a sentence."""
    from bayeseq import load_dataset

    dataset = load_dataset("conll2000")
    for part in ("train", "test"):
        with open(folder / part, "w", encoding="utf-8") as out:
            for x, y in zip(dataset.features(part), dataset.labels(part), strict=True):
                for token, label in zip(x, y, strict=True):
                    out.write("\t".join([label, *token]) + "\n")
                out.write("\n")


def read_features(path: Path):
    """The sentences of a feature file, one at a time; equal strings are one object."""
    same: dict[str, str] = {}
    x, y = [], []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if line == "\n":
                yield x, y
                x, y = [], []
            else:
                label, *token = line.rstrip("\n").split("\t")
                y.append(same.setdefault(label, label))
                x.append([same.setdefault(name, name) for name in token])


class Clock:
    """Wall and CPU seconds since it was made."""

    def __init__(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def read(self) -> dict[str, float]:
        return {
            "wall": time.perf_counter() - self.wall,
            "cpu": time.process_time() - self.cpu,
        }


def peak_megabytes() -> float:
    """The largest resident size of this process (Linux counts it from the program's start)."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    lines = status.read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def run_crfsuite(folder: Path, c2: float) -> dict:
    """CRFsuite: sentences are appended as they are read and not kept."""
    import pycrfsuite

    trainer = pycrfsuite.Trainer(verbose=False)
    clock = Clock()
    for x, y in read_features(folder / "train"):
        trainer.append(x, y)
    append = clock.read()
    trainer.set_params({"c1": 0.0, "c2": c2})
    model = str(folder / "model.crfsuite")
    clock = Clock()
    trainer.train(model)
    train = clock.read()
    log = trainer.logparser
    found = {
        "read and index": append,
        "train": train,
        "objective": log.last_iteration["loss"],
        "iterations": log.last_iteration["num"],
        "weights": log.last_iteration.get("active_features"),
        "peak_mb": peak_megabytes(),
    }
    tagger = pycrfsuite.Tagger()
    tagger.open(model)
    test = list(read_features(folder / "test"))
    found["tag only"] = tag_crfsuite(tagger, test, "labels")[0]
    found["tag, probability of its label"] = tag_crfsuite(tagger, test, "one")[0]
    seconds, predicted, proba = tag_crfsuite(tagger, test, "all")
    found["tag, all probabilities"] = seconds
    found["scores"] = scores(test, predicted, proba, tagger.labels())
    return found


def tag_crfsuite(tagger, test, marginals: str):
    predicted, proba = [], []
    labels = tagger.labels()
    clock = Clock()
    for x, _ in test:
        tagger.set(x)
        predicted.append(tagger.tag())
        if marginals == "one":
            proba.append([tagger.marginal(c, t) for t, c in enumerate(predicted[-1])])
        elif marginals == "all":
            proba.append([[tagger.marginal(c, t) for c in labels] for t in range(len(x))])
    return clock.read(), predicted, proba


def run_bayeseq(folder: Path, c2: float, target: float) -> dict:
    """bayeseq: `fit` as it reads; the time at which CRFsuite's objective is reached."""
    import torch

    from bayeseq import CRF

    y = [labels for _, labels in read_features(folder / "train")]
    before = peak_megabytes()
    crf = CRF(l2=c2)
    clock = Clock()
    crf.fit((x for x, _ in read_features(folder / "train")), y)
    fit = clock.read()
    result = crf.result_
    searching = result.elapsed[-1]
    reached = next(
        (s for s, f in zip(result.elapsed, result.objective, strict=True) if f <= target), None
    )
    found = {
        "threads": torch.get_num_threads(),
        "fit": fit,
        "seconds to CRFsuite's objective": (
            None if reached is None else fit["wall"] - searching + reached
        ),
        "objective": result.objective[-1],
        "iterations": result.iterations,
        "weights": crf.weight_index_.size,
        "mb_before_fit": before,
        "peak_mb": peak_megabytes(),
    }
    del y
    test = list(read_features(folder / "test"))
    X_test = [x for x, _ in test]
    crf.predict_proba(X_test[:2])
    clock = Clock()
    predicted, proba = zip(*crf.tag(X_test), strict=True)
    found["tag, all probabilities"] = clock.read()
    clock = Clock()
    crf.predict(X_test)
    found["tag only"] = clock.read()
    found["scores"] = scores(test, predicted, proba, crf.classes_.tolist())
    return found


def scores(test, predicted, proba, classes) -> dict:
    """Quality on the test part, by the same code for both."""
    import numpy as np

    from bayeseq import evaluate

    found = evaluate([y for _, y in test], predicted, [np.asarray(p) for p in proba], classes)
    return {
        "token_error": found.token_error,
        "entity_f1": found.entities.overall.f1,
        "log_loss": found.probabilities.log_loss,
        "ece": found.probabilities.ece,
        "ece_floor": found.probabilities.ece_floor,
    }


def in_own_process(*arguments: str) -> dict:
    done = subprocess.run(
        [sys.executable, __file__, *arguments], check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def report(theirs: dict, ours: dict, tokens: int) -> dict:
    """The ratios that matter: below 1 is better for times and memory, above 1 for throughput."""
    their_time = theirs["train"]["wall"] + theirs["read and index"]["wall"]
    our_tagging = ours["tag, all probabilities"]["cpu"]
    reached = ours["seconds to CRFsuite's objective"]
    return {
        "wall time to CRFsuite's objective": None if reached is None else reached / their_time,
        "CPU time of training": ours["fit"]["cpu"]
        / (theirs["train"]["cpu"] + theirs["read and index"]["cpu"]),
        "peak memory": ours["peak_mb"] / theirs["peak_mb"],
        "labels and all probabilities, tokens a CPU-second": {
            "bayeseq": tokens / our_tagging,
            "CRFsuite, all probabilities": tokens / theirs["tag, all probabilities"]["cpu"],
            "CRFsuite, one probability a token": tokens
            / theirs["tag, probability of its label"]["cpu"],
            "CRFsuite, no probability": tokens / theirs["tag only"]["cpu"],
        },
        "throughput over CRFsuite with one probability a token": theirs[
            "tag, probability of its label"
        ]["cpu"]
        / our_tagging,
        "objective, relative difference": ours["objective"] / theirs["objective"] - 1,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--c2", type=float, default=1.0)
    parser.add_argument("--run", nargs=2, metavar=("SYSTEM", "FOLDER"), help=argparse.SUPPRESS)
    parser.add_argument("--target", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        system, folder = options.run
        if system == "crfsuite":
            found = run_crfsuite(Path(folder), options.c2)
        else:
            found = run_bayeseq(Path(folder), options.c2, options.target)
        print(json.dumps(found))
        return
    with tempfile.TemporaryDirectory() as folder:
        write_features(Path(folder))
        tokens = sum(len(y) for _, y in read_features(Path(folder) / "test"))
        c2 = str(options.c2)
        print("CRFsuite …", file=sys.stderr)
        theirs = in_own_process("--c2", c2, "--run", "crfsuite", folder)
        print("bayeseq …", file=sys.stderr)
        target = str(theirs["objective"])
        ours = in_own_process("--c2", c2, "--target", target, "--run", "bayeseq", folder)
    results = {
        "what": f"CoNLL-2000, CRF++ chunking template, c2 = l2 = {options.c2}",
        "machine": f"{platform.processor() or platform.machine()}, {platform.system()}",
        "versions": {
            name: version(name) for name in ("bayeseq", "python-crfsuite", "torch", "scipy")
        },
        "ratios": report(theirs, ours, tokens),
        "CRFsuite": theirs,
        "bayeseq": ours,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
