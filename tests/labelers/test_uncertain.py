"""Confidence in entities and sentences, and draws, against enumeration of all labellings."""

import itertools

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

import bayeseq.labelers.base as base
from bayeseq import (
    CRF,
    GPSC,
    GPSL,
    HMM,
    DataError,
    GPStruct,
    HMPerceptron,
    NoPosteriorError,
    tags_to_entities,
    uncertainty,
)
from bayeseq.chain import Chain
from bayeseq.inference.unseen import name_keys, weights_of_names
from bayeseq.labelers import ChainLabeler, FitResult
from bayeseq.labelers.mixture import information
from tests import oracles
from tests.labelers.conformance import easy_task, make

LABEL_SETS = {
    "IOB2": ["B-P", "B-Q", "I-P", "I-Q", "O"],
    "BIOES": ["B-P", "E-P", "I-P", "O", "S-P", "S-Q"],
    "untyped": ["B", "I", "O"],
    "raw": ["I-P", "I-Q", "O"],
    "no outside": ["B-P", "I-P", "S-Q"],
}
MEANINGS = ("exact", "boundaries", "overlap")
CLOSE = {"rtol": 0, "atol": 1e-10}


class Fixed(ChainLabeler):
    """Label scores that are the features times a weight, and transitions: one, or draws of them."""

    def __init__(self, decode="viterbi", scheme=None, draws=0):
        self.decode, self.scheme, self.draws = decode, scheme, draws

    def _learn(self, data):
        C, rng = len(data.labels.classes), np.random.default_rng(self.draws)
        self.weights_ = torch.tensor(rng.normal(1, 0.7, size=(max(self.draws, 1), 1 + C, C)))
        return FitResult((), (), True, 0.0)

    def _scores(self, batch):
        weights = self.weights_ if self.draws else self.weights_[0]
        return self._drawn_chain(batch, weights, 0, None)

    def _require_posterior(self):
        pass

    def _drawn_weights(self, draws, seed):
        rng = np.random.default_rng(seed)
        return torch.tensor(rng.normal(size=(draws, *self.weights_.shape[1:])))

    def _drawn_chain(self, part, weights, seed, noise):
        unary = torch.from_numpy(part.features.toarray()) * weights[..., :1, :]
        return Chain(unary, weights[..., 1:, :], part.layout)

    def _tensors(self):
        return {}

    def _restore(self, tensors):
        raise NotImplementedError

    def potentials(self, x, draw):
        """Scores (T, C) and (T − 1, C, C) of one sequence under one draw."""
        w = draw.numpy()
        return np.asarray(x) * w[0], np.array([w[1:]] * (len(x) - 1)).reshape(-1, *w[1:].shape)


def fixed(labels, draws=0):
    X = [np.eye(len(labels))]
    return Fixed(draws=draws).fit(X, [labels])


def drawn(model, draws, seed):
    """The weights that a call with this seed draws."""
    return model._drawn_weights(draws, int(np.random.default_rng(seed).integers(2**62)))


def says(labels, start, end, label, meaning):
    """Whether a labelling says yes."""
    found = tags_to_entities(labels)
    if meaning == "exact":
        return (start, end, label) in found
    if meaning == "boundaries":
        return (start, end) in [entity[:2] for entity in found]
    return any(e.label == label and e.start < end and start < e.end for e in found)


def entity_probability(distribution, classes, entity, meaning):
    return sum(p for y, p in distribution if says([classes[c] for c in y], *entity, meaning))


@st.composite
def questions(draw, max_labellings=300):
    """A label set, ragged sequences short enough to enumerate, all their spans and some labels."""
    labels = LABEL_SETS[draw(st.sampled_from(sorted(LABEL_SETS)))]
    longest = int(np.log(max_labellings) / np.log(len(labels)))
    lengths = draw(st.lists(st.integers(0, longest), min_size=1, max_size=3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = [2 * rng.normal(size=(n, len(labels))) for n in lengths]
    kinds = sorted({label[2:] for label in labels if label != "O"})
    entities = [
        [
            (start, end, kinds[rng.integers(len(kinds))])
            for start, end in itertools.combinations(range(n + 1), 2)
        ]
        for n in lengths
    ]
    return labels, X, entities


@pytest.mark.parametrize("meaning", MEANINGS)
@pytest.mark.parametrize("draws", [0, 3])
@settings(max_examples=20, deadline=None)
@given(question=questions())
def test_entity_probabilities_equal_enumeration(meaning, draws, question):
    labels, X, entities = question
    model = fixed(labels, draws)
    found = model.entity_proba(X, entities, meaning=meaning)
    for x, row, proba in zip(X, entities, found, strict=True):
        each = [oracles.distribution(*model.potentials(x, w)) for w in model.weights_]
        want = [
            np.mean([entity_probability(p, model.classes_, entity, meaning) for p in each])
            for entity in row
        ]
        np.testing.assert_allclose(proba, want, **CLOSE)


@pytest.mark.parametrize("meaning", MEANINGS)
@settings(max_examples=10, deadline=None)
@given(question=questions(100))
def test_entity_draws_equal_enumeration(meaning, question):
    labels, X, entities = question
    model = fixed(labels)
    found = model.entity_draws(X, entities, 3, random_state=5, meaning=meaning)
    weights = drawn(model, 3, 5)
    for x, row, proba in zip(X, entities, found, strict=True):
        assert proba.shape == (3, len(row))
        for s, w in enumerate(weights):
            p = oracles.distribution(*model.potentials(x, w))
            want = [entity_probability(p, model.classes_, entity, meaning) for entity in row]
            np.testing.assert_allclose(proba[s], want, **CLOSE)


@settings(max_examples=10, deadline=None)
@given(question=questions(100))
def test_what_the_meanings_have_to_do_with_each_other(question):
    labels, X, entities = question
    model = fixed(labels, 2)
    exact, boundaries, overlap = (model.entity_proba(X, entities, meaning=m) for m in MEANINGS)
    for e, b, o in zip(exact, boundaries, overlap, strict=True):
        assert (e <= b + 1e-12).all()
        assert (e <= o + 1e-12).all()
    kinds = sorted({label[2:] for label in labels if label != "O"})
    total = [np.zeros(len(row)) for row in entities]
    for kind in kinds:
        asked = [[(start, end, kind) for start, end, _ in row] for row in entities]
        for i, p in enumerate(model.entity_proba(X, asked)):
            total[i] += p
    for b, t in zip(boundaries, total, strict=True):
        np.testing.assert_allclose(b, t, **CLOSE)


def test_given_labels_are_honoured_by_every_meaning():
    model = fixed(LABEL_SETS["IOB2"])
    X, known = [np.zeros((3, 5))], [["B-P", "I-P", None]]
    candidates = [[(0, 2, "P"), (0, 2, "Q"), (1, 2, "P"), (1, 2, "Q")]]
    exact, boundaries, overlap = (
        model.entity_proba(X, candidates, known, meaning)[0] for meaning in MEANINGS
    )
    longer = model.entity_proba(X, [[(0, 3, "P")]], known)[0][0]
    np.testing.assert_allclose(exact, [1 - longer, 0, 0, 0], **CLOSE)
    np.testing.assert_allclose(boundaries, [1 - longer, 1 - longer, 0, 0], **CLOSE)
    np.testing.assert_allclose(overlap, [1, 0, 1, 0], **CLOSE)


def test_predicted_entities_in_another_meaning():
    model = fixed(LABEL_SETS["IOB2"], 3)
    X = [np.random.default_rng(0).normal(size=(4, 5)), np.zeros((0, 5))]
    for meaning in MEANINGS:
        found = model.predict_entities(X, meaning=meaning)
        spans = [[entity[:3] for entity in row] for row in found]
        assert spans == [tags_to_entities(labels) for labels in model.predict(X)]
        for row, p in zip(found, model.entity_proba(X, spans, meaning=meaning), strict=True):
            assert [entity.score for entity in row] == p.tolist()


def test_a_meaning_nobody_knows_is_refused():
    model = fixed(LABEL_SETS["IOB2"])
    with pytest.raises(ValueError, match="meaning is 'near'; expected one of 'exact', 'bound"):
        model.entity_proba([np.zeros((1, 5))], [[]], meaning="near")
    with pytest.raises(DataError, match=r"sequence 0: entity \(0, 2, 'P'\) does not lie in its 1"):
        model.entity_draws([np.zeros((1, 5))], [[(0, 2, "P")]], 2, meaning="overlap")


# ---- tokens and sentences ---------------------------------------------------------------------


def entropy_of(distribution):
    return -sum(p * np.log(p) for p in distribution.values() if p > 0)


def mixture_of(model, x, weights):
    each = [dict(oracles.distribution(*model.potentials(x, w))) for w in weights]
    mixture = {y: np.mean([p[y] for p in each]) for y in each[0]}
    return each, mixture


@settings(max_examples=15, deadline=None)
@given(question=questions(100))
def test_sentence_uncertainty_equals_enumeration(question):
    labels, X, _ = question
    model = fixed(labels)
    found = model.sentence_uncertainty(X, 50, random_state=3)
    np.testing.assert_allclose(found.total, found.aleatoric + found.epistemic, **CLOSE)
    for i, x in enumerate(X):
        each, mixture = mixture_of(model, x, drawn(model, 50, 3))
        aleatoric = np.mean([entropy_of(p) for p in each])
        assert found.aleatoric[i] == pytest.approx(aleatoric, abs=1e-10)
        apart = entropy_of(mixture) - aleatoric
        # one labelling of each draw: five standard errors, and a little for short tails
        assert abs(found.epistemic[i] - apart) < 5 * found.standard_error[i] + 0.02


def test_the_information_of_many_labellings_is_exact_in_the_limit():
    """20,000 labellings: the error is their standard error, which the enumeration gives."""
    model = fixed(LABEL_SETS["raw"], 4)
    x = np.random.default_rng(1).normal(size=(3, 3))
    batch = model._batch([x], None)
    found, error = information(model._scores(batch), torch.Generator().manual_seed(0), 5000)
    each, mixture = mixture_of(model, x, model.weights_)
    want = entropy_of(mixture) - np.mean([entropy_of(p) for p in each])
    gains = [(p[y] / 4, np.log(p[y] / mixture[y])) for p in each for y in p]
    spread = np.sqrt(sum(p * (gain - want) ** 2 for p, gain in gains) / 20_000)
    assert float(error) == pytest.approx(spread, rel=0.05)
    assert float(found) == pytest.approx(want, abs=4 * spread)
    assert spread < 0.01


def test_the_entropy_of_a_mixture_is_estimated_around_its_value():
    """Of 60 draws, one labelling each: four standard errors."""
    model = fixed(LABEL_SETS["raw"], 60)
    X = [np.random.default_rng(n).normal(size=(n, 3)) for n in (1, 2, 4)]
    found = model.predict_entropy(X)
    for i, x in enumerate(X):
        each, mixture = mixture_of(model, x, model.weights_)
        apart = entropy_of(mixture) - np.mean([entropy_of(p) for p in each])
        gains = [(p[y] / 60, np.log(p[y] / mixture[y])) for p in each for y in p if p[y] > 0]
        error = np.sqrt(sum(p * (gain - apart) ** 2 for p, gain in gains) / 60)
        assert found[i] == pytest.approx(entropy_of(mixture), abs=4 * error)


def test_draws_that_agree_have_nothing_to_learn():
    model = fixed(LABEL_SETS["IOB2"])
    model._drawn_weights = lambda draws, seed: model.weights_.expand(draws, -1, -1)
    X = [np.random.default_rng(0).normal(size=(n, 5)) for n in (3, 0, 1)]
    found = model.sentence_uncertainty(X, 8)
    np.testing.assert_allclose(found.epistemic, 0, **CLOSE)
    np.testing.assert_allclose(found.total, model.predict_entropy(X), **CLOSE)
    tokens = model.predict_uncertainty(X, 8)
    assert [len(row) for row in tokens.total] == [3, 0, 1]
    assert max(row.max(initial=0) for row in tokens.epistemic) < 1e-12


def test_draws_that_are_sure_of_different_labels_differ_by_the_logarithm_of_their_number():
    model = fixed(LABEL_SETS["raw"])
    X = [np.ones((1, 3))]
    sure = torch.zeros(3, 4, 3, dtype=torch.float64)
    sure[:, 0] = 100 * torch.eye(3)
    model._drawn_weights = lambda draws, seed: sure
    found = model.sentence_uncertainty(X, 3)
    np.testing.assert_allclose(found.epistemic, np.log(3), **CLOSE)
    np.testing.assert_allclose(found.aleatoric, 0, atol=1e-10)


X_SMALL = [[["a", "x"], ["b"], ["c"]], [["b"]], [["c"], ["a"], ["a", "b"]], [["b"], ["c", "x"]]]
Y_SMALL = [["B-P", "I-P", "O"], ["B-Q"], ["O", "B-P", "B-Q"], ["B-Q", "I-Q"]]
NEW = [[["b"], ["a", "c"], ["new"]], [["x"]], [], [["c"], ["a"], ["b"], ["c"], ["x"]]]
BAYESIAN = {
    "GPSL": lambda **kw: GPSL(progress=False, **kw),
    "GPSL both sides": lambda **kw: GPSL((-1, 1), progress=False, **kw),
    "GPSL kernel": lambda **kw: GPSL(kernel="rbf(scale=0.3)", progress=False, **kw),
    "GPSC vg": lambda **kw: GPSC(progress=False, draws=8, **kw),
    "GPSC laplace": lambda **kw: GPSC(inference="laplace", progress=False, **kw),
    "GPSC kernel": lambda **kw: GPSC(kernel="rbf(scale=0.3)", progress=False, draws=8, **kw),
    "GPStruct": lambda **kw: make("GPStruct", **kw),
}


@pytest.fixture(scope="module")
def bayesian():
    return {name: build().fit(X_SMALL, Y_SMALL) for name, build in BAYESIAN.items()}


@pytest.mark.parametrize("name", BAYESIAN)
def test_uncertainty_is_that_of_the_posterior_draws(name, bayesian):
    model = bayesian[name]
    given = [[None, "O", None], [{"O", "B-P"}], [], [None] * 5]
    for known in (None, given):
        found = model.predict_uncertainty(NEW, 20, known, random_state=1)
        want = uncertainty(model.posterior_predict(NEW, 20, known, random_state=1))
        for kind in ("total", "aleatoric", "epistemic"):
            for row, expected in zip(getattr(found, kind), getattr(want, kind), strict=True):
                np.testing.assert_allclose(row, expected, **CLOSE)
    assert found.total[0][1] == pytest.approx(0, abs=1e-12)
    assert model.predict_uncertainty(NEW).total[3].shape == (5,)


@pytest.mark.parametrize("name", BAYESIAN)
def test_pieces_change_no_answer(name, bayesian, monkeypatch):
    model = bayesian[name]
    entities = [[(0, len(x), "P")] if x else [] for x in NEW]
    ask = {"draws": 10, "random_state": 2}
    whole = model.posterior_predict(NEW, **ask)
    tokens = model.predict_uncertainty(NEW, **ask)
    spans = model.entity_draws(NEW, entities, **ask)
    sentences = model.sentence_uncertainty(NEW, **ask)
    monkeypatch.setattr(base, "_SCORES_AT_ONCE", 1)
    for found, want in (
        (model.posterior_predict(NEW, **ask), whole),
        (model.predict_uncertainty(NEW, **ask).epistemic, tokens.epistemic),
        (model.entity_draws(NEW, entities, **ask), spans),
        ([model.sentence_uncertainty(NEW, **ask).aleatoric], [sentences.aleatoric]),
    ):
        for row, expected in zip(found, want, strict=True):
            np.testing.assert_allclose(row, expected, **CLOSE)


@pytest.mark.parametrize("name", BAYESIAN)
def test_one_token_sentences_are_tokens(name, bayesian):
    """Where a sentence is one token, its uncertainty is the token's, but for the estimate."""
    model = bayesian[name]
    X = [[["a"]], [["new"]], [["b", "x"]]]
    sentence = model.sentence_uncertainty(X, 100, random_state=0)
    token = model.predict_uncertainty(X, 100, random_state=0)
    for i in range(len(X)):
        assert sentence.aleatoric[i] == pytest.approx(token.aleatoric[i][0], abs=1e-9)
        error = 5 * sentence.standard_error[i] + 0.01
        assert sentence.epistemic[i] == pytest.approx(token.epistemic[i][0], abs=error)


@pytest.mark.parametrize("name", BAYESIAN)
def test_entity_uncertainty_answers_yes_or_no(name, bayesian):
    model = bayesian[name]
    entities = [[(0, 1, "P"), (1, 3, "Q")], [(0, 1, "Q")], [], []]
    draws = model.entity_draws(NEW, entities, 30, random_state=4, unseen=True)
    found = model.entity_uncertainty(NEW, entities, 30, random_state=4)
    for p, total, rest in zip(draws, found.total, found.epistemic, strict=True):
        mean = p.mean(0)
        want = -mean * np.log(mean) - (1 - mean) * np.log(1 - mean)
        np.testing.assert_allclose(total, want, **CLOSE)
        assert (rest >= 0).all()
        assert (rest <= total).all()


def test_mean_of_draws_is_what_an_average_predicts(bayesian):
    """GPStruct averages over all its draws; entities as well as tokens."""
    model = bayesian["GPStruct"]
    n = model.posterior_.n_draws
    entities = [[(0, 1, "P"), (1, 3, "Q")], [(0, 1, "Q")], [], [(2, 5, "P")]]
    for meaning in MEANINGS:
        draws = model.entity_draws(NEW, entities, n, meaning=meaning)
        for p, want in zip(draws, model.entity_proba(NEW, entities, None, meaning), strict=True):
            np.testing.assert_allclose(p.mean(0), want, **CLOSE)
    for p, want in zip(model.posterior_predict(NEW), model.predict_proba(NEW), strict=True):
        np.testing.assert_allclose(p.mean(0), want, **CLOSE)


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (CRF(progress=False), "CRF has no posterior over its weights.*GPSL.*predict_proba"),
        (HMM(), "HMM has no posterior"),
        (HMPerceptron(progress=False), "HMPerceptron has no posterior.*or GPStruct$"),
        (GPSC(inference="map", progress=False), "inference='map' has one set of weights"),
    ],
)
def test_labelers_without_a_posterior_refuse(model, why):
    model.fit(X_SMALL, Y_SMALL)
    entities = [[(0, 1, "P")], [], [], []]
    for ask in (
        lambda: model.predict_uncertainty(NEW),
        lambda: model.sentence_uncertainty(NEW),
        lambda: model.entity_draws(NEW, entities),
        lambda: model.entity_uncertainty(NEW, entities),
    ):
        with pytest.raises(NoPosteriorError, match=why):
            ask()


@pytest.mark.parametrize("name", ["Calibrated", "MarginalizedPerceptron", "Reranker"])
def test_labelers_of_any_other_kind_refuse_too(name):
    with pytest.raises(NoPosteriorError, match=f"{name} has no posterior"):
        make(name).fit(X_SMALL, Y_SMALL).predict_uncertainty(NEW)


def test_dependencies_two_labels_away_have_tokens_and_no_sentences():
    model = GPSL((-2, -1), progress=False).fit(X_SMALL, Y_SMALL)
    assert model.predict_uncertainty(NEW, 5).total[3].shape == (5,)
    with pytest.raises(ValueError, match="predict_uncertainty work with them"):
        model.sentence_uncertainty(NEW, 5)


def test_bad_numbers_of_draws(bayesian):
    for model in bayesian.values():
        with pytest.raises(ValueError, match="draws is 0; it must be at least 1"):
            model.predict_uncertainty(NEW, 0)
    kept = GPStruct(chains=2, draws=3, warmup=2, thin=1, learn=False, progress=False)
    kept.fit(X_SMALL, Y_SMALL)
    assert kept.predict_uncertainty(NEW).total[0].shape == (3,)
    with pytest.raises(ValueError, match="draws is 7, and 6 were kept"):
        kept.predict_uncertainty(NEW, 7)


# ---- features that training never showed ---------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: GPSL(learn=False, progress=False),
        lambda: GPSC(inference="laplace", learn=False, progress=False),
    ],
)
def test_unseen_features_have_their_priors_weights(make):
    model = make().fit(*easy_task(0, 20))
    X = [[["word=00", "hint=0", "word=never"], ["hint=1", "no such group=1"]], [["hint=2"]]]
    without = model.predict_uncertainty(X, 200, random_state=3, unseen=False)
    found = model.predict_uncertainty(X, 200, random_state=3)
    np.testing.assert_array_equal(found.total[1], without.total[1])

    # the same by hand: draws of the scores, and the weights of the name times the group's deviation
    seed = int(np.random.default_rng(3).integers(2**62))
    names = list(model.result_.hyperparameters["variance"])
    sd = torch.exp(model.posterior_.log_variance[names.index("word")] / 2).numpy()
    weights = weights_of_names(name_keys(["word=never"]), 200, 3, seed)[0] * sd
    noise = torch.zeros(200, 2, 3, dtype=torch.float64)
    noise[:, 0] = torch.from_numpy(weights)
    batch = model._batch(X[:1], None)
    drawn = model._drawn_weights(200, seed)
    p = model._drawn_marginals(batch, drawn, seed, noise).numpy()
    expected = uncertainty([p])
    for kind in ("total", "aleatoric", "epistemic"):
        np.testing.assert_allclose(getattr(found, kind)[0], getattr(expected, kind)[0], atol=1e-12)
    assert found.epistemic[0][0] > 1.5 * without.epistemic[0][0]


def test_other_kernels_say_nothing_of_unseen_features():
    model = GPSL(kernel="rbf(scale=0.1)", progress=False).fit(*easy_task(0, 12))
    X = [[["hint=0", "word=never"]]]
    a, b = (model.predict_uncertainty(X, 10, random_state=0, unseen=u) for u in (True, False))
    np.testing.assert_array_equal(a.total[0], b.total[0])
