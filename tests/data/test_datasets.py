"""Named datasets, against the files as a few stupid lines read them, and the cache."""

import ast
import functools
import hashlib
import logging
import re
import shutil
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pooch
import pytest
import requests

from bayeseq.data import DataError, Dataset, load_dataset
from bayeseq.data import datasets as module
from bayeseq.data.datasets import DatasetInfo, Split, list_datasets


class Task(NamedTuple):
    """What is known of a decoded task."""

    folder: str
    encoding: str
    n_columns: int
    n_sentences: int
    n_features: int
    n_labels: int
    n_missing: int
    n_train: int
    n_test: int


TASKS = {
    "basenp": Task("basenp", "utf-8", 2, 823, 2143, 3, 0, 150, 150),
    "chunking": Task("chunking", "utf-8", 2, 823, 2112, 14, 19, 50, 50),
    "segmentation": Task("seg", "utf-8", 2, 36, 691, 2, 0, 20, 16),
    "japanesene": Task("JapaneseNE", "euc-jp", 3, 500, 6030, 17, 3, 50, 50),
}
NAMES = [
    "newswire",
    *TASKS,
    "conll2000",
    "conll2002-esp",
    "conll2002-ned",
    "wsj-pos",
    "wsj-dependencies",
    "prosody",
]


@functools.cache
def load(name: str, folder: Path) -> Dataset:
    return load_dataset(name, cache=folder)


def read(text: str) -> list[list[list[str]]]:
    """Sentences of rows of columns, split on ASCII spaces and tabs."""
    sentences: list[list[list[str]]] = [[]]
    for line in text.split("\n"):
        row = [value for value in line.strip("\r").replace("\t", " ").split(" ") if value]
        if row and row[0] != "-DOCSTART-":
            sentences[-1].append(row)
        elif sentences[-1]:
            sentences.append([])
    return [sentence for sentence in sentences if sentence]


def read_file(path: Path, encoding: str) -> list[list[list[str]]]:
    return read(path.read_bytes().decode(encoding))


def read_zip(path: Path, member: str) -> list[list[list[str]]]:
    with zipfile.ZipFile(path) as archive:
        return read(archive.read(member).decode("utf-8"))


def expand(template: str, rows: list[list[str]], t: int) -> list[str]:
    """The unigram features of a token, macro by macro."""
    out = []
    for line in template.split("\n"):
        if not line.startswith("U"):
            continue
        for macro in re.findall(r"%x\[-?\d+,\d+\]", line):
            offset, column = map(int, re.findall(r"-?\d+", macro))
            i = t + offset
            if i < 0:
                value = f"_B{i}"
            elif i >= len(rows):
                value = f"_B+{i - len(rows) + 1}"
            else:
                value = rows[i][column]
            line = line.replace(macro, value, 1)
        out.append(line)
    return out


# The decoded tasks


@pytest.mark.parametrize("name", TASKS)
def test_task_has_the_published_sizes(name: str, data_dir: Path) -> None:
    task = TASKS[name]
    dataset = load(name, data_dir)
    assert list(dataset.parts) == ["all"]
    assert len(dataset["all"]) == task.n_sentences
    assert dataset["all"].n_columns == task.n_columns
    assert {len(row) for rows in dataset["all"].sentences for row in rows} == {task.n_columns}
    assert dataset.vocabulary is not None
    assert len(dataset.vocabulary) == len(set(dataset.vocabulary)) == task.n_features
    assert list(dataset.vocabulary) == sorted(dataset.vocabulary)
    tags = Counter(tag for tags in dataset.labels("all") for tag in tags)
    assert tags.pop(None, 0) == task.n_missing
    assert len(tags) == task.n_labels
    sizes = [(len(train), len(test)) for train, test in dataset.splits]
    assert sizes == [(task.n_train, task.n_test)] * 5


def test_missing_tokens_of_all_tasks_are_22() -> None:
    assert sum(task.n_missing for task in TASKS.values()) == 22


@pytest.mark.parametrize("name", TASKS)
def test_task_is_the_file(name: str, data_dir: Path) -> None:
    folder, encoding = data_dir / "crfpp" / TASKS[name].folder, TASKS[name].encoding
    train = read_file(folder / "train.data", encoding)
    rows = read_file(folder / "test.data", encoding)
    if name == "segmentation":
        assert len(rows) == 19
        rows += train[-17:]
    seen = {row[-1] for sentence in train for row in sentence}
    dataset = load(name, data_dir)
    assert dataset["all"].sentences == [[tuple(row[:-1]) for row in s] for s in rows]
    expected = [[row[-1] if row[-1] in seen else None for row in s] for s in rows]
    assert dataset.labels("all") == expected


@pytest.mark.parametrize("name", ["basenp", "segmentation"])
def test_vocabulary_and_features_against_loops(name: str, data_dir: Path) -> None:
    folder = data_dir / "crfpp" / TASKS[name].folder
    template = (folder / "template").read_text("utf-8")
    counts: Counter[str] = Counter()
    for rows in read_file(folder / "train.data", "utf-8"):
        for t in range(len(rows)):
            counts.update(expand(template, rows, t))
    vocabulary = {string for string, count in counts.items() if count >= 3}
    dataset = load(name, data_dir)
    assert set(dataset.vocabulary or ()) == vocabulary
    X = dataset.features("all")
    assert len(X) == len(dataset["all"])
    for i, rows in enumerate(read_file(folder / "test.data", "utf-8")[:20]):
        expected = [
            [string for string in expand(template, rows, t) if string in vocabulary]
            for t in range(len(rows))
        ]
        assert X[i] == expected


@pytest.mark.parametrize("name", TASKS)
def test_gpstruct_splits_are_the_published_rows(name: str, data_dir: Path) -> None:
    n_train = TASKS[name].n_train
    n = n_train + TASKS[name].n_test
    text = (data_dir / "pygpstruct" / f"datasplit.n_data={n}.txt").read_text("ascii")
    rows = [[int(number) - 1 for number in line.split()] for line in text.splitlines()]
    assert len(rows) == 5
    dataset = load_dataset(name, protocol="gpstruct", cache=data_dir)
    for row, (train, test) in zip(rows, dataset.splits, strict=True):
        assert sorted(row) == list(range(n))
        assert train.tolist() == row[:n_train]
        assert test.tolist() == row[n_train:]


@pytest.mark.parametrize("name", TASKS)
def test_random_splits(name: str, data_dir: Path) -> None:
    n_all, n_train, n_test = (getattr(TASKS[name], k) for k in ("n_sentences", "n_train", "n_test"))

    def splits(**options: Any) -> tuple[Split, ...]:
        return load_dataset(name, protocol="random", cache=data_dir, **options).splits

    drawn = splits(seed=7)
    assert len(drawn) == 10
    for train, test in drawn:
        assert (len(train), len(test)) == (n_train, n_test)
        together = {*train.tolist(), *test.tolist()}
        assert len(together) == n_train + n_test
        assert together <= set(range(n_all))
    if n_all > n_train + n_test:  # drawn from all sentences, not from the first ones
        assert max(int(index.max()) for split in drawn for index in split) >= n_train + n_test
    assert len({tuple(train.tolist()) for train, _ in drawn}) == 10

    again = splits(seed=7, n_splits=3)
    for a, b in zip(drawn, again, strict=False):
        np.testing.assert_array_equal(np.concatenate(a), np.concatenate(b))
    assert len(again) == 3
    assert splits(seed=8)[0].train.tolist() != drawn[0].train.tolist()
    assert splits(seed=0)[0].train.tolist() == splits()[0].train.tolist()


def test_split_indexes_the_part(data_dir: Path) -> None:
    dataset = load("segmentation", data_dir)
    train = dataset["all"][dataset.splits[0].train]
    assert len(train) == 20
    assert train.sentences[0] == dataset["all"].sentences[dataset.splits[0].train[0]]


@pytest.mark.parametrize(
    "options",
    [{"seed": 1}, {"n_splits": 2}, {"protocol": "gpstruct", "seed": 0}],
)
def test_gpstruct_takes_no_seed(options: dict[str, Any], data_dir: Path) -> None:
    with pytest.raises(DataError, match="five fixed splits"):
        load_dataset("basenp", cache=data_dir, **options)


def test_bad_protocols(data_dir: Path) -> None:
    with pytest.raises(DataError, match="no protocol 'rnadom'; give 'gpstruct' or 'random'"):
        load_dataset("basenp", protocol="rnadom", cache=data_dir)
    with pytest.raises(DataError, match="n_splits is 0"):
        load_dataset("basenp", protocol="random", n_splits=0, cache=data_dir)


@pytest.mark.parametrize("options", [{"protocol": "random"}, {"seed": 0}, {"n_splits": 3}])
def test_protocol_for_a_dataset_without(options: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="newswire has fixed parts and takes no protocol"):
        load_dataset("newswire", **options)


# The other datasets


@pytest.mark.parametrize(
    ("name", "archive", "parts"),
    [
        (
            "conll2000",
            "conll2000",
            {"train": ("train.txt", 8936, 211727), "test": ("test.txt", 2012, 47377)},
        ),
        (
            "conll2002-esp",
            "conll2002",
            {
                "train": ("esp.train", 8323, 264715),
                "testa": ("esp.testa", 1915, 52923),
                "testb": ("esp.testb", 1517, 51533),
            },
        ),
        (
            "conll2002-ned",
            "conll2002",
            {
                "train": ("ned.train", 15806, 202644),
                "testa": ("ned.testa", 2895, 37687),
                "testb": ("ned.testb", 5195, 68875),
            },
        ),
    ],
)
def test_conll(
    name: str, archive: str, parts: dict[str, tuple[str, int, int]], data_dir: Path
) -> None:
    dataset = load(name, data_dir)
    assert list(dataset.parts) == list(parts)
    for part, (member, n_sentences, n_tokens) in parts.items():
        corpus = dataset[part]
        assert (len(corpus), corpus.n_tokens) == (n_sentences, n_tokens)
        assert corpus.columns == ("word", "pos")
        if part == "train":  # the smaller parts are compared in full
            continue
        rows = read_zip(data_dir / "nltk" / f"{archive}.zip", f"{archive}/{member}")
        assert corpus.sentences == [[tuple(row[:2]) for row in sentence] for sentence in rows]
        assert corpus.labels == [[row[2] for row in sentence] for sentence in rows]
    total = sum(n_sentences for _, n_sentences, _ in parts.values())
    assert f"{total:,} sentences" in dataset.description


def test_conll2000_template(data_dir: Path) -> None:
    dataset = load("conll2000", data_dir)
    template = (data_dir / "crfpp" / "chunking" / "template").read_text("utf-8")
    rows = read_zip(data_dir / "nltk" / "conll2000.zip", "conll2000/test.txt")
    X = dataset.features("test")
    assert dataset.vocabulary is None
    for i in (0, 1000, 2011):
        assert X[i] == [expand(template, rows[i], t) for t in range(len(rows[i]))]


def test_spanish_start_is_the_one_of_the_papers(data_dir: Path) -> None:
    assert load("conll2002-esp", data_dir)["train"][:300].n_tokens == 8541


def test_wsj_pos_and_dependencies_are_the_same_sentences(data_dir: Path) -> None:
    pos = load("wsj-pos", data_dir)
    trees = load("wsj-dependencies", data_dir)["all"]
    assert len(pos["all"]) == len(trees) == 3914
    assert pos["all"].n_tokens == trees.n_tokens == 94084
    assert pos["all"].tokens == trees.tokens
    assert pos.labels("all") == trees.column("tag")
    assert trees.labels is None
    for heads in trees.column("head"):
        assert {int(head) for head in heads} <= set(range(len(heads) + 1))
        assert "0" in heads


def test_wsj_pos_against_the_tagged_files(data_dir: Path) -> None:
    """The tagged files have the same words, and tags that later corrections changed in few cases.

    They also have a few sentences and quotes that were never parsed, hence the search onwards.
    """
    brackets = {"-LRB-": "(", "-RRB-": ")", "-LCB-": "{", "-RCB-": "}"}
    pos = load("wsj-pos", data_dir)
    tagged: list[tuple[str, str]] = []
    with zipfile.ZipFile(data_dir / "nltk" / "treebank.zip") as archive:
        for member in sorted(archive.namelist()):
            if re.fullmatch(r".*/tagged/.*\.pos", member):
                for pair in archive.read(member).decode("ascii").split():
                    if "/" in pair:
                        word, _, tag = pair.rpartition("/")
                        tagged.append((word.replace("\\/", "/"), tag.split("|")[0]))
    assert len(tagged) == 94200
    onwards = iter(tagged)
    skipped = changed = 0
    for rows, labels in pos["all"]:
        for (form,), label in zip(rows, labels or (), strict=True):
            wanted = {brackets.get(form, form), "U.S" if form == "U.S." else form}
            found = next(onwards)
            while found[0] not in wanted:
                found = next(onwards)
                skipped += 1
            changed += brackets.get(str(label), label) != found[1]
    assert skipped + len(list(onwards)) == 94200 - 94084
    assert changed <= 130


def test_wsj_words_have_no_escapes(data_dir: Path) -> None:
    pos = load("wsj-pos", data_dir)
    words = {word for words in pos["all"].tokens for word in words}
    assert not any("\\" in word for word in words)
    assert {"1/2", "Macmillan/McGraw-Hill", "-LRB-"} <= words
    tags = {tag for tags in pos.labels("all") for tag in tags}
    assert not any(tag is None or "|" in tag for tag in tags)
    assert "-NONE-" not in tags
    assert pos["all"].tokens[0][:4] == ["Pierre", "Vinken", ",", "61"]
    assert pos.labels("all")[0][:4] == ["NNP", "NNP", ",", "CD"]


def test_prosody(data_dir: Path) -> None:
    utterances: list[list[list[str]]] = []
    for line in (data_dir / "prosody" / "dev.txt").read_text("utf-8").split("\n"):
        if line.startswith("<file>"):
            utterances.append([])
        elif line:
            utterances[-1].append(line.split("\t"))
    dataset = load("prosody", data_dir)
    corpus = dataset["all"]
    assert corpus.columns == ("word", "boundary", "prominence_value", "boundary_value")
    assert corpus.sentences == [[(r[0], *r[2:]) for r in rows] for rows in utterances]
    labels = [[None if r[1] == "NA" else r[1] for r in rows] for rows in utterances]
    assert dataset.labels("all") == labels
    assert {tag for tags in labels for tag in tags} == {"0", "1", "2", None}
    assert (len(corpus), corpus.n_tokens) == (5727, 113599)


# Asking


def test_unknown_names() -> None:
    with pytest.raises(DataError, match=r"no dataset 'conl2000' \(did you mean 'conll2000'\?\); "):
        load_dataset("conl2000")
    with pytest.raises(DataError, match=r"no dataset 'zzz'; the names are newswire, basenp, "):
        load_dataset("zzz")


def test_parts_and_what_is_not_there(data_dir: Path) -> None:
    newswire = load_dataset("newswire")
    with pytest.raises(DataError, match="newswire has no part 'dev'; it has train, test"):
        newswire["dev"]
    with pytest.raises(DataError, match="newswire has no template"):
        newswire.features("train")
    trees = load("wsj-dependencies", data_dir)
    with pytest.raises(
        DataError, match=r"wsj-dependencies has no labels; its columns are \('word'"
    ):
        trees.labels("all")
    assert repr(trees) == "Dataset('wsj-dependencies': all 3,914 sentences)"
    tasks = load("segmentation", data_dir)
    assert repr(tasks) == "Dataset('segmentation': all 36 sentences, 5 splits)"


def test_list_datasets(data_dir: Path, tmp_path: Path) -> None:
    infos = list_datasets(cache=data_dir)
    assert [info.name for info in infos] == NAMES
    assert all(isinstance(info, DatasetInfo) and info.at_hand for info in infos)
    assert all(info.description and info.terms for info in infos)
    for info in infos:
        assert len(info.addresses) == len(info.sha256)
        assert all(re.fullmatch(r"https://.*/[0-9a-f]{40}/.*", url) for url in info.addresses)
    assert [info.name for info in list_datasets(cache=tmp_path) if info.at_hand] == ["newswire"]
    files = [path for path in data_dir.rglob("*") if path.is_file()]
    found = {hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    assert {hash for info in infos for hash in info.sha256} <= found


# The cache


PERMUTATIONS = "pygpstruct/datasplit.n_data=36.txt"


@pytest.fixture
def cache(data_dir: Path, tmp_path: Path) -> Path:
    """A folder with all files of segmentation but the permutations."""
    shutil.copytree(data_dir / "crfpp" / "seg", tmp_path / "crfpp" / "seg")
    return tmp_path


class Server:
    """In the place of pooch's downloader: gives bytes, or raises an error."""

    answer: bytes | Exception = b""
    asked: list[str] = []  # noqa: RUF012

    def __init__(self, progressbar: bool, timeout: float) -> None:
        assert progressbar
        assert 0 < timeout < 120

    def __call__(self, url: str, output_file: str, pooch: Any, check_only: bool = False) -> None:
        Server.asked.append(url)
        if isinstance(Server.answer, Exception):
            raise Server.answer
        Path(output_file).write_bytes(Server.answer)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> type[Server]:
    monkeypatch.setattr(pooch, "HTTPDownloader", Server)
    monkeypatch.setattr(Server, "asked", [])
    return Server


def files(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(p), p.stat().st_mtime_ns) for p in folder.rglob("*"))


def test_reading_writes_and_asks_nothing(data_dir: Path, server: type[Server]) -> None:
    before = files(data_dir)
    server.answer = AssertionError("no download is needed")
    for name in ("segmentation", "wsj-pos"):
        load_dataset(name, cache=data_dir)
    assert files(data_dir) == before
    assert server.asked == []


def test_environment_variable_names_the_folder(
    data_dir: Path, tmp_path: Path, server: type[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAYESEQ_DATA", str(data_dir))
    assert len(load_dataset("segmentation")["all"]) == 36
    server.answer = requests.ConnectionError("no route")
    with pytest.raises(DataError, match=re.escape(str(tmp_path / "crfpp" / "seg" / "template"))):
        load_dataset("segmentation", cache=tmp_path)  # the argument comes first
    monkeypatch.setenv("BAYESEQ_DATA", "")
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / project)
    with pytest.raises(DataError, match=re.escape(str(tmp_path / "bayeseq" / "crfpp"))):
        load_dataset("segmentation")


def test_download(
    cache: Path, data_dir: Path, server: type[Server], capfd: pytest.CaptureFixture[str]
) -> None:
    server.answer = (data_dir / PERMUTATIONS).read_bytes()
    logger = logging.getLogger("pooch")
    level = logger.level
    assert len(load_dataset("segmentation", cache=cache).splits) == 5
    assert (cache / PERMUTATIONS).read_bytes() == server.answer
    (address,) = server.asked
    assert address == (
        "https://raw.githubusercontent.com/sebastien-bratieres/pygpstruct/"
        "fdb31752ea521797fe13f07beebe21e32144cd03/data/datasplit.n_data=36.txt"
    )
    assert logger.level == level
    assert capfd.readouterr() == ("", "")
    load_dataset("segmentation", cache=cache)
    assert len(server.asked) == 1


def test_addresses() -> None:
    """One address of each source, written out."""
    infos = {info.name: info for info in list_datasets()}
    raw = "https://raw.githubusercontent.com"
    crfpp = f"{raw}/taku910/crfpp/c603ea6fc2cc8e5317d2754971bc787da383f7e5/example"
    assert infos["japanesene"].addresses[0] == f"{crfpp}/JapaneseNE/template"
    nltk = f"{raw}/nltk/nltk_data/5db857e6f7df11eabb5e5665836db9ec8df07e28/packages/corpora"
    assert infos["wsj-pos"].addresses == (f"{nltk}/treebank.zip",)
    assert infos["prosody"].addresses == (
        f"{raw}/Helsinki-NLP/prosody/75a56c5790ca487e2bb52380bd98722ff0c147b7/data/dev.txt",
    )


def assert_says_how_to_mend(error: DataError, path: Path, file: str) -> None:
    for part in (str(path), f"/{file.partition('/')[2]}", module._SHA256[file], "BAYESEQ_DATA"):
        assert part in str(error)


@pytest.mark.parametrize(
    "answer",
    [requests.ConnectionError("no route"), requests.Timeout("slow"), PermissionError("no"), b"?"],
)
def test_failed_download_leaves_nothing(
    answer: bytes | Exception, cache: Path, server: type[Server]
) -> None:
    server.answer = answer
    with pytest.raises(DataError, match="could not be downloaded") as caught:
        load_dataset("segmentation", cache=cache)
    assert_says_how_to_mend(caught.value, cache / PERMUTATIONS, PERMUTATIONS)
    assert [path for path in (cache / "pygpstruct").rglob("*") if path.is_file()] == []


def test_no_network(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real downloader, asked for an address at which nothing listens."""
    monkeypatch.setitem(module._UPSTREAM, "pygpstruct", "http://127.0.0.1:9/data")
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(DataError, match=r"Fetch http://127\.0\.0\.1:9/data/datasplit") as caught:
        load_dataset("segmentation", cache=cache)
    assert_says_how_to_mend(caught.value, cache / PERMUTATIONS, PERMUTATIONS)


def test_folder_that_cannot_be_made(tmp_path: Path, server: type[Server]) -> None:
    (tmp_path / "prosody").write_text("a file where a folder should be")
    with pytest.raises(DataError, match="could not be downloaded"):
        load_dataset("prosody", cache=tmp_path)
    assert server.asked == []


def test_wrong_hash_is_refused_and_kept(cache: Path, data_dir: Path, server: type[Server]) -> None:
    (cache / "pygpstruct").mkdir()
    path = cache / PERMUTATIONS
    wrong = b"8" + (data_dir / PERMUTATIONS).read_bytes()[1:]
    path.write_bytes(wrong)
    with pytest.raises(DataError, match="is not the one that is expected") as caught:
        load_dataset("segmentation", cache=cache)
    for part in (str(path), hashlib.sha256(wrong).hexdigest(), module._SHA256[PERMUTATIONS]):
        assert part in str(caught.value)
    assert "fdb31752ea521797fe13f07beebe21e32144cd03/data/datasplit" in str(caught.value)
    assert "remove it" in str(caught.value)
    assert path.read_bytes() == wrong
    assert server.asked == []
    info = {info.name: info for info in list_datasets(cache=cache)}["segmentation"]
    assert not info.at_hand


def test_a_folder_in_the_place_of_a_file(tmp_path: Path, server: type[Server]) -> None:
    (tmp_path / "prosody" / "dev.txt").mkdir(parents=True)
    with pytest.raises(DataError, match=r"dev\.txt: cannot be read"):
        load_dataset("prosody", cache=tmp_path)
    assert server.asked == []


def test_import_loads_no_downloader() -> None:
    top = ast.parse(Path(module.__file__).read_text("utf-8")).body
    names = [alias.name for node in top if isinstance(node, ast.Import) for alias in node.names]
    names += [str(node.module) for node in top if isinstance(node, ast.ImportFrom)]
    assert "zipfile" in names
    assert not {"pooch", "requests", "tqdm"} & {name.partition(".")[0] for name in names}


def test_members_come_sorted_and_named(data_dir: Path) -> None:
    cache = module._Cache(data_dir)
    with cache.members("nltk/dependency_treebank.zip", r".*\.dp") as members:
        found = [str(member.name) for member in members]
    assert found == sorted(found)
    assert len(found) == 199
