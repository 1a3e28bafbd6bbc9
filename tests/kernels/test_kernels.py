"""The kernels against double loops, their gradients, their numbers, and scikit-learn's habits."""

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, clone
from sklearn.metrics.pairwise import linear_kernel, polynomial_kernel, rbf_kernel

from bayeseq.kernels import RBF, Delta, Linear, Polynomial, Product, Sum, inner_products
from tests.kernels import oracles
from tests.kernels.rows import draw_rows

CASES = {
    "linear": (Linear(0.7), partial(oracles.linear, variance=0.7)),
    "degree 1": (Polynomial(1, 0.3), partial(oracles.polynomial, degree=1, offset=0.3)),
    "degree 2": (Polynomial(variance=2.0), partial(oracles.polynomial, variance=2.0)),
    "degree 5": (Polynomial(5, 0.5), partial(oracles.polynomial, degree=5, offset=0.5)),
    "no offset": (Polynomial(3, 0), partial(oracles.polynomial, degree=3, offset=0.0)),
    "delta": (Delta(1.3), partial(oracles.delta, variance=1.3)),
    "rbf": (RBF(0.4, 1.5), partial(oracles.rbf, scale=0.4, variance=1.5)),
    "sum": (
        Linear(0.2) + RBF(2.0) + Polynomial(2, 0.1),
        lambda x, z: (
            oracles.linear(x, z, 0.2) + oracles.rbf(x, z, 2.0) + oracles.polynomial(x, z, 2, 0.1)
        ),
    ),
    "product of a sum": (
        Linear(0.5) * (RBF(0.3) + Linear(3.0)),
        lambda x, z: oracles.linear(x, z, 0.5) * (oracles.rbf(x, z, 0.3) + oracles.linear(x, z, 3)),
    ),
}
KERNELS = [kernel for kernel, _ in CASES.values()]
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=list(CASES))
sizes = st.tuples(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 4), st.integers(1, 5))


@pytest.mark.parametrize(("kernel", "loop"), CASES.values(), ids=list(CASES))
@settings(max_examples=15, deadline=None)
@given(sizes)
def test_equals_a_double_loop(kernel, loop, size):
    seed, n, m, D = size
    X, Z = draw_rows(seed, n, D), draw_rows(seed + 1, m, D)
    close = partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-12)
    close(kernel(sp.csr_matrix(X), sp.csr_matrix(Z)), oracles.gram(loop, X, Z))
    close(kernel(X, sp.csc_array(Z)), oracles.gram(loop, X, Z))
    close(kernel(X), oracles.gram(loop, X, X))
    norms = inner_products(X).left
    close(kernel.diagonal(norms).numpy(), [loop(x, x) for x in X])


def test_equals_scikit_learn():
    X, Z = draw_rows(0, 40, 300, 0.02), draw_rows(1, 30, 300, 0.02)
    close = partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-12)
    close(Linear(2.0)(X, Z), 2 * linear_kernel(X, Z))
    close(Polynomial(3, 0.5)(X, Z), polynomial_kernel(X, Z, degree=3, gamma=1, coef0=0.5))
    close(RBF(0.6, 3.0)(X, Z), 3 * rbf_kernel(X, Z, gamma=0.3))


@each_kernel
def test_positive_semidefinite(kernel):
    K = kernel(draw_rows(3, 25, 8))
    np.testing.assert_array_equal(K, K.T)
    assert np.linalg.eigvalsh(K).min() > -1e-12 * np.linalg.eigvalsh(K).max()


@each_kernel
def test_gradient_in_every_number(kernel):
    rows = inner_products(draw_rows(5, 5, 4), draw_rows(6, 3, 4))
    names = list(kernel.log_parameters())
    start = np.array([float(log) for log in kernel.log_parameters().values()])

    def value(logs, part):
        named = dict(zip(names, torch.as_tensor(logs), strict=True))
        return kernel.of(*rows, named) if part == "of" else kernel.diagonal(rows.left, named)

    for part in ("of", "diagonal"):
        found = torch.autograd.functional.jacobian(partial(value, part=part), torch.tensor(start))
        expected = oracles.slopes(lambda logs, part=part: value(logs, part).numpy(), start)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
        assert expected.shape[-1] == len(names) >= 1


@each_kernel
def test_given_numbers_replace_its_own(kernel):
    X = draw_rows(7, 4, 3)
    own = kernel.log_parameters()
    moved = {name: log + 0.1 * i + 0.2 for i, (name, log) in enumerate(own.items())}
    changed = kernel.with_parameters(moved)
    assert type(changed) is type(kernel)
    np.testing.assert_allclose(changed(X), kernel.of(*inner_products(X), moved), rtol=1e-12)
    for name, log in changed.log_parameters().items():
        assert log.dtype == torch.float64
        torch.testing.assert_close(log, moved[name])
    for name, log in kernel.log_parameters().items():
        assert torch.equal(log, own[name])
    first = next(iter(own))
    only = kernel.with_parameters({first: own[first] + 1.0}).log_parameters()
    assert [name for name in own if not torch.allclose(only[name], own[name])] == [first]


def test_names_of_the_numbers():
    assert set(Linear().log_parameters()) == {"log_variance"}
    assert set(RBF().log_parameters()) == {"log_scale", "log_variance"}
    assert set(Polynomial().log_parameters()) == {"log_offset", "log_variance"}
    assert set(Polynomial(offset=0).log_parameters()) == {"log_variance"}
    nested = (Linear() + RBF() * Polynomial()).log_parameters()
    assert set(nested) == {
        "0.log_variance",
        "1.0.log_scale",
        "1.0.log_variance",
        "1.1.log_offset",
        "1.1.log_variance",
    }


def test_an_offset_of_zero_stays_zero():
    kernel, X = Polynomial(2, offset=0), draw_rows(0, 3, 2)
    ignored = {"log_offset": torch.tensor(1.0, dtype=torch.float64)}
    np.testing.assert_array_equal(kernel.of(*inner_products(X), ignored), kernel(X))
    with pytest.raises(ValueError, match="no learnable log_offset"):
        kernel.with_parameters(ignored)


@pytest.mark.parametrize(
    ("kernel", "unit", "names"),
    [
        (Linear(3.0), Linear(), []),
        (RBF(0.2, 3.0), RBF(0.2), ["log_scale"]),
        (Polynomial(3, 2.0, 3.0), Polynomial(3, 2.0), ["log_offset"]),
        (Linear(3.0) * RBF(0.2, 5.0), Linear() * RBF(0.2), ["1.log_scale"]),
        (
            Linear(3.0) + RBF(0.2, 5.0),
            Linear(3.0) + RBF(0.2, 5.0),
            ["0.log_variance", "1.log_scale", "1.log_variance"],
        ),
    ],
    ids=str,
)
def test_unit_leaves_the_overall_variance_out(kernel, unit, names):
    assert str(kernel.unit()) == str(unit)
    assert sorted(kernel.shape_parameters()) == names


def test_equal_rows_are_never_more_than_alike():
    X = np.random.default_rng(0).normal(size=(30, 50)) * 1e4
    K = RBF(1e-6)(np.vstack([X, X]))
    assert K.max() <= 1.0
    np.testing.assert_allclose(np.diag(K[:30, 30:]), 1.0, atol=1e-9)


def test_degenerate_shapes():
    for kernel in KERNELS:
        assert kernel([[1.0, 0.0]]).shape == (1, 1)
        assert kernel(sp.csr_matrix((0, 3)), sp.csr_matrix((2, 3))).shape == (0, 2)
        assert kernel(sp.csr_matrix((2, 0))).shape == (2, 2)
    np.testing.assert_array_equal(RBF()(sp.csr_matrix((2, 0))), np.ones((2, 2)))


# ---- sums and products -----------------------------------------------------------------------


def test_sums_and_products_are_flat():
    a, b, c = Linear(), RBF(), Polynomial()
    for made in ((a + b) + c, a + (b + c)):
        assert isinstance(made, Sum)
        assert made.kernels == [a, b, c]
    for made in ((a * b) * c, a * (b * c)):
        assert isinstance(made, Product)
        assert made.kernels == [a, b, c]
    mixed = a * b + c
    assert isinstance(mixed, Sum)
    assert isinstance(mixed.kernels[0], Product)
    with pytest.raises(TypeError):
        a + 1
    with pytest.raises(TypeError):
        a * 2.0


# ---- scikit-learn's habits -------------------------------------------------------------------


@each_kernel
def test_clone_is_a_copy(kernel):
    copy = clone(kernel)
    assert copy is not kernel
    assert str(copy) == str(kernel)
    if isinstance(kernel, Sum | Product):
        copy.set_params(**{"0__variance": 9.0})
        assert str(copy) != str(kernel)


def test_settings_of_parts():
    kernel = Linear() + RBF()
    kernel.set_params(**{"1__scale": 0.5})
    assert kernel.get_params()["1__scale"] == kernel.kernels[1].scale == 0.5
    kernel.set_params(**{"0": Polynomial()})
    kernel.set_params(**{"0__degree": 4})
    assert str(kernel.kernels[0]) == "Polynomial(degree=4, offset=1.0, variance=1.0)"
    kernel.set_params(kernels=[RBF()])
    assert str(kernel) == str(RBF())
    with pytest.raises(ValueError, match="'7'"):
        kernel.set_params(**{"7__scale": 1.0})


def test_settings_from_an_estimator_that_holds_a_kernel():
    class Holder(BaseEstimator):
        def __init__(self, kernel=None):
            self.kernel = kernel

    holder = clone(Holder(Linear() + Polynomial())).set_params(kernel__1__degree=3)
    assert holder.kernel.kernels[1].degree == 3
    assert clone(Holder(Polynomial())).set_params(kernel__degree=4).kernel.degree == 4


# ---- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (Linear(-1.0), "variance of Linear is -1.0; it must be positive"),
        (Linear(0), "variance of Linear is 0.0; it must be positive"),
        (Linear(np.nan), "variance of Linear is nan, not a finite number"),
        (Linear("2"), "variance of Linear is '2', not a finite number"),
        (RBF(scale=-0.5), "scale of RBF is -0.5; it must be positive"),
        (RBF(scale=np.inf), "scale of RBF is inf, not a finite number"),
        (Polynomial(0), "degree of Polynomial is 0; it must be at least 1"),
        (Polynomial(2.5), "degree of Polynomial is 2.5, not a whole number"),
        (Polynomial(True), "degree of Polynomial is True, not a whole number"),
        (Polynomial(offset=-1), "offset of Polynomial is -1; it cannot be negative"),
        (Polynomial(offset=np.nan), "offset of Polynomial is nan, not a finite number"),
        (Linear() + RBF(-1), "scale of RBF is -1"),
        (Linear() * RBF(1, -1), "variance of RBF is -1"),
        (Sum([]), "Sum of no kernels"),
        (Product([Linear(), 3]), "Product holds 3, which is not a kernel"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_numbers(kernel, message):
    for use in (kernel.check, kernel.log_parameters, lambda: kernel([[1.0]])):
        with pytest.raises(ValueError) as caught:  # noqa: PT011 — the message is looked at below
            use()
        assert message in str(caught.value)
    with pytest.raises(ValueError):  # noqa: PT011
        kernel.diagonal(torch.ones(1))


def test_unknown_numbers():
    with pytest.raises(ValueError, match=r"no learnable log_scale; it has log_variance"):
        Linear().with_parameters({"log_scale": torch.tensor(0.0)})
    with pytest.raises(ValueError, match=r"no learnable 2\.log_scale"):
        (Linear() + RBF()).with_parameters({"2.log_scale": torch.tensor(0.0)})
    with pytest.raises(ValueError, match="not a finite number"):
        Linear().with_parameters({"log_variance": torch.tensor(800.0, dtype=torch.float64)})


@pytest.mark.parametrize(
    ("X", "Z", "message"),
    [
        ([1.0, 2.0], None, "1 axes"),
        ([[np.nan]], None, "NaN or infinite"),
        ([[1.0]], sp.csr_matrix([[np.inf]]), "NaN or infinite"),
        ([[1.0, 2.0]], [[1.0]], "2 columns on one side, 1 on the other"),
    ],
)
def test_wrong_rows(X, Z, message):
    with pytest.raises(ValueError, match=message):
        RBF()(X, Z)
