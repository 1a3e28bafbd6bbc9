"""The hidden Markov support vector machine: the right labelling ahead of all others by a margin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from bayeseq.baselines.maxmargin import MaxMarginLabeler
from bayeseq.baselines.tokens import as_kernel
from bayeseq.baselines.workingset import MarginSolver
from bayeseq.chain import one_thread
from bayeseq.kernels import Kernel
from bayeseq.labelers.base import FitResult, TrainingData
from bayeseq.labelers.chain import check_choice


class SupportSequence(NamedTuple):
    """A wrong labelling that holds the margin up, beside the right one."""

    sequence: int
    """Which training sequence"""
    start: int
    """Its first token there (0, unless labels were missing before it)"""
    true: list[str]
    labels: list[str]
    alpha: float

    def __str__(self) -> str:
        """α, and the labels where they differ ([hmsvm] figure 2).

        >>> print(SupportSequence(0, 0, ["N", "O"], ["N", "P"], 0.5))
        0.5000  · P
        """
        pairs = zip(self.true, self.labels, strict=True)
        marks = [found if found != right else "·" for right, found in pairs]
        return f"{self.alpha:.4f}  {' '.join(marks)}"


class HMSVM(MaxMarginLabeler):
    """Hidden Markov support vector machine ([hmsvm]).

    Minimises ½‖w‖² plus a penalty of the slacks ξ, one a sequence, such that the right labelling of
    each training sequence scores at least 1 − ξ_i more than every other. The dual is solved as
    Algorithm 2 of the paper does: the best wrong labelling, by two-best Viterbi, joins the working
    set of its sequence as long as it violates the margin, and the small problem over the working
    sets is solved. Sequences that are done are left alone until all are (shrinking).

    Parameters
    ----------
    C : the price of slack.
    slack : "l1", C Σ ξ; "l2", C/2 Σ ξ²; None, no slack: a hard margin, for separable data.
    kernel : a kernel between tokens, or its text: "linear", "polynomial(degree=2)", "rbf(…)", ….
    dual : keep the kernel matrix also for a linear kernel (None and False: the weights).
    min_count : features that occur fewer times in training are left out.
    scheme : see `ChainLabeler`.
    max_iter : stop after so many rounds over the data, at the latest.
    tol : stop when the duality gap is below this part of the primal objective.
    random_state : decides the order of visits.
    progress : show a bar once training has run for two seconds.

    Sequences are cut where labels are missing, and weights multiply C. `result_.objective` holds
    the dual objective by round, which never falls; `result_.diagnostics` the primal and the dual at
    the end, the duality gap (a part of the primal) and the KKT residual, the largest violation of
    the optimality conditions. All are exact: one more pass over all sequences measures them. The
    primal is that of the best multiple of the weights, since all multiples label alike.

    >>> model = HMSVM(C=10.0).fit([[["a"], ["b"]], [["b"], ["a"]]], [["A", "B"], ["B", "A"]])
    >>> model.predict([[["a"], ["a"], ["b"]]])
    [['A', 'A', 'B']]
    """

    _support: dict[str, np.ndarray]

    def __init__(
        self,
        C: float = 1.0,
        slack: str | None = "l1",
        kernel: Kernel | str = "linear",
        dual: bool | None = None,
        min_count: int = 1,
        scheme: str | None = None,
        max_iter: int = 500,
        tol: float = 1e-3,
        random_state: int = 0,
        progress: bool = True,
    ) -> None:
        self.C = C
        self.slack = slack
        self.kernel = kernel
        self.dual = dual
        self.min_count = min_count
        self.scheme = scheme
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.progress = progress

    @one_thread()
    def _learn(self, data: TrainingData) -> FitResult:
        if self.slack is not None:
            check_choice("slack", self.slack, ("l1", "l2"))
        solver, result = self._solve(
            data,
            as_kernel(self.kernel),
            self.dual,
            hamming=False,
            slack=self.slack,
            block_tokens=max(1, _BLOCK_SIZE // len(data.labels.classes)),
            flips=_FLIPS,
            revisits=_REVISITS,
            until_calm=True,
        )
        self._support = _support_arrays(solver)
        return result

    def support_sequences(self, sequence: int | None = None) -> list[SupportSequence]:
        """The wrong labellings with α > 0, of one training sequence or of all: by sequence, the
        largest α first. A sequence that is well ahead of its rivals has none."""
        found = []
        arrays = self._support
        ends = np.cumsum(arrays["lengths"])
        for k, end in enumerate(ends.tolist()):
            i, start = arrays["place"][k].tolist()
            if sequence is None or i == sequence:
                rows = slice(end - int(arrays["lengths"][k]), end)
                found.append(
                    SupportSequence(
                        i,
                        start,
                        self.classes_[arrays["true"][rows]].tolist(),
                        self.classes_[arrays["labels"][rows]].tolist(),
                        float(arrays["alpha"][k]),
                    )
                )
        return found

    def _tensors(self) -> dict[str, np.ndarray]:
        support = {f"support.{name}": array for name, array in self._support.items()}
        return {**super()._tensors(), **support}

    def _restore(self, tensors: Mapping[str, np.ndarray]) -> None:
        super()._restore(tensors)
        self._check_support(found := {k: tensors[f"support.{k}"] for k in _SUPPORT})
        self._support = found

    def _check_support(self, found: Mapping[str, np.ndarray]) -> None:
        """Refuse support sequences that are not in order, or do not add up to the transitions."""
        place, lengths, alpha = found["place"], found["lengths"], found["alpha"]
        for name in ("place", "lengths", "true", "labels"):
            if found[name].dtype != np.int64 or (found[name] < 0).any():
                raise ValueError(f"support.{name} does not hold counts")
        n, C, S = int(lengths.sum()), len(self.classes_), len(alpha)
        if alpha.dtype != np.float64 or not (np.isfinite(alpha) & (alpha > 0)).all():
            raise ValueError("support.alpha does not hold positive numbers")
        if place.shape != (S, 2) or lengths.shape != (S,) or alpha.shape != (S,):
            raise ValueError("the support sequences are not as many as they should be")
        for name in ("true", "labels"):
            if found[name].shape != (n,) or (found[name] >= C).any():
                raise ValueError("a support sequence has a label that does not exist")
        order = np.lexsort((-alpha, place[:, 1], place[:, 0]))
        if (order != np.arange(S)).any() or (lengths == 0).any():
            raise ValueError("the support sequences are out of order")
        inner = np.flatnonzero(np.diff(np.repeat(np.arange(S), lengths)) == 0)
        A = np.zeros((C, C))
        for labels, sign in ((found["true"], 1.0), (found["labels"], -1.0)):
            np.add.at(
                A, (labels[inner], labels[inner + 1]), sign * np.repeat(alpha, lengths)[inner]
            )
        if not np.allclose(A, self.transitions_, rtol=1e-6, atol=1e-9):
            raise ValueError("the support sequences do not add up to the transitions")


_SUPPORT = ("place", "alpha", "lengths", "true", "labels")
"""Sequence and first token, α, tokens, and the labels of all, end to end"""

_FLIPS = 30
"""Labellings with one wrong token that may join the working set of a sequence in one visit."""
_REVISITS = 30
"""Passes with the labellings that are known, between two searches for new ones."""
_BLOCK_SIZE = 20_000
"""Tokens times labels of the sequences that are visited together: the larger, the fewer visits, and
the more products between labellings are held in memory."""


def _support_arrays(solver: MarginSolver) -> dict[str, np.ndarray]:
    """The planes as plain arrays, by sequence, place and falling α."""
    pieces, C = solver.pieces, solver.pieces.n_labels
    records = []
    for block in solver.blocks:
        planes = block.planes
        for p in np.flatnonzero(planes.alpha > 0).tolist():
            true = np.flatnonzero(block.of_row == planes.piece[p])
            labels = block.truth[true].copy()
            entries = slice(planes.tokens.indptr[p], planes.tokens.indptr[p + 1])
            row, label = np.divmod(planes.tokens.indices[entries], C)
            wrong = planes.tokens.data[entries] < 0
            labels[row[wrong] - true[0]] = label[wrong]
            i = block.pieces[planes.piece[p]]
            key = (pieces.sequence[i], pieces.offset[i], -planes.alpha[p])
            records.append((key, block.truth[true], labels))
    records.sort(key=lambda record: record[0])
    none = np.zeros(0, dtype=np.int64)
    return {
        "place": np.array([key[:2] for key, _, _ in records], dtype=np.int64).reshape(-1, 2),
        "alpha": np.array([-key[2] for key, _, _ in records], dtype=np.float64),
        "lengths": np.array([len(true) for _, true, _ in records], dtype=np.int64),
        "true": np.concatenate([none, *(true for _, true, _ in records)]),
        "labels": np.concatenate([none, *(labels for _, _, labels in records)]),
    }
