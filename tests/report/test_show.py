"""Tagged sentences: what is shown is what the model says, and text stays text."""

from __future__ import annotations

import re

import numpy as np
import pytest

from bayeseq import (
    CRF,
    GPSC,
    GPSL,
    Calibrated,
    DataError,
    StructuredSVM,
    TaggedSentence,
    load_dataset,
    show,
    tag_sentences,
    tags_to_entities,
    word_features,
)
from bayeseq.report.escaping import percent
from tests.report.pages import Node, parsed, titled, words_of


@pytest.fixture(scope="module")
def news():
    dataset = load_dataset("newswire")
    words = dataset["train"].tokens[:40], dataset["test"].tokens[:12]
    labels = dataset.labels("train")[:40], dataset.labels("test")[:12]
    return words, [[word_features(w) for w in part] for part in words], labels


@pytest.fixture(scope="module")
def crf(news):
    return CRF(l2=0.1, progress=False).fit(news[1][0], news[2][0])


@pytest.fixture(scope="module")
def gpsc(news):
    model = GPSC(
        inference="laplace",
        prediction="average",
        calibrate=False,
        covariance="diagonal",
        learn=False,
        min_count=3,
        progress=False,
    )
    return model.fit(news[1][0][:25], news[2][0][:25])


def entities(html: str) -> list[Node]:
    """The coloured stretches of the sentences, without those of the legend."""
    return [node for p in parsed(html).all("p") for node in p.all("span", "bq-e")]


def alpha(node: Node) -> float:
    found = re.search(r"background-color:rgba\(\d+,\d+,\d+,([\d.]+)\)", node["style"])
    assert found is not None
    return float(found[1])


def test_strength_of_an_entity_is_its_exact_probability(crf, news):
    (_, words), (_, X), _ = news
    found = entities(show(crf, words, X).html)
    expected = [entity for row in crf.predict_entities(X) for entity in row]
    assert len(found) == len(expected) > 5
    for node, entity in zip(found, expected, strict=True):
        assert alpha(node) == pytest.approx(0.04 + 0.46 * entity.score, abs=6e-4)
        (tag,) = node.all("span", "bq-l")
        assert tag.text == f"{entity.label}\xa0{percent(entity.score)}"
        title = f"exactly these words as {entity.label}: {percent(entity.score)}"
        assert tag["title"] == title
    spelt = [
        words[i][e.start : e.end] for i, row in enumerate(crf.predict_entities(X)) for e in row
    ]
    assert [words_of(node) for node in found] == spelt


def test_all_words_are_there_in_order(crf, news):
    (_, words), (_, X), _ = news
    paragraphs = parsed(show(crf, words, X).html).all("p")
    assert [words_of(p) for p in paragraphs] == words


def test_tooltips_hold_the_most_probable_labels(crf, news):
    (_, words), (_, X), _ = news
    proba = crf.predict_proba(X)
    for p, rows in zip(parsed(show(crf, words, X).html).all("p"), proba, strict=True):
        titles = [node["title"] for node in titled(p)]
        assert len(titles) == len(rows)
        for title, row in zip(titles, rows, strict=True):
            best = np.argsort(-row, kind="stable")[:3]
            lines = [
                f"{crf.classes_[c]} {percent(row[c])}"
                for c in best
                if row[c] >= 0.005 or c == best[0]
            ]
            assert title.split("\n")[: len(lines)] == lines


def test_intervals_and_stripes_come_from_draws(gpsc, news):
    (_, words), (_, X), _ = news
    (words, x) = (words[0], X[0])
    shown = show(gpsc, words, x, draws=60, level=0.8, random_state=3)
    (sentence,) = shown.sentences
    draws = gpsc.posterior_predict([x], 60, random_state=3)[0]
    spans = tags_to_entities(gpsc.predict([x])[0])
    by_entity = gpsc.entity_draws([x], [spans], 60, random_state=3)[0]
    low, high = np.quantile(draws, [0.1, 0.9], axis=0)
    titles = [node["title"] for node in titled(parsed(shown.html).all("p")[0])]
    total = gpsc.predict_uncertainty([x], 60, random_state=3)
    for t, title in enumerate(titles):
        c = int(np.argmax(sentence.proba[t]))
        interval = f"(80% interval {percent(low[t, c])} to {percent(high[t, c])})"
        assert title.split("\n")[0].endswith(interval)
        share = total.epistemic[0][t] / total.total[0][t]
        words_ = f"uncertainty {total.total[0][t]:.2f} nats, {percent(share)} of it epistemic"
        assert title.split("\n")[-1] == words_
    assert spans
    for k, node in enumerate(entities(shown.html)):
        inside = slice(spans[k].start, spans[k].end)
        share = total.epistemic[0][inside].sum() / total.total[0][inside].sum()
        wide = re.search(r"0 ([\d.]+)px,transparent", node["style"])
        assert wide is not None
        assert float(wide[1]) == pytest.approx(7 * share, abs=6e-3)
        ends = np.quantile(by_entity[:, k], [0.1, 0.9])
        (tag,) = node.all("span", "bq-l")
        assert f"80% interval {percent(ends[0])} to {percent(ends[1])}" in tag["title"]


def test_a_model_without_probabilities_shows_none(news):
    (_, words), (X, Z), (y, _) = news
    model = StructuredSVM(tol=0.3, progress=False).fit(X[:15], y[:15])
    shown = show(model, words, Z)
    root = parsed(shown.html)
    assert "No probabilities" in root.text
    assert "No probabilities" in str(shown)
    assert "%" not in root.all("div", "bq-show")[0].text
    assert "%" not in str(shown)
    assert len({alpha(node) for node in entities(shown.html)}) <= 1
    assert all("(no probabilities)" in node["title"] for p in root.all("p") for node in titled(p))


def test_without_probabilities_of_entities_words_stand_for_themselves(crf, news):
    (_, words), (X, Z), (y, _) = news
    model = Calibrated(CRF(l2=0.1, progress=False), cv=2)
    model.fit(X[:20], y[:20])
    shown = show(model, words, Z)
    assert "this model gives none for whole entities" in parsed(shown.html).text
    for sentence, p in zip(shown.sentences, parsed(shown.html).all("p"), strict=True):
        for stretch, node in zip(
            (s for s in sentence.stretches if s.label is not None),
            p.all("span", "bq-e"),
            strict=True,
        ):
            assert "background-color" not in node["style"]
            shades = [alpha(word) for word in node.all("span", "bq-o")]
            own = 0.04 + 0.46 * sentence.confidence[stretch.start : stretch.end]
            np.testing.assert_allclose(shades, own, atol=6e-4)


def test_mistakes_are_underlined_and_corrected(crf, news):
    (_, words), (_, X), (_, y) = news
    html = show(crf, words, X, y).html
    predicted = crf.predict(X)
    for p, row, true, sentence in zip(parsed(html).all("p"), predicted, y, words, strict=True):
        wrong = [w for w, a, b in zip(sentence, row, true, strict=True) if a != b]
        assert [node.text for node in p.all("span", "bq-x")] == wrong
        assert bool(wrong) == bool(p.all("span", "bq-c"))
    assert not parsed(show(crf, words, X).html).all("span", "bq-x")
    partly = [[None] * len(row) for row in y]
    assert not parsed(show(crf, words, X, partly).html).all("span", "bq-x")


def test_true_labels_of_neighbours_are_told_together():
    labels = ["O", "O", "O", "O", "B-A", "I-A", "I-A", "O", "O"]
    truth = ["O", "B-A", "I-A", "I-A", "O", "O", None, "B-B", None]
    sentence = TaggedSentence([*"abcdefghi"], labels, truth=truth)
    assert sentence.corrections == [
        (),
        (),
        (),
        ("B-A", "I-A", "I-A"),
        ("O", "O", None),
        ("B-B",),
        (),
    ]
    root = parsed(show(sentence).html)
    notes = [node.text for node in root.all("p")[0].all("span", "bq-c")]
    assert notes == ["≠ B-A I-A ×2", "≠ O ×2 ?", "≠ B-B"]
    assert [node.text for node in root.all("p")[0].all("span", "bq-x")] == [*"bcdefh"]
    assert str(show(sentence)).startswith(
        "a (b | O ≠ B-A) (c | O ≠ I-A) (d | O ≠ I-A) [e f g | A ≠ O ×2 ?] (h | O ≠ B-B) i\n"
    )


def test_labels_that_spell_no_entities_are_coloured_one_by_one():
    proba = np.array([[0.7, 0.3], [0.2, 0.8]])
    for classes_ in (["DT", "NN"], ["B", "I"]):
        sentence = TaggedSentence(["a", "b"], [classes_[0], classes_[1]], classes_, proba)
        assert not sentence.has_entities
        nodes = entities(show(sentence).html)
        assert [node.all("span", "bq-l")[0].text for node in nodes] == [
            f"{classes_[0]}\xa070%",
            f"{classes_[1]}\xa080%",
        ]
        assert [alpha(node) for node in nodes] == pytest.approx([0.362, 0.408])
        assert str(show(sentence)).startswith(f"a/{classes_[0]}:70% b/{classes_[1]}:80%")
    assert TaggedSentence(["a"], ["O"], ["B", "I", "O"]).has_entities
    assert TaggedSentence(["a"], ["B-NP"], ["B-NP", "I-NP"]).has_entities


def test_colours_stay_the_same_and_repeat_with_other_lines():
    labels = [f"L{k:02d}" for k in range(30)]
    sentence = TaggedSentence(["w"] * 30, labels, labels)
    looks = [re.search(r"border-bottom:(.*)", n["style"])[1] for n in entities(show(sentence).html)]
    assert len(set(looks)) == 24
    alone = TaggedSentence(["w"], ["L07"], labels)
    (node,) = entities(show(alone).html)
    assert node["style"].endswith(looks[7])


def test_plain_text(crf, news):
    sentence = TaggedSentence(
        ["Ann", "Lee", "ran", "home", "."],
        ["B-PER", "I-PER", "O", "O", "O"],
        ["B-PER", "I-PER", "O"],
        [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0, 0, 1], [0.3, 0, 0.7], [0, 0, 1]],
        entity_proba=[0.75],
        truth=["B-PER", "O", "O", "O", None],
    )
    first, _, *key = str(show(sentence)).split("\n")
    assert first == "[Ann Lee | PER 75% ≠ B-PER O] ran (home | O 70%) ."
    assert len(key) == 3
    long = TaggedSentence(["word"] * 100, ["O"] * 100)
    assert max(map(len, str(show(long)).split("\n"))) <= 96
    (_, words), (_, X), _ = news
    assert repr(show(crf, words, X)) == str(show(crf, words, X))


def test_features_come_of_the_words(crf, news):
    (_, words), (_, X), _ = news
    assert show(crf, words).html == show(crf, words, X).html
    assert show(crf, words[0]).html == show(crf, words[:1], X[:1]).html
    other = CRF(progress=False).fit([[["a"], ["b"]]], [["B-PER", "O"]])
    with pytest.raises(DataError, match="none of the features that word_features makes"):
        show(other, ["Ann", "ran"])
    other.metadata_ = {"input": {"features": "U00:%x[0,1]\n", "columns": 2}}
    with pytest.raises(DataError, match="reads 2 columns"):
        show(other, ["Ann", "ran"])


def test_a_saved_template_makes_features():
    model = CRF(progress=False).fit([[["U00:Ann"], ["U00:ran"]]] * 5, [["B-PER", "O"]] * 5)
    model.metadata_ = {"input": {"features": "U00:%x[0,0]\nB\n", "columns": 1}}
    assert show(model, ["ran", "Ann"]).sentences[0].labels == ("O", "B-PER")


def test_gpsl_with_far_dependencies_gives_tokens_only(news):
    (_, words), (X, Z), (y, _) = news
    model = GPSL(
        dependencies=(-2,),
        covariance="diagonal",
        learn=False,
        min_count=4,
        max_iter=3,
        tol=0.1,
        calibrate=False,
        progress=False,
    )
    with pytest.warns(UserWarning, match="max_iter"):
        model.fit(X[:10], y[:10])
    sentences = tag_sentences(model, words[:2], Z[:2], draws=5)
    assert all(s.entity_proba is None and s.draws.shape[0] == 5 for s in sentences)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["a"], ["O", "O"]), "1"),
        (("ab", ["O", "O"]), "a list of words is expected"),
        (([1], ["O"]), "a list of words is expected"),
        ((["a"], ["O"], ["O"], [[0.5]]), "sum to"),
        ((["a"], ["B"], ["O"], [[1.0]]), "'B' is not among the classes"),
        ((["a"], ["O"], ["O"], [[1.0]], [[1.0]]), "draws has shape"),
        ((["a"], ["O"], ["O"], None, [[[1.0]]]), "pass proba"),
        ((["a"], ["B"], ["B", "O"], [[1.0, 0.0]], None, [0.1, 0.2]), "expected 1 prob"),
        ((["a"], ["B"], ["B", "O"], [[1.0, 0.0]], None, [1.2]), "expected 1 prob"),
        (
            (["a"], ["O"], (), None, None, None, None, None, ["O", "O"]),
            "1 words have 2 true labels",
        ),
    ],
)
def test_sentences_that_do_not_fit_together(arguments, message):
    with pytest.raises(DataError, match=message):
        TaggedSentence(*arguments)


def test_bad_arguments(crf, news):
    (_, words), (_, X), _ = news
    with pytest.raises(DataError, match="the text 'Ann ran' is found"):
        show(crf, "Ann ran")
    with pytest.raises(ValueError, match="needs the words"):
        show(crf)
    with pytest.raises(ValueError, match="goes in by itself"):
        show(TaggedSentence(["a"], ["O"]), ["a"])
    with pytest.raises(TypeError, match="tagged sentences, not 3"):
        show([3])
    with pytest.raises(DataError, match="X has 2 sequences, but there are 1"):
        show(crf, words[:1], X[:2])
    with pytest.raises(DataError, match="sentence 0 has 2 words, but X has"):
        show(crf, [["a", "b"]], X[:1])
    with pytest.raises(DataError, match="words, but y has 1 labels"):
        show(crf, words[:1], X[:1], [["O"]])
    with pytest.raises(ValueError, match="level is 2"):
        show(crf, words[:1], X[:1], level=2)


def test_nothing_to_show(crf):
    assert "(no token)" in parsed(show(crf, []).html).text
    assert "(no token)" in str(show(crf, []))
