"""The sections of a report about the model: its posterior or weights, and how it was fitted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from bayeseq.baselines.linear import LinearChainLabeler
from bayeseq.diagnostics import transition_posterior, weight_posterior
from bayeseq.plots import plot_transitions, plot_weights
from bayeseq.report.contents import Contents
from bayeseq.report.escaping import visible
from bayeseq.report.page import Bar, Html, Section, html, paragraph, pictures, table
from bayeseq.report.pictures import figure

MOST_WEIGHTS = 20
MOST_GROUPS = 12
MOST_LABELS = 40
"""Labels beyond which a matrix of them is no picture any more."""


def posterior(contents: Contents, level: float, random_state: int) -> Section | None:
    """What was learned: prior variances, label pairs and weights, with how sure they are."""
    variances = _variances(contents.model.result_.hyperparameters)
    if not contents.draws:
        parts = [variances] if variances else []
        parts += _point_weights(contents)
        return Section("weights", "What was learned", *parts) if parts else None
    shown = _pictures(contents, level, random_state)
    text = (
        f"Means and {level:.0%} intervals over {contents.draws:,} draws from the posterior of the "
        "weights."
    )
    return Section(
        "posterior",
        "Posterior",
        paragraph(text),
        pictures(*([variances] if variances else []), *shown),
    )


def _pictures(contents: Contents, level: float, random_state: int) -> list[str]:
    model: Any = contents.model
    # the posterior does not depend on the sentence; a short one is the quickest to ask about
    at = min((i for i, row in enumerate(contents.labels) if row), key=lambda i: len(contents.X[i]))
    drawn = model.to_arviz(
        [contents.X[at]],
        [contents.labels[at]],
        draws=contents.draws,
        random_state=random_state,
        weights=MOST_WEIGHTS,
    )["posterior"]
    shown = []
    if "dependency" in drawn and len(contents.classes) <= MOST_LABELS:
        for offset in drawn["dependency"].coords["offset"].values.tolist():
            pairs = transition_posterior(drawn["dependency"], offset=offset, level=level)
            where = "before" if offset < 0 else "after"
            shown.append(
                figure(
                    f"pairs{offset}",
                    f"Weights of label pairs: the label {abs(offset)} {where} in rows",
                    "What a label says for or against the one beside it. Hatched cells: not even "
                    "the sign is known.",
                    lambda pairs=pairs: plot_transitions(pairs),  # type: ignore[misc]
                )
            )
    if "weight" in drawn:
        found = weight_posterior(drawn["weight"], level=level)
        shown.append(
            figure(
                "weights",
                f"The largest weights of features with {level:.0%} intervals",
                "Features that speak most for (right) or against (left) a label. Hollow dots: the "
                "interval holds 0.",
                lambda: plot_weights(found, top=MOST_WEIGHTS),
            )
        )
    return shown


def _variances(hyperparameters: Mapping[str, Any]) -> Html | None:
    """Prior variances, largest first; a group of a variance near 0 hardly counts."""
    rows: list[tuple[str, float]] = []
    for kind, values in hyperparameters.items():
        if kind not in ("variance", "dependency_variance") or not isinstance(values, Mapping):
            continue
        for name, value in values.items():
            numbers = value if isinstance(value, list | tuple) else [value]
            title = name if kind == "variance" else f"label at offset {name}"
            mean = math.exp(sum(math.log(max(v, 1e-300)) for v in numbers) / len(numbers))
            rows.append((title, mean))
    if not rows:
        return None
    rows.sort(key=lambda row: -row[1])
    top = max(math.sqrt(rows[0][1]), 1e-300)
    left = f"; {len(rows) - MOST_GROUPS:,} more are smaller" if len(rows) > MOST_GROUPS else ""
    return table(
        ("group of weights", "prior variance", ""),
        [(name, f"{v:.3g}", Bar(math.sqrt(v) / top)) for name, v in rows[:MOST_GROUPS]],
        f"How far each group of weights may go from 0; the bar is the standard deviation{left}",
    )


def _point_weights(contents: Contents) -> list[Html]:
    model = contents.model
    if not isinstance(model, LinearChainLabeler):
        return []
    tables = []
    for found, header in (
        (model.state_features_, ("feature", "label", "weight")),
        (model.transition_features_, ("label before", "label", "weight")),
    ):
        ranked = sorted(found.items(), key=lambda item: (-abs(item[1]), item[0]))[:MOST_WEIGHTS]
        rows = [(a, b, f"{weight:+.2f}") for (a, b), weight in ranked]
        if rows:
            tables.append(table(header, rows, f"The {len(rows)} largest weights"))
    return [pictures(*tables)] if tables else []


def fitting(contents: Contents) -> Section:
    """How the model was fitted, and on what."""
    model, result = contents.model, contents.model.result_
    how = "converged" if result.converged else "not converged"
    if result.interrupted:
        how = "interrupted"
    rows: list[tuple[str, Any]] = [
        ("model", Html(f"<code>{_written(model)}</code>")),
        ("labels", f"{len(contents.classes):,}: {', '.join(map(visible, contents.classes))}"),
        ("features", f"{model.feature_space_.n_features:,}"),
        ("search", f"{how} after {result.iterations:,} iterations, {result.seconds:.1f} seconds"),
    ]
    if result.objective:
        rows.append(("objective at the end", f"{result.objective[-1]:.6g}"))
    if result.message:
        rows.append(("message", result.message))
    told = {k: v for k, v in result.hyperparameters.items() if "variance" not in k}
    rows += [(name.replace("_", " "), _value(value)) for name, value in told.items()]
    rows += [(name.replace("_", " "), _value(v)) for name, v in result.diagnostics.items()]
    rows += _training(model.metadata_)
    return Section("fit", "How the model was fitted", table((), rows, words=True))


def _training(metadata: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """What `bayeseq fit` wrote down of the training file."""
    found = metadata.get("input")
    if not isinstance(found, Mapping):
        return []
    names = {"source": "training data", "sentences": "its sentences", "tokens": "its tokens"}
    names |= {"sha256": "its SHA-256"}
    return [(title, _value(found[name])) for name, title in names.items() if name in found]


def _written(model: Any) -> str:
    return html(" ".join(repr(model).split()))


def _value(value: Any) -> str:
    """A learned value in words."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_value(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_value, value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
