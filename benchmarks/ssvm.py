"""Structured SVM against CRFsuite's CRF on full CoNLL-2000: CPU time of training, and F1.

    python benchmarks/ssvm.py [--C 0.1] [--tol 0.02] [--c2 1.0]

Both train in processes of their own, one after the other, from the same extracted features (the
CRF++ chunking template) on one thread. Writes benchmarks/results/ssvm.json and prints it.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from crf import Clock, peak_megabytes, read_features, write_features

RESULTS = Path(__file__).parent / "results" / "ssvm.json"


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
    tagger = pycrfsuite.Tagger()
    tagger.open(model)
    test = list(read_features(folder / "test"))
    return {
        "read and index": append,
        "train": train,
        "peak_mb": peak_megabytes(),
        "scores": scores(test, [tagger.tag(x) for x, _ in test]),
    }


def run_ssvm(folder: Path, C: float, tol: float) -> dict:
    """bayeseq: `fit` as it reads."""
    import torch

    from bayeseq import StructuredSVM

    torch.set_num_threads(1)
    y = [labels for _, labels in read_features(folder / "train")]
    model = StructuredSVM(C=C, tol=tol)
    clock = Clock()
    model.fit((x for x, _ in read_features(folder / "train")), y)
    fit = clock.read()
    test = list(read_features(folder / "test"))
    return {
        "fit": fit,
        "rounds": model.result_.iterations,
        "converged": model.result_.converged,
        **model.result_.diagnostics,
        "peak_mb": peak_megabytes(),
        "scores": scores(test, model.predict([x for x, _ in test])),
    }


def scores(test, predicted) -> dict:
    """Quality on the test part, by the same code for both."""
    from bayeseq import evaluate

    found = evaluate([y for _, y in test], predicted)
    return {"token_error": found.token_error, "entity_f1": found.entities.overall.f1}


def in_own_process(*arguments: str) -> dict:
    done = subprocess.run(
        [sys.executable, __file__, *arguments], check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--C", type=float, default=0.1)
    parser.add_argument("--tol", type=float, default=0.02)
    parser.add_argument("--c2", type=float, default=1.0)
    parser.add_argument("--run", nargs=2, metavar=("SYSTEM", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        system, folder = options.run
        if system == "crfsuite":
            print(json.dumps(run_crfsuite(Path(folder), options.c2)))
        else:
            print(json.dumps(run_ssvm(Path(folder), options.C, options.tol)))
        return
    same = ("--C", str(options.C), "--tol", str(options.tol), "--c2", str(options.c2))
    with tempfile.TemporaryDirectory() as folder:
        write_features(Path(folder))
        print("CRFsuite …", file=sys.stderr)
        theirs = in_own_process(*same, "--run", "crfsuite", folder)
        print("bayeseq …", file=sys.stderr)
        ours = in_own_process(*same, "--run", "ssvm", folder)
    their_cpu = theirs["train"]["cpu"] + theirs["read and index"]["cpu"]
    results = {
        "what": f"CoNLL-2000, CRF++ chunking template, C = {options.C}, tol = {options.tol}, "
        f"c2 = {options.c2}",
        "machine": f"{platform.processor() or platform.machine()}, {platform.system()}",
        "versions": {
            name: version(name) for name in ("bayeseq", "python-crfsuite", "torch", "scipy")
        },
        "ratio of CPU time": ours["fit"]["cpu"] / their_cpu,
        "CRFsuite": theirs,
        "StructuredSVM": ours,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
