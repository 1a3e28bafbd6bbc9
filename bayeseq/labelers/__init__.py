"""What a user works with: the contract of a labeler, and the estimators."""

from bayeseq.labelers.base import FitResult, SequenceLabeler, Tagging
from bayeseq.labelers.chain import ChainLabeler, ScoredEntity, ScoredLabelling

__all__ = [
    "ChainLabeler",
    "FitResult",
    "ScoredEntity",
    "ScoredLabelling",
    "SequenceLabeler",
    "Tagging",
]
