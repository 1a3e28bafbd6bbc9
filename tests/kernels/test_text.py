"""Kernels as text, there and back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayeseq.kernels import RBF, Linear, Polynomial, Product, Sum, kernel_from_text

positive = st.floats(1e-300, 1e300)
elementary = st.one_of(
    st.builds(Linear, positive),
    st.builds(RBF, positive, positive),
    st.builds(Polynomial, st.integers(1, 9), st.just(0) | positive, positive),
)
kernels = st.recursive(
    elementary,
    lambda inner: (
        st.builds(lambda a, b: a + b, inner, inner) | st.builds(lambda a, b: a * b, inner, inner)
    ),
    max_leaves=6,
)


def tree(kernel):
    """A kernel as nested tuples, for comparing."""
    if isinstance(kernel, Sum | Product):
        return (type(kernel), *map(tree, kernel.kernels))
    return (type(kernel), kernel.get_params())


@settings(max_examples=60, deadline=None)
@given(kernels)
def test_round_trip(kernel):
    assert tree(kernel_from_text(str(kernel))) == tree(kernel)
    assert repr(kernel) == str(kernel)


def test_numpy_numbers_print_as_digits():
    kernel = Polynomial(np.int64(3), np.float32(0.5), np.float64(2))
    assert str(kernel) == "Polynomial(degree=3, offset=0.5, variance=2.0)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("linear", Linear()),
        (" LINEAR ( ) ", Linear()),
        ("rbf(scale=0.1)", RBF(0.1)),
        ("Rbf(variance=2., scale=1e-3)", RBF(1e-3, 2.0)),
        ("polynomial(degree=3, offset=0)", Polynomial(3, 0)),
        ("linear + rbf", Linear() + RBF()),
        ("linear*rbf", Linear() * RBF()),
        ("linear + rbf*polynomial+linear", Sum([Linear(), RBF() * Polynomial(), Linear()])),
        ("(linear + rbf)*polynomial", Product([Linear() + RBF(), Polynomial()])),
        ("((linear))", Linear()),
        ("linear + (rbf + linear)", Sum([Linear(), RBF(), Linear()])),
    ],
)
def test_reads(text, expected):
    assert tree(kernel_from_text(text)) == tree(expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a kernel, one of delta, linear, polynomial, rbf at the end"),
        ("matern", "expected a kernel, one of delta, linear, polynomial, rbf at 'matern'"),
        ("linear +", "expected a kernel, one of delta, linear, polynomial, rbf at the end"),
        ("linear rbf", "expected + or * or the end at 'rbf'"),
        ("linear - rbf", "expected + or * or the end at '- rbf'"),
        ("(linear", "expected ) at the end"),
        ("rbf(scale=0.1", "expected , at the end"),
        ("rbf(0.1)", "expected one of scale, variance, each once, as name=number at '0.1)'"),
        ("rbf(degree=2)", "expected one of scale, variance"),
        ("rbf(scale=1, scale=2)", "each once"),
        ("rbf(scale=big)", "expected a number at 'big)'"),
        ("rbf(scale 2)", "expected = at '2)'"),
        ("rbf(scale=1,)", "expected one of"),
        ("rbf(scale=-1)", "scale of RBF is -1.0; it must be positive"),
        ("rbf(scale=1e999)", "scale of RBF is inf, not a finite number"),
        ("polynomial(degree=2.5)", "degree of Polynomial is 2.5, not a whole number"),
        ("2*linear", "expected a kernel"),
        ("__import__('os')", "expected a kernel"),
        ("(" * 10**5, "open brackets"),
        ("rbf(scale=" + "9" * 5000 + ")", "not a finite number"),
        ("rbf(scale=\u0663)", "expected a number"),
    ],
    ids=lambda text: text[:30],
)
def test_says_what_it_cannot_read(text, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 — the message is looked at below
        kernel_from_text(text)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_long_sum_is_read():
    assert len(kernel_from_text(" + ".join(["rbf"] * 5000)).kernels) == 5000
