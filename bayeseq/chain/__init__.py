"""Exact inference in linear chains: pure functions of tensors, batched, with −inf as log-zero.

Scores go in as a `Chain`; labels that are known, label sets and forbidden transitions go in
through `constrain` and are honoured by everything here.
"""

from bayeseq.chain.decoding import Decoded, kbest, loss_augmented, max_marginals, sample, viterbi
from bayeseq.chain.fisher import label_covariances, pair_covariances
from bayeseq.chain.marginals import (
    Marginals,
    covariance,
    entropy,
    forward_backward,
    log_partition,
    score,
)
from bayeseq.chain.potentials import Chain, chain_from_padded, constrain
from bayeseq.chain.recursions import ImpossibleSequenceError
from bayeseq.chain.spans import inside_probability, overlap_log_prob, span_log_prob
from bayeseq.chain.sums import total_log_partition
from bayeseq.chain.threads import in_threads, one_thread

__all__ = [
    "Chain",
    "Decoded",
    "ImpossibleSequenceError",
    "Marginals",
    "chain_from_padded",
    "constrain",
    "covariance",
    "entropy",
    "forward_backward",
    "in_threads",
    "inside_probability",
    "kbest",
    "label_covariances",
    "log_partition",
    "loss_augmented",
    "max_marginals",
    "one_thread",
    "overlap_log_prob",
    "pair_covariances",
    "sample",
    "score",
    "span_log_prob",
    "total_log_partition",
    "viterbi",
]
