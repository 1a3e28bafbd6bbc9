"""Packing, selecting and splitting of batches against loops over the original sequences."""

import itertools

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings

from bayeseq.data import SequenceBatch
from bayeseq.data.batch import bucket

LENGTHS = st.lists(st.integers(0, 5), max_size=6)


def sequences(lengths, seed=0):
    """Features (T, 3), allowed labels (T, 4) and a weight for each sequence."""
    rng = np.random.default_rng(seed)
    found = []
    for n in lengths:
        allowed = rng.random((n, 4)) < 0.4
        allowed[np.arange(n), rng.integers(4, size=n)] = True
        found.append((rng.normal(size=(n, 3)).round(2), allowed, float(rng.random())))
    return found


def batch_of(each, labelled=True):
    features = np.concatenate([np.zeros((0, 3)), *(x for x, _, _ in each)])
    allowed = np.concatenate([np.zeros((0, 4), dtype=bool), *(a for _, a, _ in each)])
    return SequenceBatch.of(
        sp.csr_matrix(features),
        [len(x) for x, _, _ in each],
        allowed if labelled else None,
        np.array([w for _, _, w in each]),
    )


def assert_holds(batch, each, numbers):
    """The batch holds the sequences with these numbers, in this order."""
    layout = batch.layout
    assert layout.lengths.tolist() == [len(each[i][0]) for i in numbers]
    assert batch.numbers.tolist() == list(numbers)
    assert batch.weights.tolist() == [each[i][2] for i in numbers]
    assert batch.features.shape == (layout.n_tokens, 3)
    sequence, position = layout.token_index
    places = list(zip(sequence.tolist(), position.tolist(), strict=True))
    expected = {(b, t) for b, i in enumerate(numbers) for t in range(len(each[i][0]))}
    assert sorted(places) == sorted(expected)
    dense = batch.features.toarray()
    for row, (b, t) in enumerate(places):
        x, allowed, _ = each[numbers[b]]
        assert dense[row].tolist() == x[t].tolist()
        if batch.allowed is not None:
            assert batch.allowed[row].tolist() == allowed[t].tolist()
            known = np.flatnonzero(allowed[t])
            assert int(batch.labels[row]) == (known[0] if len(known) == 1 else -1)


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.booleans())
def test_a_batch_holds_its_sequences(lengths, labelled):
    each = sequences(lengths)
    assert_holds(batch_of(each, labelled), each, range(len(lengths)))


def test_packed_order_is_time_major_and_longest_first():
    features = sp.csr_matrix(np.arange(6.0).reshape(-1, 1))
    batch = SequenceBatch.of(features, [1, 3, 2])
    # first tokens of sequences 1, 2, 0, then second tokens of 1, 2, then the third of 1
    assert batch.features.toarray().ravel().tolist() == [1, 4, 0, 2, 5, 3]


def test_what_is_left_out_has_a_default():
    batch = SequenceBatch.of(sp.csr_matrix((3, 2)), [1, 2])
    assert batch.allowed is None
    assert batch.weights.tolist() == [1.0, 1.0]
    assert batch.weights.dtype == torch.float64
    assert batch.numbers.tolist() == [0, 1]
    with pytest.raises(ValueError, match="no labels"):
        _ = batch.labels


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.data())
def test_selecting_some(lengths, data):
    each = sequences(lengths)
    chosen = data.draw(st.permutations(range(len(lengths))))
    chosen = chosen[: data.draw(st.integers(0, len(lengths)))]
    batch = batch_of(each)
    rows, part = batch.select(torch.tensor(chosen, dtype=torch.long))
    assert_holds(part, each, chosen)
    assert (batch.features[rows] != part.features).nnz == 0
    again = data.draw(st.permutations(range(len(chosen))))
    _, smaller = part.select(torch.tensor(again, dtype=torch.long))
    assert_holds(smaller, each, [chosen[k] for k in again])


@settings(max_examples=80, deadline=None)
@given(LENGTHS, st.integers(1, 12), st.booleans())
def test_splitting_keeps_everything_once(lengths, max_tokens, labelled):
    each = sequences(lengths)
    batch = batch_of(each, labelled)
    all_rows, all_numbers, last = [], [], None
    for rows, part in batch.split(max_tokens):
        numbers = part.numbers.tolist()
        assert_holds(part, each, numbers)
        assert (batch.features[rows] != part.features).nnz == 0
        assert part.layout.n_tokens <= max_tokens or part.layout.sizes[0] == 1
        inside = [len(each[i][0]) for i in numbers]
        assert last is None or max(inside) <= last  # of like length: the longest go first
        last = min(inside)
        all_rows += rows.tolist()
        all_numbers += numbers
    assert sorted(all_rows) == list(range(sum(lengths)))
    assert sorted(all_numbers) == list(range(len(lengths)))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 15))
def test_buckets_are_as_full_as_they_may_be(lengths, max_tokens):
    bounds = bucket(np.array(lengths, dtype=np.int64), max_tokens)
    assert bounds[0] == 0
    assert bounds[-1] == len(lengths)
    pieces = list(itertools.pairwise(bounds))
    for first, last in pieces:
        assert first < last
        tokens = lengths[first:last]
        assert sum(tokens) <= max_tokens or sum(n > 0 for n in tokens) == 1
        # the next sequence would not have fitted
        if last < len(lengths):
            assert sum(tokens) + lengths[last] > max_tokens
