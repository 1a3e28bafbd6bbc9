"""The packed layout against plain loops."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from bayeseq.shapes import Layout

lengths_strategy = st.lists(st.integers(0, 6), max_size=6)


@settings(max_examples=80, deadline=None)
@given(lengths_strategy)
def test_packed_order_is_time_major_longest_first(lengths):
    layout = Layout.of(lengths)
    order = sorted(range(len(lengths)), key=lambda b: -lengths[b])
    tokens = [(b, t) for b, n in enumerate(lengths) for t in range(n)]
    longest = max(lengths, default=0)
    want = [(b, t) for t in range(longest) for b in order if t < lengths[b]]
    assert [tokens[r] for r in layout.rows.tolist()] == want
    assert layout.sequence.tolist() == [b for b, _ in want]
    assert layout.token_index[1].tolist() == [t for _, t in want]
    first = layout.n_tokens - layout.n_pairs
    assert [want[p] for p in layout.previous.tolist()] == [(b, t - 1) for b, t in want[first:]]
    ends = [(b, lengths[b] - 1) for b in order if lengths[b]]
    assert [want[r] for r in layout.last.tolist()] == ends


@settings(max_examples=60, deadline=None)
@given(lengths_strategy)
def test_packing_padding_and_splitting_are_inverse(lengths):
    layout = Layout.of(lengths)
    flat = torch.arange(layout.n_tokens) + 1
    packed = layout.pack(flat)
    assert torch.equal(layout.unpack(packed), flat)
    padded = layout.pad(packed)
    assert torch.equal(layout.from_padded(padded), packed)
    row = 0
    for b, n in enumerate(lengths):
        assert layout.split(packed)[b].tolist() == flat[row : row + n].tolist()
        assert padded[b].tolist() == flat[row : row + n].tolist() + [0] * (len(padded[b]) - n)
        row += n
    sums = layout.sum_by_sequence(packed)
    assert sums.tolist() == [int(part.sum()) for part in layout.split(packed)]


@settings(max_examples=60, deadline=None)
@given(lengths_strategy, st.data())
def test_selecting_sequences(lengths, data):
    layout = Layout.of(lengths)
    some = data.draw(st.permutations(range(len(lengths))))
    some = some[: data.draw(st.integers(0, len(some)))]
    part, rows, pairs = layout.select(torch.tensor(some, dtype=torch.long))
    packed = torch.arange(layout.n_tokens)
    for b, piece in zip(some, part.split(packed[rows]), strict=True):
        assert piece.tolist() == layout.split(packed)[b].tolist()
    first, part_first = layout.n_tokens - layout.n_pairs, part.n_tokens - part.n_pairs
    assert (pairs + first).tolist() == rows[part_first:].tolist()


@settings(max_examples=80, deadline=None)
@given(lengths_strategy, st.integers(-4, 4))
def test_neighbours_and_reversal_equal_loops(lengths, offset):
    layout = Layout.of(lengths)
    sequence, position = (index.tolist() for index in layout.token_index)
    tokens = list(zip(sequence, position, strict=True))
    rows, others = (index.tolist() for index in layout.neighbours(offset))
    want = [
        (row, tokens.index((b, t + offset)))
        for row, (b, t) in enumerate(tokens)
        if 0 <= t + offset < lengths[b]
    ]
    assert list(zip(rows, others, strict=True)) == want
    mirrored = [tokens.index((b, lengths[b] - 1 - t)) for b, t in tokens]
    assert layout.reversal.tolist() == mirrored


def test_negative_lengths_are_refused():
    with pytest.raises(ValueError, match="negative"):
        Layout.of([2, -1])
