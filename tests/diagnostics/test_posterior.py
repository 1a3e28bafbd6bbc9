"""Summaries of draws, against loops over draws."""

import statistics

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from bayeseq import DataError
from bayeseq.diagnostics import sentence_posterior, transition_posterior, weight_posterior
from bayeseq.diagnostics.posterior import OTHERS


def quantile(values, share):
    """Linear between the sorted values, written out."""
    values = sorted(values)
    place = share * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (place - low) * (values[high] - values[low])


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 9), st.integers(1, 4), st.sampled_from([0.5, 0.9]), st.integers(0, 99))
def test_transitions_are_summaries_over_draws(S, C, level, seed):
    draws = np.random.default_rng(seed).normal(size=(S, C, C))
    labels = [f"L{c}" for c in range(C)]
    found = transition_posterior(draws, labels, level=level)
    assert (found.labels, found.offset, found.level) == (tuple(labels), -1, level)
    for a in range(C):
        for b in range(C):
            column = [float(x) for x in draws[:, a, b]]
            assert found.mean[a, b] == pytest.approx(statistics.mean(column), abs=1e-12)
            assert found.sd[a, b] == pytest.approx(statistics.stdev(column), abs=1e-12)
            low, high = quantile(column, (1 - level) / 2), quantile(column, (1 + level) / 2)
            assert found.lower[a, b] == pytest.approx(low, abs=1e-12)
            assert found.upper[a, b] == pytest.approx(high, abs=1e-12)
            assert found.undecided[a, b] == (low <= 0 <= high)


def test_named_arrays_bring_their_names_and_the_offset_is_picked():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(2, 5, 2, 3, 3))
    names = ["B", "I", "O"]
    coords = {"offset": [-1, 1], "neighbour_label": names, "own_label": names}
    dims = ("chain", "draw", "offset", "neighbour_label", "own_label")
    named = xr.DataArray(values, dims=dims, coords=coords)
    joined = values.reshape(10, 2, 3, 3)
    for place, offset in enumerate([-1, 1]):
        # The order of the named axes does not matter.
        found = transition_posterior(named.transpose("own_label", ...), offset=offset)
        np.testing.assert_allclose(found.mean, joined[:, place].mean(0))
        assert (found.labels, found.offset) == (tuple(names), offset)
    with pytest.raises(ValueError, match=r"offset is -2; the draws have \[-1, 1\]"):
        transition_posterior(named, offset=-2)
    weight = xr.DataArray(
        values[:, :, 0, :2],
        dims=("chain", "draw", "feature", "own_label"),
        coords={"feature": ["f", "g"], "own_label": names},
    )
    found = weight_posterior(weight)
    assert (found.features, found.labels) == (("f", "g"), tuple(names))
    np.testing.assert_allclose(found.mean, joined[:, 0, :2].mean(0))
    np.testing.assert_allclose(found.upper, np.quantile(joined[:, 0, :2], 0.95, axis=0))
    with pytest.raises(DataError, match="no axis feature"):
        weight_posterior(weight.rename(feature="column"))


def test_draws_of_a_labeler_fit():
    from bayeseq import GPSL

    X, y = [[["a"], ["b"]], [["b"], ["a"]]] * 3, [["A", "B"], ["B", "A"]] * 3
    model = GPSL(learn=False, progress=False).fit(X, y)
    data = model.to_arviz(X, y, draws=400, random_state=0, weights=2)["posterior"]
    found = transition_posterior(data["dependency"])
    assert found.labels == ("A", "B")
    # Labels alternate in training.
    assert found.mean[0, 1] > found.mean[0, 0]
    assert set(weight_posterior(data["weight"]).features) == {"a", "b"}
    (rows,) = model.posterior_predict(X[:1], draws=50, random_state=0)
    line = sentence_posterior(rows, model.classes_.tolist(), ["x", "y"], y[0])
    np.testing.assert_allclose(line.middle, np.median(rows, axis=0))


@pytest.mark.parametrize(
    ("draws", "names", "error", "says"),
    [
        (np.zeros((3, 2)), ["a", "b"], DataError, "shape"),
        (np.zeros((0, 2, 2)), ["a", "b"], DataError, "empty"),
        (np.zeros((1, 2, 2)), ["a", "b"], DataError, "at least 2"),
        (np.full((3, 2, 2), np.nan), ["a", "b"], DataError, "finite"),
        (np.zeros((3, 2, 2)), ["a"], DataError, "1 names"),
        (np.zeros((3, 2, 2)), ["a", "a"], DataError, "more than once"),
        (np.zeros((3, 2, 2)), None, ValueError, "pass them"),
    ],
)
def test_bad_draws_are_refused(draws, names, error, says):
    with pytest.raises(error, match=says):
        transition_posterior(draws, names)
    with pytest.raises(error, match=says):
        weight_posterior(draws, None if names is None else ["f", "g"], names)


@pytest.mark.parametrize("level", [0, 1, 1.5])
def test_a_level_is_a_share(level):
    with pytest.raises(ValueError, match="level"):
        transition_posterior(np.zeros((2, 1, 1)), ["a"], level=level)


@settings(max_examples=20, deadline=None)
@given(
    st.integers(1, 6), st.integers(1, 4), st.integers(1, 9), st.integers(1, 5), st.integers(0, 99)
)
def test_sentence_keeps_the_probable_and_the_true_labels(S, T, C, most, seed):
    rng = np.random.default_rng(seed)
    draws = rng.dirichlet([0.3] * C, size=(S, T))
    classes = [f"L{c}" for c in range(C)]
    truth = [None if rng.random() < 0.3 else str(rng.choice(classes)) for _ in range(T)]
    found = sentence_posterior(draws, classes, None, truth, level=0.8, rare=0.2, most=most)
    highest = {c: max(draws[:, t, c].mean() for t in range(T)) for c in range(C)}
    ranked = sorted((c for c in range(C) if highest[c] >= 0.2), key=lambda c: -highest[c])[:most]
    kept = sorted({*ranked, *(c for c in range(C) if classes[c] in truth)})
    rest = [c for c in range(C) if c not in kept]
    assert found.labels == (*(classes[c] for c in kept), *([OTHERS] if rest else []))
    for column, own in enumerate([[c] for c in kept] + ([rest] if rest else [])):
        for t in range(T):
            values = [sum(draws[s, t, c] for c in own) for s in range(S)]
            for share, array in ((0.5, found.middle), (0.1, found.lower), (0.9, found.upper)):
                assert array[t, column] == pytest.approx(quantile(values, share), abs=1e-12)
    assert found.words == tuple(str(t) for t in range(T))
    assert found.truth == tuple(truth)
    assert found.draws == S


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"draws": np.zeros((2, 0, 2))}, DataError, "empty"),
        ({"draws": np.ones((2, 1, 2))}, DataError, "sum to 1"),
        ({"classes": ["a"]}, DataError, "2 labels but there are 1 classes"),
        ({"words": ["one", "two"]}, DataError, "words must be a list of 1"),
        ({"words": "x"}, DataError, "words must be a list of 1"),
        ({"y_true": []}, DataError, "y_true must be a list of 1"),
        ({"most": 0}, ValueError, "most"),
    ],
)
def test_bad_sentences_are_refused(change, error, says):
    good = {"draws": np.full((2, 1, 2), 0.5), "classes": ["a", "b"]}
    with pytest.raises(error, match=says):
        sentence_posterior(**(good | change))
