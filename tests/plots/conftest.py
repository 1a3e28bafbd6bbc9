"""No picture opens a window."""

import matplotlib as mpl
import pytest
from matplotlib import pyplot


@pytest.fixture(autouse=True)
def _no_window():
    before = mpl.get_backend()
    pyplot.switch_backend("Agg")
    yield
    pyplot.close("all")
    pyplot.switch_backend(before)
