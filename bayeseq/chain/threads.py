"""Threads for chains: one for each piece of work, never several for one step of a recursion.

A step of a chain algorithm is too small to share. Threads that meet at every step cost more than
they save, and on a busy machine, where one of them waits for a core while the others spin, many
times more. Pieces that do not meet at all share the cores well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

Item = TypeVar("Item")
Found = TypeVar("Found")


@contextmanager
def one_thread() -> Iterator[int]:
    """Let torch compute on one thread; gives the number that it had, and has again afterwards.

    >>> with one_thread():
    ...     torch.get_num_threads()
    1
    """
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield n_threads
    finally:
        torch.set_num_threads(n_threads)


def in_threads(
    work: Callable[[Item], Found], items: Iterable[Item], at_once: int | None = None
) -> list[Found]:
    """[work(item) for item in items], as many at once as torch has threads, or as given, one thread
    each.

    >>> in_threads(abs, [-1, 2, -3])
    [1, 2, 3]
    """
    items = list(items)
    with one_thread() as n_threads:
        n_threads = n_threads if at_once is None else at_once
        if min(n_threads, len(items)) < 2:
            return list(map(work, items))
        with ThreadPoolExecutor(min(n_threads, len(items))) as pool:
            return list(pool.map(work, items))
