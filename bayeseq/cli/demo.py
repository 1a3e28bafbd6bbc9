"""bayeseq demo: four models on the embedded corpus, side by side."""

from __future__ import annotations

import argparse
import textwrap
import time
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from bayeseq.baselines import CRF, HMM, MEMM
from bayeseq.cli.pictures import save_picture
from bayeseq.data import Entity, load_dataset, tags_to_entities, word_features
from bayeseq.diagnostics import Evaluation, RiskCoverage, comparison_table, evaluate
from bayeseq.diagnostics.reliability import ReliabilityCurve
from bayeseq.labelers import ChainLabeler
from bayeseq.labelers.gpsl import GPSL
from bayeseq.plots import plot_reliability, plot_risk_coverage
from bayeseq.report import write_report

N_EXAMPLES = 3
BINS = 10  # the test part is small
WIDTH = 96
_INTRODUCTION = """\
Corpus: newswire, invented news that comes with the package; {train} sentences to learn from, {test}
to test on. Labels: persons (PER), places (LOC) and organisations (ORG). Features: how each word
and its neighbours are spelt. Parameters, chosen by cross-validation on the training sentences:
{tuned}.
{learned}
takes its weights to be independent, to be quick. Its prior variances stay at 1: by default they are
learned, which does worse here, where features of a word repeat each other.
"""
_EXPLANATION = """
log loss  how much probability the true labels lack; lower is better
ECE       how far confidence and accuracy are apart on average, in 10 bins: 0 is perfect
AURC      the error left when the least sure tokens are put aside first, over all shares put aside
"""
_EXAMPLES = """
Names that the {name} found in {n} test sentences, each with the probability that exactly these
words are a name of exactly this type. The least sure are where to look first:
"""


def run(args: argparse.Namespace) -> int:
    """Train, compare, show examples, draw, write a page."""
    dataset = load_dataset("newswire")
    X = {part: list(map(word_features, corpus.tokens)) for part, corpus in dataset.parts.items()}
    *tuned, learned = _models()
    models: dict[str, ChainLabeler] = {type(model).__name__: model for model in tuned}
    models[f"{type(learned).__name__} {learned.covariance}"] = learned
    print(
        _INTRODUCTION.format(
            train=len(X["train"]),
            test=len(X["test"]),
            tuned=", ".join(map(_written, tuned)),
            learned=_written(learned),
        )
    )
    evaluations: dict[str, Evaluation] = {}
    seconds: dict[str, float] = {}
    bar = tqdm(
        models.items(), desc="training", delay=2, leave=False, disable=True if args.quiet else None
    )
    for name, model in bar:
        began = time.perf_counter()
        model.fit(X["train"], dataset.labels("train"))
        seconds[name] = time.perf_counter() - began
        evaluations[name] = evaluate(
            dataset.labels("test"),
            model.predict(X["test"]),
            model.predict_proba(X["test"]),
            model.classes_.tolist(),
            bins=BINS,
        )
    print(comparison_table(evaluations, seconds))
    print(_EXPLANATION.rstrip())

    model = tuned[-1]
    examples = _examples(dataset["test"].tokens, dataset.labels("test"), model, X["test"])
    print(_EXAMPLES.format(name=type(model).__name__, n=len(examples)))
    print("\n\n".join(map(_shown, examples)))

    print("\nPictures, of all models together:")
    for path in _draw(evaluations, Path(args.output)):
        print(f"  {path}")

    page = Path(args.output) / "report.html"
    write_report(
        page,
        learned,
        dataset["test"].tokens,
        X["test"],
        dataset.labels("test"),
        title=f"{type(learned).__name__} on the newswire corpus",
        data="invented news",
        quiet=args.quiet,
    )
    print(f"\nA page about the {type(learned).__name__}, to open in a browser:\n  {page}")
    return 0


def _models() -> tuple[HMM, MEMM, CRF, GPSL]:
    """The models: those with parameters chosen by hand, the one for the examples last; and GPSL."""
    return (
        HMM(smoothing=0.5),
        MEMM(l2=0.1, progress=False),
        CRF(l2=0.1, progress=False),
        GPSL(covariance="diagonal", learn=False, tol=1e-3, progress=False),
    )


def _written(model: ChainLabeler) -> str:
    """The model with its parameters, on one line."""
    return " ".join(repr(model).split()).replace(", progress=False", "")


class _Name(NamedTuple):
    """A name in a sentence that the model found, or missed, and how probable it holds it."""

    words: str
    entity: Entity
    probability: float


class _Example(NamedTuple):
    """A sentence, the names found in it, and those that are there."""

    words: list[str]
    found: list[_Name]
    truth: list[_Name]


def _examples(
    words: list[list[str]], labels: list, model: ChainLabeler, X: list[list[list[str]]]
) -> list[_Example]:
    """Sentences with several names of which one is in doubt, the most doubtful first."""
    truth = [tags_to_entities(tags) for tags in labels]
    several = []
    for sentence, found, true, proba in zip(
        words, model.predict_entities(X), truth, model.entity_proba(X, truth), strict=True
    ):
        if len(found) > 1:
            names = [_name(sentence, Entity(*entity[:3]), entity.score) for entity in found]
            others = [_name(sentence, *pair) for pair in zip(true, proba.tolist(), strict=True)]
            several.append(_Example(sentence, names, others))
    return sorted(several, key=lambda example: min(map(_probability, example.found)))[:N_EXAMPLES]


def _name(sentence: list[str], entity: Entity, probability: float) -> _Name:
    return _Name(" ".join(sentence[entity.start : entity.end]), entity, probability)


def _probability(name: _Name) -> float:
    return name.probability


def _shown(example: _Example) -> str:
    """The sentence; under it a line for each name, and one for each that was overlooked."""
    lines = textwrap.wrap(
        " ".join(example.words), WIDTH, initial_indent="  ", subsequent_indent="  "
    )
    least = min(example.found, key=_probability)
    width = max(len(name.words) for name in (*example.found, *example.truth))
    for name in example.found:
        right = any(name.entity == true.entity for true in example.truth)
        remarks = ["least sure"] if name is least else []
        if not right:
            remarks.append(_correction(name, example.truth))
        lines.append(_line(name, width, ", ".join(remarks)))
    for name in example.truth:
        if not any(_overlap(name, other) for other in example.found):
            lines.append(_line(name, width, "overlooked"))
    return "\n".join(lines)


def _line(name: _Name, width: int, remark: str) -> str:
    arrow = f"  <- {remark}" if remark else ""
    text = f"{name.probability:4.0%}  {name.entity.label}  {name.words:{width}}{arrow}"
    return f"      {text.rstrip()}"


def _correction(name: _Name, truth: list[_Name]) -> str:
    """What is true instead of a wrong name, and how probable the model held it."""
    true = [
        f"{true.entity.label} {true.words} ({true.probability:.0%})"
        for true in truth
        if _overlap(name, true)
    ]
    return f"in truth {' and '.join(true) or 'no name'}"


def _overlap(a: _Name, b: _Name) -> bool:
    return a.entity.start < b.entity.end and b.entity.start < a.entity.end


def _draw(evaluations: dict[str, Evaluation], folder: Path) -> tuple[Path, Path]:
    curves: dict[str, ReliabilityCurve] = {}
    risks: dict[str, RiskCoverage] = {}
    for name, result in evaluations.items():
        assert result.reliability is not None  # the probabilities were given
        assert result.risk_coverage is not None
        curves[name], risks[name] = result.reliability, result.risk_coverage
    paths = folder / "reliability.png", folder / "risk-coverage.png"
    save_picture(lambda: plot_reliability(curves), paths[0])
    save_picture(lambda: plot_risk_coverage(risks), paths[1])
    return paths
