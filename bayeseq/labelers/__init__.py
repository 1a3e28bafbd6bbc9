"""What a user works with: the contract of a labeler, and the estimators."""

from bayeseq.labelers.base import FitResult, NoProbabilitiesError, SequenceLabeler, Tagging
from bayeseq.labelers.chain import (
    ChainLabeler,
    RankedLabelling,
    ScoredEntity,
    ScoredLabelling,
)
from bayeseq.labelers.guards import NoPosteriorError
from bayeseq.labelers.uncertain import SentenceUncertainty

__all__ = [
    "ChainLabeler",
    "FitResult",
    "NoPosteriorError",
    "NoProbabilitiesError",
    "RankedLabelling",
    "ScoredEntity",
    "ScoredLabelling",
    "SentenceUncertainty",
    "SequenceLabeler",
    "Tagging",
]
