"""Label sequences when labels are scarce, and know how far to trust each answer."""

import os

from bayeseq.baselines import CRF, HMM, MEMM
from bayeseq.data import (
    Corpus,
    DataError,
    Dataset,
    Entity,
    Template,
    convert_tags,
    detect_scheme,
    entities_to_tags,
    list_datasets,
    load_dataset,
    read_columns,
    tags_to_entities,
    validate_tags,
    word_features,
    write_columns,
)
from bayeseq.diagnostics import (
    evaluate,
    reliability,
    risk_coverage,
)
from bayeseq.kernels import RBF, Kernel, Linear, Polynomial
from bayeseq.labelers import ScoredEntity, ScoredLabelling, SequenceLabeler
from bayeseq.labelers.gpsl import GPSL
from bayeseq.labelers.persistence import read_model
from bayeseq.plots import plot_reliability, plot_risk_coverage

__version__ = "0.1.0"

LABELERS: dict[str, type[SequenceLabeler]] = {cls.__name__: cls for cls in (CRF, GPSL, HMM, MEMM)}
"""The labelers by name: what the command line offers and what `load` accepts."""


def load(path: str | os.PathLike[str]) -> SequenceLabeler:
    """Read a labeler that `save` wrote. Runs nothing from the folder and trusts nothing in it."""
    saved = read_model(path)
    if saved.kind not in LABELERS:
        raise DataError(
            f"{path} holds a {saved.kind!r}, which is none of {', '.join(LABELERS)}; "
            "it may come from a newer version"
        )
    return LABELERS[saved.kind]._from_saved(saved)


__all__ = [
    "CRF",
    "GPSL",
    "HMM",
    "LABELERS",
    "MEMM",
    "RBF",
    "Corpus",
    "DataError",
    "Dataset",
    "Entity",
    "Kernel",
    "Linear",
    "Polynomial",
    "ScoredEntity",
    "ScoredLabelling",
    "SequenceLabeler",
    "Template",
    "convert_tags",
    "detect_scheme",
    "entities_to_tags",
    "evaluate",
    "list_datasets",
    "load",
    "load_dataset",
    "plot_reliability",
    "plot_risk_coverage",
    "read_columns",
    "reliability",
    "risk_coverage",
    "tags_to_entities",
    "validate_tags",
    "word_features",
    "write_columns",
]
