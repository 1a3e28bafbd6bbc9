"""Pictures that check models show the numbers of their records."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

from bayeseq.diagnostics import (
    confusion_confidence,
    rank_check,
    review_budget,
    score_sets,
)
from bayeseq.plots import (
    plot_confusion_confidence,
    plot_coverage,
    plot_predictive_check,
    plot_review_budget,
    plot_sbc_ecdf,
    plot_sbc_ranks,
)
from bayeseq.plots.style import VERMILION
from tests.plots.drawn import band, legend, line, rendered, texts, ticks


def test_ranks_show_counts_and_the_range_of_uniform_bins():
    check = rank_check(np.random.default_rng(0).integers(0, 8, 100), draws=7, bins=3)
    ax = rendered(plot_sbc_ranks(check))
    bars = ax.containers[0]
    assert [bar.get_height() for bar in bars] == list(check.counts)
    assert [bar.get_x() for bar in bars] == list(check.edges[:-1] - 0.5)
    assert [bar.get_width() for bar in bars] == [3, 3, 2]  # ranks 0-2, 3-5, 6-7
    points = ax.collections[0].get_paths()[0].vertices
    assert {*points[:, 1]} == {*check.lower, *check.upper}
    assert sorted(legend(ax)) == ["95% of uniform bins", "expected", "ranks"]
    assert ax.get_title() == "100 ranks of true values"


def test_cumulative_shares_show_the_line_and_say_the_verdict():
    rng = np.random.default_rng(0)
    check = rank_check(rng.integers(0, 100, 200), draws=99)
    ax = rendered(plot_sbc_ecdf(check))
    np.testing.assert_array_equal(line(ax, "ranks").get_ydata(), check.excess)
    _, low, high = band(ax)
    assert low.min() == pytest.approx(-check.excess_band.max())
    assert high.max() == pytest.approx(check.excess_band.max())
    assert ax.get_title() == "200 ranks: within the band"
    narrow = rank_check(np.repeat([0, 99], 100), draws=99)
    assert plot_sbc_ecdf(narrow).get_title() == "200 ranks: outside the band"


@pytest.mark.parametrize("replicated", [[3, 4, 4, 7], [0.25, 0.5, 0.5, 0.75]])
def test_predictive_check_shows_all_replicates_and_the_observed(replicated):
    ax = rendered(plot_predictive_check(replicated[1], replicated, "entities"))
    assert sum(bar.get_height() for bar in ax.patches) == 4
    (observed,) = ax.lines
    assert set(observed.get_xdata()) == {replicated[1]}
    assert ax.get_title() == "75% of 4 replicates are as high or higher"
    assert ax.get_xlabel() == "entities"


def test_predictive_check_has_a_bar_a_whole_number_and_not_too_many():
    ax = plot_predictive_check(5, [3, 4, 4, 7], "x")
    assert [bar.get_height() for bar in ax.patches] == [1, 2, 0, 0, 1]
    assert [bar.get_x() for bar in ax.patches] == [2.5, 3.5, 4.5, 5.5, 6.5]
    wild = np.random.default_rng(0).standard_cauchy(500)
    assert len(plot_predictive_check(0.0, wild, "x").patches) <= 40


@pytest.mark.parametrize(
    ("observed", "replicated"), [(1, []), (1, [[1.0]]), (1, [np.nan]), (np.inf, [1])]
)
def test_predictive_check_needs_numbers(observed, replicated):
    with pytest.raises(ValueError, match="replicated"):
        plot_predictive_check(observed, replicated, "x")


# ---- what reading buys ------------------------------------------------------------------------


def test_review_budget_shows_error_left_band_and_random_order():
    rng = np.random.default_rng(0)
    proba = list(rng.dirichlet([0.5] * 3, size=(20, 5)))
    y = [[["B", "I", "O"][k] for k in rng.integers(0, 3, 5)] for _ in proba]
    budget = [0.5, 0.0, 0.2]  # any order
    real = review_budget(y, proba, ["B", "I", "O"], budget=budget)
    ax = rendered(plot_review_budget(real))
    drawn = line(ax, "errors counted")
    np.testing.assert_allclose(drawn.get_xdata(), [0, 0.2, 0.5])
    np.testing.assert_allclose(drawn.get_ydata(), real.error_left[[1, 2, 0]])
    xs, low, high = band(ax)
    np.testing.assert_allclose(xs, [0, 0.2, 0.5])
    np.testing.assert_allclose(low, real.lower[[1, 2, 0]])
    np.testing.assert_allclose(high, real.upper[[1, 2, 0]])
    assert set(ax.lines[0].get_ydata()) == {real.error}
    found = f"{real.found_share[0]:.0%}"
    assert ax.get_title() == f"Reading 50.0% of the tokens finds {found} of the errors"
    guess = review_budget(None, proba, ["B", "I", "O"], budget=budget)
    both = rendered(plot_review_budget({"counted": real, "expected": guess}))
    assert legend(both) == ["counted", "expected", "reading at random"]
    assert len(both.collections) == 1  # expected errors have no band
    whole = review_budget(y, proba, ["B", "I", "O"], unit="sequence")
    with pytest.raises(ValueError, match="different units"):
        plot_review_budget({"a": real, "b": whole})
    with pytest.raises(ValueError, match="nothing to plot"):
        plot_review_budget({})


# ---- label sets -------------------------------------------------------------------------------


def test_coverage_shows_promise_band_and_size():
    y = [["A", "B"], ["B", "A"], ["A", "A"]]
    small = score_sets(y, [[{"A"}, {"A"}], [{"B"}, {"A"}], [{"A"}, {"A", "B"}]])
    large = score_sets(y, [[{"A", "B"}] * 2] * 3)
    ax = rendered(plot_coverage({0.05: large, 0.2: small}))
    (bars,) = ax.containers
    points, _, (segments,) = bars
    np.testing.assert_allclose(points.get_xdata(), [0.8, 0.95])
    np.testing.assert_allclose(points.get_ydata(), [small.coverage, large.coverage])
    for segment, record in zip(segments.get_segments(), (small, large), strict=True):
        np.testing.assert_allclose(segment[:, 1], [record.lower, record.upper])
    promised = line(ax, "promised")
    np.testing.assert_allclose(promised.get_xdata(), promised.get_ydata())
    assert [text.get_text() for text in ax.texts] == ["1.17 labels", "2.00 labels"]
    assert ticks(ax.xaxis) == ["80%", "95%"]
    assert legend(ax) == ["promised", "observed, 90% band"]
    assert ax.get_title() == "Coverage of label sets, by token"


def test_coverage_without_band_or_records_and_of_two_kinds():
    y, sets = [["A"], ["B"]], [[{"A"}], [{"B"}]]
    bare = score_sets(y, sets, bootstrap=0)
    assert rendered(plot_coverage({0.1: bare})).get_title() == "Coverage of label sets, by token"
    whole = score_sets(y, sets, guarantee="sentence")
    assert plot_coverage({0.1: whole}).get_ylabel() == "sentences all covered"
    with pytest.raises(ValueError, match="different guarantees"):
        plot_coverage({0.1: bare, 0.2: whole})
    with pytest.raises(ValueError, match="nothing to plot"):
        plot_coverage({})


def test_confusion_confidence_shows_counts_confidence_and_frames():
    rng = np.random.default_rng(0)
    proba = rng.dirichlet([0.5] * 3, size=40)
    y = [["B", "I", "O"][k] for k in rng.integers(0, 3, 40)]
    record = confusion_confidence([y], [proba], ["B", "I", "O"])
    ax = rendered(plot_confusion_confidence(record))
    np.testing.assert_allclose(ax.images[0].get_array().filled(np.nan), record.confidence)
    assert ax.images[0].get_clim() == (0, 1)
    assert texts(ax) == {
        (a, b): f"{record.counts[a, b]}\n{record.confidence[a, b]:.0%}"
        for a, b in np.argwhere(record.counts)
    }
    frames = [patch for patch in ax.patches if to_hex(patch.get_edgecolor()).upper() == VERMILION]
    assert len(frames) == np.count_nonzero(np.diag(record.counts))
    assert ax.get_title() == (
        f"Mean confidence: {record.right:.0%} right, {record.wrong:.0%} wrong"
    )
    assert ticks(ax.xaxis) == ticks(ax.yaxis) == ["B", "I", "O"]


def test_confusion_confidence_without_mistakes_and_with_many_labels():
    found = confusion_confidence([["a"]], [[[1.0, 0.0]]], ["a", "b"])
    assert rendered(plot_confusion_confidence(found)).get_title() == "Mean confidence: 100% right"
    labels = [f"L{k:02d}" for k in range(25)]
    many = confusion_confidence([labels], [np.eye(25)], labels)
    assert not rendered(plot_confusion_confidence(many)).texts
