"""The structured support vector machine: the more tokens are wrong, the wider the margin."""

from __future__ import annotations

from bayeseq.baselines.maxmargin import MaxMarginLabeler
from bayeseq.chain import one_thread
from bayeseq.kernels import Linear
from bayeseq.labelers.base import FitResult, TrainingData


class StructuredSVM(MaxMarginLabeler):
    """Structured SVM with Hamming loss, margin rescaling and linear features (SSVM of [gpsl]).

    Minimises ½‖w‖² + C Σ_i max_y (wrong tokens of y + F(x_i, y) − F(x_i, y_i)) by the sequential
    dual method: sequences are visited in blocks, the labelling that loss-augmented Viterbi finds
    joins the working set of its sequence, the dual is raised over the working sets of the block,
    and w follows at once.

    Parameters
    ----------
    C : the price of a wrong token.
    min_count : features that occur fewer times in training are left out.
    scheme : see `ChainLabeler`.
    max_iter : stop after so many rounds over the data, at the latest.
    tol : stop when the duality gap is below this part of the primal objective.
    random_state : decides the order of visits.
    progress : show a bar once training has run for two seconds.

    Sequences are cut where labels are missing, and weights multiply C. `result_` is as in `HMSVM`.

    >>> model = StructuredSVM().fit([[["a"], ["b"]], [["b"], ["a"]]], [["A", "B"], ["B", "A"]])
    >>> model.predict([[["a"], ["a"], ["b"]]])
    [['A', 'A', 'B']]
    """

    def __init__(
        self,
        C: float = 1.0,
        min_count: int = 1,
        scheme: str | None = None,
        max_iter: int = 500,
        tol: float = 1e-2,
        random_state: int = 0,
        progress: bool = True,
    ) -> None:
        self.C = C
        self.min_count = min_count
        self.scheme = scheme
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.progress = progress

    @one_thread()
    def _learn(self, data: TrainingData) -> FitResult:
        _, result = self._solve(
            data, Linear(), None, hamming=True, slack="l1", block_tokens=_BLOCK_TOKENS
        )
        return result


_BLOCK_TOKENS = 1000
"""Tokens of the sequences that are visited together."""
