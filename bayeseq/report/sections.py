"""The sections of a report about all answers: scores, calibration, what review buys, mistakes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from bayeseq.diagnostics import (
    ProbabilityScores,
    ReviewBudget,
    RiskCoverage,
    confusion,
    confusion_confidence,
    entity_reliability,
    review_budget,
)
from bayeseq.diagnostics.tables import percent as hundredths
from bayeseq.plots import (
    plot_confidence_histogram,
    plot_confusion,
    plot_confusion_confidence,
    plot_entity_f1,
    plot_reliability,
    plot_risk_coverage,
)
from bayeseq.report.contents import Contents
from bayeseq.report.escaping import percent
from bayeseq.report.page import (
    Bar,
    Html,
    Meaning,
    Section,
    paragraph,
    pictures,
    table,
    tiles,
)
from bayeseq.report.pictures import figure

BUDGETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
MOST_CONFUSIONS = 12
MOST_LABELS_BESIDE = 16
"""Labels beyond which a confusion matrix needs the width of the page."""
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
    rows: list[tuple[str, str, Meaning]] = [
        ("sentences", f"{result.sequences:,}", Meaning("")),
        ("tokens scored", f"{result.tokens:,}", Meaning("those with a true label")),
        ("token error", f"{hundredths(result.token_error)}%", Meaning("the share labelled wrong")),
        (
            "sentence accuracy",
            f"{hundredths(result.sequence_accuracy)}%",
            Meaning("the share of sentences without a mistake"),
        ),
    ]
    if result.probabilities is not None:
        rows += _probability_rows(result.probabilities)
    if result.risk_coverage is not None:
        curve = result.risk_coverage
        rows += [
            (
                "AURC",
                f"{curve.aurc:.4f}",
                Meaning("mean error as the least sure tokens are put aside; lower is better"),
            ),
            ("least AURC", f"{curve.aurc_oracle:.4f}", Meaning("that of a perfect ranking")),
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
        parts += [table(header, lines, caption), pictures(picture)]
    return Section("scores", "Scores", *parts)


def _probability_rows(found: ProbabilityScores) -> list[tuple[str, str, Meaning]]:
    rows = [
        (
            "log loss",
            f"{found.log_loss:.4f}",
            Meaning("nats a token: how much probability the true labels lack; lower is better"),
        ),
        (
            "Brier score",
            f"{found.brier:.4f}",
            Meaning("squared error of the probabilities, from 0 to 2; lower is better"),
        ),
        (
            "ECE",
            f"{hundredths(found.ece)}%",
            Meaning("how far confidence and accuracy are apart on average"),
        ),
        (
            "ECE floor",
            f"{hundredths(found.ece_floor)}%",
            Meaning("the ECE of perfect probabilities on so many tokens, from noise alone"),
        ),
    ]
    if found.unknown:
        text = "tokens whose true label the model does not know: wrong, and not in the four above"
        rows.append(("unknown labels", f"{found.unknown:,}", Meaning(text)))
    return rows


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
    shown = [
        figure(
            "reliability",
            f"Accuracy of tokens against confidence; ECE {hundredths(found.ece)}%",
            "Of tokens that got a probability of 80%, are 80 in 100 right? The band is a "
            f"{curve.level:.0%} bootstrap over sentences.",
            lambda: plot_reliability(curve),
        )
    ]
    if contents.entities is not None and any(contents.entities) and result.entities is not None:
        whole = entity_reliability(contents.truth or [], contents.entities)
        shown.append(
            figure(
                "entity-reliability",
                f"Accuracy of entities against confidence; ECE {hundredths(whole.ece)}%",
                "The same for predicted entities and the probability of exactly these words with "
                "exactly this type.",
                lambda: plot_reliability(whole),
            )
        )
    shown.append(
        figure(
            "confidence",
            "How many tokens have which confidence, right and wrong ones",
            "Most tokens are easy: the left part is where mistakes are to be found.",
            lambda: plot_confidence_histogram(curve),
        )
    )
    return Section("calibration", "Calibration", paragraph(text), pictures(*shown))


def review(contents: Contents) -> Section | None:
    """What is gained by checking the doubtful cases."""
    if contents.proba is None:
        return None
    truth, result = contents.truth, contents.evaluation
    budget = review_budget(
        truth, contents.proba, contents.classes, budget=BUDGETS, y_pred=contents.labels
    )
    if budget.error == 0:
        return Section("review", "What review buys", paragraph("There is no mistake to find."))
    text = (
        "Put aside the answers of which the model is least sure and let a person read them: the "
        "mistakes among them are found. "
    ) + (
        "The table counts them."
        if budget.labelled
        else "There are no true labels, so the table has what the model's own probabilities let "
        "one expect: a plan as good as these are calibrated."
    )
    parts: list[str] = [paragraph(text), _budget_table(budget)]
    if truth is not None and result is not None and contents.sentence_risk is not None:
        whole = review_budget(
            truth,
            contents.proba,
            contents.classes,
            budget=BUDGETS,
            y_pred=contents.labels,
            unit="sequence",
        )
        parts += [_budget_table(whole), _risk_pictures(result.risk_coverage, contents)]
    return Section("review", "What review buys", *parts)


def _budget_table(budget: ReviewBudget) -> Html:
    what = "sentences" if budget.unit == "sequence" else "tokens"
    expected = "" if budget.labelled else "expected "
    wrong = "sentences with a mistake" if budget.unit == "sequence" else "mistakes"
    banded = not np.isnan(budget.lower).all()
    header = [
        f"{what} read",
        "those below",
        f"{expected}{wrong} found",
        "",
        "",
        "error of the rest",
    ]
    rows: list[list[object]] = []
    for g, share in enumerate(budget.share):
        below = budget.threshold[g]
        if budget.unit == "sequence":
            below = np.exp(below)  # the confidence of a sentence is a mean of logarithms
        row: list[object] = [f"{share:.0%}", f"{hundredths(below)}%"]
        row += [f"{budget.errors_found[g]:,.0f}", percent(float(budget.found_share[g]))]
        row += [Bar(float(budget.found_share[g])), f"{hundredths(budget.error_left[g])}%"]
        if banded:
            row.append(f"{hundredths(budget.lower[g])} to {hundredths(budget.upper[g])}%")
        rows.append(row)
    by = (
        "by the geometric mean of their labels' probabilities"
        if budget.unit == "sequence"
        else "by the probability of their label"
    )
    caption = f"{budget.total:,} {what}, least sure first, {by}"
    return table([*header, f"{budget.level:.0%} band"] if banded else header, rows, caption)


def _risk_pictures(tokens: RiskCoverage | None, contents: Contents) -> Html:
    sentences = contents.sentence_risk
    assert tokens is not None  # there are probabilities
    assert sentences is not None
    return pictures(
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
    )


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
                    "Strong cells outside of the frames are mistakes that the model would not warn "
                    "of.",
                    lambda: plot_confusion_confidence(trust),
                )
            )
        beside = len(counted.labels) <= MOST_LABELS_BESIDE
        parts += [pictures(*shown)] if beside else map(pictures, shown)
    return Section("mistakes", "Mistakes", *parts)


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
