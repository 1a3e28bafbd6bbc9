"""A fitted labeler as posterior draws: of its weights, of labellings, and what these say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from bayeseq.chain import Chain, forward_backward, log_partition, one_thread, sample
from bayeseq.data.batch import SequenceBatch
from bayeseq.data.errors import DataError
from bayeseq.data.features import FeatureSpace
from bayeseq.data.labels import Labels
from bayeseq.diagnostics.arviz import Variable, inference_data
from bayeseq.inference.dependencies import Dependencies
from bayeseq.kernels.maps import FeatureMap, LinearMap
from bayeseq.labelers.base import FitResult
from bayeseq.labelers.chain import require_positive

Answers = tuple[np.ndarray, np.ndarray, np.ndarray]
"""(S, B) log p(y | x), (S, N, C) label probabilities and (S, N) labellings, packed."""


class DrawnLabeler(Protocol):
    """A labeler with a posterior that can be drawn from."""

    classes_: np.ndarray
    feature_space_: FeatureSpace
    result_: FitResult
    feature_map_: FeatureMap
    posterior_: Any

    @property
    def _offsets(self) -> tuple[int, ...]:
        """The offsets of the labels that a label depends on"""

    @property
    def _n_chains(self) -> int:
        """How many chains the draws are of"""

    def _batch(self, X: Iterable[Any], given: Labels | None) -> SequenceBatch:
        """X made ready"""

    def _parts(
        self, batch: SequenceBatch, copies: int
    ) -> Iterable[tuple[np.ndarray, SequenceBatch]]:
        """The batch in pieces"""

    def _draw_answers(self, part: SequenceBatch, draws: int, generator: torch.Generator) -> Answers:
        """What draws say of a part"""


WITHOUT_DEPENDENCIES = 10
"""Weights that are shown where there is no dependency to show and nothing was asked for."""


@one_thread()
def to_arviz(
    model: DrawnLabeler,
    X: Iterable[Any],
    y: Labels,
    draws: int,
    random_state: Any,
    weights: bool | int,
) -> Any:
    """See `GPSL.to_arviz`."""
    require_positive("draws", draws)
    offsets, chains = model._offsets, model._n_chains
    draws = chains * max(1, draws // chains)
    batch = model._batch(X, list(y))
    assert batch.allowed is not None
    labels = batch.labels.numpy()[batch.layout.unpacked_rows.numpy()]
    told = (
        (~batch.allowed.all(-1)).numpy() if len(model.classes_) > 1 else batch.labels.numpy() >= 0
    )
    sentences = np.unique(batch.layout.sequence.numpy()[told])
    tokens = np.flatnonzero(labels >= 0)
    if len(sentences) == 0:
        raise DataError("no token of y has a label; there is no likelihood to give")
    seed = int(np.random.default_rng(random_state).integers(2**62))
    found = _Draws.of(model, batch, draws, seed)
    bad = ~np.isfinite(found.sentence).all(0)
    if bad.any():
        raise DataError(f"sequence {int(bad.nonzero()[0][0])}: its labels have no probability")
    sample_dims = ("chain", "draw")

    def by_chain(values: np.ndarray) -> np.ndarray:
        return values.reshape(chains, -1, *values.shape[1:])

    shown, posterior = _weights(model, draws, seed, weights)
    owner = np.repeat(np.arange(batch.layout.n_sequences), batch.layout.lengths.numpy())
    first = np.cumsum(batch.layout.lengths.numpy()) - batch.layout.lengths.numpy()
    position = np.arange(len(owner)) - first[owner]
    variance = model.posterior_.log_variance.exp().numpy()
    groups = [str(name) for name in model.result_.hyperparameters.get("variance", {})]
    n = len(variance) - len(offsets)
    constants: dict[str, Variable] = {
        "token_sentence": (("token",), owner[tokens]),
        "token_position": (("token",), position[tokens]),
        "sentence_length": (("sentence",), batch.layout.lengths.numpy()[sentences]),
        "variance": (("feature_group", "own_label"), variance[:n]),
        "dependency_variance": (("offset", "own_label"), variance[n:]),
        # not in sample_stats, where arviz's summary and concat want chain and draw in all arrays
        "bound": (("sweep",), np.array(model.result_.objective)),
    }
    return inference_data(
        {
            "posterior": posterior,
            "posterior_predictive": {
                "token_labels": ((*sample_dims, "token"), by_chain(found.labels[:, tokens]))
            },
            "log_likelihood": {
                "labels": ((*sample_dims, "sentence"), by_chain(found.sentence[:, sentences])),
                "token_labels": (
                    (*sample_dims, "token"),
                    by_chain(np.log(found.own_proba(labels, tokens))),
                ),
            },
            "sample_stats": {
                "log_likelihood": (sample_dims, by_chain(found.sentence[:, sentences].sum(-1)))
            },
            "observed_data": {"token_labels": (("token",), labels[tokens])},
            "constant_data": {name: v for name, v in constants.items() if v[1].size},
        },
        {
            # "label" by itself is a name that the tables of arviz 1 take for themselves
            "own_label": model.classes_.astype(str),
            "neighbour_label": model.classes_.astype(str),
            "offset": offsets,
            "sentence": sentences,
            "token": tokens,
            "feature": shown,
            "feature_group": groups if len(groups) == n else list(range(n)),
        },
        {
            "inference_library": "bayeseq",
            "model": repr(model),
            "likelihood": _LIKELIHOODS[max(map(abs, offsets), default=0) <= 2],
        },
    )


@one_thread()
def draw_labellings(
    model: DrawnLabeler, X: Iterable[Any], draws: int, seed: int
) -> list[list[np.ndarray]]:
    """`draws` labellings of all sequences, each list of label numbers under one draw of the
    weights, the same for all sequences."""
    X = list(X)
    batch = model._batch(X, [[None] * _length(x) for x in X])
    numbers = _Draws.of(model, batch, draws, seed).labels
    bounds = np.cumsum(batch.layout.lengths.numpy())[:-1]
    return [np.split(row, bounds) for row in numbers]


def _length(x: Any) -> int:
    return x.shape[0] if hasattr(x, "shape") else len(x)


_LIKELIHOODS = {
    True: "labels: log p(y | x) of the whole labelling, missing labels summed over; "
    "token_labels: log of the marginal probability of each label",
    False: "labels: pseudo-log-likelihood, the sum of log p(y_n | labels around, x), since "
    "dependencies reach farther than two labels; token_labels: log of the marginal probability of "
    "each label, by Gibbs sampling, and posterior_predictive drawn from these marginals",
}


@dataclass(frozen=True, eq=False)
class _Draws:
    """What S draws of the weights say of sequences."""

    sentence: np.ndarray
    """(S, B) log p(y | x)"""
    proba: np.ndarray
    """(S, N, C) label probabilities, tokens in the order of the data"""
    labels: np.ndarray
    """(S, N) a labelling drawn from each"""

    @classmethod
    def of(cls, model: DrawnLabeler, batch: SequenceBatch, draws: int, seed: int) -> _Draws:
        N, C, B = batch.layout.n_tokens, len(model.classes_), batch.layout.n_sequences
        sentence = np.zeros((draws, B))
        proba, labels = np.zeros((draws, N, C)), np.zeros((draws, N), dtype=np.int64)
        for rows, part in model._parts(batch, draws):
            generator = torch.Generator().manual_seed(seed)  # the same weights for every part
            found = model._draw_answers(part, draws, generator)
            sentence[:, part.numbers], proba[:, rows], labels[:, rows] = found
        order = batch.layout.unpacked_rows.numpy()
        return cls(sentence, proba[:, order], labels[:, order])

    def own_proba(self, labels: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """(S, n) the probability of the true label at some tokens; never quite zero."""
        found = self.proba[:, tokens, labels[tokens]]
        return np.maximum(found, np.finfo(np.float64).tiny)


def answers_of_chains(free: Chain, held: Chain, generator: torch.Generator) -> Answers:
    """What draws of the scores say: `held` keeps to the known labels, `free` to nothing."""
    log_likelihood = log_partition(held) - log_partition(free)
    drawn = sample(free, 1, generator)[0]
    return log_likelihood.numpy(), forward_backward(free).unary.numpy(), drawn.numpy()


def answers_of_pseudo_likelihood(
    deps: Dependencies, f: Tensor, g: Tensor, part: SequenceBatch, generator: torch.Generator
) -> Answers:
    """The same where labellings cannot be summed over: Σ log p(y_n | labels around, x), and
    marginals by Gibbs sampling."""
    assert part.allowed is not None
    labels = part.labels
    scores = f.clone()
    for r in range(len(deps.offsets)):
        rows, others = deps.neighbours[deps.offsets[r]]
        known = labels[others] >= 0
        scores[:, rows[known]] += g[:, r][:, labels[others[known]]]
    own = torch.logsumexp(scores.masked_fill(~part.allowed, -torch.inf), -1)
    token = own - torch.logsumexp(scores, -1)
    S, B = len(f), part.layout.n_sequences
    sentence = torch.zeros(S, B, dtype=f.dtype).index_add(1, part.layout.sequence, token)
    proba = deps.gibbs(f, g, generator)
    flat = torch.multinomial(proba.flatten(0, -2), 1, generator=generator)
    return sentence.numpy(), proba.numpy(), flat.reshape(proba.shape[:-1]).numpy()


def _weights(
    model: DrawnLabeler, draws: int, seed: int, weights: bool | int
) -> tuple[Sequence[str], dict[str, Variable]]:
    """The names of the columns whose weights are shown, and the draws that are."""
    offsets, chains = model._offsets, model._n_chains
    C = len(model.classes_)
    mean = model.posterior_.mean
    drawn = model.posterior_.draws(draws, torch.Generator().manual_seed(seed)).numpy()
    n_columns = mean.shape[0] - len(offsets) * C
    found: dict[str, Variable] = {}
    if offsets:
        rows = drawn[:, n_columns:].reshape(chains, -1, len(offsets), C, C)
        found["dependency"] = (("chain", "draw", "offset", "neighbour_label", "own_label"), rows)
    elif weights is False:
        weights = WITHOUT_DEPENDENCIES
    k = n_columns if weights is True else min(int(weights), n_columns)
    if k < 0:
        raise ValueError(f"weights is {weights}; expected True, False or how many")
    columns = np.sort(np.argsort(-mean[:n_columns].abs().amax(-1).numpy(), kind="stable")[:k])
    if k:
        shown = drawn[:, columns].reshape(chains, -1, k, C)
        found["weight"] = (("chain", "draw", "feature", "own_label"), shown)
    return [_column_name(model, int(column)) for column in columns], found


def _column_name(model: DrawnLabeler, column: int) -> str:
    if not isinstance(model.feature_map_, LinearMap):
        return f"basis {column}"
    names = model.feature_space_.names
    return names[column] if names is not None else f"column {column}"
