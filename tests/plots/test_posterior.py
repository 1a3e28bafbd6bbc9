"""Pictures of posteriors show the numbers of their records."""

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from bayeseq.diagnostics import (
    sentence_posterior,
    transition_posterior,
    uncertainty,
    weight_posterior,
)
from bayeseq.plots import plot_sentence, plot_transitions, plot_uncertainty, plot_weights
from bayeseq.plots.style import BLUE, GREEN, GREY, ORANGE, PALETTE, VERMILION
from tests.plots.drawn import band, legend, line, rendered, texts, ticks

LABELS = ["B", "I", "O"]
FEATURES = ["w=the", "w=Rome", "shape=Xx", "bias"]
RNG = np.random.default_rng(0)


def hatched_cells(ax):
    """(row, column) of the squares in the hatched patch."""
    (patch,) = [patch for patch in ax.patches if patch.get_hatch()]
    squares = patch.get_path().to_polygons(closed_only=False)
    return {(round(s[:4, 1].mean()), round(s[:4, 0].mean())) for s in squares}


# ---- label pairs ------------------------------------------------------------------------------


def test_transitions_colour_the_mean_write_the_spread_and_hatch_the_undecided():
    draws = RNG.normal(size=(80, 3, 3)) + np.array([[5, 0, -5], [0, 5, 0], [5, -5, 0]])
    record = transition_posterior(draws, LABELS)
    ax = rendered(plot_transitions(record))
    np.testing.assert_allclose(ax.images[0].get_array(), record.mean)
    low, high = ax.images[0].get_clim()
    assert high == -low == pytest.approx(np.abs(record.mean).max())  # white is 0
    assert texts(ax) == {
        (a, b): f"{record.mean[a, b]:.1f}\n±{record.sd[a, b]:.1f}"
        for a in range(3)
        for b in range(3)
    }
    hatched = hatched_cells(ax)
    assert hatched == {(a, b) for a, b in np.argwhere(record.undecided)}
    assert 0 < len(hatched) < 9
    assert ticks(ax.xaxis) == ticks(ax.yaxis) == LABELS
    assert ax.get_ylabel() == "label before"


def test_dark_cells_have_white_text():
    record = transition_posterior(np.array([[[9.0, 0.0]] * 2, [[9.1, 0.1]] * 2]), ["B", "O"])
    colors = {
        place.get_position()[0]: place.get_color() for place in plot_transitions(record).texts
    }
    assert colors == {0: "white", 1: "black"}


def test_transitions_of_many_labels_go_without_text_and_of_other_offsets_say_so():
    labels = [f"L{k}" for k in range(30)]
    record = transition_posterior(RNG.normal(size=(9, 30, 30)) + 1, labels)
    ax = rendered(plot_transitions(record))
    assert not ax.texts
    assert hatched_cells(ax) == {(a, b) for a, b in np.argwhere(record.undecided)}
    one = transition_posterior(np.zeros((2, 1, 1)), ["O"], offset=2)
    assert rendered(plot_transitions(one)).get_ylabel() == "label at offset +2"


# ---- weights ----------------------------------------------------------------------------------


def weights():
    """Means are known: the largest are (1, B), (0, O), (1, O), (2, I)."""
    mean = np.zeros((4, 3))
    mean[1, 0], mean[0, 2], mean[1, 2], mean[2, 1] = 9, -8, 7, 0.5
    spread = np.linspace(-1, 1, 21)[:, None, None]
    return weight_posterior(mean + spread, FEATURES, LABELS)


def test_weights_show_the_largest_with_intervals_by_feature():
    record = weights()
    ax = rendered(plot_weights(record, top=4))
    assert ticks(ax.yaxis) == ["w=Rome", "w=the", "shape=Xx"]
    drawn = [line for line in ax.lines if line.get_marker() == "o"]
    bars = [line for line in ax.lines if len(line.get_xdata()) == 2 and line.get_marker() != "o"][
        1:
    ]
    places = [(1, 0), (1, 2), (0, 2), (2, 1)]
    assert [line.get_xdata()[0] for line in drawn] == pytest.approx([9, 7, -8, 0.5])
    for bar, dot, place in zip(bars, drawn, places, strict=True):
        np.testing.assert_allclose(bar.get_xdata(), [record.lower[place], record.upper[place]])
        assert bar.get_color() == dot.get_color() == PALETTE[place[1]]
        assert set(bar.get_ydata()) == set(dot.get_ydata())
    # Filled where the interval leaves out 0.
    filled = [dot.get_markerfacecolor() for dot in drawn]
    assert filled == [BLUE, GREEN, GREEN, "white"]
    # The tick of a feature stands in the middle of its weights.
    assert ax.get_yticks()[0] == np.mean([dot.get_ydata()[0] for dot in drawn[:2]])
    assert legend(ax) == LABELS
    assert ax.yaxis_inverted()
    assert ax.get_title() == "The 4 largest weights"


def test_weights_name_only_labels_that_are_shown_and_are_at_most_all():
    assert legend(plot_weights(weights(), top=1)) == ["B"]
    assert plot_weights(weights(), top=99).get_title() == "The 12 largest weights"
    with pytest.raises(ValueError, match="top must be at least 1"):
        plot_weights(weights(), top=0)


def test_weights_of_many_labels_differ_in_colour_or_marker():
    labels = [f"L{k}" for k in range(20)]
    record = weight_posterior(RNG.normal(size=(5, 1, 20)), ["f"], labels)
    ax = rendered(plot_weights(record, top=20))
    dots = ax.get_legend().legend_handles
    assert len({(dot.get_color(), dot.get_marker()) for dot in dots}) == 20
    assert legend(ax) == labels


# ---- a sentence -------------------------------------------------------------------------------


def test_sentence_shows_medians_bands_words_and_truth():
    draws = RNG.dirichlet([1, 1, 1], size=(50, 4))
    words, truth = ["In", "Rome", ",", "then"], ["O", "B", None, "I"]
    record = sentence_posterior(draws, LABELS, words, truth, level=0.8)
    ax = rendered(plot_sentence(record))
    assert ticks(ax.xaxis) == words
    for column, label in enumerate(LABELS):
        np.testing.assert_allclose(line(ax, label).get_ydata(), record.middle[:, column])
        assert line(ax, label).get_color() == PALETTE[column]
        xs, low, high = band(ax, column)
        np.testing.assert_allclose(xs, range(4))
        np.testing.assert_allclose(low, record.lower[:, column])
        np.testing.assert_allclose(high, record.upper[:, column])
        assert to_hex(ax.collections[column].get_facecolor()[0]).upper() == PALETTE[column]
    rings = line(ax, "true label")
    np.testing.assert_array_equal(rings.get_xdata(), [0, 1, 3])
    np.testing.assert_allclose(
        rings.get_ydata(), [record.middle[0, 2], record.middle[1, 0], record.middle[3, 1]]
    )
    assert legend(ax) == [*LABELS, "true label"]
    assert ax.get_ylabel() == "probability: median, 80% band"


def test_rare_labels_are_drawn_together_in_grey():
    draws = np.tile([0.9, 0.06, 0.04], (3, 2, 1))
    ax = plot_sentence(sentence_posterior(draws, LABELS, rare=0.1))
    assert legend(ax) == ["B", "other labels"]
    np.testing.assert_allclose(line(ax, "other").get_ydata(), 0.1)
    assert line(ax, "other").get_color() == GREY
    # A label keeps its colour where others are not shown.
    kept = plot_sentence(sentence_posterior(draws[..., [2, 1, 0]], LABELS, rare=0.1))
    assert line(kept, "O").get_color() == GREEN


def test_one_word_alone_is_drawn():
    record = sentence_posterior(RNG.dirichlet([1, 1, 1], size=(9, 1)), LABELS, ["Rome"], ["B"])
    ax = rendered(plot_sentence(record))
    (segment,) = ax.collections[0].get_segments()
    np.testing.assert_allclose(segment[:, 1], [record.lower[0, 0], record.upper[0, 0]])
    assert ticks(ax.xaxis) == ["Rome"]


def test_long_sentences_get_wide_pictures():
    record = sentence_posterior(np.full((2, 60, 1), 1.0), ["O"])
    assert plot_sentence(record).figure.get_size_inches()[0] == 16
    short = sentence_posterior(np.full((2, 3, 1), 1.0), ["O"])
    assert plot_sentence(short).figure.get_size_inches()[0] == 5


def test_uncertainty_stacks_the_two_kinds():
    record = uncertainty([np.ones((2, 1, 1)), RNG.dirichlet([1, 1, 1], size=(20, 3))])
    ax = rendered(plot_uncertainty(record, ["a", "b", "c"], sequence=1))
    below, above = ax.containers
    np.testing.assert_allclose([bar.get_height() for bar in below], record.aleatoric[1])
    np.testing.assert_allclose([bar.get_height() for bar in above], record.epistemic[1])
    tops = [bar.get_y() + bar.get_height() for bar in above]
    np.testing.assert_allclose(tops, record.total[1])
    colors = [to_hex(bars[0].get_facecolor()).upper() for bars in (below, above)]
    assert colors == [BLUE, ORANGE]
    assert ticks(ax.xaxis) == ["a", "b", "c"]
    assert [text.split(":")[0] for text in legend(ax)] == ["aleatoric", "epistemic"]
    assert ticks(plot_uncertainty(record).xaxis) == ["0"]


@pytest.mark.parametrize(
    ("words", "sequence", "says"),
    [
        (None, 2, "there is no sequence 2: the record has 2"),
        (None, -1, "there is no sequence -1"),
        (["a", "b"], 0, "words must be a list of 1"),
        ("a", 0, "words must be a list of 1"),
        (None, 1, "sequence 1 has no token"),
    ],
)
def test_what_cannot_be_drawn_is_said(words, sequence, says):
    record = uncertainty([np.full((2, 1, 2), 0.5), np.zeros((2, 0, 2))])
    with pytest.raises(ValueError, match=says):
        plot_uncertainty(record, words, sequence)


def test_pictures_use_the_axes_they_are_given():
    rows = RNG.dirichlet([1, 1, 1], size=(9, 2))
    for plot, record in [
        (plot_transitions, transition_posterior(RNG.normal(size=(9, 3, 3)), LABELS)),
        (plot_weights, weights()),
        (plot_sentence, sentence_posterior(rows, LABELS)),
        (plot_uncertainty, uncertainty([rows])),
    ]:
        ax = Figure().subplots()
        assert plot(record, ax=ax) is ax
        part = Figure().subfigures(1, 2)[0].subplots()
        assert plot(record, ax=part) is part


def test_colours_of_a_palette_differ():
    assert len({BLUE, VERMILION, GREEN, ORANGE, GREY}) == 5
