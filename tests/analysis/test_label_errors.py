"""Planted label errors are found, by labelers that did not see the sentence."""

import numpy as np
import pytest

from bayeseq import CRF, HMM, StructuredSVM, load_dataset, word_features
from bayeseq.analysis.label_errors import label_errors, out_of_fold_proba
from bayeseq.labelers import NoProbabilitiesError
from tests.labelers.conformance import easy_task


@pytest.fixture(scope="module")
def planted():
    """The 300 sentences of newswire, in which 100 of 5214 tokens got another label."""
    news = load_dataset("newswire")
    X = [word_features(words) for words in news["train"].tokens]
    y = [list(labels) for labels in news.labels("train")]
    classes = sorted({label for labels in y for label in labels})
    rng = np.random.default_rng(1)
    places = [(i, t) for i, labels in enumerate(y) for t in range(len(labels))]
    wrong = {places[k] for k in rng.choice(len(places), 100, replace=False)}
    for i, t in wrong:
        y[i][t] = rng.choice([label for label in classes if label != y[i][t]])
    return X, y, wrong


def test_planted_errors_come_first(planted):
    X, y, wrong = planted
    found = label_errors(CRF(), X, y)
    first = set(zip(found.sequence[:100].tolist(), found.token[:100].tolist(), strict=True))
    assert len(first & wrong) >= 75  # by chance: 2
    flagged = set(zip(found.sequence[found.flagged], found.token[found.flagged], strict=True))
    assert len(flagged) < 150
    assert len(flagged & wrong) >= 60
    bad = {i for i, _ in wrong}
    assert len(bad & set(found.worst_sequences[: len(bad)].tolist())) >= 0.75 * len(bad)


def test_each_sentence_is_judged_by_a_labeler_that_did_not_see_it():
    X, y = easy_task(0, 12)
    found = out_of_fold_proba(HMM(), X, y, folds=3, random_state=7)
    fold = np.random.default_rng(7).permutation(12) % 3
    for k in range(3):
        others = np.flatnonzero(fold != k)
        model = HMM().fit([X[i] for i in others], [y[i] for i in others])
        assert tuple(model.classes_) == found.classes
        for i in np.flatnonzero(fold == k):
            np.testing.assert_array_equal(found.proba[i], model.predict_proba([X[i]])[0])
    given = CRF()
    label_errors(given, X, y, folds=2)
    assert not hasattr(given, "classes_")


def test_labels_of_one_fold_only_are_listed_and_not_ranked():
    X = [[["a"], ["b"]]] * 6
    y = [["A", "B"], ["A", "typo"], ["A", None], ["A", {"A", "B"}], ["A", "B"], ["A", "B"]]
    found = label_errors(CRF(l2=0.1), X, y, folds=3)
    assert found.unjudged == ((1, 1),)
    ranked = set(zip(found.sequence.tolist(), found.token.tolist(), strict=True))
    assert ranked == {(i, t) for i in range(6) for t in range(2)} - {(1, 1), (2, 1), (3, 1)}


def test_bad_questions_are_refused():
    X, y = easy_task(0, 4)
    with pytest.raises(ValueError, match="folds is 5"):
        label_errors(CRF(), X, y, folds=5)
    with pytest.raises(NoProbabilitiesError, match="Calibrated"):
        label_errors(StructuredSVM(), X, y)
