"""One suite that every labeler passes. A new labeler enters it by being in `bayeseq.LABELERS`."""

import copy
import importlib
import inspect
import pickle
import pkgutil
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score

import bayeseq
from bayeseq import LABELERS, DataError, NoProbabilitiesError, SequenceLabeler, chain, linalg
from bayeseq.baselines import marginalized, marginalized_svm
from tests.labelers.conformance import (
    NEW,
    ORDERED,
    TOLERANCES,
    X,
    Y,
    assert_same,
    assert_scores,
    easy_task,
    make,
    parameters,
    scores,
)

# Two fits by different routes meet at the optimum, not in the last bit.
SAME_OPTIMUM = 1e-6


@pytest.fixture(params=sorted(LABELERS))
def name(request):
    return request.param


@pytest.fixture(scope="module")
def fitted_by_name():
    return {name: make(name).fit(X, Y) for name in LABELERS}


@pytest.fixture
def model(name, fitted_by_name):
    """A fitted labeler that tests must not change."""
    return fitted_by_name[name]


@pytest.fixture(params=sorted(name for name in LABELERS if LABELERS[name].has_probabilities))
def sure_name(request):
    """The name of a labeler that has probabilities."""
    return request.param


@pytest.fixture
def sure_model(sure_name, fitted_by_name):
    return fitted_by_name[sure_name]


@pytest.fixture(params=sorted(set(LABELERS) - ORDERED))
def unordered_name(request):
    """The name of a labeler that does not mind the order of the sequences."""
    return request.param


# ---- membership -------------------------------------------------------------------------------


def test_every_labeler_of_the_package_is_a_member():
    for module in pkgutil.walk_packages(bayeseq.__path__, "bayeseq."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found, open_ = set(), [SequenceLabeler]
    while open_:
        cls = open_.pop()
        open_.extend(cls.__subclasses__())
        if not inspect.isabstract(cls) and cls.__module__.startswith("bayeseq."):
            found.add(cls)
    assert found == set(LABELERS.values())
    assert all(name == cls.__name__ for name, cls in LABELERS.items())


# ---- scikit-learn's rules ---------------------------------------------------------------------


def test_init_only_stores(name):
    cls = LABELERS[name]
    kinds = {p.kind for p in parameters(cls)}
    assert kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    marks = {p.name: object() for p in parameters(cls)}
    made = cls(**marks)
    assert vars(made).keys() == marks.keys()
    assert all(getattr(made, key) is mark for key, mark in marks.items())


def test_every_parameter_has_an_immutable_default(name):
    for parameter in parameters(LABELERS[name]):
        assert parameter.default is None or isinstance(
            parameter.default, bool | int | float | str | tuple
        )


def test_params_round_trip(name):
    defaults = {p.name: p.default for p in parameters(LABELERS[name])}
    made = LABELERS[name]()
    assert made.get_params() == defaults
    changed = {key: object() for key in defaults}
    assert made.set_params(**changed) is made
    assert made.get_params() == changed
    with pytest.raises(ValueError, match="no_such_parameter"):
        made.set_params(no_such_parameter=1)


def test_clone_has_the_params_and_nothing_learned(name, model):
    twin = clone(model)
    assert type(twin) is LABELERS[name]
    assert str(twin.get_params()) == str(model.get_params())
    with pytest.raises(NotFittedError):
        twin.predict(NEW)


def test_repr_names_the_class(name, model):
    assert repr(model).startswith(f"{name}(")


def test_unfitted_use_is_refused(name, tmp_path):
    new = make(name)
    for use in (
        lambda: new.predict(X),
        lambda: scores(new, X),
        lambda: new.predict_marginals(X),
        lambda: new.predict_single(X[0]),
        lambda: new.predict_marginals_single(X[0]),
        lambda: new.score(X, Y),
        lambda: new.save(tmp_path / "model"),
    ):
        with pytest.raises(NotFittedError):
            use()
    assert not list(tmp_path.iterdir())


def test_fit_returns_self_and_leaves_params_and_data_alone(name):
    new = make(name)
    before = new.get_params()
    data = copy.deepcopy((X, Y))
    assert new.fit(*data) is new
    scores(new, data[0])
    assert new.get_params() == before
    assert data == (X, Y)


def test_refitting_gives_the_same_answer(name, model):
    new = make(name).fit(NEW, [["B", "I", "O"], ["O"], ["X"] * 5])
    new.fit(X, Y)
    assert_same(scores(new, NEW), scores(model, NEW))
    assert new.predict(NEW) == model.predict(NEW)
    assert new.classes_.tolist() == ["B", "I", "O"]


def test_copies_predict_the_same(model):
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert_same(scores(twin, NEW), scores(model, NEW))


def test_cross_validation_on_lists(name):
    data, labels = easy_task(0, 15)
    found = cross_val_score(make(name), data, labels, cv=KFold(3))
    expected = []
    for train, test in KFold(3).split(data):
        part = make(name).fit([data[i] for i in train], [labels[i] for i in train])
        expected.append(part.score([data[i] for i in test], [labels[i] for i in test]))
    assert found.tolist() == expected


def test_grid_search_on_lists(name):
    data, labels = easy_task(0, 15)
    has_count = "min_count" in make(name).get_params()
    grid = {"min_count": [1, 10**6]} if has_count else {}
    search = GridSearchCV(make(name), grid, cv=3).fit(data, labels)
    assert type(search.best_estimator_) is LABELERS[name]
    if has_count:
        assert search.best_params_ == {"min_count": 1}
    assert search.predict(data[:2]) == search.best_estimator_.predict(data[:2])


# ---- shapes of answers ------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [[3, 3, 3], [1, 1], [2, 5, 1, 4], [7], [0, 2, 0], [0], []])
def test_answers_have_the_shape_of_the_questions(model, lengths):
    tokens = [token for sequence in X for token in sequence]
    data = [tokens[:n] for n in lengths]
    labels = model.predict(data)
    proba = scores(model, data)
    assert type(labels) is list
    assert all(type(row) is list for row in labels)
    assert all(type(label) is str for row in labels for label in row)
    assert [len(row) for row in labels] == lengths
    assert type(proba) is list
    assert [p.shape for p in proba] == [(n, 3) for n in lengths]


def test_classes_are_sorted(model):
    assert model.classes_.tolist() == sorted({label for row in Y for label in row})


def test_probabilities_are_probabilities(sure_model):
    for p in sure_model.predict_proba(X + NEW):
        assert p.dtype == np.float64
        assert (p >= 0).all()
        np.testing.assert_allclose(p.sum(1), 1, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "name", sorted(name for name in LABELERS if not LABELERS[name].has_probabilities)
)
def test_scores_are_not_sold_as_probabilities(name, fitted_by_name):
    model = fitted_by_name[name]
    for ask in (model.predict_proba, model.predict_marginals, model.tag):
        with pytest.raises(NoProbabilitiesError, match="Calibrated"):
            ask(NEW)
    for labels, found in zip(model.predict(NEW), model.decision_scores(NEW), strict=True):
        columns = [model.classes_.tolist().index(label) for label in labels]
        assert (found[np.arange(len(found)), columns] == found.max(1)).all()


def test_columns_are_in_the_order_of_classes(model):
    """Training labels get more than their share of probability, each in its own column."""
    column = {label: c for c, label in enumerate(model.classes_)}
    sums, counts = np.zeros((3, 3)), np.zeros((3, 1))
    for labels, p in zip(Y, scores(model, X), strict=True):
        for label, row in zip(labels, p, strict=True):
            sums[column[label]] += row
            counts[column[label]] += 1
    assert (sums / counts).argmax(0).tolist() == [0, 1, 2]


def test_marginals_are_the_probabilities(sure_model):
    for p, row in zip(
        sure_model.predict_proba(NEW), sure_model.predict_marginals(NEW), strict=True
    ):
        assert row == [dict(zip(sure_model.classes_, values, strict=True)) for values in p.tolist()]


def test_tagging_is_predicting_labels_and_probabilities(sure_model):
    given = [[None] * len(x) for x in NEW]
    given[0][1] = "O"
    data = [*NEW, []]
    for known in (None, [*given, []]):
        labels, proba = zip(*sure_model.tag(data, known), strict=True)
        assert list(labels) == sure_model.predict(data, known)
        assert_same(list(proba), sure_model.predict_proba(data, known))


def test_marginals_of_one_sequence(sure_model):
    for x in NEW:
        assert sure_model.predict_marginals_single(x) == sure_model.predict_marginals([x])[0]


def test_single_sequence_answers(model):
    for x in NEW:
        assert model.predict_single(x) == model.predict([x])[0]


def test_sequences_do_not_see_each_other(model):
    data = [*X, *NEW, []]
    together = scores(model, data)
    assert_same([scores(model, [x])[0] for x in data], together, 1e-10)
    assert_same(scores(model, data[::-1])[::-1], together, 1e-10)
    assert [model.predict([x])[0] for x in data] == model.predict(data)
    assert model.predict(data[::-1])[::-1] == model.predict(data)


# ---- what may stand in X ----------------------------------------------------------------------


def test_one_token_sentences(name, model):
    only = make(name).fit([[["a"]], [["b"]], [["a"]]], [["A"], ["B"], ["A"]])
    assert only.predict([[["a"]], [["b"]]]) == [["A"], ["B"]]
    assert [p.shape for p in scores(only, [[["a"], ["b"], ["a"]]])] == [(3, 2)]
    assert len(model.predict([[["w=Rex"]]])[0]) == 1


def test_one_label_is_certain(sure_name):
    only = make(sure_name).fit([[["a"], ["b"]], [["b"]]], [["A", "A"], ["A"]])
    assert only.predict([[["b"], ["c"]]]) == [["A", "A"]]
    assert_same(only.predict_proba([[["b"], ["c"]]]), [np.ones((2, 1))], 1e-12)


def test_sentences_without_tokens_teach_nothing(name, model):
    new = make(name).fit([[], *X, []], [[], *Y, []])
    assert_same(scores(new, NEW), scores(model, NEW), SAME_OPTIMUM)


def test_unseen_features_say_nothing(model):
    unseen = [[["never"], ["w=dog", "nor", "this"]]]
    assert_same(scores(model, unseen), scores(model, [[[], ["w=dog"]]]))


def test_tokens_without_features(name):
    new = make(name).fit([[["a"], [], ["b"]], [[]], [{}]], [["A", "B", "B"], ["B"], ["B"]])
    assert new.predict([[["a"], []]]) == [["A", "B"]]


def test_no_features_at_all(name):
    new = make(name).fit([[[], []], [[]]], [["A", "B"], ["B"]])
    assert_scores(new, [[[], ["new"]], [[]]])


STRANGE = [
    "two words",
    "naïve",
    "nai\u0308ve",
    "日本",
    "line\nbreak",
    "tab\t",
    "\u2028",
    "\x00",
    "",
]


def test_any_string_is_a_feature_and_a_label(name, tmp_path):
    data = [[[text], ["plain"]] for text in STRANGE]
    labels = [[text, "plain"] for text in STRANGE]
    new = make(name).fit(data * 3, labels * 3)
    assert new.classes_.tolist() == sorted([*STRANGE, "plain"])
    assert new.predict(data) == labels
    new.save(tmp_path / "model")
    assert bayeseq.load(tmp_path / "model").predict(data) == labels


def test_a_repeated_feature_counts_again(name):
    twice = [[["a", "a"], ["b"]], [["b", "a", "b"], ["a"]]]
    by_value = [[{"a": 2.0}, {"b": 1.0}], [{"b": 2.0, "a": 1.0}, {"a": 1.0}]]
    labels = [["A", "B"], ["B", "A"]]
    first, second = make(name).fit(twice, labels), make(name).fit(by_value, labels)
    # the counts of names differ, so their order may; the optimum does not
    assert_same(scores(first, twice), scores(second, by_value), SAME_OPTIMUM)
    assert_same(scores(first, twice), scores(first, by_value))


def test_dicts_hold_numbers_strings_and_truth(name):
    mixed = [[{"w": "x", "n": 2, "t": True}, {"w": "y", "n": 0.5}], [{"w": "y", "t": True}]]
    plain = [[{"w:x": 1.0, "n": 2.0, "t": 1.0}, {"w:y": 1.0, "n": 0.5}], [["w:y", "t"]]]
    labels = [["A", "B"], ["B"]]
    first, second = make(name).fit(mixed, labels), make(name).fit(plain, labels)
    for data in (mixed, plain):
        assert_same(scores(first, data), scores(second, data))


def test_a_zero_is_an_absent_feature(name):
    with_zeros = [[{"a": 1.0, "b": 0.0}, {"b": 1.0, "a": False}], [{"b": 2.0}, {"a": 1.0}]]
    without = [[{"a": 1.0}, {"b": 1.0}], [{"b": 2.0}, {"a": 1.0}]]
    labels = [["A", "B"], ["B", "A"]]
    first, second = make(name).fit(with_zeros, labels), make(name).fit(without, labels)
    assert_same(scores(first, with_zeros), scores(second, without), SAME_OPTIMUM)


def _as_dicts(arrays, names):
    return [
        [{names[d]: v for d, v in enumerate(row) if v != 0} for row in array.tolist()]
        for array in arrays
    ]


@pytest.mark.parametrize(
    "kind", [np.asarray, np.float32, sp.csr_matrix, sp.csc_matrix, sp.coo_array, sp.lil_matrix]
)
def test_arrays_and_sparse_matrices_equal_dicts(name, kind):
    rng = np.random.default_rng(3)
    # columns by falling count, as the features of dicts are ordered, and some zeros everywhere
    arrays = [rng.integers(1, 9, (n, 3)) / 4 * [1, 1, 0] for n in (3, 1, 4)]
    arrays[0][0, 1] = 0
    arrays[2][1:3, 2] = 1.5
    labels = [["A", "B", "A"], ["B"], ["A", "A", "B", "C"]]
    dicts = _as_dicts(arrays, ["f0", "f1", "f2"])
    from_dicts = make(name).fit(dicts, labels)
    from_arrays = make(name).fit([kind(array) for array in arrays], labels)
    assert from_dicts.feature_space_.names == ("f0", "f1", "f2")
    new = [array[::-1].copy() for array in arrays]
    assert_same(
        scores(from_arrays, [kind(array) for array in new]),
        scores(from_dicts, _as_dicts(new, ["f0", "f1", "f2"])),
        1e-10,
    )
    assert from_arrays.predict([np.zeros((0, 3)), new[0]])[0] == []


def test_stored_zeros_of_sparse_matrices_are_zeros(name):
    dense = [np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[2.0, 0.0], [1.0, 1.0]])]
    stored = [sp.csr_matrix((a.ravel(), [0, 1, 0, 1], [0, 2, 4]), shape=(2, 2)) for a in dense]
    labels = [["A", "B"], ["B", "A"]]
    first, second = make(name).fit(dense, labels), make(name).fit(stored, labels)
    assert_same(scores(first, dense), scores(second, stored), SAME_OPTIMUM)


def test_other_containers(name, model):
    """Generators of sequences, tuples of tokens, sets and tuples of features, arrays of labels."""
    as_sets = [tuple(set(token) for token in sequence) for sequence in X]
    new = make(name).fit((x for x in as_sets), (tuple(labels) for labels in Y))
    expected = scores(model, NEW)
    assert_same(scores(new, NEW), expected)
    assert_same(scores(model, (x for x in NEW)), expected)
    assert_same(scores(model, tuple(tuple(map(tuple, x)) for x in NEW)), expected)
    assert_same(scores(model, [[frozenset(token) for token in x] for x in NEW]), expected)
    assert model.score((x for x in X), (labels for labels in Y)) == model.score(X, Y)


def test_labels_in_arrays_come_back_as_plain_strings(name, model):
    new = make(name).fit(X, [np.array(labels) for labels in Y])
    assert {type(label) for row in new.predict(NEW) for label in row} == {str}
    assert new.predict(NEW) == model.predict(NEW)


# ---- what may stand in y ----------------------------------------------------------------------


def test_missing_labels_and_label_sets(name):
    partial = copy.deepcopy(Y)
    partial[0][1] = None
    partial[2][0] = {"O", "B"}
    partial[3] = [None] * 5
    partial[4] = [("B", "I")]
    new = make(name).fit(X, partial)
    assert new.classes_.tolist() == ["B", "I", "O"]
    assert new.predict([X[1]]) == [["B"]]
    assert_scores(new, X)


def test_label_sets_mean_what_they_hold(name):
    """A set of one is that label, a set of all is a missing one, and any container will do."""
    plain, sets = copy.deepcopy(Y), copy.deepcopy(Y)
    plain[0][0], sets[0][0] = "O", {"O"}
    plain[2][1], sets[2][1] = None, {"B", "I", "O"}
    plain[3][3], sets[3][3] = {"B", "O"}, ("O", "B")
    plain[3][4], sets[3][4] = {"B", "O"}, frozenset({"O", "B"})
    first, second = make(name).fit(X, plain), make(name).fit(X, sets)
    assert_same(scores(first, NEW), scores(second, NEW))


def test_a_label_known_only_from_a_set_is_a_class(name):
    new = make(name).fit([[["a"], ["b"]]], [["A", {"A", "Z"}]])
    assert new.classes_.tolist() == ["A", "Z"]


def test_partial_labels_teach(name):
    """Knowing a little leads to the same labels as knowing all, on an easy task."""
    data, labels = easy_task(4, 60)
    rng = np.random.default_rng(0)
    partial = [[label if rng.random() < 0.6 else None for label in row] for row in labels]
    test = easy_task(5, 60)
    assert make(name).fit(data, partial).score(*test) > 0.8


def test_all_labels_missing_is_an_error(name):
    with pytest.raises(DataError, match="no label"):
        make(name).fit(X, [[None] * len(labels) for labels in Y])


def test_score_is_token_accuracy(model):
    data = X + NEW
    truth = [*Y, ["B", "never seen", "O"], [{"O", "I"}], ["O", None, None, ("B", "O"), "B"]]
    weights = np.linspace(0, 2, len(data))
    for weight in (None, weights):
        right = total = 0.0
        for i, (labels, found) in enumerate(zip(truth, model.predict(data), strict=True)):
            for true, label in zip(labels, found, strict=True):
                if true is None:
                    continue
                w = 1.0 if weight is None else weight[i]
                total += w
                if (isinstance(true, str) and true == label) or (
                    not isinstance(true, str) and label in true
                ):
                    right += w
        assert model.score(data, truth, weight) == pytest.approx(right / total, abs=1e-14)


def test_a_label_never_seen_is_missed(model):
    assert model.score([[["w=dog"]]], [["never seen"]]) == 0.0


def test_nothing_to_score_is_an_error(model):
    with pytest.raises(DataError, match="no token"):
        model.score([[["w=dog"]]], [[None]])
    with pytest.raises(DataError, match="no token"):
        model.score([], [])


# ---- labels given at prediction ---------------------------------------------------------------


def test_given_labels_are_certain_and_move_their_neighbours(sure_model):
    data = [[[], [], []], *NEW]
    given = [[None, "I", None], *([None] * len(x) for x in NEW)]
    free, bound = sure_model.predict_proba(data), sure_model.predict_proba(data, given)
    assert sure_model.predict(data, given)[0][1] == "I"
    np.testing.assert_allclose(bound[0][1], [0, 1, 0], rtol=0, atol=1e-12)
    assert np.abs(bound[0][0] - free[0][0]).max() > 0.01
    assert np.abs(bound[0][2] - free[0][2]).max() > 0.01
    assert_same(bound[1:], free[1:], 1e-12)
    assert sure_model.predict_marginals(data, given)[0][1] == dict(
        zip(sure_model.classes_, bound[0][1].tolist(), strict=True)
    )


def test_given_sets_leave_only_their_members(sure_model):
    given = [[{"B", "O"}, None, ("I", "O")], [{"I"}], [None] * 5]
    bound = sure_model.predict_proba(NEW, given)
    assert bound[0][0, 1] == 0
    assert bound[0][2, 0] == 0
    assert bound[1][0].tolist() == [0, 1, 0]
    for p in bound:
        np.testing.assert_allclose(p.sum(1), 1, rtol=0, atol=1e-12)
    labels = sure_model.predict(NEW, given)
    assert labels[0][0] in {"B", "O"}
    assert labels[0][2] in {"I", "O"}
    assert labels[1] == ["I"]


def test_nothing_given_changes_nothing(model):
    nothing = [[None] * len(x) for x in NEW]
    assert_same(scores(model, NEW, nothing), scores(model, NEW), 1e-12)
    assert model.predict(NEW, nothing) == model.predict(NEW)


def test_everything_given_is_the_answer(model):
    assert model.predict(X, Y) == Y


def test_a_given_label_that_does_not_exist_is_an_error(model):
    with pytest.raises(DataError, match=r"sequence 1, token 0.*'Z'"):
        model.predict(NEW, [[None] * 3, ["Z"], [None] * 5])
    with pytest.raises(DataError, match="sequence 2 has 5 tokens in X, but 4"):
        scores(model, NEW, [[None] * 3, [None], [None] * 4])


# ---- weights ----------------------------------------------------------------------------------


def test_weight_two_is_the_sequence_twice(unordered_name):
    weighted = make(unordered_name).fit(X, Y, sample_weight=[1, 2, 1, 3, 1, 1])
    repeated = make(unordered_name).fit([*X, X[1], X[3], X[3]], [*Y, Y[1], Y[3], Y[3]])
    tolerance = TOLERANCES.get(unordered_name, SAME_OPTIMUM)
    assert_same(scores(weighted, NEW), scores(repeated, NEW), tolerance)


def test_weight_two_is_the_sequence_twice_with_missing_labels(unordered_name):
    partial = copy.deepcopy(Y)
    partial[3] = ["B", None, {"O", "I"}, None, "O"]
    weighted = make(unordered_name).fit(X, partial, sample_weight=[1, 1, 1, 2, 1, 1])
    repeated = make(unordered_name).fit([*X, X[3]], [*partial, partial[3]])
    tolerance = TOLERANCES.get(unordered_name, 1e-5)
    assert_same(scores(weighted, NEW), scores(repeated, NEW), tolerance)


def test_weight_zero_is_left_out(name, model):
    """The sentence that is left out has no word, label or label pair that the others have not."""
    extra, labels = [["w=the", "low"], ["w=dog", "low"], ["w=Rex", "cap"]], ["O", "O", "B"]
    weighted = make(name).fit([extra, *X], [labels, *Y], sample_weight=[0, *[1] * len(X)])
    tolerance = TOLERANCES.get(name, SAME_OPTIMUM)
    assert_same(scores(weighted, NEW), scores(model, NEW), tolerance)


def test_equal_weights_of_one_change_nothing(name, model):
    weighted = make(name).fit(X, Y, sample_weight=np.ones(len(X)))
    assert_same(scores(weighted, NEW), scores(model, NEW))


@pytest.mark.parametrize("bad", [[1.0], [1, 1, 1, 1, 1, -1], [1, 1, 1, 1, 1, np.nan], 2.0])
def test_weights_that_make_no_sense(name, bad, model):
    with pytest.raises(DataError, match="sample_weight"):
        make(name).fit(X, Y, sample_weight=bad)
    with pytest.raises(DataError, match="sample_weight"):
        model.score(X, Y, sample_weight=bad)


# ---- saving -----------------------------------------------------------------------------------


def test_saved_and_loaded_is_the_same_to_the_last_bit(name, model, tmp_path):
    model.save(tmp_path / "model")
    loaded = bayeseq.load(tmp_path / "model")
    assert type(loaded) is LABELERS[name]
    assert str(loaded.get_params()) == str(model.get_params())
    assert loaded.classes_.tolist() == model.classes_.tolist()
    assert loaded.result_ == model.result_
    assert_same(scores(loaded, X + NEW), scores(model, X + NEW))
    assert loaded.predict(X + NEW) == model.predict(X + NEW)


def test_numeric_models_are_saved(name, tmp_path):
    new = make(name).fit([np.eye(3)[:2], np.eye(3)[1:]], [["A", "B"], ["B", "C"]])
    new.save(tmp_path / "model")
    loaded = bayeseq.load(tmp_path / "model")
    assert_same(scores(loaded, [np.ones((4, 3))]), scores(new, [np.ones((4, 3))]))


def test_saving_over_an_older_model(name, model, tmp_path):
    make(name).fit(NEW, [["B", "I", "O"], ["O"], ["X"] * 5]).save(tmp_path / "model")
    model.save(tmp_path / "model")
    assert_same(scores(bayeseq.load(tmp_path / "model"), NEW), scores(model, NEW))
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_loaded_model_can_be_fitted_again(name, model, tmp_path):
    model.save(tmp_path / "model")
    again = bayeseq.load(tmp_path / "model").fit(X, Y)
    assert_same(scores(again, NEW), scores(model, NEW))


# ---- bad data ---------------------------------------------------------------------------------

BAD_FITS = {
    "no sequences": ([], [], "no token"),
    "no tokens": ([[]], [[]], "no token"),
    "token is a string": ([[["a"], "word"]], [["A", "B"]], "sequence 0, token 1.*'word'"),
    "sequence is a string": ([[["a"]], "text"], [["A"], ["B"] * 4], "sequence 1 is a str"),
    "sequence is a dict": ([{"a": 1.0}], [["A"]], "sequence 0 is a dict"),
    "feature is a number": ([[["a"], [3]]], [["A", "B"]], "sequence 0, token 1.*3"),
    "feature name is a number": ([[{3: 1.0}]], [["A"]], "sequence 0, token 0.*3"),
    "value is NaN": ([[["a"]], [["a"], {"b": np.nan}]], [["A"], ["A", "B"]], "1, token 1.*'b'"),
    "value is infinite": ([[{"b": np.inf}]], [["A"]], "sequence 0, token 0.*'b'"),
    "value is an object": ([[{"b": object()}]], [["A"]], "sequence 0, token 0.*'b'"),
    "value is None": ([[{"b": None}]], [["A"]], "sequence 0, token 0.*'b'"),
    "fewer sequences in y": ([[["a"]], [["b"]]], [["A"]], "2 sequences, y has 1"),
    "fewer labels": ([[["a"]], [["b"], ["a"]]], [["A"], ["B"]], "sequence 1 has 2 tokens.*1"),
    "label is a number": ([[["a"], ["b"]]], [["A", 3]], "sequence 0, token 1.*3"),
    "label is -100": ([[["a"], ["b"]]], [["A", -100]], "sequence 0, token 1.*None"),
    "label set is empty": ([[["a"], ["b"]]], [["A", set()]], "sequence 0, token 1.*empty"),
    "number in a label set": ([[["a"]]], [[{"A", 1}]], "sequence 0, token 0.*1"),
    "labels are a string": ([[["a"], ["b"]]], ["AB"], "sequence 0 of y is a str"),
    "labels are a number": ([[["a"], ["b"]]], [2], "sequence 0 of y is a int"),
    "labels are missing": ([[["a"]], [["b"]]], [["A"], None], "sequence 1 of y"),
    "NaN in an array": (
        [np.eye(2), np.array([[1.0, 0.0], [0.0, np.nan]])],
        [["A", "B"], ["A", "B"]],
        "sequence 1, token 1, column 1",
    ),
    "None in an array": (
        [np.array([[1.0, None]], dtype=object)],
        [["A"]],
        "sequence 0",
    ),
    "text in an array": ([np.array([["a", "b"]])], [["A"]], "sequence 0"),
    "flat array": ([np.ones(3)], [["A"] * 3], r"sequence 0 is shape \(3,\)"),
    "columns differ": ([np.eye(2), np.eye(3)], [["A", "B"], ["A"] * 3], "sequence 1 has 3 col"),
    "arrays and names": ([np.eye(2), [["a"]]], [["A", "B"], ["A"]], "sequence 1 is a list"),
}


@pytest.mark.parametrize("case", sorted(BAD_FITS))
def test_bad_training_data_is_named(name, case):
    data, labels, message = BAD_FITS[case]
    with pytest.raises(DataError, match=message):
        make(name).fit(data, labels)


def test_bad_data_at_prediction_is_named(name, model):
    with pytest.raises(DataError, match=r"sequence 1, token 0.*'word'"):
        model.predict([[["a"]], ["word"]])
    with pytest.raises(DataError, match=r"sequence 0, token 0.*'a'"):
        scores(model, [[{"a": np.nan}]])
    with pytest.raises(DataError, match="sequence 0 is a int"):
        model.predict([5])
    with pytest.raises(DataError, match=r"holds numbers.*fitted on features"):
        model.predict([np.eye(2)])
    numeric = make(name).fit([np.eye(2)], [["A", "B"]])
    with pytest.raises(DataError, match="sequence 1 has 3 columns, expected 2"):
        numeric.predict([np.eye(2), np.eye(3)])
    with pytest.raises(DataError, match=r"holds features.*fitted on numbers"):
        numeric.predict([[["a"]]])
    with pytest.raises(DataError, match="sequence 0"):
        numeric.predict([5])


def test_bad_labels_at_scoring_are_named(model):
    with pytest.raises(DataError, match="2 sequences, y has 1"):
        model.score(X[:2], Y[:1])
    with pytest.raises(DataError, match="sequence 0 has 4 tokens"):
        model.score(X[:1], [["O"]])
    with pytest.raises(DataError, match=r"sequence 0, token 3.*7"):
        model.score(X[:1], [["O", "O", "B", 7]])


def test_a_fit_that_is_refused_leaves_the_earlier_one(name, model):
    new = make(name).fit(X, Y)
    for data, labels, _ in BAD_FITS.values():
        with pytest.raises(DataError):
            new.fit(data, labels)
    assert_same(scores(new, NEW), scores(model, NEW))
    assert new.predict(NEW) == model.predict(NEW)


def test_a_fit_that_breaks_off_leaves_the_earlier_one(name, model, monkeypatch):
    """The third forward–backward pass of the new fit, or the third inverse or decoding where it
    needs none, fails, as it might for want of memory."""
    new = make(name).fit(X, Y)
    passes = []

    def breaking(right):
        def broken(*args, **kwargs):
            passes.append(right)
            if passes.count(right) >= 3:
                raise MemoryError("no more")
            return right(*args, **kwargs)

        return broken

    for work, right in (
        ("forward_backward", chain.forward_backward),
        ("inverse", linalg.inverse),
        ("viterbi", chain.viterbi),
        ("kbest", chain.kbest),
        ("first_mistake", marginalized.first_mistake),
        ("bounded_step", marginalized_svm.bounded_step),
    ):
        broken = breaking(right)
        for module_name, module in list(sys.modules.items()):
            if module_name.startswith("bayeseq.") and getattr(module, work, 0) is right:
                monkeypatch.setattr(module, work, broken)
    data, labels = easy_task(6, 8)
    partial = [[None, *row[1:]] for row in labels]
    with pytest.raises(MemoryError):
        new.fit(data, partial)
    monkeypatch.undo()
    assert_same(scores(new, NEW), scores(model, NEW))
    assert new.predict(NEW) == model.predict(NEW)


# ---- learning ---------------------------------------------------------------------------------


def test_it_learns(name):
    trained = make(name).fit(*easy_task(0, 60))
    data, labels = easy_task(1, 100)
    assert trained.score(data, labels) > 0.9
    assert trained.result_.converged
    assert trained.result_.iterations == len(trained.result_.objective) >= 1
    assert all(np.isfinite(trained.result_.objective))
    assert trained.result_.seconds >= 0


def test_rare_features_are_left_out(name):
    if "min_count" not in make(name).get_params():
        pytest.skip(f"{name} keeps all features")
    new = make(name, min_count=3).fit(X, Y)
    counts = {}
    for sequence in X:
        for token in sequence:
            for feature in token:
                counts[feature] = counts.get(feature, 0) + 1
    assert set(new.feature_space_.names) == {f for f, n in counts.items() if n >= 3}
    rare = [[["w=Lee", "cap"], ["w=cat"]]]
    assert_same(scores(new, rare), scores(new, [[["cap"], []]]))
