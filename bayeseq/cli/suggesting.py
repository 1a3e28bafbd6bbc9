"""The options of `bayeseq suggest`. Nothing slow is imported, so that help comes at once."""

from __future__ import annotations

import argparse
from collections.abc import Callable

ABOUT = """\
Rank sentences without labels by what annotating them would teach a model.

mnlp, least_confidence and entropy go by how unsure the model is of a sentence's labels; bald by how
far draws from its posterior disagree, which needs gpsl, gpsc, sparsegpsc or gpstruct; random is a
plain sample. With --unit token single tokens are chosen, and the rest of their sentences stays
without labels: training sums over these.

The file has the columns of the training file, with or without the label column. A label that is not
the mark of a missing one is held to be known: its token is not asked for.

With -o the chosen sentences are written as a column file to be annotated and given to
`bayeseq fit --missing MARK`: with the model's own labels, to be corrected (--fill predicted), or
with the mark (--fill missing). With --unit token only the tokens asked for have the model's labels,
or "?", and the others have the mark.
"""
EXAMPLES = """\
examples:
  bayeseq suggest model/ pool.conll -n 20
  bayeseq suggest model/ pool.conll --tokens 500 --strategy bald -o next.conll
  bayeseq suggest model/ pool.conll --unit token -n 200 -o next.conll --fill missing
"""


def add_options(
    parser: argparse.ArgumentParser,
    positive: Callable[[str], int],
) -> None:
    """Add what is the verb's own; `positive` reads whole numbers above 0."""
    parser.add_argument("model", metavar="MODEL", help="folder that `bayeseq fit` wrote")
    parser.add_argument("file", metavar="FILE", help='a column file, or "-" for standard input')
    parser.add_argument(
        "-n", "--number", metavar="N", type=positive, help="suggest so many sentences, or tokens"
    )
    parser.add_argument(
        "--tokens",
        metavar="N",
        type=positive,
        help="ask for at most so many labels (default, without -n too: 20 sentences or tokens)",
    )
    parser.add_argument(
        "--strategy",
        choices=["mnlp", "bald", "least_confidence", "entropy", "random"],
        default="mnlp",
        help="what sentences are ranked by (default: mnlp)",
    )
    parser.add_argument(
        "--unit",
        choices=["sentence", "token"],
        default="sentence",
        help="choose whole sentences or single tokens (default: sentence)",
    )
    parser.add_argument(
        "--diversity",
        metavar="D",
        type=float,
        default=0.5,
        help="from 0 to 1, how far likeness to one chosen before counts (default: 0.5)",
    )
    parser.add_argument(
        "--seed", metavar="N", type=int, default=0, help="decides random choices (default: 0)"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write the chosen sentences, the first ones first"
    )
    parser.add_argument(
        "--fill",
        choices=["predicted", "missing"],
        default="predicted",
        help="which labels to write there (default: predicted)",
    )
    parser.add_argument(
        "--missing",
        metavar="MARK",
        help="what stands for a missing label (default: as the model was fitted, or else _)",
    )
