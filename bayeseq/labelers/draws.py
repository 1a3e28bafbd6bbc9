"""A fitted GPSL as posterior draws: of its weights, of labellings, and what they say of labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from bayeseq.chain import Chain, forward_backward, log_partition, one_thread, sample
from bayeseq.data.batch import SequenceBatch
from bayeseq.data.errors import DataError
from bayeseq.data.labels import Labels
from bayeseq.diagnostics.arviz import Variable, inference_data
from bayeseq.inference.dependencies import Dependencies, check_offsets
from bayeseq.kernels.maps import LinearMap
from bayeseq.labelers.chain import obey_scheme, require_positive

if TYPE_CHECKING:
    from bayeseq.labelers.gpsl import GPSL

WITHOUT_DEPENDENCIES = 10
"""Weights that are shown where there is no dependency to show and nothing was asked for."""


@one_thread()
def to_arviz(
    model: GPSL, X: Iterable[Any], y: Labels, draws: int, random_state: Any, weights: bool | int
) -> Any:
    """See `GPSL.to_arviz`."""
    require_positive("draws", draws)
    offsets = check_offsets(model.dependencies)
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
        "variance": (("feature_group", "label"), variance[:n]),
        "dependency_variance": (("offset", "label"), variance[n:]),
        "bound": (("sweep",), np.array(model.result_.objective)),
    }
    return inference_data(
        {
            "posterior": posterior,
            "posterior_predictive": {
                "token_labels": ((*sample_dims, "token"), found.labels[None][..., tokens])
            },
            "log_likelihood": {
                "labels": ((*sample_dims, "sentence"), found.sentence[None][..., sentences]),
                "token_labels": (
                    (*sample_dims, "token"),
                    np.log(found.own_proba(labels, tokens))[None],
                ),
            },
            "sample_stats": {
                "log_likelihood": (sample_dims, found.sentence[None][..., sentences].sum(-1))
            },
            "observed_data": {"token_labels": (("token",), labels[tokens])},
            "constant_data": {name: v for name, v in constants.items() if v[1].size},
        },
        {
            "label": model.classes_.astype(str),
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
    def of(cls, model: GPSL, batch: SequenceBatch, draws: int, seed: int) -> _Draws:
        N, C, B = batch.layout.n_tokens, len(model.classes_), batch.layout.n_sequences
        sentence = np.zeros((draws, B))
        proba, labels = np.zeros((draws, N, C)), np.zeros((draws, N), dtype=np.int64)
        for rows, part in model._parts(batch, draws):
            generator = torch.Generator().manual_seed(seed)  # the same weights for every part
            deps = Dependencies(check_offsets(model.dependencies), part.layout)
            f, g = model._draw_scores(part, deps, draws, generator)
            if model.prediction == "chain":
                f, g = f * model.scales_.local, g * model.scales_.dependency
            found = (_by_chain if deps.is_chain else _by_gibbs)(model, deps, f, g, part, generator)
            sentence[:, part.numbers], proba[:, rows], labels[:, rows] = found
        order = batch.layout.unpacked_rows.numpy()
        return cls(sentence, proba[:, order], labels[:, order])

    def own_proba(self, labels: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """(S, n) the probability of the true label at some tokens; never quite zero."""
        found = self.proba[:, tokens, labels[tokens]]
        return np.maximum(found, np.finfo(np.float64).tiny)


_Found = tuple[np.ndarray, np.ndarray, np.ndarray]


def chain_of_draws(
    model: GPSL, deps: Dependencies, f: Tensor, g: Tensor, allowed: Tensor | None = None
) -> Chain:
    """The chain of scores (S, N, C) and (S, R, C, C); a scheme's forbidden pairs are taken out."""
    chain = deps.chain(f, g, allowed)
    if deps.order < 2:
        chain = obey_scheme(chain, model.scheme, model.label_space_.classes)
    return chain


def _by_chain(
    model: GPSL,
    deps: Dependencies,
    f: Tensor,
    g: Tensor,
    part: SequenceBatch,
    generator: torch.Generator,
) -> _Found:
    C = f.shape[-1]
    free = chain_of_draws(model, deps, f, g)
    held = chain_of_draws(model, deps, f, g, part.allowed)
    log_likelihood = log_partition(held) - log_partition(free)
    drawn = sample(free, 1, generator)[0] % C
    proba = forward_backward(free).unary
    if deps.order == 2:
        proba = proba.unflatten(-1, (C, C)).sum(-2)
    if deps.is_backwards:
        reversal = deps.layout.reversal
        drawn, proba = drawn[..., reversal], proba[..., reversal, :]
    return log_likelihood.numpy(), proba.numpy(), drawn.numpy()


def _by_gibbs(
    model: GPSL,
    deps: Dependencies,
    f: Tensor,
    g: Tensor,
    part: SequenceBatch,
    generator: torch.Generator,
) -> _Found:
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
    model: GPSL, draws: int, seed: int, weights: bool | int
) -> tuple[Sequence[str], dict[str, Variable]]:
    """The names of the columns whose weights are shown, and the draws that are."""
    offsets = check_offsets(model.dependencies)
    C = len(model.classes_)
    mean = model.posterior_.mean
    drawn = model.posterior_.draws(draws, torch.Generator().manual_seed(seed)).numpy()
    n_columns = mean.shape[0] - len(offsets) * C
    found: dict[str, Variable] = {}
    if offsets:
        rows = drawn[:, n_columns:].reshape(1, draws, len(offsets), C, C)
        found["dependency"] = (("chain", "draw", "offset", "neighbour_label", "label"), rows)
    elif weights is False:
        weights = WITHOUT_DEPENDENCIES
    k = n_columns if weights is True else min(int(weights), n_columns)
    if k < 0:
        raise ValueError(f"weights is {weights}; expected True, False or how many")
    columns = np.sort(np.argsort(-mean[:n_columns].abs().amax(-1).numpy(), kind="stable")[:k])
    if k:
        found["weight"] = (("chain", "draw", "feature", "label"), drawn[None][:, :, columns])
    return [_column_name(model, int(column)) for column in columns], found


def _column_name(model: GPSL, column: int) -> str:
    if not isinstance(model.feature_map_, LinearMap):
        return f"basis {column}"
    names = model.feature_space_.names
    return names[column] if names is not None else f"column {column}"
