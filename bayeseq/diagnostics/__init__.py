"""How good predictions are, and how far to trust them: numbers in, small records out."""

from bayeseq.diagnostics.abstention import RiskCoverage, risk_coverage
from bayeseq.diagnostics.brier import BrierDecomposition, brier_decomposition
from bayeseq.diagnostics.calibration import (
    ProbabilityScores,
    brier,
    calibration_error,
    ece,
    ece_floor,
    log_loss,
    probability_scores,
    sharpness,
)
from bayeseq.diagnostics.comparison import (
    Comparison,
    Difference,
    Predictions,
    compare_predictions,
)
from bayeseq.diagnostics.confidence import ConfusionConfidence, confusion_confidence
from bayeseq.diagnostics.conformal import (
    ConformalSets,
    CoverageScores,
    calibrate_sets,
    conformal_threshold,
    score_sets,
)
from bayeseq.diagnostics.evaluation import Evaluation, comparison_table, evaluate
from bayeseq.diagnostics.label_errors import LabelErrors, find_label_errors
from bayeseq.diagnostics.learning import LearningCurve, learning_curve
from bayeseq.diagnostics.posterior import (
    SentencePosterior,
    TransitionPosterior,
    WeightPosterior,
    sentence_posterior,
    transition_posterior,
    weight_posterior,
)
from bayeseq.diagnostics.predictive import PredictiveCheck, check_labels, label_statistics
from bayeseq.diagnostics.ranks import RankCheck, rank_check
from bayeseq.diagnostics.reliability import (
    ReliabilityCurve,
    entity_reliability,
    reliability,
    reliability_by_label,
)
from bayeseq.diagnostics.review import ReviewBudget, entity_review_budget, review_budget
from bayeseq.diagnostics.sbc import SBC
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
    "SBC",
    "BrierDecomposition",
    "Comparison",
    "ConformalSets",
    "Confusion",
    "ConfusionConfidence",
    "CoverageScores",
    "Difference",
    "EntityCounts",
    "EntityScores",
    "Evaluation",
    "LabelErrors",
    "LearningCurve",
    "Predictions",
    "PredictiveCheck",
    "ProbabilityScores",
    "RankCheck",
    "ReliabilityCurve",
    "ReviewBudget",
    "RiskCoverage",
    "SentencePosterior",
    "TransitionPosterior",
    "Uncertainty",
    "WeightPosterior",
    "brier",
    "brier_decomposition",
    "calibrate_sets",
    "calibration_error",
    "check_labels",
    "compare_predictions",
    "comparison_table",
    "conformal_threshold",
    "confusion",
    "confusion_confidence",
    "ece",
    "ece_floor",
    "entity_reliability",
    "entity_review_budget",
    "entity_scores",
    "evaluate",
    "find_label_errors",
    "label_statistics",
    "learning_curve",
    "log_loss",
    "probability_scores",
    "rank_check",
    "reliability",
    "reliability_by_label",
    "review_budget",
    "risk_coverage",
    "score_sets",
    "sentence_posterior",
    "sequence_accuracy",
    "sharpness",
    "token_accuracy",
    "token_error",
    "transition_posterior",
    "uncertainty",
    "weight_posterior",
]
