"""The published experiments, run again beside a cross-validated CRF."""

from bayeseq.experiments.gpsl import figure2, kernels, table1, table2, table3
from bayeseq.experiments.setting import Report

EXPERIMENTS = {
    "gpsl-table1": table1,
    "gpsl-table2": table2,
    "gpsl-table3": table3,
    "gpsl-figure2": figure2,
    "gpsl-kernels": kernels,
}
"""The experiments by name."""

__all__ = ["EXPERIMENTS", "Report"]
