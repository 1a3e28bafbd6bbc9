"""Every verb and option in one place. Nothing slow is imported, so that help comes at once."""

from __future__ import annotations

import argparse
from typing import Any

from bayeseq import LABELERS, __version__
from bayeseq.cli import suggesting

_ABOUT = """\
Label sequences, and know how far to trust each answer.

A column file has one token a line, its columns split by spaces or tabs, and a blank line after
each sentence; the last column holds the label, as in the files of CRF++ and the CoNLL tasks.
"""
_EXAMPLES = """\
examples:
  bayeseq demo
  bayeseq fit train.conll --template template -m crf -o model/
  bayeseq tag model/ new.conll --marginals > tagged.conll
  bayeseq evaluate model/ test.conll --plots plots/
  bayeseq compare model/ other/ test.conll
"""
_FIT = """\
Learn a model from labelled sentences and write it into a folder.

Without --template and --features, a dataset comes with its own template, and for other files a
window of two tokens to each side and every column is used. A template's B lines are read as CRF++
reads them: a bare B weighs label pairs, a B line with macros weighs them by what stands in the
columns (crf and memm), and without any B line each token is labelled by itself (crf and gpsl: the
label before is part of what hmm and memm are).

gpsl is Gaussian-process sequence labelling: it learns how much each group of features counts, and
needs no cross-validation. Its labels depend on those at the offsets -p dependencies=-1,1 names (by
default the one before; none for none); -p covariance=diagonal is for large data.

gpsc is a CRF with a posterior: -p inference=map, laplace or vg (the default) says how it is found,
-p kernel="polynomial(degree=2)" gives it another kernel. sparsegpsc keeps the kernel at few tokens.

gpstruct draws from the posterior of the same model as gpsc, which takes longer; with
-p checkpoint=DIR the same command goes on where a run was killed.

hmperceptron, hmsvm and structuredsvm are trained for margins: they have scores and no probabilities
(tag --nbest prints the scores). -p kernel="polynomial(degree=2)" gives the first two a kernel.
-m calibrated -p labeler=hmsvm -p labeler__C=0.5 turns scores into probabilities with held-out
sentences; -m reranker -p base=crf chooses anew among the k best labellings of another model.

Ctrl-C ends the search and saves the best weights found so far, for gpsl the posterior of the last
whole sweep; the exit code is then 130.
"""
_FIT_EXAMPLES = """\
examples:
  bayeseq fit train.conll --template template -m crf -p l2=0.5 -o model/
  bayeseq fit train.conll --features spelling -m hmm -o model/
  bayeseq fit dataset:newswire --features spelling -o model/
  bayeseq fit train.conll -m gpsl -p covariance=diagonal -p dependencies=-1,1 -o model/
  bayeseq fit train.conll -m gpsl -p kernel="rbf(scale=0.1)" -p inducing=500 -o model/
  bayeseq fit train.conll -m structuredsvm -p C=0.1 -o model/
  bayeseq fit train.conll -m calibrated -p labeler=hmsvm -o model/
  zcat train.gz | bayeseq fit - --missing _ -o model/
"""
_TAG = """\
Write a file's columns with one more, the predicted label.

The file has the columns of the training file, with or without the label column. It is tagged as it
is read, so it may be larger than memory, and whoever reads the output need not wait for the end.
Comment lines and -DOCSTART- lines are left out.
"""
_TAG_EXAMPLES = """\
examples:
  bayeseq tag model/ new.conll > tagged.conll
  bayeseq tag model/ new.conll --marginals
  bayeseq tag model/ new.conll --nbest 5
  cat new.conll | bayeseq tag model/ - | less
"""
_EVALUATE = """\
Score a model on labelled sentences: errors, entities, and what its probabilities are worth.

Tokens whose label is missing do not count. A label that was never seen in training is an error
wherever it stands, and left out of the log loss.
"""
_EVALUATE_EXAMPLES = """\
examples:
  bayeseq evaluate model/ test.conll
  bayeseq evaluate model/ test.conll --strict IOB2 --json scores.json --plots plots/
  bayeseq evaluate model/ dataset:newswire:test
"""
_COMPARE = """\
Score several models on the same labelled sentences, and say how sure their differences are.

Each score stands beside the difference to the first model, with a 90 % interval over sentences and
the probability that the model is better on other sentences of the kind. Models without
probabilities are compared by their errors alone.
"""
_COMPARE_EXAMPLES = """\
examples:
  bayeseq compare crf/ gpsl/ test.conll
  bayeseq compare crf/ gpsl/ hmm/ dataset:newswire:test --json scores.json
"""
_REPORT = """\
Write one page about a model and how it does on a file: scores, calibration, what review would buy,
mistakes, and the sentences worth a look, coloured by what the model says of them.

The page is one HTML file that needs no network and no script; the same model and file give the same
bytes. A file without labels gets a report without scores.
"""
_REPORT_EXAMPLES = """\
examples:
  bayeseq report model/ test.conll -o report.html
  bayeseq report model/ dataset:newswire:test --sentences 10 -o report.html
"""
_DATASETS = """\
List the datasets that have a name, and their terms.

They are fetched on first use, checked by SHA-256, and kept in the folder that the environment
variable BAYESEQ_DATA names, or else in the platform's cache folder.
"""
_DATASETS_EXAMPLES = """\
example:
  bayeseq datasets --addresses
"""
_DEMO = """\
Train four models on the corpus that comes with the package, and compare them on its test part.

Prints a table and a few sentences with the probability of each name found, draws how far the
probabilities can be trusted, and writes a page about one of the models, report.html, to open in a
browser. Takes less than a minute and needs no network.
"""
_DEMO_EXAMPLES = """\
example:
  bayeseq demo -o pictures/
"""
_REPRODUCE = """\
Run a published experiment again, beside python-crfsuite with its penalty cross-validated.

  gpsl-table1    error, log loss and calibration of GPSL1, GPSL2 and GPSL4 on four tasks
  gpsl-table2    training time
  gpsl-table3    Algorithm 2 against Viterbi and other ways to predict
  gpsl-figure2   missing training labels
  gpsl-kernels   other kernels, bounds and covariances
  gpsc-table1    Spanish named entities: dense, sparse and Bayesian Gaussian-process chains
  gpsc-figure1   pitch accents: sparseness, and what abstaining gains
  hmsvm-ner, hmsvm-pos      margins on Spanish names and on parts of speech
  margins-table1            margins on the four tasks of gpsl-table1
  mlp-ner, mlp-trees        marginalized kernels on Spanish names and on dependency trees
  active-learning           what choosing the sentences or tokens to annotate saves: noun phrases
  active-learning-ner       the same on Spanish names
  conformal                 coverage and size of conformal label sets on all datasets
  uncertainty               what models do not know, on text like that of training and on other text

Prints tables and writes them, with all records, into a folder.
"""
_REPRODUCE_EXAMPLES = """\
examples:
  bayeseq reproduce gpsl-table1 --jobs 2
  bayeseq reproduce gpsl-table1 --tasks segmentation --protocols gpstruct
"""
_SOURCE = 'a column file, "-" for standard input, or dataset:NAME[:PART] (default part: {})'


def build_parser() -> argparse.ArgumentParser:
    """The parser; what it returns has `verb`, the name of the module in this folder to run."""
    parser = argparse.ArgumentParser(
        "bayeseq",
        description=_ABOUT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"bayeseq {__version__}")
    parser.add_argument(
        "--debug", action="store_true", help="show where an error arose (or BAYESEQ_DEBUG=1)"
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    _add_fit(verbs)
    _add_tag(verbs)
    _add_evaluate(verbs)
    _add_compare(verbs)
    _add_report(verbs)
    _add_suggest(verbs)
    _add_datasets(verbs)
    _add_demo(verbs)
    _add_reproduce(verbs)
    return parser


def _verb(verbs: Any, name: str, about: str, examples: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=about.partition("\n")[0].rstrip("."),
        description=about,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # Said before or after the verb, it holds; unsaid here, it keeps what was said before.
    parser.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS
    )
    return parser


def _add_fit(verbs: Any) -> None:
    parser = _verb(verbs, "fit", _FIT, _FIT_EXAMPLES)
    parser.add_argument("train", metavar="TRAIN", help=_SOURCE.format("train, or else all"))
    parser.add_argument(
        "-o", "--output", metavar="DIR", required=True, help="folder for the model (required)"
    )
    parser.add_argument(
        "-m", "--model", metavar="NAME", default="crf", help=f"{_names()} (default: crf)"
    )
    features = parser.add_mutually_exclusive_group()
    features.add_argument("-t", "--template", metavar="FILE", help="CRF++ feature template")
    features.add_argument(
        "--features",
        choices=["spelling"],
        help="spelling: words of the first column, their case, shape, prefixes and suffixes",
    )
    parser.add_argument(
        "-p",
        "--param",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a parameter of the model, such as l2=0.5, max_iter=200 or dependencies=-1,1; may be "
        "repeated",
    )
    parser.add_argument("--encoding", help="encoding of the file (default: utf-8)")
    parser.add_argument(
        "--label-column",
        metavar="N",
        type=int,
        help="the column with the label, from 0, or from the end if negative (default: -1)",
    )
    parser.add_argument(
        "--missing", metavar="MARK", help='what stands for a missing label, such as "_"'
    )
    parser.add_argument(
        "--comments", metavar="PREFIX", help="skip lines that begin with this, such as #"
    )
    _add_quiet(parser)


def _names() -> str:
    *names, last = map(str.lower, LABELERS)
    return f"{', '.join(names)} or {last}"


def _add_tag(verbs: Any) -> None:
    parser = _verb(verbs, "tag", _TAG, _TAG_EXAMPLES)
    parser.add_argument("model", metavar="MODEL", help="folder that `bayeseq fit` wrote")
    parser.add_argument("file", metavar="FILE", help='a column file, or "-" for standard input')
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write to a file (default: standard output)"
    )
    parser.add_argument(
        "--marginals",
        action="store_true",
        help="write label/probability, and one such column for each label after it",
    )
    parser.add_argument(
        "-n",
        "--nbest",
        metavar="N",
        type=_positive,
        help='the N most probable labellings, each under a line "# rank probability"',
    )
    parser.add_argument(
        "--decode",
        choices=["viterbi", "marginal"],
        help="predict the most probable labelling, or the most probable label of each token "
        "(default: as the model was fitted)",
    )
    _add_encoding(parser)
    _add_quiet(parser)


def _add_evaluate(verbs: Any) -> None:
    parser = _verb(verbs, "evaluate", _EVALUATE, _EVALUATE_EXAMPLES)
    parser.add_argument("model", metavar="MODEL", help="folder that `bayeseq fit` wrote")
    parser.add_argument("file", metavar="FILE", help=_SOURCE.format("test"))
    parser.add_argument(
        "--strict",
        metavar="SCHEME",
        help="count only entities that are well formed in this tag scheme, such as IOB2 "
        "(default: read malformed tags as conlleval does)",
    )
    parser.add_argument("--json", metavar="FILE", help="write all scores to a JSON file")
    parser.add_argument("--plots", metavar="DIR", help="draw the scores as PNG files in a folder")
    _add_encoding(parser)
    _add_quiet(parser)


def _add_compare(verbs: Any) -> None:
    parser = _verb(verbs, "compare", _COMPARE, _COMPARE_EXAMPLES)
    parser.add_argument(
        "models", metavar="MODEL", nargs="+", help="folders that `bayeseq fit` wrote, two or more"
    )
    parser.add_argument("file", metavar="FILE", help=_SOURCE.format("test"))
    parser.add_argument("--json", metavar="FILE", help="write all scores to a JSON file")
    _add_encoding(parser)
    _add_quiet(parser)


def _add_report(verbs: Any) -> None:
    parser = _verb(verbs, "report", _REPORT, _REPORT_EXAMPLES)
    parser.add_argument("model", metavar="MODEL", help="folder that `bayeseq fit` wrote")
    parser.add_argument("file", metavar="FILE", help=_SOURCE.format("test"))
    parser.add_argument(
        "-o", "--output", metavar="FILE", required=True, help="the page, an HTML file (required)"
    )
    parser.add_argument("--title", metavar="TEXT", help="the heading (default: the model's name)")
    parser.add_argument(
        "--sentences",
        metavar="N",
        type=_positive,
        default=5,
        help="how many sentences of each kind are shown (default: 5)",
    )
    parser.add_argument(
        "--draws",
        metavar="N",
        type=_positive,
        default=100,
        help="draws from the posterior of a model that has one (default: 100)",
    )
    parser.add_argument(
        "--strict",
        metavar="SCHEME",
        help="count only entities that are well formed in this tag scheme, such as IOB2",
    )
    parser.add_argument("--date", action="store_true", help="write today's date on the page")
    _add_encoding(parser)
    _add_quiet(parser)


def _add_suggest(verbs: Any) -> None:
    parser = _verb(verbs, "suggest", suggesting.ABOUT, suggesting.EXAMPLES)
    suggesting.add_options(parser, _positive)
    _add_encoding(parser)
    _add_quiet(parser)


def _add_datasets(verbs: Any) -> None:
    parser = _verb(verbs, "datasets", _DATASETS, _DATASETS_EXAMPLES)
    parser.add_argument(
        "--addresses", action="store_true", help="show the address and SHA-256 of each file"
    )


def _add_demo(verbs: Any) -> None:
    parser = _verb(verbs, "demo", _DEMO, _DEMO_EXAMPLES)
    parser.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        default="bayeseq-demo",
        help="folder for the pictures and the page (default: bayeseq-demo)",
    )
    _add_quiet(parser)


def _add_reproduce(verbs: Any) -> None:
    parser = _verb(verbs, "reproduce", _REPRODUCE, _REPRODUCE_EXAMPLES)
    parser.add_argument("experiment", metavar="EXPERIMENT", help="one of those above")
    parser.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        default="benchmarks/results",
        help="folder for the results (default: benchmarks/results)",
    )
    parser.add_argument("--tasks", metavar="NAMES", help="some of the tasks, by commas")
    parser.add_argument("--protocols", metavar="NAMES", help="gpstruct, random, or both by a comma")
    parser.add_argument(
        "--models",
        metavar="NAMES",
        help="some of the rows of a table, by commas, such as crfsuite,gpsl1,gpscvg",
    )
    parser.add_argument("--splits", metavar="N", type=_positive, help="only the first N splits")
    parser.add_argument(
        "-j",
        "--jobs",
        metavar="N",
        type=_positive,
        default=1,
        help="processes at once (default: 1)",
    )
    _add_quiet(parser)


def _add_encoding(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--encoding", help="encoding of the file (default: that of the training file)"
    )


def _add_quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="no progress and no remarks on standard error"
    )


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)
