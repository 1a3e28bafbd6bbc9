"""The published experiments, run again beside a cross-validated CRF."""

from collections.abc import Callable

from bayeseq.experiments import active, conformal, gpsc
from bayeseq.experiments.gpsl import kernels, table1, table2, table3
from bayeseq.experiments.margins import hmsvm_ner, hmsvm_pos, margins_table1
from bayeseq.experiments.missing import figure2
from bayeseq.experiments.mlp import ner as mlp_ner
from bayeseq.experiments.mlp import trees as mlp_trees
from bayeseq.experiments.setting import Report
from bayeseq.experiments.uncertainty import in_and_out

EXPERIMENTS: dict[str, Callable[..., Report]] = {
    "gpsl-table1": table1,
    "gpsl-table2": table2,
    "gpsl-table3": table3,
    "gpsl-figure2": figure2,
    "gpsl-kernels": kernels,
    "gpsc-table1": gpsc.table1,
    "gpsc-figure1": gpsc.figure1,
    "hmsvm-ner": hmsvm_ner,
    "hmsvm-pos": hmsvm_pos,
    "margins-table1": margins_table1,
    "mlp-ner": mlp_ner,
    "mlp-trees": mlp_trees,
    "uncertainty": in_and_out,
    "active-learning": active.base_phrases,
    "active-learning-ner": active.spanish,
    "conformal": conformal.coverage,
}
"""The experiments by name."""

__all__ = ["EXPERIMENTS", "Report"]
