"""What the margin labelers share: scores from a kernel or from weights, and no probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.utils.validation import check_is_fitted

from bayeseq.baselines.pieces import Pieces
from bayeseq.chain import Chain, max_marginals, one_thread
from bayeseq.data.batch import SequenceBatch
from bayeseq.data.labels import Labels
from bayeseq.kernels import Kernel, kernel_from_text
from bayeseq.labelers.base import NoProbabilitiesError
from bayeseq.labelers.chain import ChainLabeler, numbered


def _refused(name: str) -> Any:
    """A method that says why there is no answer."""

    def method(self: MarginLabeler, *args: Any, **kwargs: Any) -> Any:
        check_is_fitted(self, "classes_")
        kind = type(self).__name__
        raise NoProbabilitiesError(
            f"{kind} has margins, not probabilities, so it has no {name}; wrap it, as in "
            f"Calibrated({kind}(…)), or use decision_scores or rank_labellings"
        )

    method.__name__ = name
    method.__doc__ = "Raises NoProbabilitiesError: this labeler has scores alone."
    return method


class MarginLabeler(ChainLabeler):
    """A chain labeler whose scores are no log-probabilities.

    It was taught to score the right labelling above the others, by how much says nothing of how
    often it is right. So `predict` and `rank_labellings` answer, `decision_scores` gives the scores
    themselves, and whatever would be a probability raises `NoProbabilitiesError`. `Calibrated`
    turns the scores into probabilities with held-out data.
    """

    has_probabilities: ClassVar[bool] = False
    decode = "viterbi"

    transitions_: np.ndarray
    """(C, C) A, [from, to]"""
    state_weights_: np.ndarray | None
    """(D, C) W of a linear kernel; None where the scores come from `points_`"""
    kernel_: Kernel | None
    points_: sp.csr_matrix | None
    """(M, D) the training tokens that count"""
    alpha_: np.ndarray | None
    """(M, C) by how much each counts for each label"""

    predict_proba = _refused("predict_proba")
    predict_marginals = _refused("predict_marginals")
    tag = _refused("tag")
    predict_nbest = _refused("predict_nbest")
    predict_entities = _refused("predict_entities")
    entity_proba = _refused("entity_proba")
    log_likelihood = _refused("log_likelihood")
    predict_entropy = _refused("predict_entropy")
    sample_labels = _refused("sample_labels")

    @one_thread()
    def decision_scores(self, X: Iterable[Any], given: Labels | None = None) -> list[np.ndarray]:
        """(T, C) for each sequence: the score of the best labelling that has label c at a token,
        less the best score of all. Zero for the predicted labels, below zero for the others."""
        batch = self._batch(X, given)
        found = np.zeros((batch.layout.n_tokens, len(self.classes_)))
        for rows, part in self._parts(batch):
            found[rows] = self._token_scores(part)
        return self._ragged(batch, found)

    def _token_scores(self, batch: SequenceBatch) -> np.ndarray:
        """(N, C) `decision_scores` of packed rows."""
        with numbered(batch):
            return max_marginals(self._chain(batch)).numpy()

    # ---- scores ---------------------------------------------------------------------------------

    def _set_weights(self, W: np.ndarray, A: np.ndarray) -> None:
        self.state_weights_, self.transitions_ = W, A
        self.kernel_ = self.points_ = self.alpha_ = None

    def _set_points(self, pieces: Pieces, kernel: Kernel, alpha: np.ndarray, A: np.ndarray) -> None:
        """Keep the training tokens (N, C) that have a coefficient."""
        rows = np.flatnonzero(alpha.any(1))
        self.kernel_, self.points_, self.alpha_ = kernel, pieces.features[rows], alpha[rows]
        self.state_weights_, self.transitions_ = None, A

    def _scores(self, batch: SequenceBatch) -> Chain:
        if self.state_weights_ is not None:
            unary = np.asarray(batch.features @ self.state_weights_)
        else:
            assert self.kernel_ is not None
            unary = self.kernel_(batch.features, self.points_) @ self.alpha_
        A = torch.from_numpy(self.transitions_)
        return Chain(torch.from_numpy(np.ascontiguousarray(unary)), A, batch.layout)

    # ---- saving ---------------------------------------------------------------------------------

    def _tensors(self) -> dict[str, np.ndarray]:
        found = {"transitions": self.transitions_}
        if self.state_weights_ is not None:
            return {**found, "weights": self.state_weights_}
        assert self.points_ is not None
        assert self.alpha_ is not None
        return {
            **found,
            "kernel": np.frombuffer(str(self.kernel_).encode(), dtype=np.uint8),
            "points.data": self.points_.data,
            "points.indices": self.points_.indices.astype(np.int64),
            "points.indptr": self.points_.indptr.astype(np.int64),
            "alpha": self.alpha_,
        }

    def _restore(self, tensors: Mapping[str, np.ndarray]) -> None:
        D, C = self.feature_space_.n_features, len(self.classes_)
        A = checked_table(tensors, "transitions", (C, C))
        if "weights" in tensors:
            self._set_weights(checked_table(tensors, "weights", (D, C)), A)
            return
        text = tensors["kernel"]
        if text.dtype != np.uint8 or text.ndim != 1:
            raise ValueError("the kernel is not a text")
        kernel = kernel_from_text(text.tobytes().decode())
        for name in ("points.indices", "points.indptr"):
            if tensors[name].dtype != np.int64 or tensors[name].ndim != 1:
                raise ValueError(f"{name} is not a row of int64")
        M = len(tensors["points.indptr"]) - 1
        data = checked_table(tensors, "points.data", tensors["points.indices"].shape)
        points = sp.csr_matrix(
            (data, tensors["points.indices"], tensors["points.indptr"]), shape=(M, D)
        )
        points.check_format(full_check=True)
        self.kernel_, self.points_ = kernel, points
        self.alpha_ = checked_table(tensors, "alpha", (M, C))
        self.state_weights_, self.transitions_ = None, A


def checked_table(
    tensors: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...]
) -> np.ndarray:
    """A table of finite numbers of this shape, or ValueError."""
    table = tensors[name].astype(np.float64)
    if table.shape != shape or not np.isfinite(table).all():
        raise ValueError(f"{name} is not a finite table of shape {shape}")
    return table
