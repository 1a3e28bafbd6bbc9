"""The page about a model: its numbers are those of the library, and it is whole and harmless."""

from __future__ import annotations

import itertools
import re
from unittest import mock

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot

from bayeseq import (
    CRF,
    GPSC,
    LABELERS,
    DataError,
    GPStruct,
    StructuredSVM,
    evaluate,
    load,
    load_dataset,
    report_html,
    show,
    word_features,
    write_report,
)
from bayeseq.diagnostics import review_budget
from bayeseq.report.contents import Contents, gather, least_sure, most_mistakes, surest_mistakes
from bayeseq.report.page import Html, html, table
from bayeseq.report.pictures import figure
from tests.labelers.conformance import X as SEQUENCES
from tests.labelers.conformance import Y as LABELS
from tests.labelers.conformance import make
from tests.report.pages import Node, assert_harmless, parsed
from tests.report.test_show import HOSTILE, words_of


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


@pytest.fixture(scope="module")
def crf_page(crf, data):
    return report_html(crf, *data.arguments, data="the test part")


@pytest.fixture(scope="module")
def gpsc_page(gpsc, data):
    return report_html(gpsc, *data.arguments, draws=30)


def cells(node: Node) -> list[list[str]]:
    return [[c.text for c in row.children if isinstance(c, Node)] for row in node.all("tr")]


def section(page: str, name: str) -> Node:
    (found,) = [s for s in parsed(page).all("section") if s["id"] == name]
    return found


def sections(page: str) -> list[str]:
    return [s["id"] for s in parsed(page).all("section")]


def test_pages_are_harmless_and_whole(crf_page, gpsc_page):
    for page in (crf_page, gpsc_page):
        root = assert_harmless(page)
        assert "http:" not in page
        assert "https:" not in page
        assert page.startswith("<!DOCTYPE html>")
        (html_,) = root.all("html")
        assert html_["lang"] == "en"
        assert len(root.all("h1")) == 1
        levels = [int(n.tag[1]) for n in root.all() if re.fullmatch("h[1-6]", n.tag)]
        assert all(b - a <= 1 for a, b in itertools.pairwise(levels))
        links = [a["href"][1:] for a in root.all("nav")[0].all("a")]
        assert links == sections(page)
        for svg in root.all("svg"):
            assert svg["role"] == "img"
            assert len(svg["aria-label"]) > 10
        assert all(figure_.all("figcaption")[0].text for figure_ in root.all("figure"))
        policy = [m["content"] for m in root.all("meta") if "http-equiv" in m.attributes]
        assert policy == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]
    names = ["scores", "calibration", "review", "mistakes", "sentences"]
    assert sections(crf_page) == [*names, "weights", "fit"]
    assert sections(gpsc_page) == [*names, "posterior", "fit"]


def test_scores_are_those_of_evaluate(crf, crf_page, data):
    result = evaluate(data.y, crf.predict(data.X), crf.predict_proba(data.X), list(crf.classes_))
    first, second = section(crf_page, "scores").all("table")
    found = {row[0]: row[1] for row in cells(first)}
    assert found == {
        "sentences": "30",
        "tokens scored": f"{result.tokens:,}",
        "token error": f"{100 * result.token_error:.2f}%",
        "sentence accuracy": f"{100 * result.sequence_accuracy:.2f}%",
        "log loss": f"{result.probabilities.log_loss:.4f}",
        "Brier score": f"{result.probabilities.brier:.4f}",
        "ECE": f"{100 * result.probabilities.ece:.2f}%",
        "ECE floor": f"{100 * result.probabilities.ece_floor:.2f}%",
        "AURC": f"{result.risk_coverage.aurc:.4f}",
        "least AURC": f"{result.risk_coverage.aurc_oracle:.4f}",
    }
    header, *rows = cells(second)
    counts = {"all": result.entities.overall, **result.entities.by_label}
    assert [row[0] for row in rows] == list(counts)
    for row in rows:
        scores = counts[row[0]]
        shares = [f"{100 * x:.2f}%" for x in (scores.precision, scores.recall, scores.f1)]
        numbers = [str(x) for x in (scores.support, scores.predicted, scores.correct)]
        assert row[1:] == [*shares, *numbers]
    numbers = [n.text for n in parsed(crf_page).all("dd", "number")]
    assert f"{100 * result.token_error:.2f}%" in numbers
    assert f"{100 * result.entities.overall.f1:.2f}%" in numbers
    assert header[1:4] == ["precision", "recall", "F1"]


def test_review_is_counted_by_hand(crf, crf_page, data):
    tokens, sentences = section(crf_page, "review").all("table")
    cases = []
    for x, true in zip(data.X, data.y, strict=True):
        (labels, proba), *_ = crf.tag([x])
        for label, p, y in zip(labels, proba, true, strict=True):
            cases.append((p[list(crf.classes_).index(label)], label != y))
    cases.sort()
    wrong = [bad for _, bad in cases]
    for row in cells(tokens)[1:]:
        share = float(row[0].rstrip("%")) / 100
        n = share * len(cases)
        found = sum(wrong[: int(n)]) + (n - int(n)) * wrong[int(n)]
        assert row[2] == f"{found:,.0f}"
        assert row[5] == f"{100 * (sum(wrong) - found) / (len(cases) - n):.2f}%"
    assert len(cells(sentences)) == 7


def test_chosen_sentences(crf, crf_page, data):
    predicted, proba = crf.predict(data.X), crf.predict_proba(data.X)
    bad = [
        sum(a != b for a, b in zip(p, t, strict=True))
        for p, t in zip(predicted, data.y, strict=True)
    ]
    column = {label: c for c, label in enumerate(crf.classes_)}
    own = [
        np.array([p[t, column[label]] for t, label in enumerate(row)])
        for p, row in zip(proba, predicted, strict=True)
    ]
    sure = [
        max([q[t] for t in range(len(q)) if p[t] != true[t]], default=-1)
        for q, p, true in zip(own, predicted, data.y, strict=True)
    ]
    unsure = [float((1 - q).sum()) for q in own]

    def best(values, n=5):
        order = sorted(range(len(values)), key=lambda i: -values[i])[:n]
        return [i for i in order if values[i] > 0]

    found = [
        [words_of(p) for p in block.all("p")]
        for block in section(crf_page, "sentences").all("div", "bq-show")[1:]
    ]
    for block, places in zip(found, [best(sure), best(bad), best(unsure)], strict=True):
        assert block == [data.words[i] for i in places]
    numbers = [n.text for n in section(crf_page, "sentences").all("span", "bq-n")]
    assert numbers[: len(best(sure))] == [str(i + 1) for i in best(sure)]


def test_confusions_are_counted(crf, crf_page, data):
    rows = cells(section(crf_page, "mistakes").all("table")[0])[1:]
    pairs = [
        (t, p)
        for true, row in zip(data.y, crf.predict(data.X), strict=True)
        for t, p in zip(true, row, strict=True)
    ]
    for true, predicted, count, share, _ in rows:
        n = pairs.count((true, predicted))
        assert count == str(n)
        assert share.rstrip("%") in (f"{100 * n / sum(t == true for t, _ in pairs):.0f}", "<1")
    counts = [int(row[2]) for row in rows]
    assert counts == sorted(counts, reverse=True)


def test_the_posterior_is_shown(gpsc, gpsc_page):
    found = section(gpsc_page, "posterior")
    rows = cells(found.all("table")[0])[1:]
    learned = gpsc.result_.hyperparameters
    known = {**learned["variance"], "label at offset -1": learned["dependency_variance"]["-1"]}
    assert [(name, f"{known[name]:.3g}") for name, *_ in rows] == [
        row[:2] for row in map(tuple, rows)
    ]
    values = [known[row[0]] for row in rows]
    assert values == sorted(known.values(), reverse=True)[: len(values)]
    texts = [svg.text for svg in found.all("svg")]
    assert any("Weights of label pairs" in text for text in texts)
    assert any("largest weights" in text for text in texts)
    assert "Least known" in [h.text for h in section(gpsc_page, "sentences").all("h3")]
    assert f"{30} draws" in found.text


def test_the_fit_is_told(crf, crf_page, gpsc, gpsc_page):
    for model, page in ((crf, crf_page), (gpsc, gpsc_page)):
        rows = {row[0]: row[1] for row in cells(section(page, "fit").all("table")[0])}
        assert rows["model"] == " ".join(repr(model).split())
        result = model.result_
        assert rows["search"] == (
            f"converged after {result.iterations} iterations, {result.seconds:.1f} seconds"
        )
        assert rows["labels"].startswith("7: B-LOC")


def test_the_same_bytes_each_time(crf, crf_page, gpsc, gpsc_page, data):
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "path"}):
        assert report_html(crf, *data.arguments, data="the test part") == crf_page
        assert mpl.rcParams["font.size"] == 30
    assert report_html(gpsc, *data.arguments, draws=30) == gpsc_page


@pytest.mark.usefixtures("no_pictures")
def test_title_data_and_date(crf, data):
    page = report_html(
        crf, *data.arguments, title="A & B", data="<f>", date="2026-11-18", sentences=1
    )
    root = parsed(page)
    assert [root.all(tag)[0].text for tag in ("title", "h1")] == ["A & B"] * 2
    text = root.all("header")[0].all("p")[0].text
    assert text.endswith("tokens of <f>. 2026-11-18")
    assert "2026-" not in report_html(crf, *data.arguments, sentences=1)


@pytest.mark.usefixtures("no_pictures")
def test_without_true_labels(crf, data):
    page = report_html(crf, data.words, data.X)
    assert_harmless(page)
    assert sections(page) == ["labels", "review", "sentences", "weights", "fit"]
    assert [h.text for h in section(page, "sentences").all("h3")] == ["Least sure"]
    rows = cells(section(page, "labels").all("table")[0])[1:]
    predicted = [label for row in crf.predict(data.X) for label in row]
    assert {row[0]: int(row[1]) for row in rows} == {
        label: predicted.count(label) for label in set(predicted)
    }
    plan = review_budget(
        None,
        crf.predict_proba(data.X),
        list(crf.classes_),
        budget=[0.01],
        y_pred=crf.predict(data.X),
    )
    first = cells(section(page, "review").all("table")[0])[1]
    assert first[2] == f"{plan.errors_found[0]:,.0f}"
    assert report_html(crf, data.words, data.X, [[None] * len(w) for w in data.words]) == page
    assert report_html(crf, data.words) == page  # the features are those of the words


@pytest.mark.usefixtures("no_pictures")
def test_with_some_true_labels(crf, data):
    y = [[label if t % 2 else None for t, label in enumerate(row)] for row in data.y]
    page = report_html(crf, data.words, data.X, y)
    result = evaluate(
        y, crf.predict(data.X), crf.predict_proba(data.X), list(crf.classes_), entities=False
    )
    rows = {row[0]: row[1] for row in cells(section(page, "scores").all("table")[0])}
    assert rows["token error"] == f"{100 * result.token_error:.2f}%"
    assert "entity F1" not in parsed(page).all("header")[0].text


@pytest.mark.usefixtures("no_pictures")
def test_strict_reading(crf, data):
    page = report_html(crf, *data.arguments, scheme="IOB2", sentences=1)
    assert "strict IOB2 reading" in section(page, "scores").text


@pytest.mark.usefixtures("no_pictures")
def test_a_model_without_probabilities(data):
    model = StructuredSVM(tol=0.3, progress=False).fit(data.train[:15], data.labels[:15])
    page = report_html(model, *data.arguments)
    assert_harmless(page)
    assert sections(page) == ["scores", "mistakes", "sentences", "fit"]
    assert "StructuredSVM has no probabilities" in section(page, "scores").text
    assert "onfidence" not in section(page, "mistakes").text
    bare = report_html(model, data.words, data.X)
    assert sections(bare) == ["labels", "fit"]
    assert "onfidence" not in parsed(bare).all("header")[0].text


@pytest.mark.usefixtures("no_pictures")
def test_a_model_without_mistakes():
    X, y = [[["a"], ["b"]]] * 5, [["A", "B"]] * 5
    page = report_html(CRF(l2=0.01, progress=False).fit(X, y), [["x", "y"]] * 5, X, y)
    assert "There is no mistake to find" in section(page, "review").text
    assert "There is none" in section(page, "mistakes").text
    assert [h.text for h in section(page, "sentences").all("h3")] == ["Least sure"]


def test_one_token_one_label():
    model = CRF(progress=False).fit([[["a"]]], [["A"]])
    assert_harmless(report_html(model, [["x"]], [[["a"]]], [["A"]]))
    assert_harmless(report_html(model, [["x"]], [[["a"]]]))


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("name", LABELERS)
def test_every_labeler_has_a_page(name, tmp_path):
    """Saved and loaded, too: the page is about what the folder holds."""
    changes = {"draws": 4, "warmup": 4, "thin": 1} if name == "GPStruct" else {}
    with mock.patch("warnings.warn"):
        model = make(name, **changes).fit(SEQUENCES, LABELS)
    words = [[f"w{t}" for t in range(len(x))] for x in SEQUENCES]
    page = report_html(model, words, SEQUENCES, LABELS, draws=5)
    assert_harmless(page)
    assert model.has_probabilities == ("calibration" in sections(page))
    assert words_of(parsed(show(model, words[0], SEQUENCES[0]).html).all("p")[0]) == words[0]
    model.save(tmp_path / "model")
    assert report_html(load(tmp_path / "model"), words, SEQUENCES, LABELS, draws=5) == page


@pytest.mark.usefixtures("no_pictures")
def test_draws_that_were_kept_are_enough():
    X, y = [[["a"], ["b"]], [["b"], ["a"]]] * 3, [["A", "B"], ["B", "A"]] * 3
    model = GPStruct(chains=2, draws=6, warmup=4, progress=False)
    with mock.patch("warnings.warn"):
        model.fit(X, y)
    page = report_html(model, [["x", "y"]] * 6, X, y, sentences=1)
    assert "posterior" in sections(page)
    assert f"{model.posterior_.n_draws} draws" in section(page, "posterior").text


def test_hostile_tokens_labels_and_names():
    labels = [f"B-{word}" if word else "O" for word in HOSTILE]
    X = [[[f"f{k}<b>\"'&$x$"] for k in range(len(HOSTILE))]] * 3
    model = CRF(l2=0.1, progress=False).fit(X, [labels] * 3)
    model.metadata_ = {"input": {"source": "<script>alert(1)</script>", "sha256": "<b>"}}
    y = [[labels[k - 1] if k % 5 == 0 else labels[k] for k in range(len(labels))]] * 3
    page = report_html(model, [HOSTILE] * 3, X, y, title=HOSTILE[0], data=HOSTILE[1])
    root = assert_harmless(page)
    assert "<U+202E>abc" in root.text
    assert "x" * 200 not in root.text  # long ones are cut
    assert HOSTILE[0] in root.text
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e\u2066]", page)
    page.encode("utf-8")


@pytest.mark.usefixtures("no_pictures")
def test_many_labels():
    labels = [f"T{k:02d}" for k in range(60)]
    X = [[[label] for label in labels]]
    model = CRF(l2=1.0, progress=False).fit(X, [labels])
    wrong = [[*labels[1:], labels[0]]]
    page = report_html(model, [labels], X, wrong)
    assert not section(page, "mistakes").all("svg")
    assert len(cells(section(page, "mistakes").all("table")[0])) == 13


def test_ranking_leaves_out_what_has_nothing(crf, data):
    found = gather(
        crf, data.words, data.X, data.y, draws=0, scheme=None, random_state=0, quiet=True
    )
    assert isinstance(found, Contents)
    assert len(least_sure(found, 100)) == 30
    perfect = gather(
        crf,
        data.words,
        data.X,
        crf.predict(data.X),
        draws=0,
        scheme=None,
        random_state=0,
        quiet=True,
    )
    assert most_mistakes(perfect, 5) == surest_mistakes(perfect, 5) == []


@pytest.mark.usefixtures("no_pictures")
def test_written_whole_or_not_at_all(crf, data, tmp_path):
    path = tmp_path / "report.html"
    write_report(path, crf, *data.arguments, sentences=1)
    text = path.read_text(encoding="utf-8")
    assert text == report_html(crf, *data.arguments, sentences=1)
    with (
        mock.patch("bayeseq.report.writing.report_html", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        write_report(path, crf, *data.arguments)
    assert path.read_text(encoding="utf-8") == text
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    with pytest.raises(DataError, match="is a folder"):
        write_report(tmp_path, crf, *data.arguments, sentences=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: ([], [], []), "no token to report on"),
        (lambda d: (d.words, d.X[:3], d.y), "X has 3 sequences, but there are 30"),
        (lambda d: (d.words, d.X, d.y[:3]), "y has 3 sequences, but there are 30"),
        (lambda d: (d.words, d.X, [row[1:] for row in d.y]), "sentence 0 has .* words and"),
        (lambda d: (d.words, d.X, [[3] * len(row) for row in d.y]), "has 3; scores need"),
    ],
)
def test_bad_data(change, message, crf, data):
    with pytest.raises(DataError, match=message):
        report_html(crf, *change(data))


def test_tables_escape_all_but_html():
    found = parsed(table(["<b>", ""], [["<i>", Html("<i>x</i>")]], "<u>"))
    assert [n.tag for n in found.all()] == [
        "div",
        "table",
        "caption",
        "thead",
        "tr",
        "th",
        "td",
        "tbody",
        "tr",
        "th",
        "td",
        "i",
    ]
    assert found.text == "<u><b><i>x"
    assert html("") == ""


def test_pictures_take_the_ink_of_the_page():
    def draw():
        ax = pyplot.subplots()[1]
        ax.plot([0, 1], color="#000000")
        ax.plot([1, 0], color="#0072B2")
        ax.text(0.5, 0.5, 'cell <b> "', color="black")
        ax.set_title("title & more")
        return ax

    one, two = figure("one", 'a "picture"', "<caption>", draw), figure("two", "b", "c", draw)
    root = assert_harmless(f"<div>{one}{two}</div>")
    assert "#000000" not in one
    assert "stroke: currentColor" in one
    assert "stroke: var(--blue)" in one
    assert root.all("svg")[0]["aria-label"] == 'a "picture"'
    assert root.all("figcaption")[0].text == "<caption>"
    assert 'cell <b> "' in root.text
    assert "title & more" in root.text
    assert "<metadata" not in one
    assert figure("one", 'a "picture"', "<caption>", draw) == one
