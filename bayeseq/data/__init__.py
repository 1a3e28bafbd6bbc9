"""From files to numbers: corpora, templates, features, labels, batches, datasets."""

from bayeseq.data.batch import SequenceBatch
from bayeseq.data.columns import Corpus, iter_columns, read_columns, write_columns
from bayeseq.data.datasets import Dataset, Split, list_datasets, load_dataset
from bayeseq.data.errors import DataError
from bayeseq.data.features import FeatureSpace
from bayeseq.data.labels import LabelSpace
from bayeseq.data.schemes import (
    SCHEMES,
    Entity,
    continues,
    convert_tags,
    detect_scheme,
    entities_to_tags,
    entity_types,
    scheme_constraints,
    tags_to_entities,
    validate_tags,
)
from bayeseq.data.spelling import word_features
from bayeseq.data.structures import DAG, Tree, corpus_trees, read_conllu, read_trees
from bayeseq.data.template import Template

__all__ = [
    "DAG",
    "SCHEMES",
    "Corpus",
    "DataError",
    "Dataset",
    "Entity",
    "FeatureSpace",
    "LabelSpace",
    "SequenceBatch",
    "Split",
    "Template",
    "Tree",
    "continues",
    "convert_tags",
    "corpus_trees",
    "detect_scheme",
    "entities_to_tags",
    "entity_types",
    "iter_columns",
    "list_datasets",
    "load_dataset",
    "read_columns",
    "read_conllu",
    "read_trees",
    "scheme_constraints",
    "tags_to_entities",
    "validate_tags",
    "word_features",
    "write_columns",
]
