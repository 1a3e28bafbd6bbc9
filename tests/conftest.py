"""Fixtures shared by all tests."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the real datasets, named by BAYESEQ_DATA; tests that need it skip without."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("BAYESEQ_DATA", default))
    if not (folder / "crfpp").is_dir():
        pytest.skip(f"real datasets are not at {folder}; set BAYESEQ_DATA to the folder with them")
    return folder
