"""Everything a chain answers, against enumeration with potentials read off the fitted models."""

import itertools
import math

import numpy as np
import pytest
import torch

import bayeseq.labelers.base as base
from bayeseq import LABELERS, DataError, ScoredEntity, convert_tags, validate_tags
from bayeseq.labelers import ChainLabeler
from tests import oracles
from tests.labelers.conformance import assert_same, make

CLOSE = {"rtol": 0, "atol": 1e-9}
# Those whose answers are one chain's: margins have no probabilities, and GPStruct's are a mixture's
# (tests/labelers/test_gpstruct.py).
NAMES = sorted(
    name
    for name, cls in LABELERS.items()
    if issubclass(cls, ChainLabeler) and cls.has_probabilities and name != "GPStruct"
)

X = [
    [["a", "x"], {"b": 1.0, "y": 0.5}, ["c"]],
    [["b"]],
    [["c", "c"], ["a"], ["a", "b"], ["c"]],
    [["b", "y"], ["c", "x"]],
    [["a"], ["c"], ["b"]],
    [["c"], ["b"], ["c", "y"], ["a"]],
]
Y = [
    ["B-P", "I-P", "O"],
    ["B-Q"],
    ["O", "B-P", "B-Q", "O"],
    ["B-Q", "I-Q"],
    ["B-P", "O", "B-P"],
    ["O", "B-Q", "I-Q", "O"],
]
CLASSES = ["B-P", "B-Q", "I-P", "I-Q", "O"]
NEW = [
    [["b"], ["a", "c"], ["y"]],
    [["x"]],
    [["c"], ["never seen"], {"a": 2.0, "y": 0.25}, []],
    [["y", "b"], ["y"]],
]
GIVEN = [
    [None, {"O", "I-P"}, "O"],
    [None],
    [("O", "B-P"), None, "I-P", None],
    ["B-Q", None],
]


# ---- the models, written again ----------------------------------------------------------------


def values(token):
    """Feature → value of one token."""
    if isinstance(token, dict):
        return token
    return {feature: token.count(feature) for feature in token}


def linear_scores(model, x):
    """Label scores (T, C) and label-pair scores (C, C) from the published weights."""
    states, transitions = model.state_features_, model.transition_features_
    unary = np.zeros((len(x), len(CLASSES)))
    for t, token in enumerate(x):
        for feature, value in values(token).items():
            unary[t] += [value * states.get((feature, label), 0.0) for label in CLASSES]
    return unary, np.array([[transitions.get((a, b), 0.0) for b in CLASSES] for a in CLASSES])


def crf_potentials(model, x):
    unary, transitions = linear_scores(model, x)
    return unary, np.array([transitions] * (len(x) - 1)).reshape(-1, 5, 5)


def memm_potentials(model, x):
    scores, transitions = linear_scores(model, x)
    unary, pairs = np.zeros_like(scores), np.zeros((len(x) - 1, 5, 5))
    unary[0] = scores[0] - math.log(sum(math.exp(s) for s in scores[0]))
    for t in range(1, len(x)):
        for a in range(5):
            into = transitions[a] + scores[t]
            pairs[t - 1, a] = into - math.log(sum(math.exp(s) for s in into))
    return unary, pairs


def hmm_potentials(model, x):
    column = {feature: d for d, feature in enumerate(model.feature_space_.names)}
    unary = np.zeros((len(x), 5))
    for t, token in enumerate(x):
        for feature, value in values(token).items():
            if feature in column:
                unary[t] += value * model.log_emissions_[:, column[feature]]
    unary[0] += model.log_initial_
    return unary, np.array([model.log_transitions_] * (len(x) - 1)).reshape(-1, 5, 5)


def gpsl_potentials(model, x):
    """Each label given the one before it, with the posterior's means, weighed by the scales."""
    column = {feature: d for d, feature in enumerate(model.feature_space_.names)}
    mean = model.posterior_.mean.numpy()
    g = mean[len(column) :] * model.scales_.dependency
    scores = np.zeros((len(x), 5))
    for t, token in enumerate(x):
        for feature, value in values(token).items():
            if feature in column:
                scores[t] += value * mean[column[feature]] * model.scales_.local
    unary, pairs = np.zeros_like(scores), np.zeros((len(x) - 1, 5, 5))
    unary[0] = scores[0] - math.log(sum(math.exp(s) for s in scores[0]))
    for t in range(1, len(x)):
        for a in range(5):
            into = g[a] + scores[t]
            pairs[t - 1, a] = into - math.log(sum(math.exp(s) for s in into))
    return unary, pairs


def sparse_gpsc_potentials(model, x):
    """(x·z + 1)² with each point z, times what the point weighs."""
    column = {feature: d for d, feature in enumerate(model.feature_space_.names)}
    unary = np.zeros((len(x), 5))
    for t, token in enumerate(x):
        for z, weight in zip(model.points_.toarray(), model.coefficients_, strict=True):
            known = {column[f]: v for f, v in values(token).items() if f in column}
            unary[t] += (sum(v * z[d] for d, v in known.items()) + 1) ** 2 * weight
    return unary, np.array([model.transitions_] * (len(x) - 1)).reshape(-1, 5, 5)


def gpsc_potentials(model, x):
    """The posterior's mean."""
    column = {feature: d for d, feature in enumerate(model.feature_space_.names)}
    mean = model.posterior_.mean.numpy()
    unary = np.zeros((len(x), 5))
    for t, token in enumerate(x):
        for feature, value in values(token).items():
            if feature in column:
                unary[t] += value * mean[column[feature]]
    return unary, np.array([mean[len(column) :]] * (len(x) - 1)).reshape(-1, 5, 5)


# A new chain labeler adds a line: how its documented attributes make potentials.
POTENTIALS = {
    "CRF": crf_potentials,
    "GPSC": gpsc_potentials,
    "GPSL": gpsl_potentials,
    "HMM": hmm_potentials,
    "MEMM": memm_potentials,
    "SparseGPSC": sparse_gpsc_potentials,
}


def continues(a, b):
    """Whether tag b right after tag a is the same entity, for tags of IOB2."""
    return b[0] == "I" and a != "O" and a[1:] == b[1:]


def potentials(model, x, given=None):
    """The potentials of one sequence under the model's scheme and what is given."""
    unary, pairs = (part.copy() for part in POTENTIALS[type(model).__name__](model, x))
    if model.scheme is not None:
        for (i, a), (j, b) in itertools.product(enumerate(CLASSES), repeat=2):
            if b[0] == "I" and not continues(a, b):
                pairs[:, i, j] = -np.inf
        unary[0, [c for c, label in enumerate(CLASSES) if label[0] == "I"]] = -np.inf
    for t, label in enumerate(given or []):
        allowed = CLASSES if label is None else [label] if isinstance(label, str) else label
        unary[t, [c for c, name in enumerate(CLASSES) if name not in allowed]] = -np.inf
    return unary, pairs


def numbers(labels):
    return tuple(CLASSES.index(label) for label in labels)


@pytest.fixture(scope="module")
def models():
    return {
        (name, scheme): make(name, scheme=scheme).fit(X, Y)
        for name in NAMES
        for scheme in (None, "IOB2")
    }


@pytest.fixture(params=[(n, s) for n in NAMES for s in (None, "IOB2")], ids=lambda p: f"{p}")
def model(request, models):
    found = models[request.param]
    assert found.classes_.tolist() == CLASSES
    return found


def cases(given):
    return list(zip(NEW, given or [None] * len(NEW), strict=True))


both = pytest.mark.parametrize("given", [None, GIVEN], ids=["free", "given"])


# ---- answers against enumeration --------------------------------------------------------------


@both
def test_probabilities(model, given):
    expected = [oracles.marginals(*potentials(model, x, g))[0] for x, g in cases(given)]
    assert_same(model.predict_proba(NEW, given), expected, 1e-9)


@both
def test_best_labelling(model, given):
    for found, (x, g) in zip(model.predict(NEW, given), cases(given), strict=True):
        scores = dict(oracles.possible(*potentials(model, x, g)))
        assert scores[numbers(found)] == pytest.approx(max(scores.values()), abs=1e-9)


@both
@pytest.mark.parametrize("n", [1, 4, 10_000])
def test_n_best_labellings(model, given, n):
    for found, (x, g) in zip(model.predict_nbest(NEW, n, given), cases(given), strict=True):
        expected = oracles.distribution(*potentials(model, x, g))
        by_labelling = dict(expected)
        assert len(found) == min(n, len(expected))
        assert len({numbers(labelling) for labelling, _ in found}) == len(found)
        for (labelling, probability), (_, p) in zip(found, expected, strict=False):
            assert probability == pytest.approx(p, abs=1e-10)
            assert probability == pytest.approx(by_labelling[numbers(labelling)], abs=1e-10)
        if n == 10_000:
            assert sum(probability for _, probability in found) == pytest.approx(1, abs=1e-9)


@both
def test_entropy(model, given):
    expected = [oracles.entropy(*potentials(model, x, g)) for x, g in cases(given)]
    np.testing.assert_allclose(model.predict_entropy(NEW, given), expected, **CLOSE)


JOINS = np.array([[continues(a, b) for b in CLASSES] for a in CLASSES])


@both
def test_entity_probability_of_every_span(model, given):
    candidates = [
        [
            (start, end, kind)
            for start, end in itertools.combinations(range(len(x) + 1), 2)
            for kind in ("P", "Q")
        ]
        for x in NEW
    ]
    found = model.entity_proba(NEW, candidates, given)
    for row, proba, (x, g) in zip(candidates, found, cases(given), strict=True):
        unary, pairs = potentials(model, x, g)
        expected = [
            oracles.span_probability(
                unary, pairs, start, end, [label[2:] == kind for label in CLASSES], JOINS
            )
            for start, end, kind in row
        ]
        np.testing.assert_allclose(proba, expected, **CLOSE)


@both
def test_entities_of_the_prediction(model, given):
    found = model.predict_entities(NEW, given)
    for entities, labels, (x, g) in zip(
        found, model.predict(NEW, given), cases(given), strict=True
    ):
        spans, start = [], 0
        for t, label in enumerate(labels):
            if t == 0 or not continues(labels[t - 1], label):
                start = t
            last = t + 1 == len(labels) or not continues(label, labels[t + 1])
            if label != "O" and last:
                spans.append((start, t + 1, label[2:]))
        assert [entity[:3] for entity in entities] == spans
        unary, pairs = potentials(model, x, g)
        for entity in entities:
            assert isinstance(entity, ScoredEntity)
            members = [label[2:] == entity.label for label in CLASSES]
            expected = oracles.span_probability(
                unary, pairs, entity.start, entity.end, members, JOINS
            )
            assert entity.score == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    "y",
    [
        [["B-P", "O", "O"], ["B-Q"], ["O", "O", "B-P", "I-P"], ["B-Q", "I-Q"]],
        GIVEN,
        [[None] * len(x) for x in NEW],
        [
            [None, {"I-Q", "O"}, None],
            [{"B-P", "B-Q", "I-P"}],
            [None, "B-P", None, None],
            ["O", "O"],
        ],
    ],
    ids=["all known", "mixed", "nothing known", "sets"],
)
def test_log_likelihood(model, y):
    expected = [
        oracles.log_partition(*potentials(model, x, labels))
        - oracles.log_partition(*potentials(model, x))
        for x, labels in zip(NEW, y, strict=True)
    ]
    np.testing.assert_allclose(model.log_likelihood(NEW, y), expected, **CLOSE)


def test_log_likelihood_of_all_labellings_sums_to_one(model):
    x = NEW[3]
    y = list(itertools.product(CLASSES, repeat=2))
    total = np.exp(model.log_likelihood([x] * len(y), y)).sum()
    assert total == pytest.approx(1, abs=1e-12)


def test_a_labelling_against_the_scheme_has_likelihood_zero(models):
    for name in NAMES:
        y = [["O", "I-P", "O"], ["I-Q"], ["O"] * 4, ["B-P", "I-Q"]]
        found = models[name, "IOB2"].log_likelihood(NEW, y)
        assert np.isneginf(found).tolist() == [True, True, False, True]
        assert np.isfinite(models[name, None].log_likelihood(NEW, y)).all()


@both
def test_sampled_labellings_follow_the_distribution(model, given):
    draws = 3000
    found = model.sample_labels(NEW, draws, given, random_state=0)
    for drawn, (x, g) in zip(found, cases(given), strict=True):
        assert len(drawn) == draws
        counts = {}
        for labels in drawn:
            counts[numbers(labels)] = counts.get(numbers(labels), 0) + 1
        expected = dict(oracles.distribution(*potentials(model, x, g)))
        assert counts.keys() <= expected.keys()
        for labelling, p in expected.items():
            if p * draws >= 10:
                error = math.sqrt(p * (1 - p) / draws)
                assert abs(counts.get(labelling, 0) / draws - p) < 5 * error


def test_the_seed_decides_the_draws(model):
    first = model.sample_labels(NEW, 20, random_state=1)
    assert first == model.sample_labels(NEW, 20, random_state=1)
    assert first == model.sample_labels(NEW, 20, random_state=np.random.default_rng(1))
    assert first != model.sample_labels(NEW, 20, random_state=2)
    generator = np.random.default_rng(1)
    assert model.sample_labels(NEW, 20, random_state=generator) != model.sample_labels(
        NEW, 20, random_state=generator
    )
    state = torch.get_rng_state()
    model.sample_labels(NEW, 1)
    assert torch.equal(torch.get_rng_state(), state)


def test_given_labels_obey_total_probability(model):
    """p(y_s) = Σ_c p(y_t = c) p(y_s | y_t = c), each term asked of the model."""
    x = NEW[2]
    free = model.predict_proba([x])[0]
    for t in range(len(x)):
        total = np.zeros_like(free)
        for c, label in enumerate(CLASSES):
            if free[t, c] > 0:
                given = [label if s == t else None for s in range(len(x))]
                total += free[t, c] * model.predict_proba([x], [given])[0]
        np.testing.assert_allclose(total, free, **CLOSE)


def test_sequences_without_tokens(model):
    assert model.predict_nbest([[]], 3) == [[([], 1.0)]]
    assert model.predict_entities([[]]) == [[]]
    assert [p.shape for p in model.entity_proba([[]], [[]])] == [(0,)]
    assert model.log_likelihood([[]], [[]]).tolist() == [0.0]
    assert model.predict_entropy([[]]).tolist() == [0.0]
    assert model.sample_labels([[]], 2) == [[[], []]]
    assert model.predict_nbest([], 3) == model.predict_entities([]) == model.entity_proba([], [])
    assert model.log_likelihood([], []).shape == model.predict_entropy([]).shape == (0,)
    assert model.sample_labels([], 2) == []


def test_unfitted_use_is_refused():
    from sklearn.exceptions import NotFittedError

    for name in NAMES:
        new = make(name)
        for use in (
            lambda new=new: new.predict_nbest(NEW, 2),
            lambda new=new: new.predict_entities(NEW),
            lambda new=new: new.entity_proba(NEW, [[]] * 4),
            lambda new=new: new.log_likelihood(NEW, GIVEN),
            lambda new=new: new.predict_entropy(NEW),
            lambda new=new: new.sample_labels(NEW, 2),
        ):
            with pytest.raises(NotFittedError):
                use()


# ---- decoding ---------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", [None, "IOB2"])
@pytest.mark.parametrize("name", NAMES)
def test_marginal_decoding_takes_the_best_label_of_each_token(name, scheme, models):
    viterbi = models[name, scheme]
    marginal = make(name, scheme=scheme, decode="marginal").fit(X, Y)
    tokens = [["a"], ["b"], ["c"], ["x"], ["y"], []]
    data = [list(x) for x in itertools.product(tokens, repeat=3)]
    found = marginal.predict(data)
    for labels, x in zip(found, data, strict=True):
        top = oracles.marginals(*potentials(marginal, x))[0]
        chosen = top[range(3), numbers(labels)]
        np.testing.assert_allclose(chosen, top.max(1), **CLOSE)
    assert [answer.labels for answer in marginal.tag(data)] == found
    if scheme is None:  # the two ways differ somewhere, so the test tells them apart
        assert viterbi.predict(data) != found


@pytest.mark.parametrize("name", NAMES)
def test_a_misspelt_decoding_is_an_error(name):
    with pytest.raises(ValueError, match=r"decode is 'vitrebi'.*'viterbi', 'marginal'"):
        make(name, decode="vitrebi").fit(X, Y).predict(X)


# ---- schemes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["IOB2", "IOE2", "BIOES"])
@pytest.mark.parametrize("name", NAMES)
def test_forbidden_labels_never_come_out(name, scheme):
    """Rules for the left neighbour and the start, for the right one and the end, and for both."""
    model = make(name, scheme=scheme).fit(X, [convert_tags(labels, "IOB2", scheme) for labels in Y])
    rng = np.random.default_rng(0)
    data = [[[str(f)] for f in rng.choice(list("abcxy"), n)] for n in (1, 2, 5, 8, 3)]
    for labels in model.predict(data):
        validate_tags(labels, scheme)
    for rows in model.sample_labels(data, 50, random_state=0):
        for labels in rows:
            validate_tags(labels, scheme)
    for rows in model.predict_nbest(data, 30):
        for labels, probability in rows:
            validate_tags(labels, scheme)
            assert probability > 0
    never_first = {"IOB2": "I", "IOE2": "", "BIOES": "IE"}[scheme]
    never_last = {"IOB2": "", "IOE2": "I", "BIOES": "BI"}[scheme]
    for p in model.predict_proba(data):
        for label, first, last in zip(model.classes_, p[0], p[-1], strict=True):
            assert first == 0 or label[0] not in never_first
            assert last == 0 or label[0] not in never_last


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("number", range(len(X)))
def test_training_labels_outside_the_scheme_are_refused_by_number(name, number):
    y = [list(labels) for labels in Y]
    before = ["O", *y[number]][-2]
    y[number][-1] = "I-Q" if before[2:] == "P" else "I-P"
    with pytest.raises(DataError, match=f"sequence {number}: .*IOB2"):
        make(name, scheme="IOB2").fit(X, y)


@pytest.mark.parametrize("name", NAMES)
def test_schemes_and_labels_that_do_not_go_together(name):
    with pytest.raises(DataError, match="no tag scheme 'IOB3'"):
        make(name, scheme="IOB3").fit(X, Y)
    with pytest.raises(DataError, match="'NOUN' is not a tag of IOB2"):
        make(name, scheme="IOB2").fit([[["a"]]], [["NOUN"]])
    nouns = make(name).fit([[["a"], ["b"]]], [["NOUN", "VERB"]])
    with pytest.raises(DataError, match="is not a tag"):
        nouns.predict_entities([[["a"]]])


@pytest.mark.parametrize("name", NAMES)
def test_partial_labels_are_read_under_the_scheme(name):
    """After O no I is possible, so a missing label there is one of the others: saying so, or
    leaving it to the scheme, is the same training."""
    all_weights = {
        key: True
        for key in ("all_possible_states", "all_possible_transitions")
        if key in make(name).get_params()
    }
    data = [[["a"], ["q"], ["a"]], *X]
    found = [
        make(name, scheme="IOB2", **all_weights).fit(data, [["O", label, "O"], *Y])
        for label in (None, {"O", "B-P", "B-Q"})
    ]
    new = [[["q"]], [["b"], ["q"], ["a"]]]
    assert_same(found[0].predict_proba(new), found[1].predict_proba(new), 1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_partial_labels_may_need_a_label_elsewhere(name):
    """I-P in the second place is possible where the first is missing, for it may be B-P."""
    y = [[None, "I-P", "O"], *Y[1:]]
    model = make(name, scheme="IOB2").fit(X, y)
    first = model.predict_proba(X[:1], y[:1])[0][0]
    np.testing.assert_allclose(first, [1, 0, 0, 0, 0], **CLOSE)


# ---- bad questions ----------------------------------------------------------------------------


def test_bad_numbers_of_labellings(model):
    with pytest.raises(ValueError, match="0"):
        model.predict_nbest(NEW, 0)
    with pytest.raises(ValueError, match="0"):
        model.sample_labels(NEW, 0)
    with pytest.raises(ValueError, match="-1"):
        model.predict_nbest(NEW, -1)
    with pytest.raises(ValueError, match="-1"):
        model.sample_labels(NEW, -1)


def test_bad_entities(model):
    with pytest.raises(DataError, match="4 sequences, entities has 1"):
        model.entity_proba(NEW, [[]])
    for span in ((0, 2, "P"), (-1, 1, "P"), (1, 1, "P"), (1, 0, "P")):
        with pytest.raises(DataError, match=rf"sequence 1: entity \({span[0]}, {span[1]}, 'P'\)"):
            model.entity_proba(NEW, [[], [span], [], []])
    assert model.entity_proba(NEW, [[(0, 1, "never seen")], [], [], []])[0].tolist() == [0.0]


def test_labels_never_seen_have_no_likelihood(model):
    with pytest.raises(DataError, match=r"sequence 1, token 0.*'Z'"):
        model.log_likelihood(NEW, [GIVEN[0], ["Z"], *GIVEN[2:]])


# ---- splitting --------------------------------------------------------------------------------


@pytest.fixture
def split(monkeypatch):
    """Predictions hold the scores of few tokens at once."""

    def tokens(n):
        monkeypatch.setattr(base, "_SCORES_AT_ONCE", n * len(CLASSES) ** 2)
        if hasattr(ChainLabeler, "_tokens_at_once"):
            monkeypatch.setattr(ChainLabeler, "_tokens_at_once", lambda self: n)

    return tokens


def count_batches(model, monkeypatch):
    sizes = []
    right = type(model)._scores

    def counted(self, batch):
        sizes.append(batch.layout.n_tokens)
        return right(self, batch)

    monkeypatch.setattr(type(model), "_scores", counted)
    return sizes


def answers(model, data, given):
    """All that is asked of a model, sampling aside."""
    entities = [[(0, len(x), "P"), (len(x) - 1, len(x), "Q")] for x in data]
    labels = given or [[None if t else "O" for t in range(len(x))] for x in data]
    return {
        "predict": model.predict(data, given),
        "proba": model.predict_proba(data, given),
        "nbest": model.predict_nbest(data, 2, given),
        "entities": model.predict_entities(data, given),
        "entity_proba": model.entity_proba(data, entities, given),
        "log_likelihood": model.log_likelihood(data, labels),
        "entropy": model.predict_entropy(data, given),
        "score": model.score(data, [["O"] * len(x) for x in data]),
    }


def assert_same_answers(found, expected):
    assert found["predict"] == expected["predict"]
    assert_same(found["proba"], expected["proba"], 1e-10)
    assert_same(found["entity_proba"], expected["entity_proba"], 1e-10)
    np.testing.assert_allclose(found["log_likelihood"], expected["log_likelihood"], **CLOSE)
    np.testing.assert_allclose(found["entropy"], expected["entropy"], **CLOSE)
    assert found["score"] == expected["score"]
    for key in ("nbest", "entities"):
        for row, want in zip(found[key], expected[key], strict=True):
            assert [entry[:-1] for entry in row] == [entry[:-1] for entry in want]
            np.testing.assert_allclose(
                [entry[-1] for entry in row], [entry[-1] for entry in want], **CLOSE
            )


@both
@pytest.mark.parametrize("at_once", [1, 4, 7])
def test_splitting_changes_no_answer(model, given, at_once, split, monkeypatch):
    data = NEW + X
    known = given and given + Y
    sizes = count_batches(model, monkeypatch)
    expected = answers(model, data, known)
    whole = sum(map(len, data))
    assert set(sizes) == {whole}
    sizes.clear()
    split(at_once)
    assert_same_answers(answers(model, data, known), expected)
    # a sequence longer than the limit is a batch alone
    assert max(sizes) <= max(at_once, max(map(len, data))) < whole


@pytest.mark.parametrize("name", [n for n in NAMES if "pair_prefix" in make(n).get_params()])
def test_splitting_with_features_on_label_pairs(name, split):
    model = make(name, pair_prefix="c").fit(X, Y)
    plain = make(name).fit(X, Y)
    expected = answers(model, NEW, None)
    assert np.abs(expected["proba"][2] - plain.predict_proba(NEW)[2]).max() > 1e-3
    split(1)
    assert_same_answers(answers(model, NEW, None), expected)


def test_sampling_in_pieces_keeps_to_each_sequence(model, split):
    split(3)
    data = NEW + X
    found = model.sample_labels(data, 3, GIVEN + Y, random_state=0)
    for rows, x, labels in zip(found, data, GIVEN + Y, strict=True):
        assert [len(row) for row in rows] == [len(x)] * 3
        for row in rows:
            for label, known in zip(row, labels, strict=True):
                assert (
                    known is None or label == known or (type(known) is not str and label in known)
                )
    assert found == model.sample_labels(data, 3, GIVEN + Y, random_state=0)


@pytest.mark.parametrize("at_once", [1, 5, 10**6])
@pytest.mark.parametrize("name", NAMES)
def test_an_impossible_sequence_is_named_by_its_number(name, at_once, models, split):
    model = models[name, "IOB2"]
    split(at_once)
    data = NEW + X
    for number in (0, 1, 5, 9):
        given = [[None] * len(x) for x in data]
        given[number][0] = "I-P"
        for ask in (
            model.predict,
            model.predict_proba,
            model.predict_marginals,
            model.predict_entities,
            model.predict_entropy,
        ):
            with pytest.raises(ValueError, match=f"^sequence {number}: no labelling"):
                ask(data, given)
        with pytest.raises(ValueError, match=f"^sequence {number}: no labelling"):
            model.predict_nbest(data, 2, given)
        with pytest.raises(ValueError, match=f"^sequence {number}: no labelling"):
            model.sample_labels(data, 2, given)
        with pytest.raises(ValueError, match=f"^sequence {number}: no labelling"):
            model.entity_proba(data, [[(0, 1, "P")] for _ in data], given)
        assert np.isneginf(model.log_likelihood(data, given)).nonzero()[0].tolist() == [number]


# ---- published weights ------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in NAMES if hasattr(LABELERS[n], "state_features_")])
def test_only_what_was_seen_together_has_a_weight(name, models):
    model = models[name, None]
    states, transitions = set(), set()
    for x, labels in zip(X, Y, strict=True):
        for token, label in zip(x, labels, strict=True):
            states |= {(feature, label) for feature in values(token)}
        transitions |= set(itertools.pairwise(labels))
    assert set(model.state_features_) == states
    assert set(model.transition_features_) == transitions


@pytest.mark.parametrize("name", [n for n in NAMES if hasattr(LABELERS[n], "state_features_")])
def test_values_that_cancel_were_still_seen(name):
    """+1 and −1 with the same label sum to nothing, and say much about it all the same."""
    data = [np.array([[1.0], [-1.0]]), np.array([[0.5]])]
    model = make(name).fit(data, [["A", "A"], ["B"]])
    assert set(model.state_features_) == {("0", "A"), ("0", "B")}
