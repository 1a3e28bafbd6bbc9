"""Pictures of the records that `bayeseq.diagnostics` computes: a record in, an Axes out."""

from bayeseq.plots.abstention import plot_abstention, plot_risk_coverage
from bayeseq.plots.calibration import plot_confidence_histogram, plot_reliability
from bayeseq.plots.scores import plot_confusion, plot_entity_f1

__all__ = [
    "plot_abstention",
    "plot_confidence_histogram",
    "plot_confusion",
    "plot_entity_f1",
    "plot_reliability",
    "plot_risk_coverage",
]
