"""The picture of learning curves shows the curves' numbers."""

import numpy as np
import pytest

from bayeseq.diagnostics import learning_curve
from bayeseq.plots import plot_learning_curves


@pytest.fixture(autouse=True)
def no_window():
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    yield
    pyplot.close("all")


def test_lines_and_bands():
    errors = np.array([[0.3, 0.1, 0.1], [0.1, 0.1, 0.2]])
    curves = {
        "random": learning_curve([0.1, 0.5, 1.0], errors),
        "BALD": learning_curve([0.1, 0.5], errors[:, :2] / 2),
    }
    ax = plot_learning_curves(curves, target=0.15)
    for line, curve in zip(ax.lines, curves.values(), strict=False):
        np.testing.assert_allclose(line.get_xdata(), curve.share)
        np.testing.assert_allclose(line.get_ydata(), curve.errors.mean(0))
    np.testing.assert_allclose(ax.lines[2].get_ydata(), 0.15)
    band = ax.collections[0].get_paths()[0].vertices
    # standard errors 0.1, 0 and 0.05 around means 0.2, 0.1 and 0.15
    assert band[:, 1].max() == pytest.approx(0.3)
    assert band[band[:, 0] == 1.0][:, 1].max() == pytest.approx(0.2)
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["random", "BALD", "all labels"]


def test_one_curve_on_given_axes():
    from matplotlib.figure import Figure

    ax = Figure().add_subplot()
    found = plot_learning_curves(learning_curve([1, 2], [[0.2, 0.1]]), ax=ax)
    assert found is ax
    assert ax.get_legend() is None
    with pytest.raises(ValueError, match="nothing to plot"):
        plot_learning_curves({})
