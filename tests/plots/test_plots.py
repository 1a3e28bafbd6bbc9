"""Pictures show the numbers of their records, and say what they show."""

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bayeseq.diagnostics import (
    confusion,
    entity_reliability,
    entity_scores,
    reliability,
    reliability_by_label,
    risk_coverage,
)
from bayeseq.plots import (
    plot_abstention,
    plot_confidence_histogram,
    plot_confusion,
    plot_entity_f1,
    plot_missing_labels,
    plot_reliability,
    plot_reliability_by_label,
    plot_risk_coverage,
)
from bayeseq.plots.style import PALETTE, look, marker, plural
from tests.plots.drawn import band, legend, line

CLASSES = ["B-LOC", "B-PER", "I-PER", "O"]


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    proba = list(rng.dirichlet([0.4] * 4, size=(40, 6)))
    drawn = [(rows.cumsum(axis=1) < rng.random((6, 1))).sum(axis=1) for rows in proba]
    return [[CLASSES[k] for k in row] for row in drawn], proba, CLASSES


@pytest.fixture
def tags(data):
    return data[0], [[CLASSES[k] for k in rows.argmax(axis=1)] for rows in data[1]]


def test_reliability_shows_line_band_shares_and_diagonal(data):
    curve = reliability(*data)
    ax = plot_reliability(curve)
    full = curve.counts > 0
    assert not full.all()  # empty bins are left out
    drawn = line(ax, "observed")
    np.testing.assert_array_equal(drawn.get_xdata(), curve.confidence[full])
    np.testing.assert_array_equal(drawn.get_ydata(), curve.accuracy[full])
    xs, low, high = band(ax)
    np.testing.assert_allclose(xs, curve.confidence[full])
    np.testing.assert_allclose(low, curve.lower[full])
    np.testing.assert_allclose(high, curve.upper[full])
    np.testing.assert_array_equal(line(ax, "perfect").get_xydata(), [[0, 0], [1, 1]])
    heights = np.array([bar.get_height() for bar in ax.patches])
    np.testing.assert_allclose(heights / heights.max(), curve.counts / curve.counts.max())
    assert ax.get_title() == f"Reliability, top label: ECE {curve.ece:.1%}"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("confidence", "accuracy")
    top = curve.counts.max() / curve.counts.sum()
    assert legend(ax) == ["perfect", "observed, 90% band", f"share of tokens, highest {top:.0%}"]


@pytest.mark.parametrize("several", [dict, list])
def test_reliability_of_several_curves(data, several):
    curves = reliability_by_label(*data, labels=["O", "B-PER"])
    ax = plot_reliability(curves if several is dict else list(curves.values()))
    for label, curve in curves.items():
        full = curve.counts > 0
        drawn = line(ax, f"{label}, ECE {curve.ece:.1%}")
        np.testing.assert_array_equal(drawn.get_xdata(), curve.confidence[full])
        np.testing.assert_array_equal(drawn.get_ydata(), curve.accuracy[full])
    assert len(ax.collections) == 2
    assert len(ax.patches) == 0
    assert len(legend(ax)) == 3
    assert ax.get_xlabel() == "probability of the label"
    assert ax.get_title() == "Reliability with 90% bands"


def test_many_curves_go_without_bands(data):
    curve = reliability(*data)
    ax = plot_reliability({f"model {k}": curve for k in range(5)})
    assert len(ax.collections) == 0
    assert len(legend(ax)) == 6


def test_curves_of_equal_label_need_names(data):
    curve = reliability(*data)
    with pytest.raises(ValueError, match="same label"):
        plot_reliability([curve, curve])


def test_reliability_without_bootstrap_is_drawn(data):
    ax = plot_reliability(reliability(*data, bootstrap=0))
    ax.figure.canvas.draw()
    assert len(line(ax, "observed").get_xdata()) > 0


@pytest.mark.parametrize(
    ("label", "texts", "xlabel"),
    [
        (None, ["right", "wrong"], "confidence"),
        ("O", ["O", "another label"], "probability of the label"),
    ],
)
def test_histogram_stacks_right_and_wrong(data, label, texts, xlabel):
    curve = reliability(*data, label=label)
    ax = plot_confidence_histogram(curve)
    right, wrong = ax.containers
    np.testing.assert_allclose(
        [bar.get_height() for bar in right], np.nan_to_num(curve.accuracy) * curve.counts
    )
    tops = [bar.get_y() + bar.get_height() for bar in wrong]
    np.testing.assert_allclose(tops, curve.counts)
    np.testing.assert_allclose([bar.get_x() for bar in right], curve.edges[:-1])
    assert legend(ax) == texts
    assert (ax.get_xlabel(), ax.get_ylabel()) == (xlabel, "tokens")
    assert ax.get_title().startswith("240 tokens by confidence")


def test_histogram_of_several_models_shows_shares(data):
    one, two = reliability(*data, bins=5), reliability(*data, bins=8, adaptive=True)
    ax = plot_confidence_histogram({"one": one, "two": two})
    assert legend(ax) == ["one", "two"]
    for patch, curve in zip(ax.patches, (one, two), strict=True):
        values, edges, _ = patch.get_data()
        np.testing.assert_allclose(values, curve.counts / 240)
        np.testing.assert_array_equal(edges, curve.edges)
    assert ax.get_yscale() == "log"
    ax.figure.canvas.draw()
    assert {"1%", "10%"} <= {tick.get_text() for tick in ax.get_yticklabels()}
    named = plot_confidence_histogram({"one": one})
    assert named.get_title().startswith("one, 240 tokens by confidence")
    with pytest.raises(ValueError, match="nothing to plot"):
        plot_confidence_histogram({})


def test_pictures_of_entities_say_so():
    entities = [[(0, 1, "PER", 0.9), (2, 3, "PER", 0.3)]]
    curve = entity_reliability([["B-PER", "O", "O"]], entities, bins=2)
    ax = plot_reliability(curve)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("confidence", "accuracy")
    assert legend(ax)[-1] == "share of entities, highest 50%"
    ax = plot_confidence_histogram(curve)
    assert ax.get_title() == "2 entities by confidence: 50.0% right"
    assert ax.get_ylabel() == "entities"
    assert plot_confidence_histogram({"a": curve, "b": curve}).get_ylabel() == "share of entities"
    assert [plural(unit) for unit in ("token", "entity")] == ["tokens", "entities"]


def test_small_multiples_show_each_label(data):
    curves = reliability_by_label(*data)
    panels = plot_reliability_by_label(curves)
    assert len(panels) == 4
    for ax, (label, curve) in zip(panels, curves.items(), strict=True):
        full = curve.counts > 0
        np.testing.assert_array_equal(line(ax, label).get_ydata(), curve.accuracy[full])
        np.testing.assert_allclose(band(ax)[1], curve.lower[full])
        assert ax.get_title() == f"{label}: ECE {curve.ece:.1%}"
    assert len(panels[0].figure.axes) == 4  # the two spare ones of the grid are gone
    own = Figure().subplots(1, 4)
    assert plot_reliability_by_label(curves, list(own)) == list(own)
    with pytest.raises(ValueError, match="2 axes for 4 labels"):
        plot_reliability_by_label(curves, own[:2])
    with pytest.raises(ValueError, match="nothing to plot"):
        plot_reliability_by_label({})


def test_small_multiples_leave_rare_labels_out():
    classes = [f"L{k:02d}" for k in range(30)]
    share = np.arange(30, 0, -1.0) / 465  # the first is the most probable
    curves = reliability_by_label([["L00"] * 3], [np.tile(share, (3, 1))], classes, bootstrap=0)
    panels = plot_reliability_by_label(curves)
    assert [ax.get_title().split(":")[0] for ax in panels] == classes[:12]


def test_missing_labels_show_means_over_splits():
    ax = plot_missing_labels([0.0, 0.5], {"a": [[0.1, 0.2], [0.3, 0.4]], "b": [[0.5, 0.6]]})
    np.testing.assert_allclose(line(ax, "a").get_ydata(), [0.2, 0.3])
    np.testing.assert_allclose(line(ax, "b").get_ydata(), [0.5, 0.6])
    with pytest.raises(ValueError, match="nothing to plot"):
        plot_missing_labels([0.0], {})


def test_risk_coverage_shows_line_band_and_references(data):
    curve = risk_coverage(*data)
    ax = plot_risk_coverage(curve)
    np.testing.assert_array_equal(line(ax, "observed").get_xdata(), curve.coverage)
    np.testing.assert_array_equal(line(ax, "observed").get_ydata(), curve.risk)
    xs, low, high = band(ax)
    np.testing.assert_allclose(xs, curve.band_coverage)
    np.testing.assert_allclose(low, curve.lower)
    np.testing.assert_allclose(high, curve.upper)
    assert set(line(ax, "random order").get_ydata()) == {curve.error}
    oracle = line(ax, "perfect order")
    np.testing.assert_array_equal(oracle.get_ydata(), curve.oracle_risk(oracle.get_xdata()))
    assert ax.get_title() == f"Risk and coverage: AURC {curve.aurc:.4f}"
    assert ax.get_xlabel() == "coverage: share of tokens kept"
    assert ax.get_ylabel() == "risk: token error among those kept"


def test_risk_coverage_of_several_models(data):
    one, two = risk_coverage(*data), risk_coverage(*data, confidence=[np.ones(6)] * 40)
    ax = plot_risk_coverage({"one": one, "two": two})
    assert legend(ax) == [f"one, AURC {one.aurc:.4f}", f"two, AURC {two.aurc:.4f}"]
    np.testing.assert_array_equal(line(ax, "two").get_ydata(), two.risk)
    assert len(ax.collections) == 2
    many = plot_risk_coverage({f"model {k}": one for k in range(5)})
    assert not many.collections  # bands would hide each other
    sequences = risk_coverage(*data, unit="sequence")
    assert plot_risk_coverage(sequences).get_xlabel() == "coverage: share of sequences kept"
    with pytest.raises(ValueError, match="different units"):
        plot_risk_coverage({"one": one, "two": sequences})
    with pytest.raises(ValueError, match="nothing to plot"):
        plot_risk_coverage({})
    with pytest.raises(ValueError, match="nothing to plot"):
        plot_reliability([])


def test_risk_coverage_without_errors_or_band_is_drawn():
    ax = plot_risk_coverage(risk_coverage([["a"]], [[[0.9, 0.1]]], ["a", "b"]))
    ax.figure.canvas.draw()
    assert ax.get_ylim()[1] > 0


def test_confusion_colours_shares_and_writes_counts(tags):
    record = confusion(*tags)
    ax = plot_confusion(record)
    shares = record.counts / record.counts.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(ax.images[0].get_array(), shares)
    written = {
        (text.get_position()[1], text.get_position()[0]): text.get_text() for text in ax.texts
    }
    expected = {tuple(cell): str(record.counts[tuple(cell)]) for cell in np.argwhere(record.counts)}
    assert written == expected
    assert [tick.get_text() for tick in ax.get_yticklabels()] == list(record.labels)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == list(record.labels)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("predicted label", "true label")


def test_confusion_of_many_labels_and_of_one_never_true():
    labels = [f"L{k:02d}" for k in range(25)]
    assert not plot_confusion(confusion([labels], [labels])).texts
    ax = plot_confusion(confusion([["a"]], [["b"]]))
    np.testing.assert_array_equal(ax.images[0].get_array(), [[0, 1], [0, 0]])


def test_entity_f1_bars_and_marks(tags):
    scores = entity_scores(*tags)
    ax = plot_entity_f1(scores)
    counts = list(scores.by_label.values())
    assert [bar.get_width() for bar in ax.patches] == [row.f1 for row in counts]
    precision, recall, overall = ax.get_lines()
    assert list(precision.get_xdata()) == [row.precision for row in counts]
    assert list(recall.get_xdata()) == [row.recall for row in counts]
    assert set(overall.get_xdata()) == {scores.overall.f1}
    names = [f"{label} ({row.support})" for label, row in scores.by_label.items()]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == names
    assert legend(ax) == ["F1", "F1 of all", "precision", "recall"]
    assert ax.get_title() == (f"Entity F1, conlleval reading: {scores.overall.f1:.1%} overall")


def test_pictures_use_the_axes_they_are_given(data, tags):
    curve, risk = reliability(*data), risk_coverage(*data)
    for plot, record in [
        (plot_reliability, curve),
        (plot_confidence_histogram, curve),
        (plot_risk_coverage, risk),
        (plot_confusion, confusion(*tags)),
        (plot_entity_f1, entity_scores(*tags)),
    ]:
        ax = Figure().subplots()  # no pyplot
        assert plot(record, ax=ax) is ax
        assert plot(record, ax) is ax
        assert not pyplot.get_fignums()
        assert isinstance(plot(record), Axes)
        assert len(pyplot.get_fignums()) == 1  # a notebook shows it
        pyplot.close("all")


def test_looks_differ():
    looks = [tuple(look(number).values()) for number in range(4 * len(PALETTE))]
    assert len(set(looks)) == len(looks)
    assert [marker(number) for number in range(2)] == ["o", "s"]


def test_abstention_shows_three_lines_by_threshold(data):
    curve = risk_coverage(*data)
    ax = plot_abstention(curve)
    assert [len(line.get_xdata()) for line in ax.lines] == [len(curve.threshold)] * 3
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), curve.precision)
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), curve.recall)
    np.testing.assert_array_equal(ax.lines[2].get_ydata(), curve.coverage)
