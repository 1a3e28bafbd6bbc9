"""Products in rounds against steps one by one, and against enumeration where that is possible."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from bayeseq.chain import Chain, recursions
from bayeseq.chain.marginals import forward_backward
from bayeseq.chain.scan import pays
from bayeseq.shapes import Layout


@st.composite
def chains(draw):
    lengths = draw(st.lists(st.integers(0, 70), min_size=1, max_size=4).filter(any))
    C, S = draw(st.integers(1, 3)), draw(st.integers(0, 2))
    lead = (S,) if S else ()
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    layout = Layout.of(lengths)
    pairs = (layout.n_pairs, C, C) if draw(st.booleans()) else (C, C)
    size = draw(st.sampled_from([1.0, 30.0]))
    unary = torch.tensor(size * rng.normal(size=(*lead, layout.n_tokens, C)))
    return Chain(unary, torch.tensor(rng.normal(size=(*lead, *pairs))), layout)


@settings(max_examples=60, deadline=None)
@given(chains())
def test_rounds_find_what_steps_find(chain):
    with pytest.MonkeyPatch.context() as patch:
        found = {}
        for by_rounds in (True, False):
            patch.setattr(recursions, "pays", lambda chain, answer=by_rounds: answer)
            found[by_rounds] = forward_backward(chain, "each")
    for name in ("log_partition", "unary", "pairs"):
        torch.testing.assert_close(
            getattr(found[True], name), getattr(found[False], name), rtol=1e-9, atol=1e-10
        )


def test_it_is_for_few_long_sequences_with_few_labels():
    def chain(lengths, C):
        layout = Layout.of(lengths)
        return Chain(torch.zeros(layout.n_tokens, C), torch.zeros(C, C), layout)

    assert pays(chain([100] * 10, 2))
    assert not pays(chain([20] * 10, 2))
    assert not pays(chain([100] * 10, 4))
    assert not pays(chain([100] * 1000, 2))
