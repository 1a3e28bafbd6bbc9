"""What a user works with: the contract of a labeler, and the estimators."""

from bayeseq.labelers.base import FitResult, NoProbabilitiesError, SequenceLabeler, Tagging
from bayeseq.labelers.chain import (
    ChainLabeler,
    RankedLabelling,
    ScoredEntity,
    ScoredLabelling,
)

__all__ = [
    "ChainLabeler",
    "FitResult",
    "NoProbabilitiesError",
    "RankedLabelling",
    "ScoredEntity",
    "ScoredLabelling",
    "SequenceLabeler",
    "Tagging",
]
