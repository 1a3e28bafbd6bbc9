"""Tagged sentences as HTML: no script, nothing fetched, and styles that reach nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from bayeseq.plots.style import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION
from bayeseq.report.escaping import escaped, is_right_to_left, isolated, percent, tooltip
from bayeseq.report.sentence import Guess, Stretch, TaggedSentence, runs

COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
BORDERS = ("solid", "dashed", "dotted", "double")
"""Kinds of the same colour differ in these."""

LONG_LABEL = 24
STYLE = """\
.bq-show{font:1rem/2.1 system-ui,sans-serif;max-width:60rem;overflow-wrap:anywhere}
.bq-show p{margin:.5em 0}
.bq-show .bq-n{font-size:.75em;opacity:.8;margin-inline-end:.8em}
.bq-show .bq-e,.bq-show .bq-o{padding:.16em .3em;border-radius:.3em;
-webkit-box-decoration-break:clone;box-decoration-break:clone}
.bq-show .bq-o{padding:.16em .1em}
.bq-show .bq-e{border-bottom:.17em solid transparent;margin-inline:.06em}
.bq-show .bq-w{display:inline-flex;flex-direction:column;align-items:center;line-height:1.6;
margin:.12em .05em;max-width:100%;vertical-align:top}
.bq-show .bq-l{font-size:.72em;font-weight:600;margin:0 .15em 0 .45em}
.bq-show .bq-w .bq-l{margin:0;font-weight:500;line-height:1.45}
.bq-show .bq-x{text-decoration:underline wavy #d0342c;text-decoration-thickness:.1em;
text-underline-offset:.2em}
.bq-show .bq-c{font-style:italic}
.bq-show .bq-j{white-space:nowrap}
.bq-show .bq-k{font-size:.8rem;line-height:1.9;margin-top:.9em;padding:.6em 0 0;
border-top:1px solid rgba(128,128,128,.4)}
.bq-show .bq-k div{margin:.15em 0}
.bq-show .bq-k .bq-e{margin-inline-end:.4em}
@media print{.bq-show *{-webkit-print-color-adjust:exact;print-color-adjust:exact}}
"""


def sentences_html(
    sentences: Sequence[TaggedSentence], names: Sequence[str] = (), key: bool = True
) -> str:
    """A division with a paragraph for each sentence, each after its name if there are names, and a
    legend. `STYLE` must be on the page."""
    kinds = _kinds(sentences)
    lines = ['<div class="bq-show">']
    for i, sentence in enumerate(sentences):
        direction = "rtl" if is_right_to_left(sentence.words) else "ltr"
        name = f'<span class="bq-n">{isolated(names[i])}</span>' if names else ""
        parts = [
            _stretch(sentence, stretch, _correction(truth), kinds)
            for stretch, truth in zip(sentence.stretches, sentence.corrections, strict=True)
        ]
        body = " ".join(parts) or '<span class="bq-n">(no token)</span>'
        lines.append(f'<p dir="{direction}">{name}{body}</p>')
    if key and sentences:
        lines.append(legend_html(sentences))
    return "\n".join([*lines, "</div>"])


def legend_html(sentences: Sequence[TaggedSentence]) -> str:
    """What colours, strength, stripes and lines mean, as far as they occur."""
    kinds = _kinds(sentences)
    seen = {stretch.label for sentence in sentences for stretch in sentence.stretches}
    swatches = " ".join(
        f'<span class="bq-e" style="{_look(kind, kinds, 1.0, 0.0)}">{isolated(kind or "entity")}'
        "</span>"
        for kind in kinds
        if kind in seen
    )
    rows = [swatches] if swatches else []
    some = next(iter(kinds), "")
    if all(sentence.proba is None for sentence in sentences):
        rows.append("No probabilities: this model gives labels and does not say how sure it is.")
    else:
        steps = " ".join(
            f'<span class="bq-e" style="{_look(some, kinds, p, 0.0)}">{percent(p)}</span>'
            for p in (0.3, 0.6, 0.95)
        )
        rows.append(f"Strength is confidence: {steps} {_meaning(sentences)}")
    if any(sentence.doubt is not None for sentence in sentences):
        stripes = " ".join(
            f'<span class="bq-e" style="{_look(some, kinds, 0.5, share)}">{percent(share)}</span>'
            for share in (0.1, 0.5)
        )
        rows.append(
            f"Stripes are the share of the doubt that is epistemic: {stripes} draws from the "
            "posterior disagree there, and more labels of the kind would help."
        )
    if any(any(sentence.wrong) for sentence in sentences):
        rows.append(
            '<span class="bq-x">Underlined</span> words have a wrong label; after '
            '<span class="bq-l bq-c">≠</span> stand the true ones.'
        )
    return '<div class="bq-k">' + "".join(f"<div>{row}</div>" for row in rows) + "</div>"


def _kinds(sentences: Sequence[TaggedSentence]) -> list[str]:
    """All kinds of all sentences, each once, so that a colour means the same everywhere."""
    return list(dict.fromkeys(kind for sentence in sentences for kind in sentence.kinds))


def _meaning(sentences: Sequence[TaggedSentence]) -> str:
    if not any(sentence.has_entities for sentence in sentences):
        return "the probability of the label."
    exact = all(sentence.is_exact for sentence in sentences)
    what = (
        "the probability of exactly these words with this type"
        if exact
        else "the probability of each word's label, as this model gives none for whole entities"
    )
    return f"{what}. Grey words stand outside, and the greyer, the less surely."


def _stretch(sentence: TaggedSentence, stretch: Stretch, correction: str, kinds: list[str]) -> str:
    words = " ".join(_word(sentence, stretch, t, kinds) for t in range(stretch.start, stretch.end))
    if stretch.label is None:
        return words + correction
    shade = stretch.probability
    if shade is None and sentence.proba is None:
        shade = 0.5  # every label alike
    look = _look(stretch.label, kinds, shade, stretch.epistemic)
    shown = "" if stretch.probability is None else percent(stretch.probability)
    about = _about(sentence, stretch)
    name = "&nbsp;".join(filter(None, [_kind(stretch.label), escaped(shown) if shown else ""]))
    tag = f'<span class="bq-l" dir="ltr"{about}>{name}</span>' if name else ""
    cls = "bq-e" if sentence.has_entities else "bq-e bq-w"
    return f'<span class="{cls}" style="{look}">{words}{tag}{correction}</span>'


def _word(sentence: TaggedSentence, stretch: Stretch, t: int, kinds: list[str]) -> str:
    style, cls = "", []
    if stretch.label is None and stretch.probability is not None:
        cls.append("bq-o")
        style = f' style="{_outside(stretch)}"'
    elif stretch.label is not None and stretch.probability is None and sentence.proba is not None:
        cls.append("bq-o")
        style = f' style="{_shade(stretch.label, kinds, float(sentence.confidence[t]))}"'  # type: ignore[index]
    if sentence.wrong[t]:
        cls.append("bq-x")
    names = f' class="{" ".join(cls)}"' if cls else ""
    about = _token_about(sentence, t)
    return f"<span{names}{style}{about}>{isolated(sentence.words[t])}</span>"


def _correction(truth: tuple[str | None, ...]) -> str:
    """The true labels, after their sign; "" where there are none to tell."""
    if not truth:
        return ""
    true = " ".join(_unbroken(*run) for run in runs(truth))
    return f'<span class="bq-l bq-c" dir="ltr">≠ {true}</span>'


def _unbroken(label: str, times: int) -> str:
    """A label that does not end a line at its hyphen, unless it is long."""
    cls = "bq-j" if len(label) <= LONG_LABEL else "bq-i"
    return f'<span class="{cls}">{isolated(label)}{f" ×{times}" if times > 1 else ""}</span>'


def _kind(kind: str) -> str:
    """The name of a kind in HTML; entities without a type need none."""
    return isolated(kind) if kind else ""


def _token_about(sentence: TaggedSentence, t: int) -> str:
    """The title of a token: its most probable labels, and what kind of doubt there is."""
    guesses = sentence.guesses(t)
    if not guesses:
        return tooltip([f"{sentence.labels[t]} (no probabilities)"])
    lines = [_guess(guess, sentence.level) for guess in guesses]
    if sentence.labels[t] != guesses[0].label:
        lines.append(f"predicted: {sentence.labels[t]}, part of the most probable labelling")
    if sentence.doubt is not None:
        total, share = sentence.doubt.total[0][t], sentence._epistemic(t, t + 1)
        assert share is not None  # there are draws
        lines.append(f"uncertainty {total:.2f} nats, {percent(share)} of it epistemic")
    return tooltip(lines)


def _guess(guess: Guess, level: float) -> str:
    text = f"{guess.label} {percent(guess.probability)}"
    return text + (f"  ({_range(guess.interval, level)})" if guess.interval else "")


def _range(interval: tuple[float, float], level: float) -> str:
    return f"{level:.0%} interval {percent(interval[0])} to {percent(interval[1])}"


def _about(sentence: TaggedSentence, stretch: Stretch) -> str:
    """The title of an entity's tag."""
    if not sentence.has_entities or stretch.probability is None:
        return ""
    kind = stretch.label or "entity"
    lines = [f"exactly these words as {kind}: {percent(stretch.probability)}"]
    if stretch.interval is not None:
        lines.append(_range(stretch.interval, sentence.level))
    if stretch.epistemic is not None:
        lines.append(f"{percent(stretch.epistemic)} of the words' uncertainty is epistemic")
    return tooltip(lines)


# ---- colours ------------------------------------------------------------------------------------


def _look(kind: str, kinds: list[str], confidence: float | None, epistemic: float | None) -> str:
    """The style of an entity or label: tint by confidence (None: none here), line by kind."""
    number = kinds.index(kind) if kind in kinds else 0
    border = BORDERS[number // len(COLOURS) % len(BORDERS)]
    found = f"border-bottom:.17em {border} {COLOURS[number % len(COLOURS)]}"
    if confidence is None:
        return found
    return f"{_shade(kind, kinds, confidence)};{found}" + _stripes(confidence, epistemic)


def _shade(kind: str, kinds: list[str], confidence: float) -> str:
    number = kinds.index(kind) if kind in kinds else 0
    red, green, blue = _rgb(COLOURS[number % len(COLOURS)])
    return f"background-color:rgba({red},{green},{blue},{0.04 + 0.46 * confidence:.3f})"


def _outside(stretch: Stretch) -> str:
    """The style of a token outside of any entity: the less sure, the greyer."""
    assert stretch.probability is not None
    doubt = 1 - stretch.probability
    grey = f"background-color:rgba(128,128,128,{0.6 * doubt:.3f})"
    return grey + _stripes(stretch.probability, stretch.epistemic)


def _stripes(confidence: float, epistemic: float | None) -> str:
    """Stripes over that share of the area which is epistemic; they fade where there is no doubt."""
    strength = 0.36 * min(1.0, 2 * (1 - confidence))
    if epistemic is None or epistemic * strength < 0.002:
        return ""
    line, period = f"rgba(110,110,110,{strength:.3f})", 7
    wide = period * epistemic
    return (
        f";background-image:repeating-linear-gradient(135deg,{line} 0 {wide:.2f}px,"
        f"transparent {wide:.2f}px {period}px)"
    )


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
