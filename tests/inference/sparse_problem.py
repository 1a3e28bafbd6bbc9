"""Small problems of a sparse search: as the library has them, and written out as [gpsc] does, γ one
number for each token, label and next label, with sums over all labellings one by one."""

import itertools
import math

import numpy as np
import torch

from bayeseq.inference.chain_loss import ChainLoss
from bayeseq.inference.greedy import NO_LABEL, Coordinates, Greedy
from bayeseq.kernels.columns import kernel_columns
from bayeseq.shapes import Layout
from tests.kernels.rows import draw_rows


class Problem:
    """A few sequences, both as the library has them and laid end to end for the loops."""

    def __init__(self, seed, lengths, C, kernel, v, u, partial=False):
        rng = np.random.default_rng(seed)
        N = sum(lengths)
        self.X = draw_rows(seed, N, 4, 0.6) if N > 1 else rng.normal(size=(1, 4))
        self.lengths, self.C, self.v, self.u = lengths, C, v, u
        self.weights = rng.uniform(0.5, 2.0, len(lengths))
        self.allowed = np.eye(C, dtype=bool)[rng.integers(C, size=N)]
        if partial:
            self.allowed |= rng.random((N, C)) < 0.3
        self.K = np.array([[kernel.unit()([x], [z])[0, 0] for z in self.X] for x in self.X])
        self.layout = Layout.of(lengths)
        rows = self.layout.rows.numpy()
        self.rows = rows
        loss = ChainLoss(
            self.layout, torch.from_numpy(self.allowed[rows]), torch.from_numpy(self.weights)
        )
        self.search = Greedy(loss, kernel_columns(kernel, self.X[rows]), v, u, directions=2)
        self.coordinates = []
        start = 0
        for T in lengths:
            for t in range(T):
                after = range(C) if t + 1 < T else [NO_LABEL]
                self.coordinates += [
                    (start + t, a, b) for a, b in itertools.product(range(C), after)
                ]
            start += T

    def scores(self, gamma):
        """f = v K γ¹ and A = u γ²: eqs. 11 and 17."""
        first, second = np.zeros((len(self.X), self.C)), np.zeros((self.C, self.C))
        for (n, a, b), value in zip(self.coordinates, gamma, strict=True):
            first[n, a] += value
            if b != NO_LABEL:
                second[a, b] += value
        f, A = self.v * self.K @ first, self.u * second
        return f, A, 0.5 * ((first * f).sum() + (second * A).sum())

    def objective(self, gamma):
        """Eq. 12 with a ½ before the penalty."""
        f, A, penalty = self.scores(gamma)
        total, start = penalty, 0
        for w, T in zip(self.weights, self.lengths, strict=True):
            every, known = [], []
            for y in itertools.product(range(self.C), repeat=T):
                score = sum(f[start + t, y[t]] for t in range(T))
                score += sum(A[y[t], y[t + 1]] for t in range(T - 1))
                every.append(score)
                if all(self.allowed[start + t, y[t]] for t in range(T)):
                    known.append(score)
            total += w * (_log_sum(every) - _log_sum(known))
            start += T
        return total

    def curvature(self):
        """K' by its definition."""
        every = self.coordinates
        K = np.zeros((len(every), len(every)))
        for i, (n, a, b) in enumerate(every):
            for j, (m, c, d) in enumerate(every):
                K[i, j] = self.v * self.K[n, m] * (a == c)
                K[i, j] += self.u * ((a, b) == (c, d) and b != NO_LABEL)
        return K

    def keys(self, coordinates):
        """Coordinates of the library, numbered as here."""
        index = {key: s for s, key in enumerate(self.coordinates)}
        return [
            index[int(self.rows[n]), int(a), int(b)] for n, a, b in zip(*coordinates, strict=True)
        ]

    def chosen(self, numbers):
        """Some coordinates as the library has them."""
        packed = self.layout.unpacked_rows.numpy()
        keys = np.array([self.coordinates[s] for s in numbers], dtype=np.int64)
        token, label, after = keys.reshape(-1, 3).T
        return Coordinates(packed[token], label, after)

    def full(self, found):
        """γ of all coordinates, zero where none is chosen; none is chosen twice."""
        keys = self.keys(found.coordinates)
        assert len(set(keys)) == len(keys)
        gamma = np.zeros(len(self.coordinates))
        gamma[keys] = found.gamma
        return gamma

    def found(self, gamma):
        """The library's record of the same γ."""
        f, A, penalty = self.scores(gamma)
        f = f[self.rows]
        packed = self.layout.unpacked_rows.numpy()
        token, label, after = np.array(self.coordinates).T
        start = self.search.start()
        return type(start)(
            Coordinates(packed[token], label, after), gamma, f, A, penalty, self.search.loss(f, A)
        )

    def slopes(self, found):
        """The library's gradient in the order of the coordinates."""
        packed = self.layout.unpacked_rows.numpy()
        table = self.search.gradient(found, packed)  # tokens as they lie end to end
        return np.array([table[n, a, b] for n, a, b in self.coordinates])


def _log_sum(values):
    top = max(values)
    return top + math.log(sum(math.exp(value - top) for value in values))
