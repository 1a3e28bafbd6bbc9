"""Labels that are probably wrong: given ones that a model, trained without them, finds improbable.

The probabilities must come from models that were not trained on the sentence in question, else they
repeat its errors (`bayeseq.label_errors` makes them by folds). The thresholds are those of
confident learning (Northcutt, Jiang & Chuang 2021), as cleanlab has them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from bayeseq.data.errors import DataError
from bayeseq.diagnostics.binning import Proba
from bayeseq.diagnostics.tables import aligned
from bayeseq.diagnostics.tokens import (
    MISSING,
    UNKNOWN,
    Bools,
    Floats,
    Ints,
    MaybeLabels,
    TokenTable,
    first_place,
    require_tokens,
    token_table,
)

LabelQuality = Literal["self_confidence", "margin"]


@dataclass(frozen=True, eq=False)
class LabelErrors:
    """All N labelled tokens, the most suspicious label first.

    Attributes:
        method: what `quality` is: "self_confidence" or "margin".
        sequence, token: (N,), where the token is, both from 0.
        given: its label.
        suggested: the most probable label, the given one where that is it.
        quality: (N,), rising; low is suspicious.
        flagged: (N,), whether confident learning takes the label for wrong.
        sequence_quality: (B,), the least quality of each sequence's tokens; NaN where it has none.
        unjudged: (sequence, token) of tokens whose label the models could not know.
    """

    method: LabelQuality
    sequence: Ints
    token: Ints
    given: tuple[str, ...]
    suggested: tuple[str, ...]
    quality: Floats
    flagged: Bools
    sequence_quality: Floats
    unjudged: tuple[tuple[int, int], ...] = ()

    @property
    def count(self) -> int:
        """How many labels are flagged: an estimate of how many are wrong."""
        return int(self.flagged.sum())

    @property
    def worst_sequences(self) -> Ints:
        """The numbers of the sequences that have labels, the most suspicious first."""
        order = np.argsort(self.sequence_quality, kind="stable")
        return order[: int(np.count_nonzero(~np.isnan(self.sequence_quality)))]

    def table(self, words: Sequence[Sequence[str]] | None = None, top: int = 20) -> str:
        """The `top` most suspicious labels, with the words of the sentences if given."""
        rows = [["sequence", "token", "given", "suggested", "quality", "flagged"]]
        for k in range(min(top, len(self.given))):
            b, t = int(self.sequence[k]), int(self.token[k])
            flag = "yes" if self.flagged[k] else ""
            cells = [str(b), str(t), self.given[k], self.suggested[k]]
            rows.append([*cells, f"{self.quality[k]:.4f}", flag])
            if words is not None:
                rows[-1].append(words[b][t])
        if words is not None:
            rows[0].append("word")
        return aligned(rows)

    def __str__(self) -> str:
        return self.table()


def find_label_errors(
    y: MaybeLabels,
    proba: Proba,
    classes: Sequence[str],
    *,
    method: LabelQuality = "self_confidence",
) -> LabelErrors:
    """Rank given labels by how little out-of-sample probabilities believe them.

    A label is flagged when confident learning counts it as another: with t_j the mean probability
    of label j over the tokens that were given j, the token's true label is taken to be the most
    probable among those with a probability of at least t_j; it is flagged if that is another one
    than the given. So a label that the model finds hard everywhere needs less to be believed.

    Args:
        y: given labels, lists of str; None where missing (left out).
        proba: one (T, C) array a sequence, of models that did not see that sequence.
        classes: the C labels, in column order; every given label must be among them.
        method: "self_confidence", the probability of the given label; or "margin", half of one more
            than its distance to the most probable other label: 0 to 1, below 1/2 where another
            label is more probable.

    >>> proba = [[[0.9, 0.1], [0.2, 0.8], [0.95, 0.05]]]
    >>> found = find_label_errors([["B", "O", "O"]], proba, ["B", "O"])
    >>> found.token, found.given[0], found.suggested[0], found.flagged
    (array([2, 1, 0]), 'O', 'B', array([ True, False, False]))
    """
    if method not in get_args(LabelQuality):
        raise ValueError(f'method must be "self_confidence" or "margin", not {method!r}')
    table = token_table(y, proba, classes)
    lengths = [len(labels) for labels in y]
    if (table.target == UNKNOWN).any():
        raise DataError(
            f"y: {first_place(table.target == UNKNOWN, lengths)} has a label that is not among the "
            "classes, so it cannot be judged; write None there"
        )
    position = np.concatenate([np.arange(n) for n in lengths]) if lengths else np.zeros(0, int)
    labelled = table.target != MISSING
    tokens, position = table.where(labelled), position[labelled]
    require_tokens(len(position), "labelled token")
    quality = _quality(tokens, method)
    order = np.lexsort([position, tokens.sequence, quality])
    names = np.array(classes, dtype=object)
    worst = np.full(len(lengths), np.inf)
    np.minimum.at(worst, tokens.sequence, quality)
    return LabelErrors(
        method=method,
        sequence=tokens.sequence[order],
        token=position[order],
        given=tuple(names[tokens.target[order]].tolist()),
        suggested=tuple(names[tokens.proba.argmax(axis=1)[order]].tolist()),
        quality=quality[order],
        flagged=_flagged(tokens)[order],
        sequence_quality=np.where(np.isinf(worst), np.nan, worst),
    )


def _quality(tokens: TokenTable, method: str) -> Floats:
    rows = np.arange(len(tokens.target))
    own = tokens.proba[rows, tokens.target]
    if method == "self_confidence":
        return own
    others = tokens.proba.copy()
    others[rows, tokens.target] = 0.0
    return (own - others.max(axis=1) + 1) / 2


def _flagged(tokens: TokenTable) -> Bools:
    """Whether the token's label, by confident learning, is another than the given one."""
    classes = tokens.proba.shape[1]
    rows = np.arange(len(tokens.target))
    counts = np.bincount(tokens.target, minlength=classes)
    sums = np.bincount(tokens.target, tokens.proba[rows, tokens.target], minlength=classes)
    with np.errstate(invalid="ignore"):  # a label that is never given has no threshold: NaN
        thresholds = sums / counts
    confident = np.where(tokens.proba >= thresholds - _ROUNDING, tokens.proba, -1.0)
    return (confident.max(axis=1) >= 0) & (confident.argmax(axis=1) != tokens.target)


# A threshold is a mean, rounded: tokens that all have the same probability must reach it.
_ROUNDING = 1e-9
