"""Words and labels are drawn as they stand, whatever is in them."""

import matplotlib as mpl
import numpy as np
import pytest

from bayeseq.diagnostics import (
    confusion,
    confusion_confidence,
    entity_scores,
    reliability,
    reliability_by_label,
    risk_coverage,
    sentence_posterior,
    transition_posterior,
    uncertainty,
    weight_posterior,
)
from bayeseq.plots import (
    plot_confidence_histogram,
    plot_confusion,
    plot_confusion_confidence,
    plot_entity_f1,
    plot_missing_labels,
    plot_predictive_check,
    plot_reliability,
    plot_reliability_by_label,
    plot_risk_coverage,
    plot_sentence,
    plot_transitions,
    plot_uncertainty,
    plot_weights,
)
from bayeseq.plots.style import plain
from tests.plots.drawn import legend, rendered

# Formulas that cannot be parsed, a formula that can, names that a legend skips, line breaks.
HOSTILE = ["$\\frac$", "a $x$ b", "_hidden", "two\nlines", "\\$", "x" * 80, "%s {0}", "$"]


def shown(text):
    """What stands in the picture, as matplotlib tells it."""
    return mpl.text.Text(text=text)._preprocess_math(text)


@pytest.mark.parametrize("text", HOSTILE)
def test_plain_text_is_drawn_as_it_stands(text):
    drawn, math = shown(plain(text, most=100))
    assert math is False
    assert drawn.strip() == text.replace("\n", " ")


def test_long_text_is_cut():
    assert plain("x" * 80) == "x" * 23 + "…"
    assert plain("x" * 24) == "x" * 24


def test_every_picture_takes_any_text():
    C = len(HOSTILE)
    rng = np.random.default_rng(0)
    rows = rng.dirichlet([0.5] * C, size=(9, C))
    proba, guess = rows.mean(0), [HOSTILE[k] for k in rows.mean(0).argmax(-1)]
    judged = ([HOSTILE], [proba], HOSTILE)
    curve, risk = reliability(*judged), risk_coverage(*judged)
    by_name = dict.fromkeys(HOSTILE, curve)
    tags = [f"B-{text}" for text in HOSTILE]
    for ax in [
        plot_reliability(by_name),
        plot_reliability(reliability(*judged, label=HOSTILE[0])),
        plot_reliability_by_label(reliability_by_label(*judged))[0],
        plot_confidence_histogram(by_name),
        plot_confidence_histogram(reliability(*judged, label=HOSTILE[0])),
        plot_risk_coverage(dict.fromkeys(HOSTILE, risk)),
        plot_risk_coverage({HOSTILE[0]: risk}),
        plot_missing_labels([0.0], {name: [[0.1]] for name in HOSTILE}),
        plot_confusion(confusion([HOSTILE], [guess])),
        plot_confusion_confidence(confusion_confidence(*judged)),
        plot_entity_f1(entity_scores([tags], [tags])),
        plot_transitions(transition_posterior(rng.normal(size=(3, C, C)), HOSTILE)),
        plot_weights(weight_posterior(rng.normal(size=(3, C, C)), HOSTILE, HOSTILE)),
        plot_sentence(sentence_posterior(rows, HOSTILE, HOSTILE, HOSTILE)),
        plot_uncertainty(uncertainty([rows]), HOSTILE),
        plot_predictive_check(1.0, [1.0, 2.0], HOSTILE[0]),
    ]:
        rendered(ax)


def test_a_legend_names_every_record():
    curve = reliability([["a"]], [[[0.5, 0.5]]], ["a", "b"])
    drawn = [shown(text)[0].strip() for text in legend(plot_reliability({"_a": curve, "$": curve}))]
    assert drawn == ["perfect", "_a, ECE 50.0%", "$, ECE 50.0%"]
