"""How many labels an error needs, against a search in small steps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayeseq.diagnostics.learning import learning_curve


@given(st.integers(1, 3), st.integers(1, 6), st.integers(0, 10**6))
def test_labels_for_against_small_steps(runs, points, seed):
    rng = np.random.default_rng(seed)
    share = np.sort(rng.choice(np.arange(1, 101), points, replace=False)) / 100
    curve = learning_curve(share, rng.uniform(0.1, 0.5, (runs, points)))
    target = rng.uniform(0.1, 0.5)
    grid = np.linspace(share[0], share[-1], 20001)
    mean = [sum(row) / runs for row in curve.errors.T.tolist()]
    below = grid[np.interp(grid, share, mean) <= target + 1e-12]
    found = curve.labels_for(target)
    if not len(below):
        assert found is None or min(mean) == pytest.approx(target, abs=1e-6)
    else:
        assert found == pytest.approx(below[0], abs=1e-4)
