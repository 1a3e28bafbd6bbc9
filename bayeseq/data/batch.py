"""Sequences made ready for computing: packed features, labels and weights, in batches."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from bayeseq.shapes import Layout, bucket


@dataclass(frozen=True, eq=False)
class SequenceBatch:
    """Some sequences, their rows in the packed order of `layout`.

    >>> batch = SequenceBatch.of(sp.csr_matrix([[1.0], [2.0], [3.0]]), [1, 2])
    >>> batch.features.toarray().ravel()       # the longer sequence first, time-major
    array([2., 1., 3.])
    """

    layout: Layout
    features: sp.csr_matrix
    """(N, D)"""
    allowed: Tensor | None
    """(N, C) labels that each token may have; None when nothing is known of them"""
    weights: Tensor
    """(B,) how much each sequence counts"""
    numbers: np.ndarray
    """(B,) the sequences' places in the data that this batch was taken from"""
    edges: tuple[np.ndarray, ...] | None = None
    """(E, 2) the edges (parent, child) of each structure, for models of trees and graphs"""

    @classmethod
    def of(
        cls,
        features: sp.csr_matrix,
        lengths: np.ndarray | list[int],
        allowed: np.ndarray | None = None,
        weights: np.ndarray | None = None,
        numbers: np.ndarray | None = None,
        edges: tuple[np.ndarray, ...] | None = None,
    ) -> SequenceBatch:
        """A batch of sequences laid end to end: features (N, D), allowed (N, C)."""
        layout = Layout.of(torch.as_tensor(np.asarray(lengths, dtype=np.int64)))
        B = layout.n_sequences
        return cls(
            layout,
            features[layout.rows.numpy()],
            None if allowed is None else torch.from_numpy(allowed)[layout.rows],
            torch.ones(B, dtype=torch.float64) if weights is None else torch.as_tensor(weights),
            np.arange(B) if numbers is None else numbers,
            edges,
        )

    @property
    def labels(self) -> Tensor:
        """(N,) the number of the label where it is known, else −1."""
        if self.allowed is None:
            raise ValueError("this batch has no labels")
        known = self.allowed.sum(-1) == 1
        return torch.where(known, self.allowed.to(torch.uint8).argmax(-1), -1)

    def split(self, max_tokens: int) -> Iterator[tuple[np.ndarray, SequenceBatch]]:
        """The same sequences in batches of like length and at most `max_tokens` tokens each (one
        longer sequence is a batch alone), each with the packed rows that it has here."""
        lengths = self.layout.lengths[self.layout.order].numpy()
        group = bucket(lengths.tolist(), max_tokens)
        for first, last in itertools.pairwise(group):
            yield self.select(self.layout.order[first:last])

    def select(self, sequences: Tensor) -> tuple[np.ndarray, SequenceBatch]:
        """A batch of some of the sequences, with the packed rows that it has here."""
        layout, rows, _ = self.layout.select(sequences)
        return rows.numpy(), SequenceBatch(
            layout,
            self.features[rows.numpy()],
            None if self.allowed is None else self.allowed[rows],
            self.weights[sequences],
            self.numbers[sequences.numpy()],
            None if self.edges is None else tuple(self.edges[i] for i in sequences.tolist()),
        )
