"""Why a labeler is as sure of a sentence as it is: its best labellings against its marginals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayeseq.baselines.hmm import HMM
from bayeseq.baselines.linear import LinearChainLabeler
from bayeseq.data.errors import DataError
from bayeseq.diagnostics.html import html_paragraphs, html_table
from bayeseq.diagnostics.tables import aligned
from bayeseq.kernels.maps import LinearMap
from bayeseq.labelers.base import SequenceLabeler
from bayeseq.labelers.chain import ChainLabeler, ScoredLabelling, require_positive
from bayeseq.labelers.gpsl import GPSL
from bayeseq.labelers.posterior import PosteriorLabeler


@dataclass(frozen=True)
class Push:
    """What one feature of a token adds to the score of one label over that of another."""

    feature: str
    amount: float
    """its value times the difference of the two labels' weights"""


@dataclass(frozen=True)
class Dispute:
    """A token whose label is in doubt: its two labels, and what speaks for each."""

    position: int
    label: str
    """in the best labelling"""
    rival: str
    """the most probable label of the token or, where that is `label`, the runner-up's"""
    probability: float
    """of `label`, summed over all labellings"""
    rival_probability: float
    """of `rival`, summed over all labellings"""
    reason: str
    """why it is in doubt, in words"""
    score: float | None
    """the score of `label` over `rival` by the token's features alone; None for a kernel"""
    pushes: tuple[Push, ...]
    """the features that add most to it, either way; none for a kernel (see `explain`)"""

    @property
    def differs(self) -> bool:
        """Whether the best labelling gives the token another label than its most probable one."""
        return self.rival_probability > self.probability

    def __str__(self) -> str:
        if self.score is None:
            return self.reason
        pushes = ", ".join(f"{push.feature} {push.amount:+.2f}" for push in self.pushes)
        own = f"its own features score {self.label} over {self.rival} by {self.score:+.2f}"
        rest = "the rest comes from the labels around it"
        return f"{self.reason}; {own}" + (f" ({pushes})" if pushes else "") + f", {rest}"


@dataclass(frozen=True, eq=False)
class ConfidenceExplanation:
    """The answers to "how sure?" for one sequence, and where they differ.

    `print` tells them in words, `table()` token by token.
    """

    words: tuple[str, ...]
    """the words, or the tokens' numbers"""
    best: tuple[ScoredLabelling, ...]
    """the n best single labellings, best first"""
    classes: tuple[str, ...]
    proba: np.ndarray
    """(T, C) label probabilities of each token, summed over all labellings"""
    disputes: tuple[Dispute, ...]
    """the tokens in doubt"""

    @property
    def labels(self) -> list[str]:
        """The best single labelling (Viterbi)."""
        return self.best[0].labels

    @property
    def probability(self) -> float:
        """The probability that the best labelling is right as a whole."""
        return self.best[0].probability

    @property
    def marginal_labels(self) -> list[str]:
        """The most probable label of each token."""
        return [self.classes[c] for c in self.proba.argmax(-1)]

    @property
    def runner_up(self) -> ScoredLabelling | None:
        """The second best labelling; None where there is one alone."""
        return self.best[1] if len(self.best) > 1 else None

    @property
    def margin(self) -> float:
        """How much more probable the best labelling is than the runner-up."""
        return self.probability - (self.best[1].probability if len(self.best) > 1 else 0.0)

    @property
    def top_mass(self) -> float:
        """The probability that one of `best` is right as a whole."""
        return min(1.0, sum(labelling.probability for labelling in self.best))

    def _rows(self) -> list[list[str]]:
        head = ["token", "best", "p", "most probable", "p"]
        second = self.runner_up
        rows = [head + (["runner-up"] if second else [])]
        column = {label: c for c, label in enumerate(self.classes)}
        for t, word in enumerate(self.words):
            label, own = self.labels[t], self.marginal_labels[t]
            p, p_own = self.proba[t, column[label]], self.proba[t].max()
            row = [word, label, f"{p:.3f}", own if own != label else "", f"{p_own:.3f}"]
            row[4] = row[4] if own != label else ""
            if second:
                row.append(second.labels[t] if second.labels[t] != label else "")
            rows.append(row)
        return rows

    def table(self) -> str:
        """A line a token: its label in the best labelling with its probability, and where they
        differ its most probable label and that of the runner-up."""
        return aligned(self._rows())

    def _lines(self) -> list[str]:
        lines = [f"The best single labelling has probability {_p(self.probability)}."]
        if self.runner_up:
            lines[0] = (
                f"The best single labelling has probability {_p(self.probability)}, the runner-up "
                f"{_p(self.runner_up.probability)}; the {len(self.best)} best have "
                f"{_p(self.top_mass)} together."
            )
        differ = sum(dispute.differs for dispute in self.disputes)
        if differ:
            lines.append(
                f"At {differ} of {len(self.words)} tokens the best labelling does not have the "
                "most probable label."
            )
        return [*lines, *map(str, self.disputes)]

    def __str__(self) -> str:
        return "\n".join([*self._lines(), "", self.table()])

    def _repr_html_(self) -> str:
        return html_paragraphs(self._lines()) + html_table(self._rows())


def explain_confidence(
    model: SequenceLabeler,
    x: Any,
    words: Sequence[str] | None = None,
    n: int = 5,
) -> ConfidenceExplanation:
    """Why a fitted chain labeler is as sure of a sequence as it is.

    Compares the single labelling that is most probable with the most probable label of each token.
    They differ where many labellings, each less probable than the best, agree on a token. Tokens at
    which they differ, or at which the runner-up differs, are `disputes`; for a model that is linear
    in its features each has the features that push either way.

    Args:
        model: a fitted labeler with a chain and with probabilities.
        x: one sequence, as in X.
        words: its words, to be shown.
        n: how many labellings and how many features.

    For a model that averages over draws the labellings are the best of the mean scores, each with
    its probability under the average.

    >>> from bayeseq import CRF
    >>> X, y = [[["a"], ["b"]], [["b"], ["a"]]], [["A", "B"], ["B", "A"]]
    >>> found = explain_confidence(CRF(l2=0.1).fit(X, y), [["b"], ["c"]])
    >>> found.labels, found.runner_up.labels
    (['B', 'A'], ['B', 'B'])
    >>> print(found.disputes[0].reason)
    token 1: the runner-up says B; summed over all labellings A has 0.62 and B 0.38
    """
    if not isinstance(model, ChainLabeler):
        raise TypeError(
            f"{type(model).__name__} has no chain of labels to explain; use a chain labeler, such "
            "as CRF, GPSL or GPSC"
        )
    require_positive("n", n)
    proba = model.predict_proba([x])[0]
    if words is not None and len(words) != len(proba):
        raise DataError(f"x has {len(proba)} tokens, words has {len(words)}")
    best = model.predict_nbest([x], max(2, n))[0]
    classes = model.label_space_.classes
    weights, features = linear_weights(model), model.feature_space_.matrix([x])[0]
    disputes = []
    for t in range(len(proba)):
        label, own = best[0].labels[t], classes[int(proba[t].argmax())]
        second = best[1].labels[t] if len(best) > 1 else label
        rival = own if own != label else second
        if rival != label:
            place = f"token {t}" + ("" if words is None else f" ({words[t]})")
            pair = [classes.index(label), classes.index(rival)]
            p, p_rival = proba[t, pair].tolist()
            reason = _reason(place, best, t, (label, p), (rival, p_rival), own != label)
            score, pushes = _pushes(model, features[t], weights, pair, n)
            disputes.append(Dispute(t, label, rival, p, p_rival, reason, score, pushes))
    shown = tuple(map(str, range(len(proba)) if words is None else words))
    return ConfidenceExplanation(shown, tuple(best[:n]), classes, proba, tuple(disputes))


def linear_weights(model: ChainLabeler) -> np.ndarray | None:
    """(D, C) the weight of each feature for each label, as predictions have it (the mean, where
    there is a posterior); None where the scores come from a kernel."""
    if isinstance(model, LinearChainLabeler):
        return model._state_matrix
    if isinstance(model, HMM):
        return model.log_emissions_.T
    if isinstance(model, GPSL | PosteriorLabeler) and isinstance(model.feature_map_, LinearMap):
        mean = model.posterior_.mean.numpy()[: model.feature_map_.n_columns]
        return mean * model.scales_.local if isinstance(model, GPSL) else mean
    return None


def _reason(
    place: str,
    best: Sequence[ScoredLabelling],
    t: int,
    one: tuple[str, float],
    other: tuple[str, float],
    differs: bool,
) -> str:
    """Why a token is in doubt: its label in the best labelling and a rival, with probabilities."""
    (label, p), (rival, p_rival) = one, other
    if not differs:
        return (
            f"{place}: the runner-up says {rival}; summed over all labellings {label} has {_p(p)} "
            f"and {rival} {_p(p_rival)}"
        )
    found = (
        f"{place}: the best single labelling ({_p(best[0].probability)}) says {label}; summed over "
        f"all labellings {rival} has {_p(p_rival)} and {label} {_p(p)}"
    )
    others = [labelling.probability for labelling in best if labelling.labels[t] == rival]
    if not others:
        return f"{found}, though none of the {len(best)} best labellings says {rival}"
    say = "says" if len(others) == 1 else "say"
    return (
        f"{found}: {len(others)} of the {len(best)} best labellings {say} {rival}, "
        f"{_p(sum(others))} together"
    )


def _pushes(
    model: ChainLabeler, row: Any, weights: np.ndarray | None, pair: Sequence[int], n: int
) -> tuple[float | None, tuple[Push, ...]]:
    """The score of one label over another by a token's features (1, D), and the n that add most."""
    if weights is None:
        return None, ()
    names = model.feature_space_.names
    amounts = row.data * (weights[row.indices, pair[0]] - weights[row.indices, pair[1]])
    pushes = []
    for k in np.argsort(-np.abs(amounts), kind="stable")[:n].tolist():
        column = int(row.indices[k])
        name = names[column] if names is not None else f"column {column}"
        if amounts[k] != 0:
            pushes.append(Push(name, float(amounts[k])))
    return float(amounts.sum()), tuple(pushes)


def _p(probability: float) -> str:
    """A probability to two digits, and never 0 or 1 by rounding alone."""
    if 0 < probability < 0.005:
        return f"{probability:.1g}"
    return ">0.99" if 0.995 <= probability < 1 else f"{probability:.2f}"
