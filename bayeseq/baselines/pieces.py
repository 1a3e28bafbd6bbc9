"""Training sequences for learners that need whole labellings: the stretches with known labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch

from bayeseq.chain import Chain
from bayeseq.data.batch import SequenceBatch
from bayeseq.data.errors import DataError
from bayeseq.data.schemes import scheme_constraints
from bayeseq.shapes import Layout


@dataclass(frozen=True, eq=False)
class Pieces:
    """Stretches of tokens whose labels are known, laid end to end.

    A sequence without gaps is one piece. One in which labels are missing, or are sets, is cut
    there: a margin is a margin between whole labellings, and only these are known whole.
    """

    features: sp.csr_matrix
    """(N, D)"""
    labels: np.ndarray
    """(N,) label numbers"""
    bounds: np.ndarray
    """(B + 1,) where each piece begins, and the end of the last"""
    weights: np.ndarray
    """(B,) how much each piece counts, above 0"""
    sequence: np.ndarray
    """(B,) the sequence that each piece is from"""
    offset: np.ndarray
    """(B,) the place of its first token there"""
    is_end: np.ndarray
    """(B,) whether its last token is the last of the sequence"""
    n_labels: int

    @classmethod
    def of(cls, batch: SequenceBatch) -> Pieces:
        """The pieces of labelled sequences, without those that weigh nothing."""
        assert batch.allowed is not None
        flat = batch.layout.unpacked_rows
        lengths = batch.layout.lengths.numpy()
        sequence = np.repeat(np.arange(len(lengths)), lengths)
        position = np.arange(len(sequence)) - (np.cumsum(lengths) - lengths)[sequence]
        labels = batch.labels[flat].numpy()
        weights = batch.weights.numpy()
        known = (labels >= 0) & (weights[sequence] > 0)
        if not known.any():
            raise DataError("no token has one known label; there is nothing to learn from")
        after_gap = np.r_[True, ~known[:-1]]
        rows = np.flatnonzero(known)
        starts = np.flatnonzero((after_gap | (position == 0))[rows])
        first, bounds = rows[starts], np.r_[starts, len(rows)]
        last = rows[bounds[1:] - 1]
        return cls(
            batch.features[flat.numpy()[rows]],
            labels[rows],
            bounds,
            weights[sequence[first]],
            batch.numbers[sequence[first]],
            position[first],
            position[last] == lengths[sequence[last]] - 1,
            batch.allowed.shape[1],
        )

    @property
    def lengths(self) -> np.ndarray:
        """(B,) tokens of each piece."""
        return np.diff(self.bounds)

    def rows(self, pieces: np.ndarray) -> np.ndarray:
        """The rows of some pieces, laid end to end."""
        lengths = self.lengths[pieces]
        before = np.cumsum(lengths) - lengths
        return np.arange(lengths.sum()) + np.repeat(self.bounds[pieces] - before, lengths)


@dataclass(frozen=True, eq=False)
class Rules:
    """What a tag scheme leaves of the labels (N, C) and of the label pairs (C, C); all if None."""

    labels: np.ndarray | None
    pairs: torch.Tensor | None

    @classmethod
    def of(cls, pieces: Pieces, scheme: str | None, classes: tuple[str, ...]) -> Rules:
        """The rules of a scheme; a piece that was cut off has no first or last token there."""
        if scheme is None:
            return cls(None, None)
        found = scheme_constraints(classes, scheme)
        labels = np.ones((len(pieces.labels), len(classes)), dtype=bool)
        labels[pieces.bounds[:-1][pieces.offset == 0]] &= found.start
        labels[pieces.bounds[1:][pieces.is_end] - 1] &= found.end
        return cls(labels, torch.from_numpy(found.pairs))

    def chain(self, unary: np.ndarray, A: np.ndarray, rows: np.ndarray, layout: Layout) -> Chain:
        """The chain of some rows, laid end to end, from their scores (n, C) and A (C, C)."""
        transitions = torch.from_numpy(A)
        if self.labels is not None:
            unary = np.where(self.labels[rows], unary, -np.inf)
        if self.pairs is not None:
            transitions = transitions.masked_fill(~self.pairs, -torch.inf)
        return Chain(layout.pack(torch.from_numpy(unary)), transitions, layout)
