"""What tests of pages share: sentences, two models, and no pictures where nobody looks."""

import matplotlib as mpl
import pytest
from matplotlib import pyplot

from bayeseq import CRF, GPSC, load_dataset, word_features


@pytest.fixture(autouse=True)
def _no_window():
    before = mpl.get_backend()
    pyplot.switch_backend("Agg")
    yield
    assert not pyplot.get_fignums()
    pyplot.switch_backend(before)


@pytest.fixture
def no_pictures(monkeypatch):
    """For pages whose pictures nobody looks at: they take most of the time."""
    for room in ("sections", "learned"):
        monkeypatch.setattr(f"bayeseq.report.{room}.figure", lambda *_: "<figure></figure>")


class Data:
    """Sentences cut from the embedded corpus."""

    def __init__(self) -> None:
        dataset = load_dataset("newswire")
        self.words = dataset["test"].tokens[:30]
        self.X = [word_features(words) for words in self.words]
        self.y = dataset.labels("test")[:30]
        self.train = [word_features(w) for w in dataset["train"].tokens[:40]]
        self.labels = dataset.labels("train")[:40]

    @property
    def arguments(self):
        return self.words, self.X, self.y


@pytest.fixture(scope="module")
def data():
    return Data()


@pytest.fixture(scope="module")
def crf(data):
    return CRF(l2=0.1, progress=False).fit(data.train, data.labels)


@pytest.fixture(scope="module")
def gpsc(data):
    settings = {"inference": "laplace", "covariance": "diagonal", "min_count": 3, "tol": 1e-2}
    return GPSC(**settings, progress=False).fit(data.train[:25], data.labels[:25])
