"""Ask a labeler everything that can be shown of sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bayeseq.data.errors import DataError
from bayeseq.data.schemes import tags_to_entities
from bayeseq.data.spelling import word_features
from bayeseq.data.template import Template
from bayeseq.diagnostics.uncertainty import Uncertainty
from bayeseq.labelers.base import SequenceLabeler
from bayeseq.labelers.chain import ChainLabeler
from bayeseq.labelers.gpsl import GPSL
from bayeseq.labelers.guards import NoPosteriorError
from bayeseq.report.sentence import TaggedSentence

DRAWS = 100
WEIGHTS_AT_ONCE = 2**26
"""Weights, over all draws, that are drawn at once (512 MB)."""


def tag_sentences(
    model: SequenceLabeler,
    words: Sequence[Sequence[str]],
    X: Iterable[Any] | None = None,
    y: Sequence[Sequence[str | None]] | None = None,
    *,
    draws: int = DRAWS,
    level: float = 0.9,
    random_state: int = 0,
) -> list[TaggedSentence]:
    """What a fitted labeler says of sentences.

    Args:
        model: the labeler.
        words: the tokens of each sentence, as they are shown.
        X: the features of the sentences, as `fit` had them; None makes them of the words, as the
            model's template says where `bayeseq fit` saved one, else by `word_features`.
        y: true labels; None, or None at single tokens, where they are not known.
        draws: draws from the posterior, where there is one; fewer where they would not fit into
            memory, or were not kept. 0 for none.
        level: the share of draws in credible intervals.
        random_state: decides the draws.

    >>> from bayeseq import CRF
    >>> X, y = [[["a"], ["b"]]], [["B-PER", "O"]]
    >>> (sentence,) = tag_sentences(CRF().fit(X, y), [["Ann", "ran"]], X)
    >>> list(sentence.labels), sentence.proba.shape
    (['B-PER', 'O'], (2, 2))
    """
    words = [list(sentence) for sentence in words]
    X = features_of(model, words) if X is None else list(X)
    _check_count("X", len(X), len(words))
    if y is not None:
        _check_count("y", len(y), len(words))
    if not model.has_probabilities:
        labels, proba = model.predict(X), None
    else:
        found = model.tag(X)
        labels, proba = [tagging.labels for tagging in found], [tagging.proba for tagging in found]
    for i, (sentence, row) in enumerate(zip(words, labels, strict=True)):
        if len(sentence) != len(row):
            raise DataError(f"sentence {i} has {len(sentence)} words, but X has {len(row)} tokens")
        if y is not None and len(y[i]) != len(row):
            raise DataError(f"sentence {i} has {len(sentence)} words, but y has {len(y[i])} labels")
    drawn = _token_answers(model, X, draws, random_state)
    entities = entity_answers(model, X, labels, draws, random_state)
    classes = tuple(map(str, model.classes_))
    return [
        TaggedSentence(
            words=tuple(sentence),
            labels=tuple(labels[i]),
            classes=classes,
            proba=None if proba is None else proba[i],
            draws=None if drawn is None else drawn.proba[i],
            uncertainty=None if drawn is None else _only(drawn.uncertainty, i),
            entity_proba=None if entities.proba is None else entities.proba[i],
            entity_draws=None if entities.draws is None else entities.draws[i],
            truth=None if y is None else tuple(y[i]),
            level=level,
        )
        for i, sentence in enumerate(words)
    ]


def features_of(model: SequenceLabeler, words: Sequence[Sequence[str]]) -> list[Any]:
    """The features of words, as the model's own template makes them, or `word_features`."""
    found = getattr(model, "metadata_", {}).get("input")
    form: dict[str, Any] = found if isinstance(found, dict) else {}
    text = form.get("features")
    if not isinstance(text, str) or text == "spelling":
        X = [word_features(sentence) for sentence in words]
    elif form.get("columns") == 1:
        return Template.parse(text).transform([[(word,) for word in words_] for words_ in words])
    else:
        raise DataError(
            f"the model's template reads {form.get('columns')} columns of a file, and words are "
            "one; pass the features of the sentences as well"
        )
    known = set(model.feature_space_.names or ())
    if any(words) and not any(name in known for x in X for token in x for name in token):
        raise DataError(
            "the model knows none of the features that word_features makes of these words, so it "
            "was fitted on others; pass the features of the sentences as well"
        )
    return X


def has_posterior(model: SequenceLabeler) -> bool:
    """Whether there is a posterior of the weights to draw from."""
    if not isinstance(model, ChainLabeler):
        return False
    try:
        model._require_posterior()
    except NoPosteriorError:
        return False
    return True


def affordable_draws(model: Any, draws: int) -> int:
    """So many draws, or as many as were kept or as memory has room for."""
    posterior = model.posterior_
    kept = getattr(posterior, "n_draws", draws)
    return max(2, min(draws, kept, WEIGHTS_AT_ONCE // max(1, posterior.mean.numel())))


class _Drawn(NamedTuple):
    """What draws from the posterior say of each sentence."""

    proba: list[np.ndarray]
    """(S, T, C)"""
    uncertainty: Uncertainty


def _token_answers(
    model: SequenceLabeler, X: Sequence[Any], draws: int, random_state: int
) -> _Drawn | None:
    """None where there is no posterior."""
    if draws < 1 or not has_posterior(model):
        return None
    drawn: Any = model
    n = affordable_draws(model, draws)
    return _Drawn(
        drawn.posterior_predict(X, n, random_state=random_state),
        drawn.predict_uncertainty(X, n, random_state=random_state),
    )


class EntityAnswers(NamedTuple):
    """Of the predicted entities of each sentence, their probabilities, and these under draws."""

    proba: list[np.ndarray] | None
    draws: list[np.ndarray] | None


def entity_answers(
    model: SequenceLabeler,
    X: Sequence[Any],
    labels: list[list[str]],
    draws: int,
    random_state: int,
) -> EntityAnswers:
    """What the model says of whole entities; None where it cannot."""
    if not isinstance(model, ChainLabeler) or not model.has_probabilities:
        return EntityAnswers(None, None)
    if not TaggedSentence((), (), tuple(map(str, model.classes_))).has_entities:
        return EntityAnswers(None, None)
    if isinstance(model, GPSL):
        far = max(map(abs, model.dependencies), default=0)
        if far > 1 or model.prediction != "chain":
            return EntityAnswers(None, None)  # the probabilities are not those of a chain
    entities = [tags_to_entities(row) for row in labels]
    proba = model.entity_proba(X, entities)
    if draws < 1 or not has_posterior(model):
        return EntityAnswers(proba, None)
    n = affordable_draws(model, draws)
    return EntityAnswers(proba, model.entity_draws(X, entities, n, random_state=random_state))


def _only(found: Uncertainty, i: int) -> Uncertainty:
    """That of one sentence."""
    return Uncertainty([found.total[i]], [found.aleatoric[i]], [found.epistemic[i]])


def _check_count(name: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise DataError(f"{name} has {found} sequences, but there are {wanted} sentences of words")
