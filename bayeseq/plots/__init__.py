"""Pictures of the records that `bayeseq.diagnostics` computes: a record in, an Axes out."""

from bayeseq.plots.abstention import plot_abstention, plot_risk_coverage
from bayeseq.plots.calibration import (
    plot_confidence_histogram,
    plot_reliability,
    plot_reliability_by_label,
)
from bayeseq.plots.checks import plot_predictive_check, plot_sbc_ecdf, plot_sbc_ranks
from bayeseq.plots.conformal import plot_coverage
from bayeseq.plots.learning import plot_learning_curves
from bayeseq.plots.missing import plot_missing_labels
from bayeseq.plots.posterior import plot_transitions, plot_weights
from bayeseq.plots.review import plot_review_budget
from bayeseq.plots.scores import plot_confusion, plot_confusion_confidence, plot_entity_f1
from bayeseq.plots.sentence import plot_sentence, plot_uncertainty

__all__ = [
    "plot_abstention",
    "plot_confidence_histogram",
    "plot_confusion",
    "plot_confusion_confidence",
    "plot_coverage",
    "plot_entity_f1",
    "plot_learning_curves",
    "plot_missing_labels",
    "plot_predictive_check",
    "plot_reliability",
    "plot_reliability_by_label",
    "plot_review_budget",
    "plot_risk_coverage",
    "plot_sbc_ecdf",
    "plot_sbc_ranks",
    "plot_sentence",
    "plot_transitions",
    "plot_uncertainty",
    "plot_weights",
]
