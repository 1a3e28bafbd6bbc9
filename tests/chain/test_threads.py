"""Work in threads: the order of the answers, the number of threads, what errors leave behind."""

import threading

import pytest
import torch

from bayeseq.chain import in_threads, one_thread


@pytest.fixture(params=[1, 2, 3])
def n_threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_answers_keep_the_order_and_torch_its_threads(n_threads):
    seen = in_threads(lambda k: (k, torch.get_num_threads()), range(20))
    assert seen == [(k, 1) for k in range(20)]
    assert torch.get_num_threads() == n_threads
    assert in_threads(abs, []) == []


def test_pieces_run_at_the_same_time(n_threads):
    """Each piece waits until as many as there are threads have begun."""
    meeting = threading.Barrier(n_threads, timeout=20)
    in_threads(lambda _: meeting.wait(), range(n_threads))
    assert not meeting.broken


def test_an_error_comes_out_and_the_threads_come_back(n_threads):
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda k: 1 / (k - 2), range(5))
    with one_thread() as before:
        assert (before, torch.get_num_threads()) == (n_threads, 1)
    assert torch.get_num_threads() == n_threads
