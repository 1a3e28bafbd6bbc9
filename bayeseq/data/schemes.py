"""Tag schemes: how the tags of tokens spell entities.

A tag is O (outside), or a letter and a type such as B-PER; a letter alone, as in B, spells entities
without a type. The type is all that follows the first hyphen. The letters play five roles:

    B  first token of an entity          E  last token (L in BILOU)
    I  token of an entity (M in BMEWO)   S  the only token (U in BILOU, W in BMEWO)
    O  outside

IOB2 (also called BIO) begins every entity with B; IOB1 only one that directly follows another of
its type. IOE2 and IOE1 are their mirror images, with E at the end. BIOES (IOBES) marks both ends;
BILOU (BILUO) and BMEWO are the same scheme in other letters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from bayeseq.data.errors import DataError


class Entity(NamedTuple):
    """Tokens `start` up to, not including, `end`; `label` is the type, "" for untyped tags.

    >>> Entity(0, 2, "PER")
    Entity(start=0, end=2, label='PER')
    """

    start: int
    end: int
    label: str


class SchemeConstraints(NamedTuple):
    """Which labels may begin a sequence (C,), follow one another (C, C), and end it (C,).

    Arrays of bool; `pairs` is [from, to].
    """

    start: np.ndarray
    pairs: np.ndarray
    end: np.ndarray


class _Tag(NamedTuple):
    role: str  # B, I, E, S or O, whatever the scheme's letter for it
    type: str | None  # None for O


_OUTSIDE = _Tag("O", None)  # also what stands before and after a sequence


class _Scheme(NamedTuple):
    """A scheme: the role of each letter, and its rules, each about a tag and one neighbour.

    A tag with a role in `after` must come directly after a B or I of its type; a tag with a role in
    `before` must come directly before an I or E of its type.
    """

    name: str
    roles: dict[str, str]
    after: str = ""
    before: str = ""

    def misses_left(self, a: _Tag, b: _Tag) -> bool:
        """Whether b needs another tag than a on its left."""
        return b.role in self.after and not (a.role in "BI" and a.type == b.type)

    def misses_right(self, a: _Tag, b: _Tag) -> bool:
        """Whether a needs another tag than b on its right."""
        return a.role in self.before and not (b.role in "IE" and a.type == b.type)

    def allows(self, a: _Tag, b: _Tag) -> bool:
        """Whether b may follow a."""
        return not self.misses_left(a, b) and not self.misses_right(a, b)

    def parse(self, tag: Any, where: str) -> _Tag:
        """Split a tag; `where` says in a message where it stands."""
        if tag is None:
            raise DataError(
                f"{where}: the tag is missing (None); complete or leave out the sequence"
            )
        parsed = _parsed(self.name, tag) if isinstance(tag, str) else None
        if parsed is None:
            letters = ", ".join(letter for letter in self.roles if letter != "O")
            raise DataError(
                f"{where}: {tag!r} is not a tag of {self.name}; a tag is O, or one of {letters}, "
                "alone or with a type as in B-PER"
            )
        return parsed

    def parse_all(self, tags: Sequence[Any]) -> list[_Tag]:
        """Split the tags of a sequence."""
        _refuse_string(tags)
        return [self.parse(tag, f"position {t}") for t, tag in enumerate(tags)]

    def letters(self, roles: str) -> str:
        """The scheme's letters for those of the roles that it has, for messages."""
        return " or ".join(letter for letter, role in self.roles.items() if role in roles)


_LETTERS = {"B": "B", "I": "I", "O": "O", "E": "E", "S": "S"}
_BILOU = {"B": "B", "I": "I", "L": "E", "O": "O", "U": "S"}
_BMEWO = {"B": "B", "M": "I", "E": "E", "W": "S", "O": "O"}


def _some(letters: str) -> dict[str, str]:
    return {letter: _LETTERS[letter] for letter in letters}


# In the order in which `detect_scheme` tries them.
_SCHEMES = {
    scheme.name: scheme
    for scheme in (
        _Scheme("IOB2", _some("BIO"), after="I"),
        _Scheme("IOE2", _some("IOE"), before="I"),
        _Scheme("IOB1", _some("BIO"), after="B"),
        _Scheme("IOE1", _some("IOE"), before="E"),
        _Scheme("BIOES", _LETTERS, after="IE", before="BI"),
        _Scheme("BILOU", _BILOU, after="IE", before="BI"),
        _Scheme("BMEWO", _BMEWO, after="IE", before="BI"),
    )
}
_ALIASES = {"BIO": "IOB2", "IOBES": "BIOES", "BILUO": "BILOU"}
# The reading of the CoNLL evaluation: the letters of all schemes, and no rule.
_ANY = _Scheme("any scheme", _LETTERS | _BILOU | _BMEWO)

SCHEMES = tuple(_SCHEMES)


@lru_cache(maxsize=1 << 16)
def _parsed(name: str, tag: str) -> _Tag | None:
    """The role and type of a tag, or None for what is no tag of the scheme."""
    letter, hyphen, type_ = tag.partition("-")
    role = _SCHEMES.get(name, _ANY).roles.get(letter)
    if role is None or (hyphen and (role == "O" or not type_)):
        return None
    return _OUTSIDE if role == "O" else _Tag(role, type_)


def _refuse_string(tags: Sequence[Any]) -> None:
    """A string is a sequence of characters to Python, and never what was meant."""
    if isinstance(tags, str):
        raise DataError(f"a sequence of tags is expected, and the string {tags!r} is found")


def _scheme(name: str | None) -> _Scheme:
    if name is None:
        return _ANY
    known = _ALIASES.get(name.upper(), name.upper())
    if known not in _SCHEMES:
        names = ", ".join([*_SCHEMES, *_ALIASES])
        raise DataError(f"there is no tag scheme {name!r}; the schemes are {names}")
    return _SCHEMES[known]


def _same_entity(a: _Tag, b: _Tag) -> bool:
    """Whether neighbours a, b are in one entity: the chunk boundaries of the CoNLL evaluation."""
    return a.role in "BI" and b.role in "IE" and a.type == b.type


def tags_to_entities(
    tags: Sequence[str], scheme: str | None = None, strict: bool = False
) -> list[Entity]:
    """The entities that a sequence of tags spells, from left to right.

    Without a scheme this is the reading of the CoNLL evaluation, which takes any mixture of letters
    and makes the best of broken tags: an entity ends before a B, an S, an O and another type, and
    after an E and an S. A scheme restricts the letters to its own; `strict` moreover counts only
    entities all of whose tags obey the scheme.

    >>> tags_to_entities(["B-PER", "I-PER", "O", "I-LOC"])
    [Entity(start=0, end=2, label='PER'), Entity(start=3, end=4, label='LOC')]
    >>> tags_to_entities(["B-PER", "I-PER", "O", "I-LOC"], scheme="IOB2", strict=True)
    [Entity(start=0, end=2, label='PER')]
    """
    if strict and scheme is None:
        raise DataError("strict reading needs a scheme, such as scheme='IOB2'")
    rules = _scheme(scheme)
    parsed = [*rules.parse_all(tags), _OUTSIDE]
    entities = []
    start, left = 0, _OUTSIDE
    for t, tag in enumerate(parsed):
        if not _same_entity(left, tag):
            if left.type is not None:
                entities.append(Entity(start, t, left.type))
            start = t
        left = tag
    if strict:
        # parsed[-1] is the outside tag at the end, which serves as the one before the start too.
        return [
            entity
            for entity in entities
            if not any(
                rules.misses_left(parsed[t - 1], parsed[t])
                or rules.misses_right(parsed[t], parsed[t + 1])
                for t in range(entity.start, entity.end)
            )
        ]
    return entities


def entities_to_tags(
    entities: Iterable[tuple[int, int, str]], length: int, scheme: str = "IOB2"
) -> list[str]:
    """The tags of a sequence of `length` tokens that spell the entities, given in any order.

    >>> entities_to_tags([Entity(0, 2, "PER"), Entity(2, 3, "PER")], 4, scheme="IOB1")
    ['I-PER', 'I-PER', 'B-PER', 'O']
    """
    rules = _scheme(scheme)
    letters = {role: letter for letter, role in rules.roles.items()}
    ordered = sorted((Entity(*entity[:3]) for entity in entities), key=lambda e: (e.start, e.end))
    _check_entities(ordered, length)
    tags = [letters["O"]] * length
    for left, entity, right in zip([None, *ordered], ordered, [*ordered[1:], None], strict=False):
        # A letter that needs a neighbour of its type (B in IOB1, E in IOE1) marks only entities
        # that touch one; otherwise it marks all.
        mark_first = "B" in letters and ("B" not in rules.after or _touch(left, entity))
        mark_last = "E" in letters and ("E" not in rules.before or _touch(entity, right))
        for t in range(entity.start, entity.end):
            if "S" in letters and entity.end - entity.start == 1:
                role = "S"
            elif mark_first and t == entity.start:
                role = "B"
            elif mark_last and t == entity.end - 1:
                role = "E"
            else:
                role = "I"
            tags[t] = f"{letters[role]}-{entity.label}" if entity.label else letters[role]
    return tags


def _touch(left: Entity | None, right: Entity | None) -> bool:
    """Whether two entities of one type stand side by side."""
    if left is None or right is None:
        return False
    return left.end == right.start and left.label == right.label


def _check_entities(ordered: list[Entity], length: int) -> None:
    for entity in ordered:
        if not 0 <= entity.start < entity.end <= length:
            raise DataError(
                f"{entity} does not fit a sequence of {length} tokens; "
                "0 <= start < end <= length is needed"
            )
    for left, right in pairwise(ordered):
        if right.start < left.end:
            raise DataError(f"{left} and {right} overlap; tags can spell only one of them")


def convert_tags(tags: Sequence[str], source: str | None, target: str) -> list[str]:
    """Spell the same entities in another scheme.

    The tags must be valid in `source`; with None they may be any, in the reading of the CoNLL
    evaluation, so that broken tags come out mended.

    >>> convert_tags(["B-PER", "I-PER", "B-PER"], "IOB2", "BIOES")
    ['B-PER', 'E-PER', 'S-PER']
    """
    entities = tags_to_entities(tags, source)
    if source is not None:
        validate_tags(tags, source)
    return entities_to_tags(entities, len(tags), target)


def validate_tags(tags: Sequence[Any], scheme: str) -> None:
    """Raise a DataError at the first tag that breaks a rule of the scheme.

    Labels that are not str (None, sets of allowed labels) are unknown and break no rule.

    >>> validate_tags(["B-PER", "I-LOC"], "IOB2")
    Traceback (most recent call last):
    bayeseq.data.errors.DataError: position 1: 'I-LOC' after 'B-PER' breaks IOB2, where I must directly follow B or I of its type
    """  # noqa: E501
    rules = _scheme(scheme)
    _refuse_string(tags)
    parsed = [
        rules.parse(tag, f"position {t}") if isinstance(tag, str) else None
        for t, tag in enumerate(tags)
    ]
    for t, (a, b) in enumerate(pairwise([_OUTSIDE, *parsed, _OUTSIDE])):
        if a is None or b is None:
            continue
        if rules.misses_left(a, b):
            place = f"after {tags[t - 1]!r}" if t else "at the start"
            need = f"{rules.letters(b.role)} must directly follow {rules.letters('BI')} of its type"
            raise DataError(f"position {t}: {tags[t]!r} {place} breaks {rules.name}, where {need}")
        if rules.misses_right(a, b):
            t -= 1
            place = f"before {tags[t + 1]!r}" if t + 1 < len(tags) else "at the end"
            need = (
                f"{rules.letters(a.role)} must directly precede {rules.letters('IE')} of its type"
            )
            raise DataError(f"position {t}: {tags[t]!r} {place} breaks {rules.name}, where {need}")


def detect_scheme(y: Iterable[Sequence[Any]]) -> str | None:
    """The name of the scheme that all sequences obey, or None where none fits.

    Named is the first of IOB2, IOE2, IOB1, IOE1, BIOES, BILOU and BMEWO whose rules no sequence
    breaks and in which every tag seen can occur beside the others: I-PER without any B-PER is not
    IOB2. Complete tags with an entity fit at most one scheme, but for tags of I and O alone, which
    IOB1 and IOE1 spell alike, and of B, E and O alone, alike in BIOES and BMEWO. If no tag but O
    occurs, none is named. Labels that are not str (None, sets of allowed labels) are unknown and
    break no rule.

    >>> detect_scheme([["B-PER", "E-PER", "O"], ["S-LOC"]])
    'BIOES'
    """
    tags: set[str] = set()
    pairs: set[tuple[str | None, str | None]] = set()
    for sequence in y:
        _refuse_string(sequence)
        known = ["O", *(tag if isinstance(tag, str) else None for tag in sequence), "O"]
        tags.update(tag for tag in known if tag is not None)
        pairs.update(pairwise(known))
    if tags <= {"O"}:
        return None
    for scheme in _SCHEMES.values():
        parsed = {tag: split for tag in tags if (split := _parsed(scheme.name, tag)) is not None}
        if len(parsed) < len(tags):
            continue
        found = [(parsed[a], parsed[b]) for a, b in pairs if a is not None and b is not None]
        if all(scheme.allows(a, b) for a, b in found) and _usable(set(parsed.values()), scheme):
            return scheme.name
    return None


def _usable(tags: set[_Tag], rules: _Scheme) -> bool:
    """Whether each tag, with the others for company, can occur in a complete valid sequence."""
    return tags <= _reached(tags, rules.allows) & _reached(tags, lambda b, a: rules.allows(a, b))


def _reached(tags: set[_Tag], step: Callable[[_Tag, _Tag], bool]) -> set[_Tag]:
    """The tags that steps lead to from outside."""
    reached: set[_Tag] = set()
    new = {_OUTSIDE}
    while new:
        reached |= new
        new = {b for b in tags - reached if any(step(a, b) for a in new)}
    return reached


def scheme_constraints(labels: Sequence[str], scheme: str) -> SchemeConstraints:
    """Which of the C labels may begin, follow one another in, and end a sequence of the scheme.

    >>> constraints = scheme_constraints(["O", "B-PER", "I-PER"], "IOB2")
    >>> constraints.start.tolist()
    [True, True, False]
    >>> constraints.pairs[0].tolist()  # what may follow O
    [True, True, False]
    """
    rules = _scheme(scheme)
    tags = _label_tags(labels, rules)
    return SchemeConstraints(
        start=_pair_array([_OUTSIDE], tags, rules.allows)[0],
        pairs=_pair_array(tags, tags, rules.allows),
        end=_pair_array(tags, [_OUTSIDE], rules.allows)[:, 0],
    )


def continues(labels: Sequence[str]) -> np.ndarray:
    """A bool array (C, C): whether label b, directly after label a, continues the entity of a.

    This is the reading of `tags_to_entities` without a scheme.

    >>> continues(["O", "B-PER", "I-PER"]).tolist()
    [[False, False, False], [False, False, True], [False, False, True]]
    """
    tags = _label_tags(labels, _ANY)
    return _pair_array(tags, tags, _same_entity)


def entity_types(labels: Sequence[str]) -> list[str | None]:
    """The entity type of each label: None for O, "" for a letter alone.

    >>> entity_types(["O", "B-PER", "I"])
    [None, 'PER', '']
    """
    return [tag.type for tag in _label_tags(labels, _ANY)]


def _label_tags(labels: Sequence[str], rules: _Scheme) -> list[_Tag]:
    return [rules.parse(label, f"label {c}") for c, label in enumerate(labels)]


def _pair_array(
    tags_a: list[_Tag], tags_b: list[_Tag], holds: Callable[[_Tag, _Tag], bool]
) -> np.ndarray:
    """A bool array (A, B) of whether something holds for each pair of tags."""
    pairs = [[holds(a, b) for b in tags_b] for a in tags_a]
    return np.array(pairs, dtype=bool).reshape(len(tags_a), len(tags_b))
