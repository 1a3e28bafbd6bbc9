"""How good predictions are, and how far to trust them: numbers in, small records out."""

from bayeseq.diagnostics.abstention import RiskCoverage, risk_coverage
from bayeseq.diagnostics.calibration import (
    ProbabilityScores,
    ReliabilityCurve,
    brier,
    ece,
    ece_floor,
    log_loss,
    probability_scores,
    reliability,
    reliability_by_label,
)
from bayeseq.diagnostics.evaluation import Evaluation, comparison_table, evaluate
from bayeseq.diagnostics.scores import (
    Confusion,
    EntityCounts,
    EntityScores,
    confusion,
    entity_scores,
    sequence_accuracy,
    token_accuracy,
    token_error,
)
from bayeseq.diagnostics.uncertainty import Uncertainty, uncertainty

__all__ = [
    "Confusion",
    "EntityCounts",
    "EntityScores",
    "Evaluation",
    "ProbabilityScores",
    "ReliabilityCurve",
    "RiskCoverage",
    "Uncertainty",
    "brier",
    "comparison_table",
    "confusion",
    "ece",
    "ece_floor",
    "entity_scores",
    "evaluate",
    "log_loss",
    "probability_scores",
    "reliability",
    "reliability_by_label",
    "risk_coverage",
    "sequence_accuracy",
    "token_accuracy",
    "token_error",
    "uncertainty",
]
