"""Point-estimate models in plain torch, one file each."""

from bayeseq.baselines.crf import CRF
from bayeseq.baselines.hmm import HMM
from bayeseq.baselines.memm import MEMM

__all__ = ["CRF", "HMM", "MEMM"]
