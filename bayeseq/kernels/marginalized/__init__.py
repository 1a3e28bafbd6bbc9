"""Marginalized kernels between positions of sequences, trees and DAGs. [mlp], [mlp-slides]."""

from bayeseq.kernels.marginalized.base import MarginalizedKernel, Positions
from bayeseq.kernels.marginalized.graph import Graph
from bayeseq.kernels.marginalized.paths import DAGKernel, GappySequenceKernel, SequenceKernel
from bayeseq.kernels.marginalized.trees import TreeKernel

MARGINALIZED: dict[str, type[MarginalizedKernel]] = {
    "sequence": SequenceKernel,
    "gappy": GappySequenceKernel,
    "tree": TreeKernel,
    "dag": DAGKernel,
}
"""The marginalized kernels by the names that a text or a model file may give them."""

__all__ = [
    "MARGINALIZED",
    "DAGKernel",
    "GappySequenceKernel",
    "Graph",
    "MarginalizedKernel",
    "Positions",
    "SequenceKernel",
    "TreeKernel",
]
