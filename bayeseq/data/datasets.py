"""Named real datasets, fetched on first use, checked by SHA-256 and cached; and one built in.

`load_dataset("chunking")` gives a Dataset: its parts as corpora, and where the dataset has them a
feature template, a vocabulary and published splits. The files are kept in the folder named by the
environment variable BAYESEQ_DATA, or else in the platform's cache folder, and are only ever read
from there: archives are not unpacked, and a file that is not the pinned one is refused and left
alone. "newswire" comes with the package and needs no network.

The tasks basenp, chunking, segmentation and japanesene are those of [gpstruct] and [gpsl], decoded
from the files that [gpstruct]'s authors published: sentences of CRF++'s examples, features that the
example's template gives and that occur at least three times in its train.data, and labels that
occur there (others count as missing). Two protocols say which sentences train and which test:

- "gpstruct": the five published permutations of the first 300, 100, 36 and 100 sentences, of which
  the first 150, 50, 20 and 50 train and the rest test.
- "random": `n_splits` (10 unless given) partitions of the same sizes, each drawn from all sentences
  by numpy's default generator with `seed` (0 unless given). [gpsl] used ten such partitions and did
  not publish them.

Figures from the one protocol do not compare with figures from the other.

[gpstruct] Bratières, Quadrianto, Ghahramani: GPstruct: Bayesian structured prediction using
Gaussian processes.
[gpsl] Srijith, Balamurugan, Shevade: Gaussian process pseudo-likelihood models for sequence
labeling.
"""

from __future__ import annotations

import difflib
import hashlib
import io
import logging
import os
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple, cast

import numpy as np

from bayeseq.data.columns import Corpus, Labels, Rows, iter_lines, read_columns
from bayeseq.data.errors import DataError
from bayeseq.data.template import Template

_RAW = "https://raw.githubusercontent.com"
_UPSTREAM = {
    "crfpp": f"{_RAW}/taku910/crfpp/c603ea6fc2cc8e5317d2754971bc787da383f7e5/example",
    "nltk": f"{_RAW}/nltk/nltk_data/5db857e6f7df11eabb5e5665836db9ec8df07e28/packages/corpora",
    "prosody": f"{_RAW}/Helsinki-NLP/prosody/75a56c5790ca487e2bb52380bd98722ff0c147b7/data",
    "pygpstruct": (
        f"{_RAW}/sebastien-bratieres/pygpstruct/fdb31752ea521797fe13f07beebe21e32144cd03/data"
    ),
}
_SHA256 = {
    "crfpp/JapaneseNE/template": "5c2735c3a4287056bbc67223443c75e926201fc1295f3be787391922933ef2bd",
    "crfpp/JapaneseNE/test.data": (
        "f8e5f52d5cb23f6744e13de9f6a9a869a47cb0687a11b90e8978b85dcba691fe"
    ),
    "crfpp/JapaneseNE/train.data": (
        "de24257c3c1429b6c0be60728d6b225ccc0c2274d8b76e83977549495b9c8f27"
    ),
    "crfpp/basenp/template": "ddbd16fe5459c5d5baf10932f7d938dc5e91a52558b1bac60ecfb43f702e5d7e",
    "crfpp/basenp/test.data": "b85caf6b655c5600fa638754880bb524f7c0f0c3fdfd186f9dbd7f5839231885",
    "crfpp/basenp/train.data": "eff25bc47150895e6234d439652efa8ebd598f69da28289d9f448468a2a0cba7",
    "crfpp/chunking/template": "7529f65974655f60293637cb4aae34a3fa486de25c567d0949bec15e5d96a76b",
    "crfpp/chunking/test.data": "066c6c2ec7d276b008928401b1bd17b28c0f97cd41404f629784b3c7743b778d",
    "crfpp/chunking/train.data": "ff9a48ed819c8c235e5f6172b1bfb39b3d65f1fab578ae80fd5396f19597a3b7",
    "crfpp/seg/template": "0e1d4090dff7a36e0aba7438f8cbf3fd981b6c72fb9ac210efaa587fc699ddc8",
    "crfpp/seg/test.data": "c6d930fbf2b6f293e8b4524286e44e997188ef667d30df9318ed49b7022a34c9",
    "crfpp/seg/train.data": "f3d00c3bb22417c3df17cbbfa1b73485789987742b2899c643b78480d580d73d",
    "nltk/conll2000.zip": "01e65164f268366e7caa0db92332a1955d081908c87016e2c7640c3c5279b7cd",
    "nltk/conll2002.zip": "64440e49236d0d393e08e0b266284966d68e2d2a82a50cc41b8e96d98c03b5c8",
    "nltk/dependency_treebank.zip": (
        "0df483999f1391f32b141d6047d8ce19efd0a5a3e63ca019bfc4af8530f51fbd"
    ),
    "nltk/treebank.zip": "9da92d76c3666cfb6cddeaed0f7e86b344cce0f0928a286d439e555f19c37399",
    "prosody/dev.txt": "ce5c73f9bccd59bed0c2a1054854357f157c74cc95723472bb09f7f0a6f15567",
    "pygpstruct/datasplit.n_data=100.txt": (
        "42b282b5088b8858dedd8a2b2af4fc28ea14cab0ae34dd45e7d8ceff83a48178"
    ),
    "pygpstruct/datasplit.n_data=300.txt": (
        "b292d13741f695c27b65737b85202738357791eb2e4830a1320f42d4bc1c4911"
    ),
    "pygpstruct/datasplit.n_data=36.txt": (
        "a2a771a746b0f16cb59dfa3c3e6ef72dbc37590c7172756c36775b929f559d02"
    ),
}
_TIMEOUT = 30  # seconds without a byte before a download fails
_MIN_COUNT = 3  # a feature of the decoded tasks occurs at least this often in train.data
_N_RANDOM_SPLITS = 10
_NEWSWIRE_TRAIN = 300


class Split(NamedTuple):
    """Indices of the training and the test sentences in the part "all"."""

    train: np.ndarray
    test: np.ndarray


@dataclass(frozen=True)
class Dataset:
    """A named dataset: its parts, and where it has them a template, a vocabulary and splits.

    `terms` is the licence or the terms of use. `vocabulary` holds the features that count, sorted;
    it is None where all do. `splits` index the part "all".

    >>> dataset = load_dataset("newswire")
    >>> dataset
    Dataset('newswire': train 300 sentences, test 100 sentences)
    >>> dataset["test"].tokens[0][:3], dataset.labels("test")[0][:3]
    (['Leyla', 'Tanouri', 'and'], ['B-PER', 'I-PER', 'O'])
    """

    name: str
    description: str
    terms: str
    parts: dict[str, Corpus]
    template: Template | None = None
    vocabulary: tuple[str, ...] | None = None
    splits: tuple[Split, ...] = ()

    def __getitem__(self, part: str) -> Corpus:
        if part not in self.parts:
            raise DataError(f"{self.name} has no part {part!r}; it has {', '.join(self.parts)}")
        return self.parts[part]

    def __repr__(self) -> str:
        parts = ", ".join(
            f"{part} {len(corpus):,} sentences" for part, corpus in self.parts.items()
        )
        splits = f", {len(self.splits)} splits" if self.splits else ""
        return f"Dataset({self.name!r}: {parts}{splits})"

    def features(self, part: str) -> list[list[list[str]]]:
        """The template's feature strings of each token of a part that are in the vocabulary."""
        corpus = self[part]
        if self.template is None:
            raise DataError(
                f"{self.name} has no template; make features of dataset[{part!r}] with "
                "word_features, with Template.default(...).transform or with a function of your own"
            )
        X = self.template.transform(corpus)
        if self.vocabulary is None:
            return X
        known = frozenset(self.vocabulary)
        return [[[string for string in token if string in known] for token in x] for x in X]

    def labels(self, part: str) -> list[Labels]:
        """The labels of each token of a part; None where one is missing."""
        labels = self[part].labels
        if labels is None:
            raise DataError(
                f"{self.name} has no labels; its columns are {self[part].columns}, of which "
                f"dataset[{part!r}].column(name) gives one"
            )
        return labels


@dataclass(frozen=True)
class DatasetInfo:
    """What is known of a dataset before it is loaded.

    `addresses` and `sha256` go together, one of each for every file; `at_hand` says whether all the
    files are in the cache, or in the package, as they should be.
    """

    name: str
    description: str
    terms: str
    addresses: tuple[str, ...]
    sha256: tuple[str, ...]
    at_hand: bool


# The cache


class _Cache:
    """The folder with the files, which are named by their path in it: "crfpp/seg/template"."""

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self._folder = folder

    @cached_property
    def folder(self) -> Path:
        """The folder that was given, or named by BAYESEQ_DATA, or the platform's."""
        return Path(
            self._folder or os.environ.get("BAYESEQ_DATA") or _platform_cache()
        ).expanduser()

    def has(self, file: str) -> bool:
        path = self.folder / file
        return path.is_file() and _file_hash(path) == _SHA256[file]

    def path(self, file: str) -> Path:
        """The path of a file that has its pinned hash; it is downloaded if it is not there."""
        path = self.folder / file
        if not path.exists():
            _download(file, path)
        found = _file_hash(path)
        if found != _SHA256[file]:
            raise DataError(
                f"{path}: the file is not the one that is expected: its SHA-256 is {found} and "
                f"should be {_SHA256[file]}; remove it and it will be downloaded again from "
                f"{_address(file)}, or put the right file in its place"
            )
        return path

    @contextmanager
    def members(self, file: str, pattern: str) -> Iterator[Iterator[IO[bytes]]]:
        """The members of a zip file whose whole name matches, sorted by name, as open files."""
        with zipfile.ZipFile(self.path(file)) as archive:
            names = sorted(name for name in archive.namelist() if re.fullmatch(pattern, name))
            # Buffered, as a zip member gives its lines one slow read after the other.
            opened = (cast(io.RawIOBase, archive.open(name)) for name in names)
            yield map(io.BufferedReader, opened)


def _platform_cache() -> Path:
    import pooch

    return Path(pooch.os_cache("bayeseq"))


def _address(file: str) -> str:
    source, _, rest = file.partition("/")
    return f"{_UPSTREAM[source]}/{rest}"


def _file_hash(path: Path) -> str:
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error


def _download(file: str, path: Path) -> None:
    """Fetch a file to a path; a download that fails or has the wrong hash leaves nothing there."""
    import pooch  # here, as it is slow to import and most uses need no download

    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.WARNING)  # the progress bar says enough
    try:
        pooch.retrieve(
            _address(file),
            known_hash=f"sha256:{_SHA256[file]}",
            fname=path.name,
            path=path.parent,
            downloader=pooch.HTTPDownloader(progressbar=True, timeout=_TIMEOUT),
        )
    except (OSError, ValueError) as error:  # no network, no right to write, a wrong hash
        raise DataError(
            f"{path} could not be downloaded: {error}. Fetch {_address(file)} by hand, put it at "
            f"exactly that path, and check that its SHA-256 is {_SHA256[file]}. To keep the files "
            "in another folder, set the environment variable BAYESEQ_DATA"
        ) from error
    finally:
        logger.setLevel(level)


# The decoded tasks


class _Request(NamedTuple):
    """What the user asked for beside the name."""

    cache: _Cache
    protocol: str | None
    seed: int | None
    n_splits: int | None


class _Loaded(NamedTuple):
    """What a loader found; the fields are those of Dataset."""

    parts: dict[str, Corpus]
    template: Template | None = None
    vocabulary: tuple[str, ...] | None = None
    splits: tuple[Split, ...] = ()


@dataclass(frozen=True)
class _Task:
    """One of the four decoded tasks: its example folder and the sizes of its splits."""

    folder: str
    columns: tuple[str, ...]
    n_sentences: int
    n_train: int
    encoding: str = "utf-8"
    n_from_train: int = 0  # sentences at the end of train.data that follow those of test.data

    @property
    def permutations(self) -> str:
        return f"pygpstruct/datasplit.n_data={self.n_sentences}.txt"

    @property
    def files(self) -> tuple[str, ...]:
        names = ("template", "train.data", "test.data")
        return (*(f"crfpp/{self.folder}/{name}" for name in names), self.permutations)

    def __call__(self, request: _Request) -> _Loaded:
        paths = [request.cache.path(file) for file in self.files]
        template = Template.read(paths[0], self.encoding)
        train, test = (
            read_columns(path, encoding=self.encoding, columns=self.columns, docstart=False)
            for path in paths[1:3]
        )
        corpus = _drop_unseen_labels(self._sentences(train, test), train)
        return _Loaded(
            {"all": corpus},
            template,
            _frequent_features(template, train),
            self._splits(request, len(corpus), paths[3]),
        )

    def _sentences(self, train: Corpus, test: Corpus) -> Corpus:
        last = train[len(train) - self.n_from_train :]
        labels = [*(test.labels or ()), *(last.labels or ())]
        return Corpus([*test.sentences, *last.sentences], labels, self.columns)

    def _splits(self, request: _Request, n_all: int, permutations: Path) -> tuple[Split, ...]:
        if request.protocol in (None, "gpstruct"):
            if request.seed is not None or request.n_splits is not None:
                raise DataError(
                    "the protocol 'gpstruct' has five fixed splits, so it takes no seed and no "
                    "n_splits; leave them out, or give protocol='random'"
                )
            rows = np.loadtxt(permutations, dtype=np.intp, ndmin=2) - 1  # the file counts from 1
        elif request.protocol == "random":
            n_splits = _N_RANDOM_SPLITS if request.n_splits is None else request.n_splits
            if n_splits < 1:
                raise DataError(f"n_splits is {n_splits}; give 1 or more")
            generator = np.random.default_rng(request.seed or 0)
            rows = np.stack([generator.permutation(n_all) for _ in range(n_splits)])
        else:
            raise DataError(
                f"there is no protocol {request.protocol!r}; give 'gpstruct' or 'random'"
            )
        rows = rows[:, : self.n_sentences]
        return tuple(Split(row[: self.n_train], row[self.n_train :]) for row in rows)


def _drop_unseen_labels(corpus: Corpus, train: Corpus) -> Corpus:
    """The corpus with None for the labels that never occur in the training file."""
    seen = set(chain.from_iterable(train.labels or ()))
    labels = [[tag if tag in seen else None for tag in tags] for tags in corpus.labels or ()]
    return Corpus(corpus.sentences, labels, corpus.columns)


def _frequent_features(template: Template, corpus: Corpus) -> tuple[str, ...]:
    tokens = chain.from_iterable(template.transform(corpus))
    counts = Counter(chain.from_iterable(tokens))
    return tuple(sorted(string for string, count in counts.items() if count >= _MIN_COUNT))


# The other datasets


def _conll2000(request: _Request) -> _Loaded:
    template = Template.read(request.cache.path("crfpp/chunking/template"))
    columns = ("word", "pos")
    with request.cache.members("nltk/conll2000.zip", r".*/(test|train)\.txt") as members:
        test, train = (read_columns(member, columns=columns) for member in members)
    return _Loaded({"train": train, "test": test}, template)


def _conll2002(language: str) -> Callable[[_Request], _Loaded]:
    def load(request: _Request) -> _Loaded:
        pattern = rf".*/{language}\.(testa|testb|train)"
        with request.cache.members("nltk/conll2002.zip", pattern) as members:
            testa, testb, train = (
                read_columns(member, columns=("word", "pos")) for member in members
            )
        return _Loaded({"train": train, "testa": testa, "testb": testb})

    return load


def _wsj_pos(request: _Request) -> _Loaded:
    """Words and tags are the leaves of the parse trees, in which sentences are marked exactly.

    The tagged files of the same archive mark paragraphs and noun phrases and leave the sentences to
    be guessed; they also hold a few lines that were never parsed.
    """
    sentences: list[Rows] = []
    labels: list[Labels] = []
    with request.cache.members("nltk/treebank.zip", r".*/combined/.*\.mrg") as members:
        for member in members:
            for tree in re.split(r"^(?=\()", member.read().decode("ascii"), flags=re.MULTILINE):
                leaves = re.findall(r"\(([^\s()]+) ([^\s()]+)\)", tree)
                words = [(_plain(word), tag) for tag, word in leaves if tag != "-NONE-"]
                if words:
                    sentences.append([(word,) for word, _ in words])
                    labels.append([_first(tag) for _, tag in words])
    return _Loaded({"all": Corpus(sentences, labels, ("word",))})


def _wsj_dependencies(request: _Request) -> _Loaded:
    sentences: list[Rows] = []
    with request.cache.members("nltk/dependency_treebank.zip", r".*\.dp") as members:
        for member in members:
            for rows in read_columns(member, label_column=None, docstart=False).sentences:
                sentences.append([(_plain(word), _first(tag), head) for word, tag, head in rows])
    return _Loaded({"all": Corpus(sentences, columns=("word", "tag", "head"))})


def _plain(word: str) -> str:
    """A word of the treebank without the backslashes before its slashes and asterisks."""
    return re.sub(r"\\([/*])", r"\1", word)


def _first(tag: str) -> str:
    """The first of a word's tags, where the annotators left it at two, as in VBG|NN."""
    return tag.partition("|")[0]


def _prosody(request: _Request) -> _Loaded:
    lines = iter_lines(request.cache.path("prosody/dev.txt"))
    text = "\n".join("" if line.startswith("<file>") else line for line in lines)
    corpus = read_columns(
        io.StringIO(text),
        label_column=1,
        missing="NA",
        columns=("word", "boundary", "prominence_value", "boundary_value"),
        docstart=False,
    )
    return _Loaded({"all": corpus})


def _newswire(request: _Request) -> _Loaded:
    with resources.files("bayeseq.data").joinpath("newswire.conll").open("rb") as stream:
        corpus = read_columns(stream, columns=("word",), docstart=False)
    return _Loaded({"train": corpus[:_NEWSWIRE_TRAIN], "test": corpus[_NEWSWIRE_TRAIN:]})


# The list


@dataclass(frozen=True)
class _Entry:
    description: str
    terms: str
    load: Callable[[_Request], _Loaded]
    files: Sequence[str] = field(default=())

    @property
    def has_protocols(self) -> bool:
        return isinstance(self.load, _Task)


def _task_entry(description: str, task: _Task) -> _Entry:
    return _Entry(description, "CRF++: BSD or LGPL; splits: Apache 2.0", task, task.files)


_RESEARCH = "research use; not for redistribution"
_TREEBANK = "Penn Treebank sample: non-commercial research use"
_ENTRIES = {
    "newswire": _Entry(
        "400 sentences of invented newswire, persons, places and organisations in IOB2",
        "comes with the package, under its licence",
        _newswire,
    ),
    "basenp": _task_entry(
        "Base noun phrases in English news, 823 sentences, 3 labels",
        _Task("basenp", ("word", "pos"), n_sentences=300, n_train=150),
    ),
    "chunking": _task_entry(
        "Phrase chunks in English news, 823 sentences, 14 labels",
        _Task("chunking", ("word", "pos"), n_sentences=100, n_train=50),
    ),
    "segmentation": _task_entry(
        "Japanese word segmentation, 36 sentences of characters, 2 labels",
        _Task("seg", ("character", "kind"), n_sentences=36, n_train=20, n_from_train=17),
    ),
    "japanesene": _task_entry(
        "Japanese named entities, 500 sentences, 17 labels",
        _Task(
            "JapaneseNE",
            ("word", "kind", "pos"),
            n_sentences=100,
            n_train=50,
            encoding="euc-jp",
        ),
    ),
    "conll2000": _Entry(
        "CoNLL-2000 phrase chunks in English news, 10,948 sentences",
        _RESEARCH,
        _conll2000,
        ("crfpp/chunking/template", "nltk/conll2000.zip"),
    ),
    "conll2002-esp": _Entry(
        "CoNLL-2002 named entities in Spanish news, 11,755 sentences, IOB2",
        _RESEARCH,
        _conll2002("esp"),
        ("nltk/conll2002.zip",),
    ),
    "conll2002-ned": _Entry(
        "CoNLL-2002 named entities in Dutch news, 23,896 sentences, IOB2",
        _RESEARCH,
        _conll2002("ned"),
        ("nltk/conll2002.zip",),
    ),
    "wsj-pos": _Entry(
        "Parts of speech in the Wall Street Journal, 3,914 sentences",
        _TREEBANK,
        _wsj_pos,
        ("nltk/treebank.zip",),
    ),
    "wsj-dependencies": _Entry(
        "Dependency trees of the sentences of wsj-pos; the head of a root is 0; no labels",
        _TREEBANK,
        _wsj_dependencies,
        ("nltk/dependency_treebank.zip",),
    ),
    "prosody": _Entry(
        "Helsinki Prosody Corpus, dev part: prominence 0, 1 or 2 of each spoken word",
        "CC BY 4.0",
        _prosody,
        ("prosody/dev.txt",),
    ),
}


def list_datasets(*, cache: str | os.PathLike[str] | None = None) -> tuple[DatasetInfo, ...]:
    """All datasets that `load_dataset` knows; nothing is downloaded.

    >>> info = list_datasets()[0]
    >>> info.name, info.addresses, info.at_hand
    ('newswire', (), True)
    """
    folder = _Cache(cache)
    return tuple(
        DatasetInfo(
            name,
            entry.description,
            entry.terms,
            tuple(map(_address, entry.files)),
            tuple(_SHA256[file] for file in entry.files),
            all(map(folder.has, entry.files)),
        )
        for name, entry in _ENTRIES.items()
    )


def load_dataset(
    name: str,
    *,
    protocol: str | None = None,
    seed: int | None = None,
    n_splits: int | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> Dataset:
    """Load a dataset by name, downloading its files on first use; `list_datasets` lists them.

    `protocol`, `seed` and `n_splits` choose the splits of basenp, chunking, segmentation and
    japanesene: "gpstruct" (the default) or "random", see the top of this module. `cache` is the
    folder for the files, instead of the one that the environment variable BAYESEQ_DATA names.

    >>> corpus = load_dataset("newswire")["train"]
    >>> len(corpus), sorted(set(corpus.labels[0]))
    (300, ['B-ORG', 'I-ORG', 'O'])
    """
    if name not in _ENTRIES:
        near = difflib.get_close_matches(name, _ENTRIES, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise DataError(f"there is no dataset {name!r}{hint}; the names are {', '.join(_ENTRIES)}")
    entry = _ENTRIES[name]
    request = _Request(_Cache(cache), protocol, seed, n_splits)
    if not entry.has_protocols and request[1:] != (None, None, None):
        raise DataError(
            f"{name} has fixed parts and takes no protocol, seed or n_splits; leave them out"
        )
    return Dataset(name, entry.description, entry.terms, *entry.load(request))
