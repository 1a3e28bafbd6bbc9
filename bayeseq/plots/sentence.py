"""Pictures of one sentence, word by word."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bayeseq.diagnostics.posterior import SentencePosterior
from bayeseq.diagnostics.uncertainty import Uncertainty
from bayeseq.plots.style import (
    BLACK,
    BLUE,
    ORANGE,
    axes_or_new,
    label_looks,
    plain,
    sentence_width,
    show_percent,
    word_ticks,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_sentence(record: SentencePosterior, ax: "Axes | None" = None) -> "Axes":
    """The probability of each label along the words, with the band that holds most draws.

    The line is the median over draws. Where bands are narrow the model knows what it says; where
    they are wide it has seen too little. Rings mark the true labels, where the record has them.

    >>> from bayeseq.diagnostics import sentence_posterior
    >>> found = sentence_posterior([[[0.7, 0.3]], [[0.9, 0.1]]], ["B", "O"], ["Rome"])
    >>> ax = plot_sentence(found)
    >>> [line.get_label() for line in ax.lines], [text.get_text() for text in ax.get_xticklabels()]
    (['B', 'O'], ['Rome'])
    """
    ax = axes_or_new(ax, size=(sentence_width(len(record.words)), 4.0))
    x = np.arange(len(record.words))
    looks = label_looks(record.labels, record.classes)
    for column, label in enumerate(record.labels):
        low, high = record.lower[:, column], record.upper[:, column]
        look = looks[label]
        if len(x) > 1:
            ax.fill_between(x, low, high, color=look["color"], alpha=0.2, linewidth=0)
        else:  # a band needs two words
            ax.vlines(x, low, high, color=look["color"], alpha=0.4, linewidth=6)
        middle = record.middle[:, column]
        ax.plot(x, middle, marker="o", markersize=3.5, label=plain(label), **look)
    if record.truth is not None:
        column_of = {label: column for column, label in enumerate(record.labels)}
        places = [(t, column_of[y]) for t, y in enumerate(record.truth) if y in column_of]
        ax.plot(
            [t for t, _ in places],
            [record.middle[place] for place in places],
            linestyle="",
            marker="o",
            markersize=9,
            markerfacecolor="none",
            markeredgecolor=BLACK,
            label="true label",
        )
    word_ticks(ax, record.words)
    ax.set_ylim(-0.03, 1.05)
    ax.set_ylabel(f"probability: median, {record.level:.0%} band")
    show_percent(ax.yaxis)
    _legend_above(ax)
    return ax


def plot_uncertainty(
    record: Uncertainty,
    words: Sequence[str] | None = None,
    sequence: int = 0,
    ax: "Axes | None" = None,
) -> "Axes":
    """How unsure the model is of each word, in two parts on top of each other.

    Aleatoric: the text is ambiguous, and more training would not help. Epistemic: draws from the
    posterior disagree, and more training would. Together they are the total.

    Args:
        record: what `uncertainty` gives.
        words: the words of the sequence; their numbers from 0 by default.
        sequence: which sequence of the record, from 0.
        ax: where to draw; a new figure by default.

    >>> from bayeseq.diagnostics import uncertainty
    >>> ax = plot_uncertainty(uncertainty([[[[1.0, 0.0]], [[0.0, 1.0]]]]), ["Rome"])
    >>> [round(float(bar.get_height()), 3) for bar in ax.patches]
    [0.0, 0.693]
    """
    if not 0 <= sequence < len(record.total):
        raise ValueError(f"there is no sequence {sequence}: the record has {len(record.total)}")
    aleatoric, epistemic = record.aleatoric[sequence], record.epistemic[sequence]
    T = len(aleatoric)
    if T == 0:
        raise ValueError(f"nothing to plot: sequence {sequence} has no token")
    if isinstance(words, str) or (words is not None and len(words) != T):
        raise ValueError(f"words must be a list of {T}, one for each token of the sequence")
    ax = axes_or_new(ax, size=(sentence_width(T), 3.5))
    x = np.arange(T)
    ax.bar(x, aleatoric, color=BLUE, edgecolor="white", label="aleatoric: the text is ambiguous")
    ax.bar(
        x,
        epistemic,
        bottom=aleatoric,
        color=ORANGE,
        edgecolor="white",
        hatch="///",
        label="epistemic: too little seen",
    )
    word_ticks(ax, [str(t) for t in x] if words is None else words)
    ax.set_ylabel("uncertainty, nats")
    _legend_above(ax)
    return ax


def _legend_above(ax: "Axes") -> None:
    across = max(1, int(ax.figure.bbox.width / ax.figure.dpi / 1.3))  # a name needs 1.3 inches
    ax.legend(
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=across,
        fontsize="small",
        frameon=False,
    )
