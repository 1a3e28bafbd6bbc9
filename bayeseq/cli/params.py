"""NAME=VALUE arguments → constructor parameters of a labeler."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any

from bayeseq import LABELERS, Kernel, SequenceLabeler
from bayeseq.data import DataError
from bayeseq.kernels import kernel_from_text


def labeler_named(name: str) -> type[SequenceLabeler]:
    """The labeler with this name, in capitals or not.

    >>> labeler_named("crf").__name__
    'CRF'
    """
    by_name = {known.lower(): labeler for known, labeler in LABELERS.items()}
    if name.lower() not in by_name:
        raise DataError(f"there is no model {name!r}; choose one of {', '.join(by_name)}")
    return by_name[name.lower()]


def parse_params(labeler: type[SequenceLabeler], arguments: Sequence[str]) -> dict[str, Any]:
    """The parameters, each of the type that the labeler's signature asks for.

    >>> parse_params(labeler_named("crf"), ["l2=0.5", "scheme=none", "transitions=false"])
    {'l2': 0.5, 'scheme': None, 'transitions': False}
    >>> parse_params(labeler_named("gpsl"), ["dependencies=-1,1", "kernel=rbf(scale=0.1)"])
    {'dependencies': (-1, 1), 'kernel': 'rbf(scale=0.1)'}

    A labeler inside another is named, and its own parameters follow after two underscores:

    >>> parse_params(labeler_named("calibrated"), ["labeler=crf", "labeler__l2=0.5"])
    {'labeler': CRF(l2=0.5)}
    """
    kinds = _kinds(labeler)
    params: dict[str, Any] = {}
    inner: dict[str, list[str]] = {}
    for argument in arguments:
        name, equals, text = argument.partition("=")
        if not equals:
            raise DataError(f"-p {argument}: write NAME=VALUE, such as -p {next(iter(kinds))}=…")
        outer, _, rest = name.partition("__")
        if rest and SequenceLabeler in kinds.get(outer, ()):
            inner.setdefault(outer, []).append(f"{rest}={text}")
            continue
        if name not in kinds:
            raise DataError(
                f"-p {argument}: {labeler.__name__} has no parameter {name!r}; it has "
                f"{_with_defaults(labeler)}"
            )
        if name in params:
            raise DataError(f"-p {argument}: {name} is given twice")
        params[name] = _value(text, kinds[name], argument)
    for name, arguments in inner.items():
        if params.get(name) is None:
            raise DataError(f"-p {name}__{arguments[0]}: say -p {name}=… too: which labeler it is")
        params[name].set_params(**parse_params(type(params[name]), arguments))
    return params


def _kinds(labeler: type[SequenceLabeler]) -> dict[str, tuple[type, ...]]:
    """The types that each parameter may have; a generic one, such as tuple[int, ...], without what
    it holds."""
    hints = typing.get_type_hints(labeler.__init__)
    hints.pop("return", None)
    return {
        name: tuple(
            typing.get_origin(part) or part
            for part in (typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,))
        )
        for name, hint in hints.items()
    }


def _with_defaults(labeler: type[SequenceLabeler]) -> str:
    parameters = list(inspect.signature(labeler).parameters.values())
    return ", ".join(f"{p.name}={_written(p.default)}" for p in parameters)


def _written(value: Any) -> str:
    """A default as it would be given on the command line."""
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "none"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _value(text: str, kinds: tuple[type, ...], argument: str) -> Any:
    if SequenceLabeler in kinds:
        return labeler_named(text)()
    if Kernel in kinds:  # any text would do as a string, and fail only once the data is read
        try:
            kernel_from_text(text).check()
        except ValueError as error:
            raise DataError(f"-p {argument}: {error}") from error
        return text
    for kind, (_, parse) in _READERS.items():
        if kind in kinds:
            try:
                return parse(text)
            except (KeyError, ValueError):
                continue
    wanted = " or ".join(words for kind, (words, _) in _READERS.items() if kind in kinds)
    raise DataError(f"-p {argument}: {text!r} is not {wanted}")


def _whole_numbers(text: str) -> tuple[int, ...]:
    """Whole numbers with commas between them, in round brackets or not; none is ().

    >>> _whole_numbers("-1,1"), _whole_numbers("(-1,)"), _whole_numbers("none")
    ((-1, 1), (-1,), ())
    """
    inner = text.strip().removeprefix("(").removesuffix(")").removesuffix(",").strip()
    if not inner or inner.lower() == "none":
        return ()
    return tuple(int(part) for part in inner.split(","))


_READERS: dict[type, tuple[str, Callable[[str], Any]]] = {
    type(None): ("none", lambda text: {"none": None}[text.lower()]),
    bool: ("true or false", lambda text: {"true": True, "false": False}[text.lower()]),
    tuple: ("whole numbers with commas between them, or none", _whole_numbers),
    int: ("a whole number", int),
    float: ("a number", float),
    str: ("a text", str),
}
"""How each type is called and read, the narrowest first: any text is a string."""
