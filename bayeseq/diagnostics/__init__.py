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
from bayeseq.diagnostics.confidence import ConfusionConfidence, confusion_confidence
from bayeseq.diagnostics.evaluation import Evaluation, comparison_table, evaluate
from bayeseq.diagnostics.posterior import (
    SentencePosterior,
    TransitionPosterior,
    WeightPosterior,
    sentence_posterior,
    transition_posterior,
    weight_posterior,
)
from bayeseq.diagnostics.ranks import RankCheck, rank_check
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
    "ConfusionConfidence",
    "EntityCounts",
    "EntityScores",
    "Evaluation",
    "ProbabilityScores",
    "RankCheck",
    "ReliabilityCurve",
    "RiskCoverage",
    "SentencePosterior",
    "TransitionPosterior",
    "Uncertainty",
    "WeightPosterior",
    "brier",
    "comparison_table",
    "confusion",
    "confusion_confidence",
    "ece",
    "ece_floor",
    "entity_scores",
    "evaluate",
    "log_loss",
    "probability_scores",
    "rank_check",
    "reliability",
    "reliability_by_label",
    "risk_coverage",
    "sentence_posterior",
    "sequence_accuracy",
    "token_accuracy",
    "token_error",
    "transition_posterior",
    "uncertainty",
    "weight_posterior",
]
