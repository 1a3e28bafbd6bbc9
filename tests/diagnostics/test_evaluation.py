"""The joined record, its JSON form, and the tables."""

import json
import math

import numpy as np
import pytest

from bayeseq.data.errors import DataError
from bayeseq.diagnostics import (
    comparison_table,
    entity_scores,
    evaluate,
    probability_scores,
    reliability,
    risk_coverage,
    sequence_accuracy,
    token_error,
)

CLASSES = ["B-PER", "I-PER", "O"]


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 9, size=30)
    proba = [rng.dirichlet([0.5] * 3, size=t) for t in lengths]
    y_true = [[CLASSES[k] for k in rng.integers(3, size=t)] for t in lengths]
    y_pred = [[CLASSES[k] for k in rng.integers(3, size=t)] for t in lengths]
    return y_true, y_pred, proba


def test_record_joins_the_functions(data):
    y_true, y_pred, proba = data
    options = {"bootstrap": 50, "level": 0.8, "random_state": 3}
    result = evaluate(*data, CLASSES, mode="strict", scheme="IOB2", bins=6, **options)
    assert result.sequences == 30
    assert result.tokens == sum(map(len, y_true))
    assert result.token_error == token_error(y_true, y_pred)
    assert result.sequence_accuracy == sequence_accuracy(y_true, y_pred)
    assert result.entities == entity_scores(y_true, y_pred, mode="strict", scheme="IOB2")
    assert result.probabilities == probability_scores(
        y_true, proba, CLASSES, bins=6, random_state=3
    )
    risk = risk_coverage(y_true, proba, CLASSES, y_pred=y_pred, **options)
    assert result.risk_coverage.error == pytest.approx(result.token_error)
    np.testing.assert_array_equal(result.risk_coverage.risk, risk.risk)
    np.testing.assert_array_equal(result.risk_coverage.upper, risk.upper)
    curve = reliability(y_true, proba, CLASSES, bins=6, **options)
    np.testing.assert_array_equal(result.reliability.accuracy, curve.accuracy)
    np.testing.assert_array_equal(result.reliability.upper, curve.upper)
    assert result.reliability.ece == result.probabilities.ece


def test_dict_survives_json(data):
    result = evaluate(*data, CLASSES)
    text = json.dumps(result.as_dict(), allow_nan=False)
    found = json.loads(text)
    assert found == result.as_dict()
    assert found["entities"]["overall"]["f1"] == result.entities.overall.f1
    assert found["entities"]["by_label"]["PER"]["support"] == result.entities.overall.support
    assert found["probabilities"]["log_loss"] == result.probabilities.log_loss
    assert found["risk_coverage"]["risk"][-1] == pytest.approx(result.token_error)
    assert found["reliability"]["counts"] == result.reliability.counts.tolist()
    assert found["reliability"]["accuracy"][0] is None  # no confidence below 1/3 among 3 labels


def test_infinite_loss_is_written_in_words(data):
    y_true, y_pred, _ = data
    sure = [np.eye(3)[[CLASSES.index(label) for label in labels]] for labels in y_pred]
    result = evaluate(y_true, y_pred, sure, CLASSES)
    assert result.probabilities.log_loss == math.inf
    assert result.as_dict()["probabilities"]["log_loss"] == "Infinity"
    json.dumps(result.as_dict(), allow_nan=False)


def test_model_without_probabilities(data):
    y_true, y_pred, _ = data
    result = evaluate(y_true, y_pred)
    assert result.probabilities is result.risk_coverage is result.reliability is None
    assert result.as_dict()["probabilities"] is None
    assert "log loss" not in str(result)
    assert "entity scores" in str(result)


def test_unknown_and_missing_labels_are_counted():
    result = evaluate([["NN", "XX", None]], [["NN", "NN", "NN"]], [[[1.0, 0.0]] * 3], ["NN", "VB"])
    assert result.tokens == 2
    assert result.token_error == result.risk_coverage.error == 0.5
    assert (result.probabilities.tokens, result.probabilities.unknown) == (1, 1)
    lines = [line.rsplit(maxsplit=1) for line in result.table().splitlines()]
    assert ["tokens with a label unknown to the model", "1"] in lines


@pytest.mark.parametrize(
    ("labels", "tags"),
    [
        (["B-PER", "I-PER", "O"], True),
        (["B", "I"], True),
        (["O"], True),
        (["S-x", "U-x", "O"], True),
        (["NN", "VB", "O"], False),
        (["B-PER", "NN"], False),
        (["0", "1"], False),
    ],
)
def test_auto_scores_entities_of_tags_only(labels, tags):
    assert (evaluate([labels], [labels]).entities is not None) == tags
    assert evaluate([labels], [labels], entities=False).entities is None
    if not tags:
        with pytest.raises(DataError, match=r"is not a tag.*entities=False"):
            evaluate([labels], [labels], entities=True)


def test_holes_in_tags_ask_for_a_decision():
    y_true, y_pred = [["B-PER", None]], [["B-PER", "O"]]
    with pytest.raises(DataError, match=r"sequence 0, token 1 .*entities=False"):
        evaluate(y_true, y_pred)
    assert evaluate(y_true, y_pred, entities=False).token_error == 0


def test_wrong_options_are_named():
    with pytest.raises(ValueError, match="proba needs classes"):
        evaluate([["O"]], [["O"]], [[[1.0]]])
    with pytest.raises(ValueError, match="entities must be"):
        evaluate([["O"]], [["O"]], entities="maybe")
    with pytest.raises(DataError, match="y_pred has 0 sequences"):
        evaluate([["O"]], [])


def test_table_states_every_score():
    proba = [[[0.75, 0.25], [1.0, 0.0]]]
    result = evaluate([["B-PER", "O"]], [["B-PER", "B-PER"]], proba, ["B-PER", "O"], bins=2)
    # One bin: confidence 7/8, accuracy 1/2. The surest token is wrong.
    assert result.table().split("\n\n")[0] == (
        "sequences                              1\n"
        "tokens scored                          2\n"
        "token error %                      50.00\n"
        "sequence accuracy %                 0.00\n"
        "log loss                             inf\n"
        "Brier score                       1.0625\n"
        "ECE %                              37.50\n"
        f"ECE % from noise alone             {100 * result.probabilities.ece_floor:.2f}\n"
        "calibration error %, debiased          -\n"
        "sharpness                         0.8125\n"
        "AURC                              0.7500\n"
        "AURC of a perfect ranking         0.2500\n"
        "token error % of the surest 90 %   55.56"
    )


def test_probabilities_of_entities_are_judged_too():
    y_true, y_pred = [["B-PER", "O"], ["O"]], [["B-PER", "B-PER"], ["O"]]
    scored = [[(0, 1, "PER", 0.9), (1, 2, "PER", 0.7)], []]
    result = evaluate(y_true, y_pred, scored_entities=scored, bins=1, bootstrap=5)
    assert result.entity_reliability.ece == pytest.approx(0.3)  # half right, 80 % sure
    assert ["ECE % of entities", "30.00"] in [
        line.rsplit(maxsplit=1) for line in result.table().splitlines()
    ]
    assert result.as_dict()["entity_reliability"]["counts"] == [2]
    assert evaluate(y_true, y_pred, scored_entities=[[], []]).entity_reliability is None
    assert evaluate(y_true, y_pred).as_dict()["entity_reliability"] is None


def test_comparison_aligns_models_and_marks_what_is_absent():
    proba = [[[0.75, 0.25], [0.6, 0.4]]]
    y_true, y_pred = [["B-PER", "O"]], [["B-PER", "B-PER"]]
    full = evaluate(y_true, y_pred, proba, ["B-PER", "O"], bins=2)
    bare = evaluate(y_true, y_true)
    text = comparison_table({"Bayesian": full, "svm": bare}, seconds={"svm": 12.345})
    assert text == (
        "model     token error %  entity F1 %  log loss  ECE %    AURC  seconds\n"
        "Bayesian          50.00        66.67    0.6020  17.50  0.2500        -\n"
        "svm                0.00       100.00         -      -       -     12.3\n"
        "entity F1: conlleval reading of the tags"
    )
    words = evaluate([["NN"]], [["NN"]])
    assert comparison_table({"svm": words}) == "model  token error %\nsvm             0.00"


def test_comparison_refuses_mixed_readings_and_nothing():
    lenient = evaluate([["B-PER"]], [["B-PER"]])
    strict = evaluate([["B-PER"]], [["B-PER"]], mode="strict", scheme="IOB2")
    with pytest.raises(DataError, match="conlleval, strict IOB2"):
        comparison_table({"one": lenient, "two": strict})
    with pytest.raises(DataError, match="nothing to compare"):
        comparison_table({})
