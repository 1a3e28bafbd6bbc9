"""Label sequences when labels are scarce, and know how far to trust each answer."""

import os

from bayeseq.analysis.checks import khat, predictive_check
from bayeseq.analysis.compare import compare
from bayeseq.analysis.conformal import Conformal, ConformalEntities
from bayeseq.analysis.evidence import explain
from bayeseq.analysis.explain import explain_confidence
from bayeseq.analysis.label_errors import label_errors, out_of_fold_proba
from bayeseq.analysis.loo import loo
from bayeseq.analysis.sbc import sbc
from bayeseq.analysis.suggest import Suggestion, Suggestions, suggest
from bayeseq.baselines import (
    CRF,
    HMM,
    HMSVM,
    MEMM,
    HMPerceptron,
    MarginalizedPerceptron,
    MarginalizedSVM,
    Reranker,
    StructuredSVM,
)
from bayeseq.baselines.hmsvm import SupportSequence
from bayeseq.data import (
    DAG,
    Corpus,
    DataError,
    Dataset,
    Entity,
    Template,
    Tree,
    convert_tags,
    corpus_trees,
    detect_scheme,
    entities_to_tags,
    list_datasets,
    load_dataset,
    read_columns,
    read_conllu,
    read_trees,
    tags_to_entities,
    validate_tags,
    word_features,
    write_columns,
)
from bayeseq.diagnostics import (
    brier_decomposition,
    calibration_error,
    confusion_confidence,
    entity_reliability,
    entity_review_budget,
    evaluate,
    find_label_errors,
    reliability,
    review_budget,
    risk_coverage,
    sentence_posterior,
    transition_posterior,
    uncertainty,
    weight_posterior,
)
from bayeseq.kernels import RBF, Delta, Kernel, Linear, Polynomial
from bayeseq.kernels.marginalized import (
    DAGKernel,
    GappySequenceKernel,
    SequenceKernel,
    TreeKernel,
)
from bayeseq.labelers import (
    NoPosteriorError,
    NoProbabilitiesError,
    RankedLabelling,
    ScoredEntity,
    ScoredLabelling,
    SentenceUncertainty,
    SequenceLabeler,
)
from bayeseq.labelers.calibrated import Calibrated
from bayeseq.labelers.gpsc import GPSC
from bayeseq.labelers.gpsl import GPSL
from bayeseq.labelers.gpstruct import GPStruct
from bayeseq.labelers.persistence import read_model
from bayeseq.labelers.sparse_gpsc import SparseGPSC
from bayeseq.plots import (
    plot_confusion_confidence,
    plot_reliability,
    plot_risk_coverage,
    plot_sentence,
    plot_transitions,
    plot_uncertainty,
    plot_weights,
)
from bayeseq.report import TaggedSentence, report_html, show, tag_sentences, write_report

__version__ = "0.1.0"

LABELERS: dict[str, type[SequenceLabeler]] = {
    cls.__name__: cls
    for cls in (
        CRF,
        GPSC,
        GPSL,
        HMM,
        HMSVM,
        MEMM,
        Calibrated,
        MarginalizedPerceptron,
        MarginalizedSVM,
        GPStruct,
        HMPerceptron,
        Reranker,
        SparseGPSC,
        StructuredSVM,
    )
}
"""The labelers by name: what the command line offers and what `load` accepts."""


def load(path: str | os.PathLike[str]) -> SequenceLabeler:
    """Read a labeler that `save` wrote. Runs nothing from the folder and trusts nothing in it."""
    saved = read_model(path)
    if saved.kind not in LABELERS:
        raise DataError(
            f"{path} holds a {saved.kind!r}, which is none of {', '.join(LABELERS)}; "
            "it may come from a newer version"
        )
    return LABELERS[saved.kind]._from_saved(saved, LABELERS)


__all__ = [
    "CRF",
    "DAG",
    "GPSC",
    "GPSL",
    "HMM",
    "HMSVM",
    "LABELERS",
    "MEMM",
    "RBF",
    "Calibrated",
    "Conformal",
    "ConformalEntities",
    "Corpus",
    "DAGKernel",
    "DataError",
    "Dataset",
    "Delta",
    "Entity",
    "GPStruct",
    "GappySequenceKernel",
    "HMPerceptron",
    "Kernel",
    "Linear",
    "MarginalizedPerceptron",
    "MarginalizedSVM",
    "NoPosteriorError",
    "NoProbabilitiesError",
    "Polynomial",
    "RankedLabelling",
    "Reranker",
    "ScoredEntity",
    "ScoredLabelling",
    "SentenceUncertainty",
    "SequenceKernel",
    "SequenceLabeler",
    "SparseGPSC",
    "StructuredSVM",
    "Suggestion",
    "Suggestions",
    "SupportSequence",
    "TaggedSentence",
    "Template",
    "Tree",
    "TreeKernel",
    "brier_decomposition",
    "calibration_error",
    "compare",
    "confusion_confidence",
    "convert_tags",
    "corpus_trees",
    "detect_scheme",
    "entities_to_tags",
    "entity_reliability",
    "entity_review_budget",
    "evaluate",
    "explain",
    "explain_confidence",
    "find_label_errors",
    "khat",
    "label_errors",
    "list_datasets",
    "load",
    "load_dataset",
    "loo",
    "out_of_fold_proba",
    "plot_confusion_confidence",
    "plot_reliability",
    "plot_risk_coverage",
    "plot_sentence",
    "plot_transitions",
    "plot_uncertainty",
    "plot_weights",
    "predictive_check",
    "read_columns",
    "read_conllu",
    "read_trees",
    "reliability",
    "report_html",
    "review_budget",
    "risk_coverage",
    "sbc",
    "sentence_posterior",
    "show",
    "suggest",
    "tag_sentences",
    "tags_to_entities",
    "transition_posterior",
    "uncertainty",
    "validate_tags",
    "weight_posterior",
    "word_features",
    "write_columns",
    "write_report",
]
