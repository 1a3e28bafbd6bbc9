"""Token, sequence and entity scores against loops, seqeval, nervaluate and scikit-learn."""

import warnings

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st
from nervaluate.evaluator import Evaluator
from seqeval import scheme as seqeval_scheme
from seqeval.metrics import v1 as seqeval_strict
from seqeval.metrics.sequence_labeling import precision_recall_fscore_support as seqeval_lenient

from bayeseq.data.errors import DataError
from bayeseq.diagnostics import (
    EntityCounts,
    confusion,
    entity_scores,
    sequence_accuracy,
    token_accuracy,
    token_error,
)

DRAWN = settings(max_examples=60, deadline=None)


def pairs_of(labels, missing=False):
    """Strategy: (y_true, y_pred) of one to five sequences of nought to eight tokens."""
    true = st.sampled_from([*labels, None] if missing else labels)
    token = st.tuples(true, st.sampled_from(labels))
    return st.lists(st.lists(token, max_size=8), min_size=1, max_size=5).map(
        lambda y: ([[t for t, _ in s] for s in y], [[p for _, p in s] for s in y])
    )


def tags_of(letters, types=("X", "Y")):
    return ["O", *(f"{letter}-{label}" for letter in letters for label in types)]


# --- tokens and sequences -------------------------------------------------------------------


@DRAWN
@given(pairs_of(["a", "b", "c"], missing=True))
def test_token_and_sequence_scores_equal_loops(pair):
    y_true, y_pred = pair
    right = total = good = sequences = 0
    for truth, guess in zip(y_true, y_pred, strict=True):
        wrong = labelled = 0
        for t, p in zip(truth, guess, strict=True):
            if t is not None:
                labelled += 1
                wrong += t != p
        total += labelled
        right += labelled - wrong
        sequences += labelled > 0
        good += labelled > 0 and wrong == 0
    if total == 0:
        for score in (token_accuracy, token_error, sequence_accuracy, confusion):
            with pytest.raises(DataError, match="nothing to score"):
                score(y_true, y_pred)
        return
    assert token_accuracy(y_true, y_pred) == right / total
    assert token_error(y_true, y_pred) == (total - right) / total
    assert sequence_accuracy(y_true, y_pred) == good / sequences


@DRAWN
@given(pairs_of(["a", "b", "c"], missing=True))
def test_confusion_equals_loop(pair):
    y_true, y_pred = pair
    flat = [(t, p) for s, r in zip(y_true, y_pred, strict=True) for t, p in zip(s, r, strict=True)]
    flat = [(t, p) for t, p in flat if t is not None]
    if not flat:
        return
    result = confusion(y_true, y_pred)
    assert result.labels == tuple(sorted({label for pair in flat for label in pair}))
    for i, true in enumerate(result.labels):
        for j, pred in enumerate(result.labels):
            assert result.counts[i, j] == flat.count((true, pred))
    assert result.counts.sum() == len(flat)
    if len(result.labels) > 1:  # the peer warns about a single label
        peer = sklearn.metrics.confusion_matrix(*zip(*flat, strict=True), labels=result.labels)
        np.testing.assert_array_equal(result.counts, peer)


@pytest.mark.parametrize("score", [token_accuracy, token_error, sequence_accuracy, entity_scores])
@pytest.mark.parametrize(
    ("y_true", "y_pred", "message"),
    [
        ([["O"], ["O"]], [["O"]], "y_pred has 1 sequences but y_true has 2"),
        ([["O"], ["O", "O"]], [["O"], ["O"]], "y_pred: sequence 1 .* 1 tokens but y_true has 2"),
        (["OO"], [["O", "O"]], "y_true: sequence 0 .* is the text 'OO'"),
        ([["O"]], ["O"], "y_pred: sequence 0 .* is the text 'O'"),
        ([["O", {"O", "B"}]], [["O", "O"]], "y_true: sequence 0, token 1 .* scores need one label"),
        ([["O"], ["O"]], [["O"], [None]], "y_pred: sequence 1, token 0 .* has None"),
        ([[3]], [["O"]], "y_true: sequence 0, token 0 .* has 3"),
    ],
)
def test_shapes_that_do_not_fit_are_named(score, y_true, y_pred, message):
    with pytest.raises(DataError, match=message):
        score(y_true, y_pred)


# --- entities -------------------------------------------------------------------------------


def lenient_spans(tags):
    """All spans, tried one by one, that the CoNLL scorer takes for entities."""
    found = set()
    for start in range(len(tags)):
        for end in range(start + 1, len(tags) + 1):
            types = {tag[2:] for tag in tags[start:end]}
            if len(types) == 1 and "" not in types:
                inner = any(cut(tags, t) for t in range(start + 1, end))
                if not inner and cut(tags, start) and cut(tags, end):
                    found.add((start, end, types.pop()))
    return found


def cut(tags, t):
    """Whether an entity must end before, or begin at, position t."""
    if t in (0, len(tags)):
        return True
    before, here = tags[t - 1], tags[t]
    return before[0] in "ESO" or here[0] in "BSO" or before[2:] != here[2:]


def strict_iob2_spans(tags):
    found = set()
    for start in range(len(tags)):
        for end in range(start + 1, len(tags) + 1):
            label = tags[start][2:]
            wanted = [f"B-{label}"] + [f"I-{label}"] * (end - start - 1)
            if tags[start:end] == wanted and (end == len(tags) or tags[end] != f"I-{label}"):
                found.add((start, end, label))
    return found


def strict_bioes_spans(tags):
    found = set()
    for start in range(len(tags)):
        for end in range(start + 1, len(tags) + 1):
            label, inside = tags[start][2:], end - start - 2
            wanted = [f"B-{label}", *[f"I-{label}"] * inside, f"E-{label}"]
            if tags[start:end] in ([f"S-{label}"], wanted):
                found.add((start, end, label))
    return found


def expected_counts(y_true, y_pred, spans, label=None):
    support = predicted = correct = 0
    for truth, guess in zip(y_true, y_pred, strict=True):
        true = {span for span in spans(truth) if label in (None, span[2])}
        pred = {span for span in spans(guess) if label in (None, span[2])}
        support += len(true)
        predicted += len(pred)
        correct += len(true & pred)
    return EntityCounts(support, predicted, correct)


def check_against_loop(scores, y_true, y_pred, spans):
    assert scores.overall == expected_counts(y_true, y_pred, spans)
    assert list(scores.by_label) == sorted(scores.by_label)
    for label in ("X", "Y"):
        counts = expected_counts(y_true, y_pred, spans, label)
        assert scores.by_label.get(label, EntityCounts(0, 0, 0)) == counts


@DRAWN
@given(pairs_of(tags_of("BIES")))
def test_conlleval_mode_equals_loop_on_any_tags(pair):
    check_against_loop(entity_scores(*pair), *pair, lenient_spans)


@DRAWN
@given(pairs_of(tags_of("BI")))
def test_strict_iob2_equals_loop_on_malformed_tags(pair):
    scores = entity_scores(*pair, mode="strict", scheme="IOB2")
    check_against_loop(scores, *pair, strict_iob2_spans)


@DRAWN
@given(pairs_of(tags_of("BIES")))
def test_strict_bioes_equals_loop_on_malformed_tags(pair):
    scores = entity_scores(*pair, mode="strict", scheme="BIOES")
    check_against_loop(scores, *pair, strict_bioes_spans)


def check_against_seqeval(scores, peer, **arguments):
    """`peer` returns precision, recall, F1 and support, for each label in alphabetical order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its averages over no label at all
        by_label = np.transpose(peer(average=None, zero_division=0, **arguments)).reshape(-1, 4)
        overall = peer(average="micro", zero_division=0, **arguments)
    ours = [(c.precision, c.recall, c.f1, c.support) for c in scores.by_label.values()]
    np.testing.assert_allclose(np.reshape(ours, (-1, 4)), by_label, rtol=1e-12)
    total = scores.overall
    np.testing.assert_allclose(
        [total.precision, total.recall, total.f1, total.support], overall, rtol=1e-12
    )


@DRAWN
@given(pairs_of(tags_of("BIES")))
def test_conlleval_mode_equals_seqeval_default(pair):
    def peer(**arguments):
        return seqeval_lenient(*pair, **arguments)

    check_against_seqeval(entity_scores(*pair), peer)


@pytest.mark.parametrize(
    ("scheme", "peer_scheme", "letters"),
    [
        ("IOB2", seqeval_scheme.IOB2, "BI"),
        ("IOE2", seqeval_scheme.IOE2, "IE"),
        ("BIOES", seqeval_scheme.IOBES, "BIES"),
        ("BILOU", seqeval_scheme.BILOU, "BILU"),
    ],
)
def test_strict_mode_equals_seqeval_strict(scheme, peer_scheme, letters):
    @DRAWN
    @given(pairs_of(tags_of(letters)))
    def check(pair):
        def peer(**arguments):
            return seqeval_strict.precision_recall_fscore_support(
                *pair, scheme=peer_scheme, **arguments
            )

        check_against_seqeval(entity_scores(*pair, mode="strict", scheme=scheme), peer)

    check()


@DRAWN
@given(pairs_of(tags_of("BI")))
def test_conlleval_mode_equals_nervaluate_strict(pair):
    y_true, y_pred = pair
    # nervaluate's loader guesses from the first token of the first sequence.
    result = Evaluator(y_true, y_pred, tags=["X", "Y"], loader="list").evaluate()
    scores = entity_scores(y_true, y_pred)
    for ours, theirs in [
        (scores.overall, result["overall"]["strict"]),
        *((scores.by_label[tag], found["strict"]) for tag, found in result["entities"].items()),
    ]:
        assert ours == EntityCounts(theirs.possible, theirs.actual, theirs.correct)
        assert ours.f1 == pytest.approx(theirs.f1, rel=1e-12)


def test_modes_differ_and_are_named():
    y_true, y_pred = [["B-PER", "I-PER", "O"]], [["I-PER", "I-PER", "O"]]
    lenient = entity_scores(y_true, y_pred)
    strict = entity_scores(y_true, y_pred, mode="strict", scheme="IOB2")
    assert (lenient.overall.f1, strict.overall.f1) == (1.0, 0.0)
    assert (lenient.mode, lenient.scheme, lenient.reading) == ("conlleval", None, "conlleval")
    assert (strict.mode, strict.scheme, strict.reading) == ("strict", "IOB2", "strict IOB2")
    assert "conlleval reading" in str(lenient)
    assert "strict IOB2 reading" in str(strict)


def test_table_lists_all_labels_with_percentages_and_counts():
    scores = entity_scores([["B-PER", "O", "B-LOC", "B"]], [["B-PER", "B-PER", "O", "B"]])
    assert scores.table() == (
        "entity scores, conlleval reading of the tags\n"
        "           precision %  recall %    F1 %  true  predicted  correct\n"
        "all              66.67     66.67   66.67     3          3        2\n"
        "(untyped)       100.00    100.00  100.00     1          1        1\n"
        "LOC               0.00      0.00    0.00     1          0        0\n"
        "PER              50.00    100.00   66.67     1          2        1"
    )


def test_no_entities_at_all_score_nought():
    scores = entity_scores([["O", "O"], []], [["O", "O"], []])
    assert scores.overall == EntityCounts(0, 0, 0)
    assert (scores.overall.precision, scores.overall.recall, scores.overall.f1) == (0, 0, 0)
    assert scores.by_label == {}


def test_entity_errors_name_the_place():
    with pytest.raises(DataError, match=r"sequence 1, token 0 .* no label"):
        entity_scores([["O"], [None]], [["O"], ["O"]])
    with pytest.raises(DataError, match=r"y_pred: sequence 1 .*position 0: 'NN'"):
        entity_scores([["O"], ["O"]], [["O"], ["NN"]])
    with pytest.raises(ValueError, match="needs the scheme"):
        entity_scores([["O"]], [["O"]], mode="strict")
    with pytest.raises(ValueError, match="no effect"):
        entity_scores([["O"]], [["O"]], scheme="IOB2")
    with pytest.raises(ValueError, match="not 'lenient'"):
        entity_scores([["O"]], [["O"]], mode="lenient")
