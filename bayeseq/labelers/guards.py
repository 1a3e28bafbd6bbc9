"""What labelers refuse, in words that name the parameter or the sequence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from bayeseq.chain import ImpossibleSequenceError
from bayeseq.data.batch import SequenceBatch


class NoPosteriorError(TypeError):
    """A labeler with one set of weights was asked what draws from a posterior would say."""


def require_positive(name: str, value: int) -> None:
    """Refuse a count below one."""
    if value < 1:
        raise ValueError(f"{name} is {value}; it must be at least 1")


def check_choice(name: str, value: Any, choices: Sequence[Any]) -> None:
    """Refuse a parameter that is none of the names it may be."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; expected one of {', '.join(map(repr, choices))}")


@contextmanager
def numbered(batch: SequenceBatch) -> Iterator[None]:
    """Name the caller's sequence, not the batch's, when one is impossible."""
    try:
        yield
    except ImpossibleSequenceError as error:
        number = int(batch.numbers[error.sequence])
        raise ImpossibleSequenceError(number, error.reason) from None
