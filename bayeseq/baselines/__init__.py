"""Point-estimate models in plain torch, one file each."""

from bayeseq.baselines.crf import CRF
from bayeseq.baselines.hmm import HMM
from bayeseq.baselines.hmperceptron import HMPerceptron
from bayeseq.baselines.hmsvm import HMSVM
from bayeseq.baselines.marginalized import MarginalizedPerceptron
from bayeseq.baselines.marginalized_svm import MarginalizedSVM
from bayeseq.baselines.memm import MEMM
from bayeseq.baselines.reranker import Reranker
from bayeseq.baselines.ssvm import StructuredSVM

__all__ = [
    "CRF",
    "HMM",
    "HMSVM",
    "MEMM",
    "HMPerceptron",
    "MarginalizedPerceptron",
    "MarginalizedSVM",
    "Reranker",
    "StructuredSVM",
]
