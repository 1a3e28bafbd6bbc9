"""Pages about every labeler, and about data that lack something."""

from __future__ import annotations

import re
from unittest import mock

import pytest

from bayeseq import (
    CRF,
    LABELERS,
    DataError,
    GPStruct,
    StructuredSVM,
    evaluate,
    load,
    report_html,
    show,
)
from bayeseq.diagnostics import review_budget
from tests.labelers.conformance import X as SEQUENCES
from tests.labelers.conformance import Y as LABELS
from tests.labelers.conformance import make
from tests.report.pages import (
    HOSTILE,
    assert_harmless,
    cells,
    parsed,
    section,
    sections,
    words_of,
)


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
