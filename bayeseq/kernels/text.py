"""Kernels as text: "linear", "rbf(scale=0.1) + linear*rbf"."""

from __future__ import annotations

import inspect
import re

from bayeseq.kernels.base import Kernel
from bayeseq.kernels.combined import Product, Sum
from bayeseq.kernels.elementary import RBF, Delta, Elementary, Linear, Polynomial

KERNELS: dict[str, type[Elementary]] = {
    "delta": Delta,
    "linear": Linear,
    "polynomial": Polynomial,
    "rbf": RBF,
}
"""The kernels that a text can name."""

_TOKENS = {
    "name": re.compile(r"\s*([A-Za-z_]\w*)"),
    "number": re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)", re.ASCII),
    "sign": re.compile(r"\s*([+*(),=])"),
}
_DEPTH = 50
"""How many brackets may be open at once: text from a file must not exhaust the stack."""


def kernel_from_text(text: str) -> Kernel:
    """The kernel that a text describes: names in any case, arguments by name, `+`, `*`, brackets.

    >>> kernel_from_text("linear + RBF(scale=0.1)*linear")
    Linear(variance=1.0) + RBF(scale=0.1, variance=1.0) * Linear(variance=1.0)
    """
    reader = _Reader(text)
    kernel = reader.sum(0)
    if not reader.at_end:
        raise reader.error("expected + or * or the end")
    kernel.check()
    return kernel


class _Reader:
    """Reads a text from left to right: sum = product {+ product}, product = factor {* factor}."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    @property
    def at_end(self) -> bool:
        return not self.text[self.at :].strip()

    def sum(self, depth: int) -> Kernel:
        parts = [self.product(depth)]
        while self.take("sign", "+"):
            parts.append(self.product(depth))
        return Sum.flat(*parts) if len(parts) > 1 else parts[0]

    def product(self, depth: int) -> Kernel:
        parts = [self.factor(depth)]
        while self.take("sign", "*"):
            parts.append(self.factor(depth))
        return Product.flat(*parts) if len(parts) > 1 else parts[0]

    def factor(self, depth: int) -> Kernel:
        if not self.take("sign", "("):
            return self.kernel()
        if depth == _DEPTH:
            raise self.error(f"more than {_DEPTH} open brackets")
        inside = self.sum(depth + 1)
        self.expect(")")
        return inside

    def kernel(self) -> Kernel:
        start = self.at
        name = self.take("name")
        if name is None or name.lower() not in KERNELS:
            self.at = start
            raise self.error(f"expected a kernel, one of {', '.join(KERNELS)}")
        kind = KERNELS[name.lower()]
        return kind(**self.arguments(kind)) if self.take("sign", "(") else kind()

    def arguments(self, kind: type[Elementary]) -> dict[str, float]:
        """name=number, … up to the closing bracket."""
        known = inspect.signature(kind).parameters
        found: dict[str, float] = {}
        while not self.take("sign", ")"):
            if found:
                self.expect(",")
            start = self.at
            name = self.take("name")
            if name is None or name not in known or name in found:
                self.at = start
                raise self.error(f"expected one of {', '.join(known)}, each once, as name=number")
            self.expect("=")
            found[name] = self.number()
        return found

    def number(self) -> float:
        digits = self.take("number")
        if digits is None:
            raise self.error("expected a number")
        return int(digits) if re.fullmatch(r"[+-]?\d{1,9}", digits) else float(digits)

    def expect(self, sign: str) -> None:
        if not self.take("sign", sign):
            raise self.error(f"expected {sign}")

    def take(self, kind: str, value: str | None = None) -> str | None:
        """The next token if it is of this kind (and value); the reader then moves past it."""
        pattern = _TOKENS[kind]
        match = pattern.match(self.text, self.at)
        if match is None or (value is not None and match[1] != value):
            return None
        self.at = match.end()
        return match[1]

    def error(self, expected: str) -> ValueError:
        rest = self.text[self.at :].strip()
        where = f"at {rest[:30]!r}" if rest else "at the end"
        return ValueError(f"cannot read the kernel {self.text[:200]!r}: {expected} {where}")
