"""Labels, missing labels and label sets against loops."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from bayeseq import DataError
from bayeseq.data import LabelSpace

CLASSES = ["A", "B", "b", "é", ""]
LABEL = st.sampled_from(CLASSES)
LABELS = st.one_of(
    LABEL,
    st.none(),
    st.sets(LABEL, min_size=1),
    st.frozensets(LABEL, min_size=1),
    st.lists(LABEL, min_size=1, max_size=3),
    st.lists(LABEL, min_size=1, max_size=3).map(tuple),
)


def members(label):
    return [] if label is None else [label] if isinstance(label, str) else list(label)


@settings(max_examples=120, deadline=None)
@given(st.lists(st.lists(LABELS, max_size=4), max_size=4))
def test_spaces_and_masks_equal_loops(y):
    seen = sorted({member for row in y for label in row for member in members(label)})
    if not seen:
        with pytest.raises(DataError, match="no label"):
            LabelSpace.learn(y)
        return
    space = LabelSpace.learn(y)
    assert space.classes == tuple(seen)
    expected = [
        [label is None or name in members(label) for name in seen] for row in y for label in row
    ]
    found = space.allowed(y, [len(row) for row in y])
    assert found.dtype == bool
    assert found.shape == (len(expected), len(seen))
    assert found.tolist() == expected


def test_classes_are_sorted_by_code_point():
    assert LabelSpace.learn([["b", "é", "B", "", "A"]]).classes == ("", "A", "B", "b", "é")


def test_arrays_and_tuples_of_labels():
    y = [np.array(["A", "B"]), ("B",), np.array(["A", None, {"A", "B"}], dtype=object)]
    space = LabelSpace.learn(y)
    assert space.classes == ("A", "B")
    assert {type(name) for name in space.classes} == {str}
    assert space.allowed(y, [2, 1, 3]).sum(1).tolist() == [1, 1, 1, 1, 2, 2]


def test_no_sequences_of_a_known_space():
    assert LabelSpace(("A", "B")).allowed([], []).shape == (0, 2)
    assert LabelSpace(("A", "B")).allowed([[], []], [0, 0]).shape == (0, 2)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([], r"no label"),
        ([[]], r"no label"),
        ([[None], [None, None]], r"no label"),
        ([["A"], ["A", 1]], r"sequence 1, token 1: label 1 is not a string"),
        ([["A", -100]], r"sequence 0, token 1: label -100.*None"),
        ([["A", float("nan")]], r"sequence 0, token 1: label nan"),
        ([["A", b"A"]], r"sequence 0, token 1: label b'A'"),
        ([["A", {"A": 1}]], r"sequence 0, token 1"),
        ([["A", set()]], r"sequence 0, token 1: .*empty"),
        ([["A", ()]], r"sequence 0, token 1: .*empty"),
        ([["A", {"A", None}]], r"sequence 0, token 1: allowed label None"),
        ([["A"], "text"], r"sequence 1 of y is a str"),
        ([["A"], {"A"}], r"sequence 1 of y is a set"),
        ([["A"], None], r"sequence 1 of y is a NoneType"),
        ([["A"], 5], r"sequence 1 of y is a int"),
    ],
)
def test_bad_labels_are_named(y, message):
    with pytest.raises(DataError, match=message):
        LabelSpace.learn(y)


@pytest.mark.parametrize(
    ("y", "lengths", "message"),
    [
        ([["A"]], [1, 1], r"X has 2 sequences, y has 1"),
        ([["A"], ["B"]], [1], r"X has 1 sequences, y has 2"),
        ([["A"], ["B"]], [1, 2], r"sequence 1 has 2 tokens in X, but 1 labels in y"),
        ([["A"], []], [1, 1], r"sequence 1 has 1 tokens in X, but 0"),
        ([["A"], ["Z"]], [1, 1], r"sequence 1, token 0: label 'Z'.*A, B"),
        ([["A", {"B", "Z"}]], [2], r"sequence 0, token 1: label 'Z'"),
        ([["A", set()]], [2], r"sequence 0, token 1: .*empty"),
        ([["A", 3]], [2], r"sequence 0, token 1: label 3"),
        (["AB"], [2], r"sequence 0 of y is a str"),
        ([7], [2], r"sequence 0 of y is a int"),
    ],
)
def test_labels_that_do_not_fit_are_named(y, lengths, message):
    with pytest.raises(DataError, match=message):
        LabelSpace(("A", "B")).allowed(y, lengths)
