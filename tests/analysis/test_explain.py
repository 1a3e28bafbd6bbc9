"""Explanations against enumeration of all labellings, and sums over training tokens."""

import itertools

import numpy as np
import pytest

from bayeseq import (
    CRF,
    GPSC,
    GPSL,
    HMM,
    HMSVM,
    MEMM,
    Calibrated,
    DataError,
    HMPerceptron,
    NoProbabilitiesError,
    SparseGPSC,
    explain,
    explain_confidence,
    load,
)
from bayeseq.analysis.fitted import training_data
from bayeseq.analysis.representers import representers
from tests.labelers.conformance import make

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
NEW = [[["b"], ["a", "c"], ["y"]], [["x"]], [["c"], ["never seen"], {"a": 2.0, "y": 0.25}, []]]


# ---- explain_confidence -----------------------------------------------------------------------

SURE = {
    "CRF": lambda: CRF(l2=0.3, progress=False),
    "MEMM": lambda: MEMM(l2=0.3, progress=False),
    "HMM": lambda: HMM(),
    "GPSL": lambda: GPSL(progress=False),
    "GPSC map": lambda: GPSC(inference="map", progress=False),
    "GPSC kernel": lambda: GPSC("rbf(scale=0.3)", inference="laplace", progress=False),
    "SparseGPSC": lambda: SparseGPSC(fraction=1.0, progress=False),
}


@pytest.fixture(scope="module")
def sure():
    return {name: build().fit(X, Y) for name, build in SURE.items()}


def enumerated(model, x):
    """All labellings with their probabilities, best first."""
    every = [list(labels) for labels in itertools.product(model.classes_, repeat=len(x))]
    proba = np.exp(model.log_likelihood([x] * len(every), every))
    return sorted(zip(every, proba.tolist(), strict=True), key=lambda pair: -pair[1])


@pytest.mark.parametrize("name", SURE)
def test_labellings_and_marginals_equal_enumeration(name, sure):
    model = sure[name]
    for x in NEW:
        found = explain_confidence(model, x, n=4)
        every = enumerated(model, x)
        by_labels = {tuple(labels): p for labels, p in every}  # labellings may tie
        assert by_labels[tuple(found.labels)] == pytest.approx(every[0][1], abs=1e-9)
        assert found.probability == pytest.approx(every[0][1], abs=1e-9)
        assert found.runner_up.probability == pytest.approx(every[1][1], abs=1e-9)
        assert found.margin == pytest.approx(every[0][1] - every[1][1], abs=1e-9)
        assert found.top_mass == pytest.approx(sum(p for _, p in every[:4]), abs=1e-9)
        for t in range(len(x)):
            own = {
                c: sum(p for labels, p in every if labels[t] == c) for c in model.classes_.tolist()
            }
            assert own[found.marginal_labels[t]] == pytest.approx(max(own.values()), abs=1e-9)
            np.testing.assert_allclose(found.proba[t], [own[c] for c in found.classes], atol=1e-9)
        disputed = {dispute.position: dispute for dispute in found.disputes}
        for t, label in enumerate(found.labels):
            rivals = {found.marginal_labels[t], found.runner_up.labels[t]} - {label}
            assert (t in disputed) == bool(rivals)
            if rivals:
                assert disputed[t].label == label
                assert disputed[t].rival in rivals
                assert disputed[t].differs == (found.marginal_labels[t] != label)


@pytest.mark.parametrize("name", ["CRF", "MEMM", "HMM", "GPSL", "GPSC map"])
def test_pushes_add_up_to_the_score_of_one_label_over_the_other(name, sure):
    """Of the last features of a sequence of one token, where nothing but a start is added."""
    model = sure[name]
    for token in (["a"], ["c", "y"], {"a": 2.0, "x": 0.5}):
        found = explain_confidence(model, [token], n=10)
        (dispute,) = found.disputes
        assert sum(push.amount for push in dispute.pushes) == pytest.approx(dispute.score)
        odds = np.log(dispute.probability / dispute.rival_probability)
        if name == "HMM":
            initial = dict(zip(model.classes_, model.log_initial_, strict=True))
            odds -= initial[dispute.label] - initial[dispute.rival]
        assert dispute.score == pytest.approx(odds, abs=1e-9)
        assert {push.feature for push in dispute.pushes} <= set(token)


def test_where_the_best_labelling_and_the_marginals_differ():
    """Two labellings of B at the second token, of 0.3 each, against one of 0.4 with A."""
    model = CRF(l2=1e-4, all_possible_transitions=True, progress=False)
    y = [["A", "A"]] * 4 + [["B", "B"]] * 3 + [["C", "B"]] * 3
    model.fit([[["x"], ["x"]]] * 10, y)
    found = explain_confidence(model, [["x"], ["x"]], ["one", "<two>"], n=3)
    assert found.labels == ["A", "A"]
    assert found.marginal_labels == ["A", "B"]
    dispute = found.disputes[-1]
    assert (dispute.position, dispute.label, dispute.rival) == (1, "A", "B")
    assert dispute.differs
    assert dispute.reason == (
        "token 1 (<two>): the best single labelling (0.40) says A; summed over all labellings B "
        "has 0.60 and A 0.40: 2 of the 3 best labellings say B, 0.60 together"
    )
    text = str(found)
    assert "At 1 of 2 tokens the best labelling does not have the most probable label." in text
    assert "the 3 best have >0.99 together" in text
    assert found.table().splitlines()[2].split()[:4] == ["<two>", "A", "0.400", "B"]
    html = found._repr_html_()
    assert "&lt;two&gt;" in html
    assert "<two>" not in html


def test_labellings_of_a_mixture_have_its_probabilities():
    model = GPSC(draws=8, calibrate=False, progress=False).fit(X, Y)
    for x in NEW:
        found = explain_confidence(model, x, n=4)
        expected = np.exp(
            model.log_likelihood([x] * len(found.best), [best.labels for best in found.best])
        )
        np.testing.assert_allclose([best.probability for best in found.best], expected, atol=1e-9)
        np.testing.assert_allclose(found.proba, model.predict_proba([x])[0], atol=0)


def test_a_kernel_has_no_features_to_name(sure):
    found = explain_confidence(sure["GPSC kernel"], NEW[0])
    assert found.disputes
    assert all(dispute.score is None and not dispute.pushes for dispute in found.disputes)
    assert str(found.disputes[0]) == found.disputes[0].reason


def test_numeric_columns_are_named_by_number():
    model = CRF(progress=False).fit([np.eye(2)], [["A", "B"]])
    (dispute,) = explain_confidence(model, np.array([[1.0, 0.0]])).disputes
    assert [push.feature for push in dispute.pushes] == ["column 0"]


def test_one_label_has_no_rival_and_an_empty_sequence_nothing_to_say():
    model = CRF(progress=False).fit([[["a"], ["b"]]], [["O", "O"]])
    found = explain_confidence(model, [["a"], ["b"]])
    assert found.runner_up is None
    assert found.margin == found.probability == 1
    assert found.disputes == ()
    assert "has probability 1.00." in str(found)
    assert explain_confidence(model, []).table() == "token  best  p  most probable  p"


def test_explanations_of_what_has_none(sure):
    with pytest.raises(NoProbabilitiesError, match="HMPerceptron has margins"):
        explain_confidence(HMPerceptron(progress=False).fit(X, Y), NEW[0])
    with pytest.raises(TypeError, match="Calibrated has no chain"):
        explain_confidence(make("Calibrated").fit(X, Y), NEW[0])
    with pytest.raises(DataError, match="x has 3 tokens, words has 1"):
        explain_confidence(sure["CRF"], NEW[0], ["one"])
    with pytest.raises(ValueError, match="n is 0"):
        explain_confidence(sure["CRF"], NEW[0], n=0)


# ---- explain ----------------------------------------------------------------------------------

TIGHT = {"tol": 1e-13, "progress": False}
SUMS = {
    "CRF": (lambda: CRF(l2=0.3, tol=1e-15, progress=False), 1e-5),
    "CRF scheme": (lambda: CRF(l2=0.3, scheme="IOB2", tol=1e-15, progress=False), 1e-5),
    "GPSC map": (lambda: GPSC(inference="map", max_iter=500, **TIGHT), 1e-5),
    "GPSC laplace": (lambda: GPSC(inference="laplace", max_iter=500, **TIGHT), 1e-5),
    # The bound's steps end before its gradient is 0, the sooner the fewer draws stand for q.
    "GPSC vg": (
        lambda: GPSC(draws=200, learn=False, calibrate=False, max_iter=300, **TIGHT),
        2e-3,
    ),
    "GPSC polynomial": (
        lambda: GPSC("polynomial(degree=2)", inference="map", max_iter=500, **TIGHT),
        1e-5,
    ),
    "GPSC inducing": (
        lambda: GPSC("rbf(scale=0.3)", inference="map", inducing=4, max_iter=500, **TIGHT),
        1e-5,
    ),
    # Newton steps for the means end where one raises the bound by less than 1e-9.
    "GPSL": (lambda: GPSL(learn=False, **TIGHT), 1e-4),
    "GPSL learned": (lambda: GPSL(max_iter=300, **TIGHT), 1e-3),
    "GPSL both sides": (lambda: GPSL((-1, 1), learn=False, **TIGHT), 1e-4),
    "GPSL by label": (lambda: GPSL(by_label=True, max_iter=3, **TIGHT), 1e-3),
    "GPSL diagonal": (lambda: GPSL(covariance="diagonal", learn=False, **TIGHT), 1e-3),
    "GPSL jensen": (lambda: GPSL(bound="jensen", learn=False, **TIGHT), 1e-6),
    "GPSL kernel": (lambda: GPSL(kernel="rbf(scale=0.3)", learn=False, **TIGHT), 1e-4),
    "SparseGPSC": (lambda: SparseGPSC(fraction=1.0, progress=False), 1e-12),
    "HMPerceptron": (lambda: HMPerceptron("polynomial(degree=2)", progress=False), 1e-12),
    "HMSVM": (lambda: HMSVM(kernel="linear", dual=True, progress=False), 1e-12),
}
PARTIAL = [[None, "I-P", "O"], *Y[1:4], ["B-P", {"O", "I-P"}, "B-P"], Y[5]]


def scores(model, x):
    """(T, C) label scores by features alone, asked of the model's own prediction."""
    batch = model._batch([x], None)
    if isinstance(model, GPSL):
        local, _ = model._local(batch)
        found = local.times(model.posterior_.mean) * model.scales_.local
    elif isinstance(model, GPSC):
        found = model._chain_of(batch, model.posterior_.mean).unary
    else:
        found = model._scores(batch).unary
    return found.numpy()[batch.layout.unpacked_rows.numpy()]


@pytest.mark.parametrize("labels", [Y, PARTIAL], ids=["all known", "partly"])
@pytest.mark.parametrize("name", SUMS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_training_tokens_add_up_to_the_score(name, labels):
    build, close = SUMS[name]
    model = build().fit(X, labels)
    data = training_data(model, X, labels)
    found = representers(model, data)
    for x in NEW:
        want = scores(model, x)
        rows = model.feature_space_.matrix([x])[0]
        for t in range(len(x)):
            for c in range(len(model.classes_)):
                assert found.score(rows[t], c) == pytest.approx(want[t, c], abs=1e-9)
                total = found.similarity(rows[t], c) @ found.alpha[:, c]
                assert total == pytest.approx(want[t, c], abs=close)


def test_coefficients_are_observed_less_expected_marginals():
    """Of a CRF, by enumeration; where a label is missing, what is expected of it given the rest."""
    model = SUMS["CRF"][0]().fit(X, PARTIAL)
    data = training_data(model, X, PARTIAL)
    found = representers(model, data)
    sequence, position = (index.tolist() for index in data.batch.layout.token_index)
    for i, (x, labels) in enumerate(zip(X, PARTIAL, strict=True)):
        every = enumerated(model, x)

        def agrees(found, labels=labels):
            pairs = zip(found, labels, strict=True)
            return all(y is None or a == y or (not isinstance(y, str) and a in y) for a, y in pairs)

        known = [(found_, p) for found_, p in every if agrees(found_)]
        mass = sum(p for _, p in known)
        for t in range(len(x)):
            row = list(zip(sequence, position, strict=True)).index((i, t))
            for c, label in enumerate(model.classes_):
                observed = sum(p for found_, p in known if found_[t] == label) / mass
                expected = sum(p for found_, p in every if found_[t] == label)
                assert found.alpha[row, c] == pytest.approx(observed - expected, abs=1e-9)


def test_draws_add_up_to_their_mean_on_average():
    """GPStruct: the mean of sampled weights, within what sampling leaves."""
    model = make("GPStruct", chains=16, draws=50, thin=10).fit(X, Y)
    found = representers(model, training_data(model, X, Y))
    mean = model.posterior_.mean[: model.feature_map_.n_columns].numpy()
    spread = model.posterior_.weights.flatten(0, 1).std(0)[: len(mean)].numpy()
    rebuilt = found.variance * np.asarray(found.phi.T @ found.alpha)
    error = np.abs(rebuilt - mean) / spread
    assert error.max() < 0.35  # about eight effective standard errors of 800 draws
    assert np.corrcoef(rebuilt.ravel(), mean.ravel())[0, 1] > 0.97


def test_the_similarity_is_the_kernel():
    """Of a linear kernel the prior variance times the inner product, of RBF its value."""
    linear = GPSC(inference="map", variance=2.0, groups=None, progress=False).fit(X, Y)
    found = explain(linear, [["a", "b"]], 0, "B-P", X_train=X, y_train=Y, n=16)
    by_place = {(one.sequence, one.position): one for one in found.speakers}
    assert by_place[0, 1].similarity == pytest.approx(2.0)  # b: 1, y: 0.5
    assert by_place[2, 2].similarity == pytest.approx(4.0)  # a and b
    assert by_place[2, 0].similarity == pytest.approx(0.0)
    rbf = GPSC("rbf(scale=0.3)", inference="map", progress=False).fit(X, Y)
    found = explain(rbf, [["a"]], 0, "B-P", X_train=X, y_train=Y, n=16)
    by_place = {(one.sequence, one.position): one for one in found.speakers}
    assert by_place[2, 1].similarity == pytest.approx(1.0, abs=1e-6)
    assert by_place[1, 0].similarity == pytest.approx(np.exp(-0.3 / 2 * 2), abs=1e-6)


def test_speakers_have_their_labels_and_words():
    model = CRF(l2=0.3, progress=False).fit(X, Y)
    words = [[f"<{i}.{t}>" for t in range(len(x))] for i, x in enumerate(X)]
    found = explain(
        model, NEW[0], 1, X_train=X, y_train=Y, words=["p", "<q>", "r"], words_train=words, n=3
    )
    assert found.label == model.predict([NEW[0]])[0][1]
    assert found.word == "<q>"
    assert len(found.speakers) == 3
    sizes = [abs(one.contribution) for one in found.speakers]
    assert sizes == sorted(sizes, reverse=True)
    for one in found.speakers:
        assert one.label == Y[one.sequence][one.position]
        assert one.word == f"<{one.sequence}.{one.position}>"
        assert one.contribution == pytest.approx(one.similarity * one.coefficient)
        assert (one.coefficient > 0) == (one.label == found.label)
    assert f"Token 1 (<q>) scores {found.score:+.3f}" in str(found)
    assert f"{sum(map(len, X))} training tokens" in str(found)
    assert len(found.table().splitlines()) == 4
    html = found._repr_html_()
    assert "&lt;q&gt;" in html
    assert "<q>" not in html


def test_points_are_found_again_among_equal_tokens():
    """A point that speaks for a label is placed at a token that has it."""
    data = [[["a"], ["b"]], [["a"], ["b"]], [["a"], ["b"]]]
    labels = [["A", "B"], ["A", "B"], ["B", "B"]]
    model = SparseGPSC(fraction=None, progress=False).fit(data, labels)
    found = explain(model, [["a"]], 0, "A", X_train=data, y_train=labels, n=10)
    loud = [one for one in found.speakers if one.coefficient > 0 and one.similarity > 1]
    assert {one.label for one in loud} == {"A"}
    with pytest.raises(DataError, match="a token that it keeps is not there"):
        explain(model, [["a"]], 0, "A", X_train=data[:1], y_train=labels[:1])


def test_a_saved_model_explains_the_same(tmp_path):
    for name, build in (("gpsl", SUMS["GPSL"][0]), ("gpsc", SUMS["GPSC vg"][0])):
        model = build().fit(X, Y)
        model.save(tmp_path / name)
        ask = {"x": NEW[0], "t": 1, "X_train": X, "y_train": Y}
        first, again = explain(model, **ask), explain(load(tmp_path / name), **ask)
        assert again.score == pytest.approx(first.score, abs=1e-9)
        assert again.explained == pytest.approx(first.explained, abs=1e-9)
        places = [
            [(one.sequence, one.position) for one in found.speakers] for found in (first, again)
        ]
        assert places[0] == places[1]


def test_sample_weights_count():
    weights = [2.0, 1.0, 0.5, 1.0, 3.0, 1.0]
    for build in (SUMS["CRF"][0], SUMS["GPSC map"][0], SUMS["GPSL"][0]):
        model = build().fit(X, Y, sample_weight=weights)
        ask = {"x": NEW[0], "t": 1, "X_train": X, "y_train": Y}
        found = explain(model, **ask, sample_weight=weights)
        assert found.explained == pytest.approx(found.score, abs=1e-4)
        assert abs(explain(model, **ask).explained - found.score) > 1e-3


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (HMM(), "the scores of HMM are no sum over training tokens; use GPSL"),
        (CRF(l2=0, max_iter=5, progress=False), "l2=0 and objective='likelihood'"),
        (CRF(objective="pointwise", progress=False), "objective='pointwise'"),
        (HMSVM(progress=False), "this HMSVM keeps weights and no training tokens"),
        (Calibrated(CRF(progress=False)), "the scores of Calibrated are no sum"),
        (
            make("GPStruct", learn="sample", chains=2, draws=3, warmup=2, thin=1),
            "learn='sample' has other prior variances",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_what_is_no_sum_is_refused(model, why):
    model.fit(X, Y)
    with pytest.raises(TypeError, match=why):
        explain(model, NEW[0], 0, X_train=X, y_train=Y)


def test_bad_questions():
    model = GPSL(progress=False).fit(X, Y)
    ask = {"X_train": X, "y_train": Y}
    with pytest.raises(DataError, match="t is 3, and x has 3 tokens"):
        explain(model, NEW[0], 3, **ask)
    with pytest.raises(DataError, match="label 'Z' is none of the model's: B-P"):
        explain(model, NEW[0], 0, "Z", **ask)
    with pytest.raises(ValueError, match="n is 0"):
        explain(model, NEW[0], 0, **ask, n=0)
    with pytest.raises(DataError, match="words_train: sequence 0 has 1 words and 3 tokens"):
        explain(model, NEW[0], 0, **ask, words_train=[["w"]] * 6)
    with pytest.raises(DataError, match="words: sequence 0 has 1 words and 3 tokens"):
        explain(model, NEW[0], 0, **ask, words=["w"])
    with pytest.raises(DataError, match="not what this GPSL was fitted to"):
        explain(model, NEW[0], 0, X_train=X[:3], y_train=Y[:3])
