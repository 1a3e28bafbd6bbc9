"""Comparisons of predictions, against scores written out in loops."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayeseq import DataError
from bayeseq.diagnostics import ece, entity_scores, log_loss, token_error
from bayeseq.diagnostics.comparison import Predictions, compare_predictions

CLASSES = ["B-X", "I-X", "O"]


def drawn(seed, lengths, missing=0.0):
    """True labels and two models' predictions, drawn at random."""
    rng = np.random.default_rng(seed)
    y = [
        [None if rng.random() < missing else str(rng.choice(CLASSES)) for _ in range(n)]
        for n in lengths
    ]
    found = {}
    for name in ("one", "two"):
        proba = [rng.dirichlet(np.ones(3), size=n) for n in lengths]
        labels = [[CLASSES[k] for k in p.argmax(1)] for p in proba]
        found[name] = Predictions(labels, proba, CLASSES, rng.normal(-3, 1, size=len(lengths)))
    return y, found


lengths = st.lists(st.integers(1, 6), min_size=1, max_size=8)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), lengths=lengths, missing=st.sampled_from([0.0, 0.3]))
def test_scores_are_those_of_the_single_models(seed, lengths, missing):
    y, found = drawn(seed, lengths, missing)
    if not any(label is not None for row in y for label in row):
        with pytest.raises(DataError, match="no labelled token"):
            compare_predictions(y, found)
        return
    result = compare_predictions(y, found, bootstrap=10)
    told = [i for i, row in enumerate(y) if any(label is not None for label in row)]
    for name, p in found.items():
        scores = result.scores[name]
        assert scores["token error"] == pytest.approx(token_error(y, p.labels))
        assert scores["log loss"] == pytest.approx(log_loss(y, p.proba, CLASSES))
        assert scores["ECE"] == pytest.approx(ece(y, p.proba, CLASSES))
        assert scores["log density"] == pytest.approx(np.mean(p.log_density[told]))
        if any(None in row for row in y):
            assert "entity F1" not in scores
        else:
            f1 = entity_scores(y, p.labels).overall.f1
            assert scores["entity F1"] == pytest.approx(f1)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), lengths=lengths)
def test_differences_are_those_of_weighed_sentences(seed, lengths):
    """Every draw of the bootstrap by a loop over sentences and tokens."""
    y, found = drawn(seed, lengths)
    result = compare_predictions(y, found, bootstrap=25, level=0.8, random_state=seed)
    draws = np.random.default_rng(seed).standard_exponential((25, len(lengths)))
    for score in ("token error", "log loss", "log density", "entity F1"):
        expected = []
        for w in draws:
            values = {}
            for name, p in found.items():
                above, below = 0.0, 0.0
                for i, row in enumerate(y):
                    if score == "log density":
                        above, below = above + w[i] * p.log_density[i], below + w[i]
                    elif score == "entity F1":
                        one = entity_scores([row], [p.labels[i]]).overall
                        above += w[i] * 2 * one.correct
                        below += w[i] * (one.support + one.predicted)
                    else:
                        for t, label in enumerate(row):
                            own = p.proba[i][t][CLASSES.index(label)]
                            wrong = p.labels[i][t] != label
                            above += w[i] * (wrong if score == "token error" else -np.log(own))
                            below += w[i]
                values[name] = above / below if below else 0.0
            expected.append(values["two"] - values["one"])
        found_ = result.difference("two", score)
        assert (found_.lower, found_.upper) == pytest.approx(np.quantile(expected, [0.1, 0.9]))
        sign = 1 if score in ("log density", "entity F1") else -1
        gains = sign * np.round(expected, 12)
        better = np.mean(gains > 0) + 0.5 * np.mean(gains == 0)
        assert found_.probability_better == pytest.approx(better)
        value = result.scores["two"][score] - result.scores["one"][score]
        assert found_.value == pytest.approx(value)


def test_intervals_have_the_spread_of_sentences():
    """With one token a sentence the standard error of a mean difference is known."""
    rng = np.random.default_rng(0)
    n = 400
    y = [["A"]] * n
    one, two = (Predictions([["AB"[k]] for k in rng.integers(2, size=n)]) for _ in range(2))
    found = compare_predictions(y, {"one": one, "two": two}, bootstrap=4000)
    each = np.array([float(b != a) for a, b in zip(one.labels, two.labels, strict=True)])
    each *= [1 if b == ["B"] else -1 for b in two.labels]
    half = 1.6449 * each.std() / np.sqrt(n)
    got = found.difference("two", "token error")
    assert got.value == pytest.approx(each.mean())
    assert (got.upper - got.lower) / 2 == pytest.approx(half, rel=0.06)


def test_labels_that_one_model_does_not_know():
    y = [["A", "B"], ["C", "A"]]
    p2 = [np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([[0.5, 0.5], [0.6, 0.4]])]
    p3 = [np.full((2, 3), 1 / 3)] * 2
    guess = [["A", "B"], ["A", "A"]]
    found = compare_predictions(
        y, {"two": Predictions(guess, p2, ["A", "B"]), "three": Predictions(guess, p3, list("ABC"))}
    )
    assert (found.tokens, found.unknown) == (4, 1)
    assert found.scores["two"]["token error"] == 0.25
    assert found.scores["two"]["log loss"] == pytest.approx(-np.log([0.9, 0.8, 0.6]).mean())
    assert found.scores["three"]["log loss"] == pytest.approx(np.log(3))
    assert "1 tokens have a label that not every model knows" in found.table()


def test_infinite_losses():
    sure, unsure = [np.array([[1.0, 0.0]])], [np.array([[0.5, 0.5]])]
    models = {
        "sure": Predictions([["A"]], sure, ["A", "B"], np.array([-np.inf])),
        "unsure": Predictions([["B"]], unsure, ["A", "B"], np.array([-0.7])),
        "also": Predictions([["A"]], sure, ["A", "B"], np.array([-np.inf])),
    }
    found = compare_predictions([["B"]], models)
    assert found.difference("unsure", "log loss").value == -np.inf
    assert found.difference("unsure", "log density").probability_better == 1.0
    assert np.isnan(found.difference("also", "log loss").value)
    json.dumps(found.as_dict(), allow_nan=False)


def test_the_table():
    y = [["O", "B-X"], ["O", "O"]]
    p = [np.array([[0.1, 0.9], [0.8, 0.2]]), np.array([[0.2, 0.8]] * 2)]
    good = Predictions(y, p, ["B-X", "O"], np.array([-0.3, -0.4]))
    found = compare_predictions(y, {"<good>": good, "plain": Predictions([["O", "O"]] * 2)})
    first, second = found.table().split("\n\n")[0], found.table().split("\n\n")[2]
    assert first.splitlines() == [
        "model   token error %  entity F1 %  log loss  log density  ECE %",
        "<good>           0.00       100.00    0.1937      -0.3500  17.50",
        "plain           25.00         0.00         -            -      -",
    ]
    assert [line.split()[:3] for line in second.splitlines()[1:]] == [
        ["plain", "token", "error"],
        ["plain", "entity", "F1"],
    ]
    assert str(found) == found.table()
    page = found._repr_html_()
    assert "<td>&lt;good&gt;</td>" in page
    assert page.count("<table>") == 2
    alone = compare_predictions(y, {"good": good})
    assert alone.differences == ()
    assert "differences" not in alone.table()


def test_mistakes():
    y = [["A", "B"]]
    models = {"a": Predictions(y)}
    with pytest.raises(DataError, match="there is no model"):
        compare_predictions(y, {})
    with pytest.raises(ValueError, match="reference is 'b', none of a"):
        compare_predictions(y, models, reference="b")
    with pytest.raises(ValueError, match="level"):
        compare_predictions(y, models, level=1.0)
    with pytest.raises(ValueError, match="bootstrap"):
        compare_predictions(y, models, bootstrap=0)
    with pytest.raises(DataError, match="short: y_pred: sequence 0"):
        compare_predictions(y, {"short": Predictions([["A"]])})
    with pytest.raises(ValueError, match="needs classes"):
        compare_predictions(y, {"a": Predictions(y, [np.eye(2)])})
    with pytest.raises(DataError, match="log_density has shape"):
        compare_predictions(y, {"a": Predictions(y, log_density=np.zeros(3))})
    with pytest.raises(DataError, match="has no label"):
        compare_predictions([["O", None]], {"a": Predictions([["O", "O"]])}, entities=True)
    with pytest.raises(KeyError, match="no difference of 'c'"):
        compare_predictions(y, models).difference("c", "log loss")
