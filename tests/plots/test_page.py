"""The page of pictures runs as it stands, shows every picture, and its images are there."""

import importlib.util
import re
from pathlib import Path

import pytest

import bayeseq.plots

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def maker():
    spec = importlib.util.spec_from_file_location("maker", ROOT / "tools" / "make_pictures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_runs_and_its_images_are_there_and_small(maker):
    images = maker.run_page(None)
    assert len(images) == len(set(images)) > 10
    for image in images:
        assert (ROOT / "docs" / image).stat().st_size <= 60_000


def test_the_page_shows_every_picture(maker):
    called = set(re.findall(r"^(plot_\w+)\(", maker.PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    # A learning curve takes many fits: it is shown where it is computed.
    own = {
        name
        for name in bayeseq.plots.__all__
        if not getattr(bayeseq.plots, name).__module__.endswith(".learning")
    }
    assert called == own
