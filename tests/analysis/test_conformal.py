"""Conformal sets and entity candidates of fitted labelers."""

import numpy as np
import pytest

from bayeseq import (
    CRF,
    Calibrated,
    DataError,
    StructuredSVM,
    load_dataset,
    tags_to_entities,
    word_features,
)
from bayeseq.analysis.conformal import Conformal, ConformalEntities
from bayeseq.diagnostics import calibrate_sets, conformal_threshold, score_sets
from bayeseq.labelers import NoProbabilitiesError


@pytest.fixture(scope="module")
def news():
    data = load_dataset("newswire")
    X = [word_features(words) for part in ("train", "test") for words in data[part].tokens]
    y = [list(labels) for part in ("train", "test") for labels in data.labels(part)]
    return CRF().fit(X[:100], y[:100]), X[100:], y[100:]


def test_sets_are_those_of_the_threshold(news):
    crf, X, y = news
    wrapper = Conformal(crf, alpha=0.02).calibrate(X[:200], y[:200])
    record = calibrate_sets(y[:200], crf.predict_proba(X[:200]), list(crf.classes_), alpha=0.02)
    assert wrapper.sets_ == record
    sets = wrapper.predict_sets(X[200:])
    for rows, row in zip(crf.predict_proba(X[200:]), sets, strict=True):
        for p, found in zip(rows, row, strict=True):
            inside = set(crf.classes_[1 - p <= record.threshold]) | {crf.classes_[p.argmax()]}
            assert found == inside
    assert wrapper.evaluate(X[200:], y[200:]) == score_sets(y[200:], sets)
    allowed = crf.predict(X[200:205], given=sets[:5])  # sets are what `given` takes
    assert all(
        a in s for r, t in zip(allowed, sets, strict=False) for a, s in zip(r, t, strict=True)
    )


def test_whole_sentences_and_aps(news):
    crf, X, y = news
    wrapper = Conformal(crf, alpha=0.2, guarantee="sentence", score="aps", random_state=3)
    wrapper.calibrate(X[:200], y[:200])
    assert wrapper.predict_sets(X[200:]) == wrapper.predict_sets(X[200:])
    found = wrapper.evaluate(X[200:], y[200:])
    assert found.lower - 0.1 < 0.8 < found.upper + 0.1
    assert found.guarantee == "sentence"


def test_candidates_hold_the_entities_of_the_drawn_labellings(news):
    crf, X, _ = news
    found = ConformalEntities(crf, draws=5, random_state=3).candidates(X[:20])
    drawn = crf.sample_labels(X[:20], 5, random_state=np.random.default_rng([3, 1]))
    for x, labellings, row in zip(X, drawn, found, strict=False):
        tags = [crf.predict([x])[0], *labellings]
        spans = {tuple(entity) for labels in tags for entity in tags_to_entities(labels)}
        assert {entity[:3] for entity in row} == spans
        expected = crf.entity_proba([x], [[e[:3] for e in row]])[0]
        np.testing.assert_allclose([e.score for e in row], expected)
        assert [e.score for e in row] == sorted((e.score for e in row), reverse=True)


@pytest.mark.parametrize("guarantee", ["entity", "sentence"])
def test_entities_are_missed_as_seldom_as_promised(news, guarantee):
    """Over random divisions of the same sentences, whose candidates are found once."""
    crf, X, y = news
    found = ConformalEntities(crf).candidates(X)
    proba = [{e[:3]: e.score for e in row} for row in found]
    scores = [
        np.array([-p.get(tuple(e), -np.inf) for e in tags_to_entities(labels)])
        for p, labels in zip(proba, y, strict=True)
    ]
    scores = [row for row in scores if len(row)]
    rng, covered = np.random.default_rng(0), []
    alpha, unit = (0.1, "token") if guarantee == "entity" else (0.3, "sentence")
    for _ in range(200):
        order = rng.permutation(len(scores))
        threshold = conformal_threshold([scores[i] for i in order[:200]], alpha, unit)
        hits = [scores[i] <= threshold for i in order[200:]]
        covered.append(np.mean([np.mean(h) if unit == "token" else h.all() for h in hits]))
    noise = 3 * np.std(covered, ddof=1) / np.sqrt(200)
    assert 1 - alpha - noise <= np.mean(covered) <= 1 - alpha + 2 / 201 + noise


def test_entities_evaluate_by_loops(news):
    crf, X, y = news
    wrapper = ConformalEntities(crf, alpha=0.2).calibrate(X[:200], y[:200])
    found = wrapper.evaluate(X[200:], y[200:])
    given = [{tuple(e[:3]) for e in row} for row in wrapper.predict_entities(X[200:])]
    truth = [{tuple(e) for e in tags_to_entities(labels)} for labels in y[200:]]
    shares = [len(t & g) / len(t) for t, g in zip(truth, given, strict=True) if t]
    right = sum(len(t & g) for t, g in zip(truth, given, strict=True))
    assert found.coverage == pytest.approx(np.mean(shares))
    assert found.pooled == pytest.approx(right / sum(map(len, truth)))
    assert found.precision == pytest.approx(right / sum(map(len, given)))
    assert found.per_sentence == pytest.approx(np.mean([len(g) for g in given]))
    assert (found.sentences, found.entities) == (len(shares), sum(map(len, truth)))
    assert all(e.score >= wrapper.threshold_ for r in wrapper.predict_entities(X[:9]) for e in r)


def test_what_cannot_be_promised_is_refused(news):
    crf, X, y = news
    with pytest.raises(DataError, match="needs at least 99 calibration sentences"):
        Conformal(crf, alpha=0.01).calibrate(X[:50], y[:50])
    with pytest.raises(DataError, match="take more candidates"):
        ConformalEntities(crf, alpha=0.02, draws=1).calibrate(X, y)
    with pytest.raises(ValueError, match="calibrate"):
        Conformal(crf).predict_sets(X[:1])
    with pytest.raises(ValueError, match="calibrate"):
        ConformalEntities(crf).predict_entities(X[:1])
    with pytest.raises(ValueError, match='"entity" or "sentence"'):
        ConformalEntities(crf, guarantee="token").calibrate(X, y)
    with pytest.raises(DataError, match=r"sequence 1 \(from 0\)"):
        ConformalEntities(crf).calibrate(X[:2], [y[0], [None] * len(y[1])])
    with pytest.raises(NoProbabilitiesError, match="Calibrated"):
        Conformal(StructuredSVM()).calibrate(X, y)
    with pytest.raises(ValueError, match="entity_proba"):
        ConformalEntities(Calibrated(crf, cv=None).fit(X[:20], y[:20])).candidates(X[:1])
