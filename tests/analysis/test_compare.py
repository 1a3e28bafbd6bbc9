"""Labelers of all kinds side by side."""

import numpy as np
import pytest

from bayeseq import CRF, GPSL, HMM, DataError, compare
from bayeseq.diagnostics import evaluate
from tests.labelers.conformance import NEW, X, Y, make

FAMILIES = ["CRF", "HMM", "MEMM", "GPSC", "GPSL", "GPStruct", "Calibrated", "HMSVM"]
TRUE = [["B", "I", "O"], ["O"], ["O", "B", "O", "O", "O"]]


@pytest.fixture(scope="module")
def models():
    return {name: make(name).fit(X, Y) for name in FAMILIES}


def test_every_family_is_compared(models):
    found = compare(models, NEW, TRUE, bootstrap=50, reference="CRF")
    assert list(found.scores) == FAMILIES
    for name, model in models.items():
        scores, proba = found.scores[name], None
        if model.has_probabilities:
            proba = model.predict_proba(NEW)
        alone = evaluate(TRUE, model.predict(NEW), proba, model.classes_.tolist(), bootstrap=0)
        assert scores["token error"] == alone.token_error
        assert scores["entity F1"] == alone.entities.overall.f1
        assert ("log loss" in scores) == model.has_probabilities
        if alone.probabilities is not None:
            assert scores["log loss"] == pytest.approx(alone.probabilities.log_loss)
            assert scores["ECE"] == pytest.approx(alone.probabilities.ece)
        if "log density" in scores:
            expected = np.mean(model.log_likelihood(NEW, TRUE))
            assert scores["log density"] == pytest.approx(expected)
        if name != "CRF":
            assert found.difference(name, "token error").reference == "CRF"
    assert "log density" in found.scores["GPStruct"]
    assert "log density" not in found.scores["Calibrated"]
    assert "log loss" not in found.scores["HMSVM"]


def test_labels_of_one_model_only(models):
    other = HMM().fit([[["w=Rex"], ["w=sees"]]], [["B", "V"]])
    found = compare({"crf": models["CRF"], "hmm": other}, NEW, TRUE, bootstrap=50)
    assert found.unknown == 7  # every I and O
    assert found.scores["crf"]["token error"] < 1
    assert np.isfinite(found.scores["hmm"]["log loss"])


def test_names_of_a_list(models):
    found = compare([models["CRF"], models["HMM"], models["CRF"]], NEW, TRUE, bootstrap=5)
    assert list(found.scores) == ["CRF 1", "HMM", "CRF 2"]
    assert found.reference == "CRF 1"
    assert found.difference("CRF 2", "log loss").probability_better == 0.5


def test_far_dependencies_have_no_density():
    model = GPSL((-2, -1), progress=False, learn=False).fit(X, Y)
    assert "log density" not in compare([model], NEW, TRUE).scores["GPSL"]


def test_mistakes(models):
    with pytest.raises(TypeError, match="give a list of labelers"):
        compare(models["CRF"], NEW, TRUE)
    with pytest.raises(DataError, match="models is empty"):
        compare([], NEW, TRUE)
    with pytest.raises(ValueError, match="CRF is not fitted"):
        compare([CRF()], NEW, TRUE)
    with pytest.raises(DataError, match="y has 2"):
        compare([models["CRF"]], NEW, TRUE[:2])
