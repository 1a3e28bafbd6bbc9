"""What is suggested, against an enumeration of all labellings and against loops over draws."""

import math

import numpy as np
import pytest

from bayeseq import (
    CRF,
    GPSC,
    GPSL,
    HMM,
    Calibrated,
    DataError,
    HMPerceptron,
    NoPosteriorError,
    NoProbabilitiesError,
    suggest,
)
from tests import oracles

WORDS = ("a", "b", "c", "d", "e")
LABELS = ("A", "B", "C")


def sentences(seed, n):
    """Sentences of one to four words, and labels that go by the word more often than not."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        words = rng.integers(0, len(WORDS), size=rng.integers(1, 5))
        noise = rng.random(len(words)) < 0.25
        X.append([[f"w={WORDS[w]}", f"odd={w % 2}"] for w in words])
        y.append([LABELS[(w + int(e)) % 3] for w, e in zip(words, noise, strict=True)])
    return X, y


@pytest.fixture(scope="module")
def crf():
    return CRF(l2=0.1, progress=False).fit(*sentences(0, 30))


@pytest.fixture(scope="module")
def pool():
    return sentences(1, 25)[0]


def enumerated(model, x, given):
    """All labellings of one sentence that agree with what is given, with their probabilities."""
    chain = model._scores(model._batch([x], None))
    unary = chain.unary.numpy().copy()
    pairs = np.broadcast_to(chain.transitions.numpy(), (len(x) - 1, *unary.shape[1:] * 2))
    for t, label in enumerate(given):
        if label is not None:
            unary[t, model.classes_ != label] = -math.inf
    return oracles.distribution(unary, pairs)


def expected_scores(model, X, given, strategy, cost):
    found = {}
    for i, x in enumerate(X):
        asked = [t for t, label in enumerate(given[i]) if label is None]
        if not asked:
            continue
        p = [p for _, p in enumerated(model, x, given[i])]
        if strategy == "least_confidence":
            found[i] = 1 - max(p)
        elif strategy == "mnlp":
            found[i] = -math.log(max(p)) / len(asked)
        else:
            entropy = -sum(q * math.log(q) for q in p if q > 0)
            found[i] = entropy / (len(asked) if cost == "token" else 1)
    return found


@pytest.mark.parametrize("strategy", ["least_confidence", "mnlp", "entropy"])
@pytest.mark.parametrize("cost", ["token", "sentence"])
@pytest.mark.parametrize("known", [0.0, 0.4])
def test_sentences_against_enumeration(crf, pool, strategy, cost, known):
    rng = np.random.default_rng(3)
    given = [[str(rng.choice(LABELS)) if rng.random() < known else None for _ in x] for x in pool]
    found = suggest(crf, pool, strategy=strategy, cost=cost, given=given, diversity=0.0)
    wanted = expected_scores(crf, pool, given, strategy, cost)
    assert {item.sentence for item in found} == set(wanted)
    for item in found:
        assert item.score == pytest.approx(wanted[item.sentence], abs=1e-8)
        assert item.tokens == sum(label is None for label in given[item.sentence])
        assert item.token is None
    scores = [item.score for item in found]
    assert scores == sorted(scores, reverse=True)


def test_decoding_does_not_matter_and_is_left_alone(crf, pool):
    other = CRF(l2=0.1, decode="marginal", progress=False).fit(*sentences(0, 30))
    a, b = suggest(crf, pool, n=5), suggest(other, pool, n=5)
    assert [item.score for item in a] == [item.score for item in b]
    assert other.decode == "marginal"


@pytest.mark.parametrize("strategy", ["least_confidence", "mnlp", "entropy"])
def test_tokens_against_enumeration(crf, pool, strategy):
    given = [[None] * len(x) for x in pool]
    given[0][0] = "B"
    found = suggest(crf, pool, strategy=strategy, unit="token", given=given, diversity=0.0)
    assert len(found) == sum(map(len, pool)) - 1 == found.tokens
    measure = {
        "least_confidence": lambda row: 1 - max(row),
        "mnlp": lambda row: -math.log(max(row)),
        "entropy": lambda row: -sum(p * math.log(p) for p in row),
    }[strategy]
    for item in found:
        assert (item.sentence, item.token) != (0, 0)
        row = [0.0] * 3
        for labels, p in enumerated(crf, pool[item.sentence], given[item.sentence]):
            row[labels[item.token]] += p
        assert item.score == pytest.approx(measure(row), abs=1e-8)


@pytest.mark.parametrize(
    "model",
    [
        GPSC(inference="laplace", calibrate=False, progress=False),
        GPSL(covariance="diagonal", calibrate=False, progress=False),
    ],
    ids=lambda model: type(model).__name__,
)
def test_bald_by_loops(model, pool):
    model.fit(*sentences(0, 30))
    seed = int(np.random.default_rng(5).integers(2**31))
    draws = model.posterior_predict(pool, 20, random_state=seed)  # no feature of the pool is new
    wanted = []
    for p in draws:
        S, T, C = p.shape
        row = []
        for t in range(T):
            mean = [sum(p[s, t, c] for s in range(S)) / S for c in range(C)]
            total = -sum(q * math.log(q) for q in mean)
            each = -sum(p[s, t, c] * math.log(p[s, t, c]) for s in range(S) for c in range(C)) / S
            row.append(total - each)
        wanted.append(row)
    options = {"strategy": "bald", "diversity": 0.0, "draws": 20, "random_state": 5}
    for item in suggest(model, pool, unit="token", **options):
        assert item.score == pytest.approx(wanted[item.sentence][item.token], abs=1e-9)
    for item in suggest(model, pool, cost="sentence", **options):
        assert item.score == pytest.approx(sum(wanted[item.sentence]), abs=1e-9)
    for item in suggest(model, pool, **options):
        assert item.score == pytest.approx(np.mean(wanted[item.sentence]), abs=1e-9)
        worst = int(np.argmax(wanted[item.sentence]))
        assert item.reason.startswith(f"token {worst}: ")


def test_bald_finds_words_that_training_never_showed():
    model = GPSL(covariance="diagonal", calibrate=False, progress=False).fit(*sentences(0, 30))
    pool = [[["w=a", "odd=0"]] * 3, [["w=b", "odd=1"], ["w=zzz", "odd=1"]], [["w=a", "odd=0"]]]
    assert suggest(model, pool, n=1, strategy="bald", unit="token").places() == {1: [1]}


def test_a_mixture_has_one_probability_of_its_best_labelling(pool):
    model = GPSC(progress=False, calibrate=False, draws=8).fit(*sentences(0, 30))
    best = model.predict_nbest(pool, 1)
    for item in suggest(model, pool, strategy="least_confidence", diversity=0.0):
        assert item.score == pytest.approx(1 - best[item.sentence][0].probability, abs=1e-8)


def test_a_batch_is_not_many_times_the_same_sentence(crf, pool):
    worst = suggest(crf, pool, n=1).sentences[0]
    copies = [pool[worst]] * 5 + [x for i, x in enumerate(pool) if i != worst]
    assert suggest(crf, copies, n=5, diversity=0.0).sentences == [0, 1, 2, 3, 4]
    mixed = suggest(crf, copies, diversity=1.0)
    assert mixed.sentences[0] == 0
    assert not {1, 2, 3, 4} & set(mixed.sentences[:10])
    assert mixed.items[0].similarity == 0.0
    for item in mixed:
        if item.sentence in (1, 2, 3, 4):
            assert item.similarity == pytest.approx(1.0)
            assert "1.00 like sentence" in item.reason


def test_budgets(crf, pool):
    lengths = [len(x) for x in pool]
    found = suggest(crf, pool, tokens=9)
    assert found.tokens == sum(lengths[i] for i in found.sentences) <= 9
    left = 9 - found.tokens
    assert all(n > left for i, n in enumerate(lengths) if i not in found.sentences)
    assert len(suggest(crf, pool, n=4, tokens=1000)) == 4
    assert suggest(crf, pool, n=50, tokens=7, unit="token").tokens == 7
    assert len(suggest(crf, pool)) == len(pool)
    assert len(suggest(crf, [])) == 0
    assert suggest(crf, [[], [["a"]]]).sentences == [1]


def test_random_is_a_plain_sample(pool):
    model = HMPerceptron().fit(*sentences(0, 30))  # which has no probabilities
    first = suggest(model, pool, n=5, strategy="random", random_state=1).sentences
    assert first == suggest(model, pool, n=5, strategy="random", random_state=1).sentences
    counts = np.zeros(len(pool))
    for seed in range(400):
        counts[suggest(model, pool, n=5, strategy="random", random_state=seed).sentences] += 1
    # 80 expected of each, with a standard deviation of 8
    assert np.abs(counts - 80).max() < 4.5 * 8


def test_the_table_and_the_places(crf, pool):
    found = suggest(crf, pool, n=3)
    lines = found.table().split("\n")
    assert lines[0].split() == ["rank", "sentence", "tokens", "score", "reason"]
    for k, (line, item) in enumerate(zip(lines[1:], found, strict=True), 1):
        start = [str(k), str(item.sentence), str(item.tokens), f"{item.score:.4f}"]
        assert line.split()[:4] == start
        assert line.endswith(item.reason)
    assert len(found.table(limit=1).split("\n")) == 2
    with pytest.raises(ValueError, match="unit='token'"):
        found.places()
    tokens = suggest(crf, pool, n=6, unit="token")
    by_hand = {}
    for item in tokens:
        by_hand.setdefault(item.sentence, []).append(item.token)
    assert tokens.places() == {i: sorted(row) for i, row in by_hand.items()}
    assert "token  " in tokens.table().split("\n")[0]


def test_partial_labels_that_were_asked_for_can_be_learned_from(crf):
    X, y = sentences(2, 40)
    found = suggest(crf, X, tokens=30, unit="token")
    known = [[None] * len(x) for x in X]
    for i, places in found.places().items():
        for t in places:
            known[i][t] = y[i][t]
    again = suggest(CRF(progress=False).fit(X, known), X, tokens=10, unit="token", given=known)
    for item in again:
        assert known[item.sentence][item.token] is None


def test_what_cannot_be_asked(crf, pool):
    with pytest.raises(NoPosteriorError, match=r"this CRF has one set of them; use 'mnlp'"):
        suggest(crf, pool, strategy="bald")
    point = GPSC(inference="map", progress=False).fit(*sentences(0, 10))
    with pytest.raises(NoPosteriorError, match="GPSC"):
        suggest(point, pool, strategy="bald")
    perceptron = HMPerceptron().fit(*sentences(0, 10))
    for unit in ("sentence", "token"):
        with pytest.raises(NoProbabilitiesError, match="Calibrated"):
            suggest(perceptron, pool, unit=unit)
    calibrated = Calibrated(HMM()).fit(*sentences(0, 20))
    with pytest.raises(ValueError, match="unit='token'"):
        suggest(calibrated, pool)
    assert len(suggest(calibrated, pool, n=3, unit="token")) == 3
    for bad in (
        {"n": 0},
        {"tokens": 0},
        {"strategy": "best"},
        {"unit": "word"},
        {"cost": "euro"},
        {"diversity": 1.5},
    ):
        with pytest.raises(ValueError, match=next(iter(bad))):
            suggest(crf, pool, **bad)
    with pytest.raises(DataError, match="sequence 3"):
        suggest(crf, pool, given=[[None] * (len(x) + (i == 3)) for i, x in enumerate(pool)])
