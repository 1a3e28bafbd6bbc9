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
    DataError,
    evaluate,
    report_html,
    write_report,
)
from bayeseq.report.contents import Contents, gather, least_sure, most_mistakes, surest_mistakes
from bayeseq.report.page import Html, html, table
from bayeseq.report.pictures import figure
from tests.report.pages import assert_harmless, cells, parsed, section, sections, words_of


@pytest.fixture(scope="module")
def crf_page(crf, data):
    return report_html(crf, *data.arguments, data="the test part")


@pytest.fixture(scope="module")
def gpsc_page(gpsc, data):
    return report_html(gpsc, *data.arguments, draws=30)


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
