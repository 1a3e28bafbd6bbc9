"""What to annotate next: which sentences, or which of their tokens, would teach a model most."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from bayeseq.data.features import FeatureSpace
from bayeseq.data.labels import Labels, check_lengths
from bayeseq.diagnostics.acquisition import (
    Choice,
    choose,
    contenders,
    cosine_to,
    least_confidence,
    mnlp,
    token_doubt,
    unit_rows,
)
from bayeseq.diagnostics.tables import aligned
from bayeseq.labelers.base import NoProbabilitiesError, SequenceLabeler
from bayeseq.labelers.chain import ChainLabeler
from bayeseq.labelers.guards import NoPosteriorError, check_choice, require_positive

STRATEGIES = ("mnlp", "bald", "least_confidence", "entropy", "random")
UNITS = ("sentence", "token")
COSTS = ("token", "sentence")


@dataclass(frozen=True)
class Suggestion:
    """A sentence to annotate, or one of its tokens."""

    sentence: int
    """Its number in X, from 0"""
    token: int | None
    """The token's number in the sentence, from 0; None where the whole sentence is meant"""
    score: float
    """What its labels would teach, by the strategy's measure"""
    tokens: int
    """How many labels that asks for"""
    similarity: float
    """How much alike it is, from 0 to 1, to the one suggested before it that it is most like"""
    reason: str


@dataclass(frozen=True, eq=False)
class Suggestions:
    """What to annotate next, the most useful first."""

    strategy: str
    unit: str
    items: tuple[Suggestion, ...]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Suggestion]:
        return iter(self.items)

    @property
    def sentences(self) -> list[int]:
        """The sentences that something is asked of, each once, in the order of suggestion."""
        return list(dict.fromkeys(item.sentence for item in self.items))

    @property
    def tokens(self) -> int:
        """How many labels are asked for in all."""
        return sum(item.tokens for item in self.items)

    def places(self) -> dict[int, list[int]]:
        """For a choice of tokens: the tokens asked for, in rising order, by sentence."""
        if self.unit != "token":
            raise ValueError("whole sentences were suggested; ask with unit='token'")
        found: dict[int, list[int]] = {i: [] for i in self.sentences}
        for item in self.items:
            assert item.token is not None
            found[item.sentence].append(item.token)
        return {i: sorted(row) for i, row in found.items()}

    def table(self, limit: int | None = None) -> str:
        """The suggestions as text, a line each, the first `limit` of them."""
        by_token = self.unit == "token"
        head = ["rank", "sentence", *(["token"] if by_token else ["tokens"]), "score"]
        shown = self.items[:limit]
        rows = [head] + [
            [
                str(k),
                str(item.sentence),
                str(item.token if by_token else item.tokens),
                f"{item.score:.4f}",
            ]
            for k, item in enumerate(shown, 1)
        ]
        reasons = ["reason", *(item.reason for item in shown)]
        lines = aligned(rows).split("\n")
        return "\n".join(f"{line}  {why}" for line, why in zip(lines, reasons, strict=True))


def suggest(
    model: SequenceLabeler,
    X: Iterable[Any],
    n: int | None = None,
    tokens: int | None = None,
    strategy: str = "mnlp",
    unit: str = "sentence",
    diversity: float = 0.5,
    cost: str = "token",
    given: Labels | None = None,
    draws: int = 50,
    random_state: int | np.random.Generator | None = 0,
) -> Suggestions:
    """Rank sequences without labels by what their labels would teach a fitted labeler.

    Parameters
    ----------
    model : a fitted labeler that has probabilities.
    X : the sequences to choose from, in the shape that the labeler takes.
    n, tokens : suggest so many sentences (or tokens, where these are the unit), and ask for at most
        so many labels. Without both, everything is ranked.
    strategy : "mnlp", −log P(best labelling) / T (Shen et al. 2018); "least_confidence",
        1 − P(best labelling); "entropy" of the distribution over labellings; "bald", the mutual
        information between labels and weights, which needs a labeler with a posterior; or
        "random", a plain sample to compare with.
    unit : "sentence": whole sentences are to be annotated. "token": single tokens, each by its own
        doubt; all labelers learn from such sentences, None standing for the labels not asked for.
    diversity : between 0 and 1: how far a suggestion counts less the more it is like one before it,
        so that a batch is not many times the same sentence. The likeness of sentences is the cosine
        of their features' sums, rare features weighing more; that of tokens, of their features.
    cost : what annotating a sentence costs. "token": as many as it has tokens, so that "entropy"
        and "bald" are taken per token; "sentence": all the same, so that they are taken as sums.
    given : labels that are already known, in the shape of y. Tokens that have one are not asked
        for, and the doubt about the others takes them in.
    draws : how many draws of the weights "bald" compares.
    random_state : decides those draws, and what "random" samples.

    >>> from bayeseq import CRF
    >>> model = CRF().fit([[["a"], ["b"]], [["b"], ["a"]]], [["A", "B"], ["B", "A"]])
    >>> pool = [[["a"], ["b"]], [["new"], ["other"], ["a"]], [["b"]]]
    >>> suggest(model, pool, n=2).sentences
    [1, 2]
    >>> suggest(model, pool, n=2, unit="token").places()
    {1: [0, 1]}
    """
    _check(n, tokens, strategy, unit, diversity, cost, draws)
    rng = np.random.default_rng(random_state)
    pool = _Pool.of(model, list(X), given, draws, int(rng.integers(2**31)))
    units = pool.units(unit)
    if strategy == "random":
        scores, diversity = rng.random(len(units.sentence)), 0.0
    elif unit == "token":
        scores = pool.token_scores(strategy)
    else:
        scores = pool.sentence_scores(strategy, cost)
    few = contenders(scores, units.cost, n, tokens, diversity)
    units, scores = units.some(few), scores[few]
    chosen = choose(scores, units.cost, n, tokens, cosine_to(units.rows), diversity)
    sentence = units.sentence[[pick.number for pick in chosen]].tolist()
    token = units.token[[pick.number for pick in chosen]].tolist()
    why = pool.reasons(strategy, sentence, token)
    return Suggestions(
        strategy,
        unit,
        tuple(
            Suggestion(
                sentence[k],
                token[k] if unit == "token" else None,
                float(scores[pick.number]),
                int(units.cost[pick.number]),
                pick.similarity,
                why[k] + units.likeness(pick),
            )
            for k, pick in enumerate(chosen)
        ),
    )


def _check(
    n: int | None,
    tokens: int | None,
    strategy: str,
    unit: str,
    diversity: float,
    cost: str,
    draws: int,
) -> None:
    check_choice("strategy", strategy, STRATEGIES)
    check_choice("unit", unit, UNITS)
    check_choice("cost", cost, COSTS)
    if not 0 <= diversity <= 1:
        raise ValueError(f"diversity is {diversity}; it must lie between 0 and 1")
    for name, number in (("n", n), ("tokens", tokens), ("draws", draws)):
        if number is not None:
            require_positive(name, number)


@dataclass(frozen=True, eq=False)
class _Units:
    """U things that can be suggested."""

    sentence: np.ndarray
    """(U,)"""
    token: np.ndarray
    """(U,) −1 where it is a whole sentence"""
    cost: np.ndarray
    """(U,) the labels that each asks for"""
    rows: sp.csr_matrix
    """(U, D) of length one: how they compare"""

    def some(self, numbers: np.ndarray) -> _Units:
        """Those with these numbers."""
        return _Units(
            *(part[numbers] for part in (self.sentence, self.token, self.cost, self.rows))
        )

    def likeness(self, pick: Choice) -> str:
        if pick.nearest < 0 or pick.similarity < _WORTH_SAYING:
            return ""
        where = f"sentence {self.sentence[pick.nearest]}"
        if self.token[pick.nearest] >= 0:
            where += f", token {self.token[pick.nearest]}"
        return f"; {pick.similarity:.2f} like {where}"


_WORTH_SAYING = 0.3
"""The similarity from which on a reason names the one before."""


@dataclass(frozen=True, eq=False)
class _Pool:
    """Sequences, and what a labeler says of them."""

    model: SequenceLabeler
    X: list[Any]
    given: Labels | None
    counts: sp.csr_matrix
    """(N, D) the features of all tokens, known to the labeler or not"""
    lengths: np.ndarray
    """(B,)"""
    asked: np.ndarray
    """(N,) whether the token's label is not known yet"""
    draws: int
    seed: int

    @classmethod
    def of(
        cls, model: SequenceLabeler, X: list[Any], given: Labels | None, draws: int, seed: int
    ) -> _Pool:
        check_is_fitted(model, "classes_")
        _, counts, lengths = FeatureSpace.learn(X)
        asked = np.ones(len(counts.indptr) - 1, dtype=bool)
        if given is not None:
            given = list(given)
            check_lengths(given, lengths)
            known = (isinstance(label, str) for row in given for label in row)
            asked = ~np.fromiter(known, bool, len(asked))
        return cls(model, X, given, counts, lengths, asked, draws, seed)

    @cached_property
    def owner(self) -> np.ndarray:
        """(N,) the sentence of each token"""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @cached_property
    def unknown(self) -> np.ndarray:
        """(B,) how many labels of each sentence are not known"""
        return np.bincount(self.owner[self.asked], minlength=len(self.lengths))

    def units(self, unit: str) -> _Units:
        """The sentences or the tokens whose labels are not known, in order."""
        if unit == "token":
            places = np.concatenate([np.zeros(0, np.int64), *map(np.arange, self.lengths)])
            rows = unit_rows(self.counts)[self.asked]
            ones = np.ones(rows.shape[0], dtype=np.int64)
            return _Units(self.owner[self.asked], places[self.asked], ones, rows)
        open_ = np.flatnonzero(self.unknown)
        shape = (len(self.lengths), len(self.owner))
        ones = np.ones(len(self.owner))
        sums = sp.csr_matrix((ones, (self.owner, np.arange(len(ones)))), shape) @ self.counts
        return _Units(open_, np.full(len(open_), -1), self.unknown[open_], unit_rows(sums)[open_])

    # ---- scores ---------------------------------------------------------------------------------

    def sentence_scores(self, strategy: str, cost: str) -> np.ndarray:
        """The scores of the sentences that have unknown labels."""
        unknown = self.unknown
        scores: np.ndarray
        if strategy == "bald":
            doubt = np.where(self.asked, np.concatenate([np.zeros(0), *self.epistemic]), 0.0)
            scores = np.bincount(self.owner, doubt, minlength=len(unknown))
        elif strategy == "entropy":
            scores = np.maximum(self._chain_model().predict_entropy(self.X, self.given), 0.0)
        elif strategy == "mnlp":
            scores = mnlp(self._log_best(), unknown)
        else:
            scores = least_confidence(self._log_best())
        if cost == "token" and strategy in ("bald", "entropy"):
            scores = scores / np.maximum(unknown, 1)
        return scores[unknown > 0]

    def token_scores(self, strategy: str) -> np.ndarray:
        """The scores of the tokens whose labels are not known."""
        if strategy == "bald":
            doubt = self.epistemic
        else:
            self._require_probabilities()
            proba = self.model.predict_proba(self.X, self.given)
            doubt = [token_doubt(p, strategy) for p in proba]
        return np.concatenate([np.zeros(0), *doubt])[self.asked]

    @cached_property
    def epistemic(self) -> list[np.ndarray]:
        """A (T,) array a sentence: the mutual information between label and weights."""
        ask = self.model.predict_uncertainty
        try:
            return ask(self.X, self.draws, self.given, self.seed).epistemic
        except NoPosteriorError as error:
            raise NoPosteriorError(
                f"strategy 'bald' compares draws of the weights, and this "
                f"{type(self.model).__name__} has one set of them; use 'mnlp' or 'entropy', or fit "
                "a GPSL, a GPStruct or a GPSC with inference='laplace' or 'vg'"
            ) from error

    def _log_best(self) -> np.ndarray:
        """(B,) log P(best labelling), given what is known."""
        model = self._chain_model()
        best = copy.copy(model).set_params(decode="viterbi").predict(self.X, self.given)
        found = model.log_likelihood(self.X, best)
        return found if self.given is None else found - model.log_likelihood(self.X, self.given)

    def _chain_model(self) -> ChainLabeler:
        self._require_probabilities()
        if not isinstance(self.model, ChainLabeler):
            raise ValueError(
                f"a {type(self.model).__name__} has no probabilities of whole labellings; use "
                "unit='token', which needs those of single labels only"
            )
        return self.model

    def _require_probabilities(self) -> None:
        if not self.model.has_probabilities:
            name = type(self.model).__name__
            raise NoProbabilitiesError(
                f"a {name} has scores and no probabilities, so it cannot say what it doubts; "
                f"use Calibrated({name}()) and unit='token', or strategy='random'"
            )

    # ---- reasons --------------------------------------------------------------------------------

    def reasons(self, strategy: str, sentences: list[int], tokens: list[int]) -> list[str]:
        """Why each was chosen, by the probabilities of its most doubtful token."""
        if strategy == "random":
            return ["drawn by lot"] * len(sentences)
        wanted = sorted(set(sentences))
        given = None if self.given is None else [self.given[i] for i in wanted]
        answers = self.model.predict_proba([self.X[i] for i in wanted], given)
        proba = dict(zip(wanted, answers, strict=True))
        found = []
        for i, t in zip(sentences, tokens, strict=True):
            whole = t < 0
            if whole:
                bald = strategy == "bald"
                doubt = self.epistemic[i] if bald else token_doubt(proba[i], "entropy")
                t = int(np.argmax(doubt))
            likely = _likely(self.model.classes_, proba[i][t])
            found.append(f"token {t}: {likely}" if whole else likely)
        return found


def _likely(classes: np.ndarray, row: np.ndarray) -> str:
    """The two most probable labels of a token."""
    order = np.argsort(-row, kind="stable")[:2]
    return ", ".join(f"{classes[c]} {row[c]:.2f}" for c in order)
