"""Tag schemes against seqeval, a plain reading of the CoNLL rules, and one another."""

from collections.abc import Iterator
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import seqeval.scheme as peer
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities

from bayeseq.data.errors import DataError
from bayeseq.data.schemes import (
    SCHEMES,
    Entity,
    continues,
    convert_tags,
    detect_scheme,
    entities_to_tags,
    entity_types,
    scheme_constraints,
    tags_to_entities,
    validate_tags,
)

LETTERS = {
    "IOB1": "BI",
    "IOB2": "BI",
    "IOE1": "IE",
    "IOE2": "IE",
    "BIOES": "BIES",
    "BILOU": "BILU",
    "BMEWO": "BMEW",
}


def labels_of(scheme: str, types: tuple[str, ...] = ("x", "y")) -> list[str]:
    return ["O", *(f"{letter}-{type_}" for letter in LETTERS[scheme] for type_ in types)]


def sequences(labels: list[str], longest: int) -> Iterator[tuple[str, ...]]:
    for length in range(longest + 1):
        yield from product(labels, repeat=length)


def is_valid(tags: Any, scheme: str) -> bool:
    try:
        validate_tags(tags, scheme)
    except DataError:
        return False
    return True


def conll_entities(tags: tuple[str, ...]) -> list[tuple[int, int, str]]:
    """The oracle: chunk starts and ends as the CoNLL evaluation lists them, with S as one token."""
    ends_between = {"BB", "BO", "IB", "IO", "EB", "EE", "EI", "EO", "BS", "IS", "ES"}
    ends_between |= {"SB", "SI", "SE", "SS", "SO"}
    starts_between = {"BB", "IB", "OB", "OI", "EB", "EE", "EI", "OE", "BS", "IS", "ES", "OS"}
    starts_between |= {"SB", "SI", "SE", "SS"}
    found = []
    start = 0
    padded = ["O", *tags, "O"]
    for t in range(1, len(padded)):
        left, right = padded[t - 1], padded[t]
        pair = left[0] + right[0]
        type_changes = left[2:] != right[2:]
        if pair in ends_between or (left != "O" and type_changes):
            found.append((start, t - 1, left[2:]))
        if pair in starts_between or (right != "O" and type_changes):
            start = t - 1
    return found


@st.composite
def entities(draw: st.DrawFn) -> tuple[list[Entity], int]:
    found = []
    t = 0
    for _ in range(draw(st.integers(0, 5))):
        start = t + draw(st.integers(0, 2))
        t = start + draw(st.integers(1, 3))
        found.append(Entity(start, t, draw(st.sampled_from(["x", "y", "", "a-b", "-"]))))
    return found, t + draw(st.integers(0, 2))


# Reading


def test_the_conll_reading_of_every_short_sequence() -> None:
    for tags in sequences(labels_of("BIOES"), 4):
        found = tags_to_entities(tags)
        assert found == conll_entities(tags)
        assert found == [(start, end + 1, label) for label, start, end in get_entities(list(tags))]


@pytest.mark.parametrize("scheme", ["BILOU", "BMEWO"])
def test_other_letters_are_read_alike(scheme: str) -> None:
    letters = dict(zip(LETTERS[scheme] + "O", LETTERS["BIOES"] + "O", strict=True))
    if scheme == "BMEWO":
        assert letters == {"B": "B", "M": "I", "E": "E", "W": "S", "O": "O"}
    for tags in sequences(labels_of(scheme), 3):
        same = tuple(letters[tag[0]] + tag[1:] for tag in tags)
        assert tags_to_entities(tags) == tags_to_entities(same)
        assert tags_to_entities(tags, scheme) == tags_to_entities(same, "BIOES")
        assert is_valid(tags, scheme) == is_valid(same, "BIOES")
        strict = tags_to_entities(tags, scheme, strict=True)
        assert strict == tags_to_entities(same, "BIOES", strict=True)


@pytest.mark.parametrize(
    ("scheme", "token"),
    [("IOB2", peer.IOB2), ("IOE2", peer.IOE2), ("BIOES", peer.IOBES), ("BILOU", peer.BILOU)],
)
def test_the_strict_reading_is_seqevals(scheme: str, token: Any) -> None:
    for tags in sequences(labels_of(scheme), 4 if len(LETTERS[scheme]) == 2 else 3):
        expected = [(e.start, e.end, e.tag) for e in peer.Tokens(list(tags), token).entities]
        assert tags_to_entities(tags, scheme, strict=True) == expected


@pytest.mark.parametrize(("scheme", "token"), [("IOB1", peer.IOB1), ("IOE1", peer.IOE1)])
def test_the_strict_reading_is_seqevals_on_valid_tags(scheme: str, token: Any) -> None:
    # On broken tags seqeval's IOB1 keeps remainders of entities; its IOE1 by its own word misses
    # entities of one token that are marked E.
    compared = 0
    for tags in sequences(labels_of(scheme), 5):
        if not is_valid(tags, scheme):
            continue
        if any(b[0] == "E" and a != f"I{b[1:]}" for a, b in pairwise(("O", *tags))):
            continue
        expected = [(e.start, e.end, e.tag) for e in peer.Tokens(list(tags), token).entities]
        assert tags_to_entities(tags, scheme, strict=True) == expected
        compared += 1
    assert compared > 100


@pytest.mark.parametrize("scheme", SCHEMES)
def test_strict_entities_are_those_that_would_be_tagged_so(scheme: str) -> None:
    for tags in sequences(labels_of(scheme), 4 if len(LETTERS[scheme]) == 2 else 3):
        lenient = tags_to_entities(tags, scheme)
        strict = tags_to_entities(tags, scheme, strict=True)
        assert set(strict) <= set(lenient)
        again = tuple(entities_to_tags(lenient, len(tags), scheme))
        assert (again == tags) == is_valid(tags, scheme)
        if is_valid(tags, scheme):
            assert strict == lenient


def test_examples() -> None:
    assert tags_to_entities([]) == []
    assert tags_to_entities(["B", "I", "O", "S"]) == [(0, 2, ""), (3, 4, "")]
    assert tags_to_entities(["B-a-b", "I-a-b", "I-a"]) == [(0, 2, "a-b"), (2, 3, "a")]
    assert tags_to_entities(["B", "I-x"]) == [(0, 1, ""), (1, 2, "x")]
    assert tags_to_entities(["I-x", "B-x"], "bio", strict=True) == [(1, 2, "x")]


@pytest.mark.parametrize(
    ("tags", "options", "message"),
    [
        (["O", None], {}, r"position 1: the tag is missing \(None\)"),
        (["O", "NN"], {}, "position 1: 'NN' is not a tag of any scheme"),
        (["S-x"], {"scheme": "IOB2"}, "position 0: 'S-x' is not a tag of IOB2; .* B, I"),
        (["S-x"], {"scheme": "BILOU"}, "not a tag of BILOU; .* B, I, L, U"),
        (["B-"], {}, "'B-' is not a tag"),
        (["O-x"], {}, "'O-x' is not a tag"),
        ([""], {}, "'' is not a tag"),
        ([{"O"}], {}, "is not a tag"),
        ("B-x", {}, "a sequence of tags is expected, and the string 'B-x'"),
        (["O"], {"strict": True}, "needs a scheme"),
        (["O"], {"scheme": "IOB3"}, "no tag scheme 'IOB3'; the schemes are IOB2, .*BIO"),
    ],
)
def test_what_is_no_tag_is_refused(tags: Any, options: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        tags_to_entities(tags, **options)


# Writing and converting


@pytest.mark.parametrize("scheme", [*SCHEMES, "BIO", "IOBES", "BILUO"])
@settings(deadline=None, max_examples=50)
@given(drawn=entities(), data=st.data())
def test_entities_to_tags_and_back(
    scheme: str, drawn: tuple[list[Entity], int], data: st.DataObject
) -> None:
    found, length = drawn
    tags = entities_to_tags(data.draw(st.permutations(found)), length, scheme)
    assert len(tags) == length
    validate_tags(tags, scheme)
    assert tags_to_entities(tags) == found
    assert tags_to_entities(tags, scheme) == found
    assert tags_to_entities(tags, scheme, strict=True) == found
    for target in SCHEMES:
        converted = convert_tags(tags, scheme, target)
        assert converted == entities_to_tags(found, length, target)
        assert convert_tags(converted, target, scheme) == tags


def test_adjacent_entities_in_every_scheme() -> None:
    found = [Entity(0, 2, "x"), Entity(2, 3, "x"), Entity(3, 5, "y"), Entity(6, 7, "x")]
    spelt = {
        "IOB1": "I-x I-x B-x I-y I-y O I-x",
        "IOB2": "B-x I-x B-x B-y I-y O B-x",
        "IOE1": "I-x E-x I-x I-y I-y O I-x",
        "IOE2": "I-x E-x E-x I-y E-y O E-x",
        "BIOES": "B-x E-x S-x B-y E-y O S-x",
        "BILOU": "B-x L-x U-x B-y L-y O U-x",
        "BMEWO": "B-x E-x W-x B-y E-y O W-x",
    }
    assert {scheme: " ".join(entities_to_tags(found, 7, scheme)) for scheme in SCHEMES} == spelt


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([(0, 2, "x"), (1, 3, "y")], "overlap"),
        ([(1, 3, "x"), (1, 3, "x")], "overlap"),
        ([(-1, 1, "x")], "does not fit a sequence of 3 tokens"),
        ([(2, 4, "x")], "does not fit"),
        ([(1, 1, "x")], "does not fit"),
    ],
)
def test_impossible_entities(found: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        entities_to_tags(found, 3)


def test_conversion_checks_or_mends() -> None:
    with pytest.raises(DataError, match="position 1: 'I-x' after 'O' breaks IOB2"):
        convert_tags(["O", "I-x"], "IOB2", "BIOES")
    assert convert_tags(["O", "I-x"], None, "IOB2") == ["O", "B-x"]


# Rules


@pytest.mark.parametrize(
    ("tags", "scheme", "message"),
    [
        ("I-x", "IOB2", "position 0: 'I-x' at the start breaks IOB2, .* I .* follow B or I"),
        ("B-x I-y", "IOB2", "position 1: 'I-y' after 'B-x'"),
        ("O B-x", "IOB1", "position 1: 'B-x' after 'O' breaks IOB1, .* B .* follow B or I"),
        ("I-x", "IOE2", "position 0: 'I-x' at the end breaks IOE2, .* I .* precede I or E"),
        ("O E-x I-y", "IOE1", "position 1: 'E-x' before 'I-y' breaks IOE1"),
        ("B-x O", "BIOES", "position 0: 'B-x' before 'O' breaks BIOES"),
        ("O L-x", "BILOU", "position 1: 'L-x' after 'O' breaks BILOU, .* L .* follow B or I"),
        ("B-x", "BMEWO", "position 0: 'B-x' at the end breaks BMEWO, .* B .* precede M or E"),
        ("B-x E-x", "IOB2", "position 1: 'E-x' is not a tag of IOB2"),
    ],
)
def test_validation_says_what_is_wrong(tags: str, scheme: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        validate_tags(tags.split(" "), scheme)


def test_unknown_tags_break_no_rule() -> None:
    validate_tags([None, "I-x", {"B-x", "O"}, "I-x"], "IOB2")
    with pytest.raises(DataError, match="position 2"):
        validate_tags([None, "O", "I-x"], "IOB2")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_constraints_accept_exactly_the_valid_sequences(scheme: str) -> None:
    labels = labels_of(scheme)
    index = {label: c for c, label in enumerate(labels)}
    start, pairs, end = scheme_constraints(labels, scheme)
    assert (start.dtype, pairs.dtype, end.dtype) == (np.dtype(bool),) * 3
    C = len(labels)
    assert (start.shape, pairs.shape, end.shape) == ((C,), (C, C), (C,))
    for tags in sequences(labels, 4 if len(labels) == 5 else 3):
        if not tags:
            continue
        allowed = start[index[tags[0]]] and end[index[tags[-1]]]
        for a, b in pairwise(tags):
            allowed = allowed and pairs[index[a], index[b]]
        assert allowed == is_valid(tags, scheme)


def test_constraints_of_no_labels_and_of_wrong_ones() -> None:
    assert [part.shape for part in scheme_constraints([], "IOB2")] == [(0,), (0, 0), (0,)]
    with pytest.raises(DataError, match="label 1: 'NN' is not a tag of IOB2"):
        scheme_constraints(["O", "NN"], "IOB2")


def test_continues_agrees_with_the_entities_of_every_short_sequence() -> None:
    labels = [*labels_of("BIOES"), "B", "I", "L-x", "M-y", "W", "U-x"]
    index = {label: c for c, label in enumerate(labels)}
    table = continues(labels)
    assert table.dtype == np.dtype(bool)
    for tags in sequences(labels, 3):
        inside = {t for start, end, _ in tags_to_entities(tags) for t in range(start, end - 1)}
        for t, (a, b) in enumerate(pairwise(tags)):
            assert table[index[a], index[b]] == (t in inside)


def test_entity_types() -> None:
    assert entity_types(["O", "B-x", "I-a-b", "B", "W-x"]) == [None, "x", "a-b", "", "x"]
    with pytest.raises(DataError, match="label 0: 'DT' is not a tag"):
        entity_types(["DT"])


# Detection


@settings(deadline=None, max_examples=100)
@given(drawn=st.lists(entities(), min_size=1, max_size=4), scheme=st.sampled_from(SCHEMES))
def test_detection_finds_the_scheme_that_wrote_the_tags(
    drawn: list[tuple[list[Entity], int]], scheme: str
) -> None:
    y = [entities_to_tags(found, length, scheme) for found, length in drawn]
    letters = {tag[0] for tags in y for tag in tags}
    detected = detect_scheme(y)
    if letters <= {"O"}:
        assert detected is None
    elif letters <= {"I", "O"}:
        assert scheme in ("IOB1", "IOE1")
        assert detected == "IOB1"
    elif letters <= {"B", "E", "O"} and scheme == "BMEWO":
        assert detected == "BIOES"
    else:
        assert detected == scheme


@pytest.mark.parametrize("labels", [labels_of("BIOES", ("x",)), labels_of("BMEWO", ("x",))])
def test_at_most_one_scheme_fits_complete_tags(labels: list[str]) -> None:
    for tags in sequences(labels, 5):
        fitting = [scheme for scheme in SCHEMES if is_valid(tags, scheme)]
        detected = detect_scheme([tags])
        if set(tags) <= {"O"}:
            assert detected is None
            continue
        assert detected == (fitting[0] if fitting else None)
        assert len(fitting) <= 1 or set(fitting) in ({"IOB1", "IOE1"}, {"BIOES", "BMEWO"})


@pytest.mark.parametrize(
    ("y", "scheme"),
    [
        ([], None),
        ([[]], None),
        ([["O", "O"]], None),
        ([["DT", "NN"]], None),
        ([["B-x", "NN"]], None),
        ([["B", "I", "I", "B"]], "IOB2"),
        ([["B-x", "I-x"], ["I-x"]], None),
        ([[None, "I-x", None]], "IOB1"),
        ([[None, "B-x", "I-x", None]], "IOB2"),
        ([[None, "B-x", None], [None, "I-y"]], None),
        ([[None, "I-x", None], ["E-x", None]], "IOE2"),
        ([["B-x", None]], "IOB2"),
        ([[None, "I-x", "L-x"], ["B-x", None]], "BILOU"),
        ([["O", "I-x", None]], "IOB1"),
        ([[None, {"B-x", "O"}, "I-x", "E-x"]], "IOE2"),
        ([[None, "S-x", None]], "BIOES"),
    ],
)
def test_detection_examples(y: Any, scheme: str | None) -> None:
    assert detect_scheme(y) == scheme


def test_detection_refuses_one_bare_sequence() -> None:
    with pytest.raises(DataError, match="a sequence of tags is expected"):
        detect_scheme(["B-x", "I-x"])
