"""The kernel's shape: gradients against finite differences."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from bayeseq.inference.expectations import expectation
from bayeseq.inference.hyper import ShapeObjective, raise_bound
from bayeseq.kernels import kernel_from_text
from bayeseq.kernels.maps import InducingMap
from bayeseq.models.gpsl import GPSLModel
from bayeseq.shapes import Layout
from tests.inference.problems import solver

LENGTHS, C = [5, 3, 4], 3


def fitted(text, rule, kind="full", sets=False):
    """A map, the model on its columns, the model's rows of inputs, and a posterior."""
    rng = np.random.default_rng(0)
    N = sum(LENGTHS)
    X = sp.csr_matrix(rng.normal(size=(N, 2)))
    points = sp.csr_matrix(rng.normal(size=(5, 2)))
    feature_map = InducingMap(kernel_from_text(text), points, np.array([0.5, 2.0]))
    phi, residual = feature_map.features(X)
    labels = (X.toarray() > [0.0, 0.5]).sum(-1)
    allowed = np.eye(C, dtype=bool)[labels]
    allowed[2] = True
    if sets:
        allowed[[0, 5]] = [True, True, False]
    model = GPSLModel.of(
        phi,
        feature_map.column_groups,
        Layout.of(LENGTHS),
        allowed,
        (-1,),
        weights=np.linspace(0.5, 2.0, N),
        residual=residual,
    )
    one = solver(model, kind, rule)
    posterior, _ = one.solve(model.log_variance + 0.4)
    return feature_map, model, posterior, X[model.rows], one.rule


@pytest.mark.parametrize(
    "text",
    [
        "rbf(scale=0.4)",
        "rbf(scale=0.2) + linear",
        "rbf(scale=0.3) * polynomial(degree=2, offset=0.5)",
    ],
)
@pytest.mark.parametrize(("rule", "kind"), [("jensen", "full"), ("tilted", "block")])
def test_gradients_equal_finite_differences(text, rule, kind):
    feature_map, model, posterior, rows, found = fitted(text, rule, kind, sets=True)
    objective = ShapeObjective(feature_map, model, posterior, rows, found)
    start = objective.start()
    assert len(start) > 0
    rng = np.random.default_rng(1)
    for at in (start, start + 0.3 * rng.normal(size=len(start))):
        _, gradient = objective(at)
        for k in range(len(start)):
            shift = np.zeros(len(start))
            shift[k] = 1e-5
            difference = (objective(at + shift)[0] - objective(at - shift)[0]) / 2e-5
            assert gradient[k] == pytest.approx(difference, rel=1e-5, abs=1e-6)
    assert np.abs(objective(start)[1]).max() > 1e-3


def test_with_two_labels_the_exact_rule_has_exact_gradients():
    feature_map, model, posterior, rows, _ = fitted("rbf(scale=0.4)", "jensen")
    two = replace(model, allowed=model.allowed[:, :2] | model.allowed[:, 2:])
    posterior = replace(
        posterior,
        mean=posterior.mean[:, :2],
        covariances=posterior.covariances[:2],
        log_variance=posterior.log_variance[:, :2],
    )
    objective = ShapeObjective(feature_map, two, posterior, rows, expectation("exact", 2))
    start = objective.start()
    difference = (objective(start + 1e-5)[0] - objective(start - 1e-5)[0]) / 2e-5
    assert objective(start)[1][0] == pytest.approx(difference, rel=1e-5, abs=1e-6)


def test_the_value_is_the_expected_log_likelihood_of_the_solver():
    feature_map, model, posterior, rows, rule = fitted("rbf(scale=0.4)", "jensen", sets=True)
    objective = ShapeObjective(feature_map, model, posterior, rows, rule)
    value, _ = objective(objective.start())
    one = solver(model, "full", "jensen")
    scores, variance = posterior.scores(model.design, model.residual)
    assert value == pytest.approx(one._fit(scores, variance)[0], abs=1e-9)


def test_raising_the_bound_raises_it_before_and_after_fitting_anew():
    feature_map, model, posterior, rows, rule = fitted("rbf(scale=0.02)", "tilted")
    before = ShapeObjective(feature_map, model, posterior, rows, rule)
    found = raise_bound(feature_map, model, posterior, rows, rule)
    assert found is not None
    assert found.points is feature_map.points or (found.points != feature_map.points).nnz == 0
    after = ShapeObjective(found, model, posterior, rows, rule)
    assert after(after.start())[0] > before(before.start())[0] + 1e-3
    assert abs(after.start()[0] - before.start()[0]) <= 2.0 + 1e-9
    phi, residual = found.features(rows)
    columns = np.hstack([phi, model.design.matrix[:, phi.shape[1] :]])
    moved = replace(
        model, design=type(model.design)(columns), residual=model.residual.new_tensor(residual)
    )
    first = solver(model, rule="tilted").solve(posterior.log_variance)[1].bound[-1]
    second = solver(moved, rule="tilted").solve(posterior.log_variance, posterior)[1].bound[-1]
    assert second > first + 1e-3


def test_a_kernel_without_a_shape_has_nothing_to_learn():
    feature_map, model, posterior, rows, rule = fitted("linear", "jensen")
    assert raise_bound(feature_map, model, posterior, rows, rule) is None
