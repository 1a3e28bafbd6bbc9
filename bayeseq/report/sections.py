"""The sections of a report about answers: scores, calibration, what review buys, sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from bayeseq.diagnostics import RiskCoverage, confusion, confusion_confidence
from bayeseq.diagnostics.tables import percent as hundredths
from bayeseq.plots import (
    plot_confidence_histogram,
    plot_confusion,
    plot_confusion_confidence,
    plot_entity_f1,
    plot_reliability,
    plot_risk_coverage,
)
from bayeseq.report.contents import (
    BUDGETS,
    Contents,
    expected_mistakes,
    least_known,
    least_sure,
    most_mistakes,
    surest_mistakes,
)
from bayeseq.report.escaping import percent
from bayeseq.report.markup import legend_html, sentences_html
from bayeseq.report.page import Bar, Html, Section, heading, paragraph, pictures, table, tiles
from bayeseq.report.pictures import figure
from bayeseq.report.tagging import tag_sentences

MOST_CONFUSIONS = 12
MOST_LABELS = 40
"""Labels beyond which a confusion matrix is no picture any more."""


def summary(contents: Contents) -> Html:
    """The numbers that one looks for first."""
    result = contents.evaluation
    entries = [("sentences", f"{len(contents.words):,}", f"{contents.n_tokens:,} tokens")]
    if result is not None:
        right = f"{hundredths(result.sequence_accuracy)}% of sentences without one"
        entries.append(("token error", f"{hundredths(result.token_error)}%", right))
        if result.entities is not None:
            f1 = f"{hundredths(result.entities.overall.f1)}%"
            entries.append(("entity F1", f1, f"{result.entities.reading} reading"))
        if result.probabilities is not None:
            scores = result.probabilities
            entries.append(("log loss", f"{scores.log_loss:.4f}", "nats a token"))
            floor = f"{hundredths(scores.ece_floor)}% from noise alone"
            entries.append(("ECE", f"{hundredths(scores.ece)}%", floor))
        if result.risk_coverage is not None:
            best = f"{result.risk_coverage.aurc_oracle:.4f} is the best possible"
            entries.append(("AURC", f"{result.risk_coverage.aurc:.4f}", best))
    elif contents.proba is not None:
        mean = float(np.concatenate(contents.confidences()).mean())
        entries.append(("mean confidence", f"{hundredths(mean)}%", "there are no true labels"))
    return tiles(entries)


def scores(contents: Contents) -> Section | None:
    """All scores, and those of entities by type."""
    result = contents.evaluation
    if result is None:
        return None
    rows = [
        ("sentences", f"{result.sequences:,}"),
        ("tokens scored", f"{result.tokens:,}"),
        ("token error", f"{hundredths(result.token_error)}%"),
        ("sentences without a mistake", f"{hundredths(result.sequence_accuracy)}%"),
    ]
    if result.probabilities is not None:
        found = result.probabilities
        rows += [
            ("log loss, nats a token", f"{found.log_loss:.4f}"),
            ("Brier score", f"{found.brier:.4f}"),
            ("ECE", f"{hundredths(found.ece)}%"),
            ("ECE from noise alone", f"{hundredths(found.ece_floor)}%"),
        ]
        if found.unknown:
            rows.append(("tokens with a label unknown to the model", f"{found.unknown:,}"))
    if result.risk_coverage is not None:
        rows += [
            ("AURC", f"{result.risk_coverage.aurc:.4f}"),
            ("AURC of a perfect ranking", f"{result.risk_coverage.aurc_oracle:.4f}"),
        ]
    parts: list[str] = [table((), rows)]
    if result.probabilities is None:
        parts.append(_no_probabilities(contents))
    entities = result.entities
    if entities is not None and entities.by_label:
        header = ("", "precision", "recall", "F1", "true", "predicted", "correct")
        lines = [
            (
                label or "untyped",
                *(f"{hundredths(x)}%" for x in (counts.precision, counts.recall, counts.f1)),
                *(f"{x:,}" for x in (counts.support, counts.predicted, counts.correct)),
            )
            for label, counts in [("all", entities.overall), *entities.by_label.items()]
        ]
        caption = f"Entities: right means same words and same type; {entities.reading} reading"
        picture = figure(
            "entities",
            f"F1 by entity type, {hundredths(entities.overall.f1)}% overall; numbers in the table",
            "A bar is F1; marks are precision and recall.",
            lambda: plot_entity_f1(entities),
        )
        parts.append(pictures(table(header, lines, caption), picture))
    return Section("scores", "Scores", *parts)


def calibration(contents: Contents) -> Section | None:
    """Whether probabilities mean what they say."""
    result = contents.evaluation
    if result is None or result.reliability is None or result.probabilities is None:
        return None
    curve, found = result.reliability, result.probabilities
    verdict = (
        "That is no sign of miscalibration."
        if found.ece <= 1.5 * found.ece_floor
        else "Look for the points off the diagonal: above it the model is too modest, below it too "
        "sure."
    )
    text = (
        f"Confidence and accuracy are {hundredths(found.ece)} percentage points apart on average "
        f"(ECE). Perfect probabilities would show {hundredths(found.ece_floor)} on so many tokens, "
        f"by chance alone. {verdict}"
    )
    return Section(
        "calibration",
        "Calibration",
        paragraph(text),
        pictures(
            figure(
                "reliability",
                f"Accuracy against confidence; ECE {hundredths(found.ece)}%",
                "Of tokens that got a probability of 80%, are 80 in 100 right? The band is a "
                f"{curve.level:.0%} bootstrap over sentences.",
                lambda: plot_reliability(curve),
            ),
            figure(
                "confidence",
                "How many tokens have which confidence, right and wrong ones",
                "Most tokens are easy: the left part is where mistakes are to be found.",
                lambda: plot_confidence_histogram(curve),
            ),
        ),
    )


def review(contents: Contents) -> Section | None:
    """What is gained by checking the doubtful cases."""
    result = contents.evaluation
    if result is None or result.risk_coverage is None or contents.sentence_risk is None:
        return None
    tokens, sentences = result.risk_coverage, contents.sentence_risk
    if tokens.error == 0:
        return Section("review", "What review buys", paragraph("There is no mistake to find."))
    text = (
        "Put aside the answers of which the model is least sure and let a person check them: the "
        "mistakes among them are gone. The table says how many are found."
    )
    return Section(
        "review",
        "What review buys",
        paragraph(text),
        table(
            (
                "checked",
                "confidence below",
                "mistakes found",
                "",
                "token error left",
                "wrong sentences found",
                "",
            ),
            [
                (
                    f"{budget:.0%}",
                    f"{hundredths(_threshold(tokens, budget))}%",
                    percent(_caught(tokens, budget)),
                    Bar(_caught(tokens, budget)),
                    f"{hundredths(tokens.error * (1 - _caught(tokens, budget)))}%",
                    percent(_caught(sentences, budget)),
                    Bar(_caught(sentences, budget)),
                )
                for budget in BUDGETS
            ],
            "Single tokens checked, least sure first; in the last columns, whole sentences, by the "
            "mean log probability of their labels",
        ),
        pictures(
            figure(
                "risk",
                f"Token error against the share of tokens kept; AURC {tokens.aurc:.4f}",
                "From the right: as the least sure tokens are put aside, the error among the rest "
                f"falls. AURC is the area under the line; {tokens.aurc_oracle:.4f} is the least "
                f"possible, {tokens.error:.4f} that of a random order.",
                lambda: plot_risk_coverage(tokens),
            ),
            figure(
                "sentence-risk",
                f"Share of wrong sentences against the share kept; AURC {sentences.aurc:.4f}",
                "The same for whole sentences: one is wrong when any of its labels is.",
                lambda: plot_risk_coverage(sentences),
            ),
        ),
    )


def _caught(curve: RiskCoverage, budget: float) -> float:
    """The share of all wrong cases that lie among the least sure ones."""
    left = curve.at_coverage(1 - budget) * (1 - budget)
    return 1 - left / curve.error if curve.error > 0 else 0.0


def _threshold(curve: RiskCoverage, budget: float) -> float:
    """The confidence below which cases are checked."""
    place = int(np.searchsorted(curve.coverage, 1 - budget, side="left"))
    return float(curve.threshold[min(place, len(curve.threshold) - 1)])


def mistakes(contents: Contents) -> Section | None:
    """Which labels are taken for which."""
    if contents.truth is None:
        return None
    counted = confusion(contents.truth, contents.labels)
    parts: list[str] = []
    off = counted.counts - np.diag(np.diag(counted.counts))
    if off.sum() == 0:
        return Section("mistakes", "Mistakes", paragraph("There is none."))
    trust = None
    if contents.proba is not None:
        trust = confusion_confidence(
            contents.truth, contents.proba, contents.classes, y_pred=contents.labels
        )
    order = np.argsort(-off, axis=None, kind="stable")[:MOST_CONFUSIONS]
    rows = []
    for place in order.tolist():
        i, j = divmod(place, len(counted.labels))
        if off[i, j] == 0:
            break
        row = [
            counted.labels[i],
            counted.labels[j],
            f"{off[i, j]:,}",
            percent(off[i, j] / counted.counts[i].sum()),
        ]
        rows.append([*row, percent(float(trust.confidence[i, j]))] if trust else row)
    header = ["true label", "predicted", "tokens", "of the true label"]
    parts.append(
        table(
            [*header, "mean confidence"] if trust else header,
            rows,
            f"The most frequent of {int(off.sum()):,} mistakes",
        )
    )
    if len(counted.labels) <= MOST_LABELS:
        shown = [
            figure(
                "confusion",
                "Confusion matrix: true labels in rows, predicted ones in columns",
                "A row holds the tokens of a true label; colour is the share of the row.",
                lambda: plot_confusion(counted),
            )
        ]
        if trust is not None:
            shown.append(
                figure(
                    "confusion-confidence",
                    "Mean confidence of the answers in each cell of the confusion matrix",
                    "Dark cells outside of the frames are mistakes that the model would not warn "
                    "of.",
                    lambda: plot_confusion_confidence(trust),
                )
            )
        parts.append(pictures(*shown))
    return Section("mistakes", "Mistakes", *parts)


def sentences(contents: Contents, most: int, level: float, random_state: int) -> Section | None:
    """The sentences worth a look, with everything that the model says of them."""
    chosen: list[tuple[str, str, list[int]]] = []
    if contents.truth is not None and contents.proba is not None:
        about = "The labels that are wrong although the model was sure of them."
        chosen.append(("Surest mistakes", about, surest_mistakes(contents, most)))
    if contents.truth is not None:
        chosen.append(("Most mistakes", "", most_mistakes(contents, most)))
    if contents.proba is not None:
        about = (
            "Where the model itself expects most wrong labels: the sum of 1 − confidence, over "
            f"all sentences {sum(expected_mistakes(contents)):,.1f}."
        )
        chosen.append(("Least sure", about, least_sure(contents, most)))
    if contents.uncertainty is not None:
        total, epistemic = (float(x.sum()) for x in contents.uncertainty)
        about = (
            "Where draws from the posterior disagree most: labels of such sentences would teach "
            f"the model most. Of all its uncertainty {percent(epistemic / total if total else 0)} "
            "is epistemic."
        )
        chosen.append(("Least known", about, least_known(contents, most)))
    chosen = [entry for entry in chosen if entry[2]]
    if not chosen or most < 1:
        return None
    numbers = sorted({i for _, _, places in chosen for i in places})
    tagged = tag_sentences(
        contents.model,
        [contents.words[i] for i in numbers],
        [contents.X[i] for i in numbers],
        None if contents.truth is None else [contents.truth[i] for i in numbers],
        draws=contents.draws,
        level=level,
        random_state=random_state,
    )
    by_number = dict(zip(numbers, tagged, strict=True))
    legend = f'<div class="bq-show">{legend_html(tagged)}</div>'
    parts: list[str] = [paragraph("Numbers count sentences from 1.", note=True), legend]
    for title, about, places in chosen:
        parts.append(heading(title))
        if about:
            parts.append(paragraph(about))
        names = [str(i + 1) for i in places]
        parts.append(sentences_html([by_number[i] for i in places], names, key=False))
    return Section("sentences", "Sentences", *parts)


def labels(contents: Contents) -> Section:
    """How often each label is predicted; the data have no true ones."""
    counts = Counter(label for row in contents.labels for label in row)
    header, rows = ["label", "tokens", "share", ""], []
    confidence: dict[str, list[float]] = {}
    if contents.proba is not None:
        header.append("mean confidence")
        for row, p in zip(contents.labels, contents.confidences(), strict=True):
            for label, value in zip(row, p.tolist(), strict=True):
                confidence.setdefault(label, []).append(value)
    top = max(counts.values())
    for label, n in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])):
        cells: Sequence[object] = [label, f"{n:,}", percent(n / contents.n_tokens), Bar(n / top)]
        if confidence:
            cells = [*cells, percent(float(np.mean(confidence[label])))]
        rows.append(cells)
    parts = [paragraph("There are no true labels, so nothing is scored."), table(header, rows)]
    if contents.proba is None:
        parts.append(_no_probabilities(contents))
    return Section("labels", "Predicted labels", *parts)


def _no_probabilities(contents: Contents) -> Html:
    name = type(contents.model).__name__
    return paragraph(
        f"{name} has no probabilities, so there is no calibration and no confidence to show. "
        f"Calibrated(labeler={name}(...)) would give it some."
    )
