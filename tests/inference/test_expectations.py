"""E[log Σ exp f] by each rule, against dense grids and finite differences."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from bayeseq.inference.expectations import (
    RULES,
    GaussHermite,
    Jensen,
    QuasiMonteCarlo,
    Tilted,
    expectation,
    tilt,
)
from tests.inference import oracles

STEP = 1e-5


def rows(seed, n, C, size, largest):
    """n rows of means and variances for C labels."""
    rng = np.random.default_rng(seed)
    mean = size * rng.normal(size=(n, C))
    return torch.tensor(mean), torch.tensor(largest * rng.random((n, C)))


def exact(mean, variance):
    """Values (N,) and probabilities (N, C) from the grid."""
    found = [
        oracles.expected_log_sum_exp(m, v)
        for m, v in zip(mean.tolist(), variance.tolist(), strict=True)
    ]
    return np.array([value for value, _ in found]), np.array([p for _, p in found])


def differences(rule, mean, variance):
    """(N, C) ∂value/∂m and 2 ∂value/∂v by central differences."""
    by_mean, by_variance = torch.zeros_like(mean), torch.zeros_like(mean)
    for c in range(mean.shape[1]):
        shift = torch.zeros_like(mean)
        shift[:, c] = STEP
        up, down = rule(mean + shift, variance).value, rule(mean - shift, variance).value
        by_mean[:, c] = (up - down) / (2 * STEP)
        up, down = rule(mean, variance + shift).value, rule(mean, variance - shift).value
        by_variance[:, c] = 2 * (up - down) / (2 * STEP)
    return by_mean, by_variance


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.sampled_from([0.1, 1.0, 5.0]))
def test_two_labels_are_integrated_to_rounding(seed, n, size):
    mean, variance = rows(seed, n, 2, size, 0.7)
    found = GaussHermite()(mean, variance)
    value, p = exact(mean, variance)
    np.testing.assert_allclose(found.value.numpy(), value, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.probability.numpy(), p, rtol=0, atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1.0, 5.0]))
def test_two_labels_with_large_variances(seed, size):
    mean, variance = rows(seed, 4, 2, size, 5.0)
    found = GaussHermite()(mean, variance)
    value, p = exact(mean, variance)
    np.testing.assert_allclose(found.value.numpy(), value, rtol=0, atol=1e-5)
    np.testing.assert_allclose(found.probability.numpy(), p, rtol=0, atol=1e-5)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 3), st.integers(0, 5))
def test_many_quasi_monte_carlo_points_come_near_the_grid(seed, C, scramble):
    mean, variance = rows(seed, 3, C, 1.0, 3.0)
    value, p = exact(mean, variance)
    found = QuasiMonteCarlo(C, 4096, scramble)(mean, variance)
    np.testing.assert_allclose(found.value.numpy(), value, rtol=0, atol=2e-3)
    np.testing.assert_allclose(found.probability.numpy(), p, rtol=0, atol=2e-3)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_default_points_suffice_for_the_variances_of_a_posterior(seed):
    mean, variance = rows(seed, 4, 3, 1.5, 1.0)
    value, p = exact(mean, variance)
    found = expectation("exact", 3)(mean, variance)
    assert len(expectation("exact", 3).points) == 64
    np.testing.assert_allclose(found.value.numpy(), value, rtol=0, atol=1e-2)
    np.testing.assert_allclose(found.probability.numpy(), p, rtol=0, atol=1e-2)


def test_small_variances_leave_quasi_monte_carlo_a_fourth_order_error():
    mean, direction = rows(3, 5, 3, 1.0, 1.0)
    errors = []
    for scale in (0.1, 0.01):
        value, _ = exact(mean, scale * direction)
        found = QuasiMonteCarlo(3)(mean, scale * direction).value.numpy()
        errors.append(np.abs(found - value).max())
    assert errors[0] < 2e-4
    assert errors[1] < 0.02 * errors[0]


@pytest.mark.parametrize(("C", "points"), [(1, 2), (3, 64), (17, 64), (32, 64)])
def test_the_points_have_the_moments_of_independent_labels(C, points):
    x = QuasiMonteCarlo(C, points).points
    assert len(x) == points
    second = x.T @ x / points
    torch.testing.assert_close(second, torch.eye(C, dtype=x.dtype), rtol=0, atol=1e-12)
    torch.testing.assert_close(x.sum(0), torch.zeros(C, dtype=x.dtype), rtol=0, atol=1e-12)


def test_more_labels_than_points_have_unit_variance():
    x = QuasiMonteCarlo(40, 64).points
    torch.testing.assert_close(
        x.square().mean(0), torch.ones(40, dtype=x.dtype), rtol=0, atol=1e-12
    )


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 3), st.sampled_from([0.05, 1.0, 6.0]))
def test_the_bounds_lie_above_the_expectation_in_their_order(seed, C, largest):
    mean, variance = rows(seed, 3, C, 2.0, largest)
    value, _ = exact(mean, variance)
    tilted, jensen = Tilted()(mean, variance).value, Jensen()(mean, variance).value
    assert (tilted.numpy() >= value - 1e-10).all()
    assert (jensen >= tilted - 1e-10).all()
    assert (jensen - tilted).max() > 1e-6


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 5))
def test_jensen_is_log_sum_exp_of_mean_and_half_the_variance(seed, C):
    mean, variance = rows(seed, 3, C, 2.0, 4.0)
    found = Jensen()(mean, variance)
    for n, (m, v) in enumerate(zip(mean.tolist(), variance.tolist(), strict=True)):
        eta = [a + b / 2 for a, b in zip(m, v, strict=True)]
        assert float(found.value[n]) == pytest.approx(oracles.log_sum_exp(eta), abs=1e-12)
        assert found.probability[n].tolist() == pytest.approx(oracles.softmax(eta), abs=1e-12)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 4), st.sampled_from([0.3, 3.0]))
def test_the_tilt_is_the_least_value_and_a_fixed_point(seed, C, largest):
    mean, variance = rows(seed, 3, C, 1.0, largest)
    a = tilt(mean, variance, 200, 1e-14)
    again = torch.softmax(mean + (0.5 - a) * variance, -1)
    torch.testing.assert_close(a, again, rtol=0, atol=1e-12)
    rng = np.random.default_rng(seed)
    least = Tilted()(mean, variance).value
    for _ in range(5):
        other = torch.tensor(rng.dirichlet(np.ones(C), size=3))
        value = (other.square() * variance).sum(-1) / 2
        value += torch.logsumexp(mean + (0.5 - other) * variance, -1)
        assert (value >= least - 1e-12).all()


@pytest.mark.parametrize("C", [2, 4])
@pytest.mark.parametrize("rule", [Jensen(), Tilted()], ids=["jensen", "tilted"])
def test_derivatives_of_the_bounds(rule, C):
    mean, variance = rows(C, 6, C, 1.5, 3.0)
    variance += 0.01
    found = rule(mean, variance)
    by_mean, by_variance = differences(rule, mean, variance)
    torch.testing.assert_close(found.probability, by_mean, rtol=0, atol=1e-8)
    torch.testing.assert_close(found.curvature, by_variance, rtol=0, atol=1e-8)


def test_derivatives_for_two_labels():
    mean, variance = rows(0, 8, 2, 1.5, 0.7)
    variance += 0.01
    rule = GaussHermite()
    found = rule(mean, variance)
    by_mean, by_variance = differences(rule, mean, variance)
    torch.testing.assert_close(found.probability, by_mean, rtol=0, atol=1e-8)
    torch.testing.assert_close(found.curvature, by_variance, rtol=0, atol=1e-8)


@pytest.mark.parametrize(("points", "atol"), [(64, 3e-2), (4096, 2e-3)])
def test_derivatives_of_quasi_monte_carlo(points, atol):
    mean, variance = rows(1, 8, 3, 1.0, 2.0)
    variance += 0.05
    rule = QuasiMonteCarlo(3, points)
    found = rule(mean, variance)
    by_mean, by_variance = differences(rule, mean, variance)
    torch.testing.assert_close(found.probability, by_mean, rtol=0, atol=1e-8)
    # The curvature is E[π (1 − π)], equal to 2 ∂value/∂v under the Gaussian itself only.
    torch.testing.assert_close(found.curvature, by_variance, rtol=0, atol=atol)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 9))
def test_blocks_of_points_add_up(seed, at_once):
    """However many points are taken at once, the sums are the same."""
    mean, variance = rows(seed, 3, 3, 1.0, 1.0)
    rule = QuasiMonteCarlo(3, 32)
    whole = rule(mean, variance)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bayeseq.inference.expectations._AT_ONCE", at_once * mean.numel())
        parts = rule(mean, variance)
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-13)


@pytest.mark.parametrize("C", [2, 3])
@pytest.mark.parametrize("name", RULES)
def test_without_variance_every_rule_is_log_sum_exp(name, C):
    mean, _ = rows(5, 6, C, 4.0, 1.0)
    found = expectation(name, C)(mean, torch.zeros_like(mean))
    for n, m in enumerate(mean.tolist()):
        assert float(found.value[n]) == pytest.approx(oracles.log_sum_exp(m), abs=1e-12)
        p = np.array(oracles.softmax(m))
        np.testing.assert_allclose(found.probability[n].numpy(), p, rtol=0, atol=1e-12)
        curvature = p if name == "jensen" else p * (1 - p)
        np.testing.assert_allclose(found.curvature[n].numpy(), curvature, rtol=0, atol=1e-12)


@pytest.mark.parametrize("C", [2, 3])
@pytest.mark.parametrize("name", RULES)
def test_extremes_stay_finite(name, C):
    mean = torch.tensor(
        [[800.0, -800.0, 0.0], [-1e4, -1e4, -1e4], [0.0, 0.0, 0.0], [1e3, 1e3, 0.0]]
    )
    variance = torch.tensor(
        [[1e-12, 1e4, 0.0], [1e4, 1e-8, 1.0], [1e4, 1e4, 1e4], [0.0, 1e4, 1e-9]]
    )
    mean, variance = mean.double()[:, :C], variance.double()[:, :C]
    found = expectation(name, C)(mean, variance)
    for part in found:
        assert part.isfinite().all()
    torch.testing.assert_close(
        found.probability.sum(-1), torch.ones(4, dtype=torch.float64), rtol=0, atol=1e-9
    )
    assert (found.probability >= 0).all()
    assert (found.curvature >= 0).all()
    # E[log Σ exp f] ≥ log Σ exp E[f]
    assert (found.value >= torch.logsumexp(mean, -1) - 1e-9).all()


def test_softmax_is_the_probability_and_unknown_names_are_refused():
    mean, variance = rows(6, 4, 3, 1.0, 1.0)
    rule = expectation("tilted", 3)
    assert torch.equal(rule.softmax(mean, variance), rule(mean, variance).probability)
    assert isinstance(expectation("exact", 2), GaussHermite)
    with pytest.raises(ValueError, match="bound is 'laplace'; expected one of 'exact'"):
        expectation("laplace", 2)


@pytest.mark.parametrize("C", [2, 3, 20])
@pytest.mark.parametrize("largest", [10.0, 1e3, 1e5])
def test_the_tilt_is_found_whatever_the_variance(C, largest):
    mean, variance = rows(C, 200, C, np.sqrt(largest), largest)
    a = tilt(mean, variance, steps=40, tol=1e-13)
    inner = mean + (0.5 - a) * variance
    again = np.exp(inner.numpy() - inner.numpy().max(-1, keepdims=True))
    again /= again.sum(-1, keepdims=True)
    # An error of a is multiplied by the variance inside the exponential.
    np.testing.assert_allclose(a.numpy(), again, rtol=0, atol=1e-13 * largest + 1e-11)


def test_variances_with_and_without_a_guard_against_overflow_agree(monkeypatch):
    mean, variance = rows(1, 40, 4, 5.0, 20.0)
    rule = QuasiMonteCarlo(4)
    plain = rule(mean, variance)
    monkeypatch.setattr("bayeseq.inference.expectations._NO_OVERFLOW", 0.0)
    for found, want in zip(rule(mean, variance), plain, strict=True):
        torch.testing.assert_close(found, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize(("n", "C"), [(1, 2), (1, 3), (4, 3)])
def test_what_is_given_is_left_alone(name, n, C):
    mean, variance = rows(2, n, C, 3.0, 2.0)
    before = mean.clone(), variance.clone()
    expectation(name, C)(mean, variance)
    assert torch.equal(mean, before[0])
    assert torch.equal(variance, before[1])
