"""Feature matrices against loops, and against CRFsuite's reading of dicts."""

import os
import pickle
import subprocess
import sys
from collections import Counter

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings

from bayeseq import DataError
from bayeseq.data import FeatureSpace, features

NAMES = st.sampled_from(["a", "b", "c", "d", "é", "w=x", "w x", ""])
WORDS = st.sampled_from(["x", "y", "é:"])
NUMBERS = st.one_of(
    st.floats(-3, 3).filter(bool), st.integers(1, 4), st.just(True), st.floats(1, 2, width=32)
)
TOKENS = st.one_of(
    st.lists(NAMES, max_size=4),
    st.lists(NAMES, max_size=4).map(tuple),
    st.sets(NAMES, max_size=4),
    st.frozensets(NAMES, max_size=4),
    st.dictionaries(NAMES, st.one_of(NUMBERS, WORDS, st.lists(WORDS, max_size=2)), max_size=4),
)
SEQUENCES = st.lists(st.lists(TOKENS, max_size=4), max_size=4)
PLAIN = st.lists(st.lists(st.lists(NAMES, max_size=4), max_size=4), max_size=4)


def items(token):
    """The (name, value) pairs of a token."""
    if not isinstance(token, dict):
        return [(name, 1.0) for name in token]
    found = []
    for name, value in token.items():
        if isinstance(value, str):
            found.append((f"{name}:{value}", 1.0))
        elif isinstance(value, list):
            found += [(f"{name}:{word}", 1.0) for word in value]
        else:
            found.append((name, float(value)))
    return found


def ordered_names(X, min_count):
    counts = Counter(name for x in X for token in x for name, _ in items(token))
    kept = [name for name, n in counts.items() if n >= min_count]
    return tuple(sorted(kept, key=lambda name: (-counts[name], name)))


def dense(X, names):
    rows = []
    for x in X:
        for token in x:
            row = [0.0] * len(names)
            for name, value in items(token):
                if name in names:
                    row[names.index(name)] += value
            rows.append(row)
    return np.array(rows).reshape(len(rows), len(names))


@settings(max_examples=150, deadline=None)
@given(SEQUENCES, SEQUENCES, st.integers(1, 3))
def test_matrices_equal_loops(X, new, min_count):
    space, matrix, lengths = FeatureSpace.learn(X, min_count)
    assert space.names == ordered_names(X, min_count)
    assert space.n_features == len(space.names)
    assert lengths.tolist() == [len(x) for x in X]
    np.testing.assert_allclose(matrix.toarray(), dense(X, space.names), rtol=0, atol=1e-12)
    again, lengths = space.matrix(X)
    assert (again != matrix).nnz == 0
    found, lengths = space.matrix(new)
    assert lengths.tolist() == [len(x) for x in new]
    np.testing.assert_allclose(found.toarray(), dense(new, space.names), rtol=0, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(PLAIN, st.randoms())
def test_the_order_within_a_token_does_not_matter(X, random):
    shuffled = [[random.sample(token, len(token)) for token in x] for x in X]
    space, matrix, _ = FeatureSpace.learn(X)
    other, permuted, _ = FeatureSpace.learn(shuffled)
    assert space == other
    assert (matrix != permuted).nnz == 0
    assert matrix.indices.tolist() == permuted.indices.tolist()
    assert matrix.data.tolist() == permuted.data.tolist()


def test_names_go_by_falling_count_then_by_name():
    space, _, _ = FeatureSpace.learn([[["z", "b", "a"], ["z", "é"]], [["z", "a"], ["B"]]])
    assert space.names == ("z", "a", "B", "b", "é")


def test_a_set_is_the_list_of_its_members():
    as_lists = [[["a", "b"], ["b"]], [["c", "a"]]]
    as_sets = [[set(token) for token in x] for x in as_lists]
    space, matrix, _ = FeatureSpace.learn(as_lists)
    other, same, _ = FeatureSpace.learn(as_sets)
    assert space == other
    assert matrix.toarray().tolist() == same.toarray().tolist()


def test_min_count_counts_tokens_and_repetitions():
    X = [[["a", "a"], ["b"], {"c": 5.0}], [["b"], ["c"], ["d"]]]
    assert FeatureSpace.learn(X, 2)[0].names == ("a", "b", "c")
    space, matrix, _ = FeatureSpace.learn(X, 3)
    assert space.names == ()
    assert matrix.shape == (6, 0)


def test_unknown_features_leave_known_ones_alone():
    space, _, _ = FeatureSpace.learn([[["a", "b"]]])
    matrix, _ = space.matrix([[["x", "b", "y", "a", "a"], ["x"], []]])
    assert matrix.toarray().tolist() == [[2, 1], [0, 0], [0, 0]]


def test_no_sequences_and_no_tokens():
    space, matrix, lengths = FeatureSpace.learn([])
    assert (space.names, matrix.shape, lengths.tolist()) == ((), (0, 0), [])
    space, _, _ = FeatureSpace.learn([[["a"]]])
    for X in ([], [[]], [[], ()]):
        matrix, lengths = space.matrix(X)
        assert matrix.shape == (0, 1)
        assert lengths.tolist() == [0] * len(X)


def test_generators_of_sequences():
    X = [[["a", "b"]], [["a"]]]
    space, matrix, _ = FeatureSpace.learn(x for x in X)
    assert (space.matrix(x for x in X)[0] != matrix).nnz == 0


# ---- dicts, as CRFsuite reads them ------------------------------------------------------------

KEYS = st.text("abé =", min_size=1, max_size=3)
VALUES = st.one_of(
    st.floats(-100, 100),
    st.integers(-5, 5),
    st.booleans(),
    st.text("xyé", min_size=1, max_size=3),
    st.lists(st.text("xyé", min_size=1, max_size=3), unique=True, max_size=3),
    st.sets(st.text("xyé", min_size=1, max_size=3), max_size=3),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=4), min_size=1, max_size=4))
def test_dicts_are_read_as_crfsuite_reads_them(x):
    pycrfsuite = pytest.importorskip("pycrfsuite", reason="the peer to compare with is optional")
    space, matrix, _ = FeatureSpace.learn([x])
    expected = pycrfsuite.ItemSequence(x).items()
    for row, token in zip(matrix.toarray(), expected, strict=True):
        found = dict(zip(space.names, row, strict=True))
        assert {k: v for k, v in found.items() if v != 0} == {
            k: v for k, v in token.items() if v != 0
        }


@pytest.mark.parametrize("true", [True, np.bool_(True), 1, 1.0, np.float32(1), np.int8(1)])
def test_ways_to_say_one(true):
    space, matrix, _ = FeatureSpace.learn([[{"a": true}]])
    assert space.names == ("a",)
    assert matrix.toarray().tolist() == [[1.0]]


@pytest.mark.parametrize("false", [False, np.bool_(False), 0, 0.0, -0.0])
def test_ways_to_say_zero(false):
    space, _, _ = FeatureSpace.learn([[["a"]]])
    assert space.matrix([[{"a": false}]])[0].toarray().tolist() == [[0.0]]


# ---- numbers ----------------------------------------------------------------------------------

KINDS = [np.asarray, np.int64, np.float32, sp.csr_matrix, sp.csc_array, sp.coo_matrix]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from(KINDS)), min_size=1, max_size=4),
    st.integers(0, 3),
    st.integers(0, 2**32 - 1),
)
def test_numeric_sequences_are_stacked(parts, n_columns, seed):
    rng = np.random.default_rng(seed)
    arrays = [rng.integers(-2, 3, (n, n_columns)) for n, _ in parts]
    X = [kind(array.astype(float)) for array, (_, kind) in zip(arrays, parts, strict=True)]
    space, matrix, lengths = FeatureSpace.learn(X, min_count=99)
    assert space == FeatureSpace(None, n_columns)
    assert lengths.tolist() == [n for n, _ in parts]
    assert matrix.dtype == np.float64
    np.testing.assert_array_equal(matrix.toarray(), np.concatenate(arrays))
    np.testing.assert_array_equal(space.matrix(X)[0].toarray(), np.concatenate(arrays))
    assert space.matrix([])[0].shape == (0, n_columns)


# ---- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([[["a"]], "text"], r"sequence 1 is a str"),
        ([[["a"]], {"a": 1}], r"sequence 1 is a dict"),
        ([[["a"]], 7], r"sequence 1 is a int"),
        ([[["a"]], {"a"}], r"sequence 1 is a set"),
        ([[["a"], "word"]], r"sequence 0, token 1 is 'word'"),
        ([[["a"]], [["a"], 5]], r"sequence 1, token 1 is 5"),
        ([[["a"], None]], r"sequence 0, token 1 is None"),
        ([[["a", 5]]], r"sequence 0, token 0: feature 5 is not a string"),
        ([[["a"], [b"a"]]], r"sequence 0, token 1: feature b'a' is not a string"),
        ([[["a"], [None]]], r"sequence 0, token 1: feature None"),
        ([[{1: 1.0}]], r"sequence 0, token 0: feature name 1 is not a string"),
        ([[{"a": float("nan")}]], r"sequence 0, token 0: feature 'a' is nan"),
        ([[{"a": float("-inf")}]], r"sequence 0, token 0: feature 'a' is -inf"),
        ([[{"a": 10**400}]], r"sequence 0, token 0: feature 'a'"),
        ([[{"a": None}]], r"sequence 0, token 0: feature 'a' is a NoneType"),
        ([[{"a": 1j}]], r"sequence 0, token 0: feature 'a' is a complex"),
        ([[{"a": b"x"}]], r"sequence 0, token 0: feature 'a' is a bytes"),
        ([[{"a": [1, 2]}]], r"sequence 0, token 0: feature 'a' is a list"),
        ([np.ones((2, 2)), [["a"]]], r"sequence 1 is a list"),
        ([[["a"]], np.ones((2, 2))], r"sequence 0 is a list"),
        ([np.ones((2, 2)), np.ones(2)], r"sequence 1 is shape \(2,\)"),
        ([np.ones((2, 2, 2))], r"sequence 0 is shape \(2, 2, 2\)"),
        ([np.ones((1, 2)), np.ones((1, 3))], r"sequence 1 has 3 columns, expected 2"),
        ([np.ones((1, 2)), np.array([[1, np.inf]])], r"sequence 1, token 0, column 1 is inf"),
        (
            [sp.csr_matrix([[0.0, 1.0], [np.nan, 0.0]])],
            r"sequence 0, token 1, column 0 is nan",
        ),
        ([np.array([["a"]])], r"sequence 0"),
        ([np.array([[1j]])], r"sequence 0"),
        ([np.array([[1.0, None]], dtype=object)], r"sequence 0"),
    ],
)
def test_bad_features_are_named(X, message):
    with pytest.raises(DataError, match=message):
        FeatureSpace.learn(X)


def test_numbers_and_names_do_not_mix_at_prediction():
    named, _, _ = FeatureSpace.learn([[["a"]]])
    without, _, _ = FeatureSpace.learn([[[]]])
    numeric, _, _ = FeatureSpace.learn([np.ones((1, 2))])
    for space in (named, without):
        with pytest.raises(DataError, match=r"X holds numbers, .* fitted on features"):
            space.matrix([np.ones((1, 2))])
    with pytest.raises(DataError, match=r"X holds features, .* fitted on numbers"):
        numeric.matrix([[["a"]]])
    with pytest.raises(DataError, match="sequence 1 has 3 columns, expected 2"):
        numeric.matrix([np.ones((1, 2)), np.ones((1, 3))])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text(max_size=4), unique=True, max_size=200),
    st.lists(st.text(max_size=4), max_size=50),
)
def test_looking_up_equals_a_dict(names, others):
    """Whatever the vocabulary's size, known names have their column and others none."""
    space = FeatureSpace(tuple(names), len(names))
    asked = [*names, *others, *names[::-1]]
    matrix, _ = space.matrix([[[name] for name in asked]])
    known = {name: column for column, name in enumerate(names)}
    found = [row.indices.tolist() for row in matrix]
    assert found == [[known[name]] if name in known else [] for name in asked]


def test_a_copy_in_another_process_finds_the_same_names():
    """Strings hash otherwise there, so nothing that depends on it may travel."""
    names = tuple(f"name {k}" for k in range(50))
    space = FeatureSpace(names, len(names))
    space.matrix([[["name 0"]]])  # the table is made, and would be copied
    program = (
        "import pickle, sys; space = pickle.load(sys.stdin.buffer); "
        "print(space.matrix([[[name] for name in space.names]])[0].indices.tolist())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps(space),
        stdout=subprocess.PIPE,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "7"},
    )
    assert done.stdout.decode().strip() == str(list(range(50)))


def test_learning_by_blocks_equals_learning_at_once(monkeypatch):
    X = [[["a", "b"], ["a"]], [], [{"b": 0.5, "c": "x"}], [["d"]], [["a", "d"]]]
    space, matrix, lengths = FeatureSpace.learn(X)
    monkeypatch.setattr(features, "_BLOCK", 2)
    again, again_matrix, again_lengths = FeatureSpace.learn(x for x in X)
    assert again == space
    np.testing.assert_array_equal(again_lengths, lengths)
    np.testing.assert_array_equal(again_matrix.toarray(), matrix.toarray())
    with pytest.raises(DataError, match="sequence 3, token 0: feature 5 is not a string"):
        FeatureSpace.learn([*X[:3], [[5]]])
    with pytest.raises(DataError, match="sequence 4 is a str"):
        FeatureSpace.learn([*X[:4], "ab"])
    numbers = [np.eye(2), np.ones((1, 2)), np.zeros((3, 2))]
    np.testing.assert_array_equal(
        FeatureSpace.learn(iter(numbers))[1].toarray(), np.concatenate(numbers)
    )


def test_a_generator_is_not_held(monkeypatch):
    """Of a generator's sequences no more are alive than two blocks have."""
    monkeypatch.setattr(features, "_BLOCK", 10)

    class Sentence(list):
        alive = most = 0

        def __init__(self, tokens):
            super().__init__(tokens)
            Sentence.alive += 1
            Sentence.most = max(Sentence.most, Sentence.alive)

        def __del__(self):
            Sentence.alive -= 1

    space = FeatureSpace.learn(Sentence([[f"w{k}"]]) for k in range(100))[0]
    assert space.n_features == 100
    assert Sentence.most <= 21
