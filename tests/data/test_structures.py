"""Trees and DAGs, and the files that hold them: what is read, and what is refused and where."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayeseq import (
    DAG,
    Corpus,
    DataError,
    Tree,
    corpus_trees,
    load_dataset,
    read_conllu,
    read_trees,
)
from bayeseq.data import FeatureSpace
from bayeseq.data.structures import edges_of, on_a_circle

SENTENCES = """\
They\tPRP\t2
ported\tVBD\t0
it\tPRP\t2

Yes\tUH\t0
"""


def test_a_tree_is_a_sequence_that_knows_its_edges():
    tree = Tree([["a"], ["b"], ["c"], ["d"]], [2, 2, None, 0])
    assert list(tree) == [["a"], ["b"], ["c"], ["d"]]
    assert (len(tree), tree[3], tree[1:3]) == (4, ["d"], (["b"], ["c"]))
    assert tree.root == 2
    assert tree.edges == ((2, 0), (2, 1), (0, 3))
    other = tree.with_nodes("wxyz")
    assert (other.nodes, other.heads) == (("w", "x", "y", "z"), tree.heads)
    assert other == Tree("wxyz", [2, 2, None, 0])
    assert other != tree
    with pytest.raises(AttributeError):
        tree.nodes = ()
    with pytest.raises(DataError, match="3 tokens are given for 4 nodes"):
        tree.with_nodes("abc")


def test_features_of_trees_are_those_of_sequences():
    tree = Tree([["a"], {"b": 2.0}], [None, 0])
    space, matrix, lengths = FeatureSpace.learn([tree, DAG([["a", "c"]], [])])
    assert space.names == ("a", "b", "c")
    assert matrix.toarray().tolist() == [[1, 0, 0], [0, 2, 0], [1, 0, 1]]
    assert lengths.tolist() == [2, 1]


def test_edges_of_lists():
    tree = Tree("ab", [None, 0])
    found = edges_of([tree, DAG("c", [])])
    assert [edges.tolist() for edges in found] == [[[0, 1]], []]
    assert edges_of([["a"], ["b"]]) is None
    assert edges_of(iter([tree])) is None
    with pytest.raises(DataError, match="sequence 1 is a list"):
        edges_of([tree, ["a"]])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: DAG("ab", [(0, 1), (1, 0)]), "circle through node 0"),
        (lambda: DAG("a", [(0, 0)]), "circle through node 0"),
        (lambda: DAG("ab", [(0, 2)]), r"edge \(0, 2\) leads to no node; nodes are 0 to 1"),
        (lambda: DAG("ab", [(-1, 1)]), r"edge \(-1, 1\)"),
        (lambda: DAG("ab", [(0, 1), (0, 1)]), "given twice"),
        (lambda: Tree("ab", [None, None]), "nodes 0 and 1 are both roots"),
        (lambda: Tree("abc", [None, 2, 1]), "circle through node 1"),
        (lambda: Tree("ab", [1, 0]), "circle"),
        (lambda: Tree("ab", [None]), "1 heads are given for 2 nodes"),
        (lambda: Tree("ab", [None, 5]), r"edge \(5, 1\)"),
    ],
)
def test_structures_that_make_no_sense(make, words):
    with pytest.raises(DataError, match=words):
        make()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 7))
def test_circles_are_found_where_powers_say_so(seed, n):
    """A graph has a circle if and only if some power of its matrix has a diagonal entry."""
    A = np.random.default_rng(seed).random((n, n)) < 0.25
    found = on_a_circle(n, [(int(a), int(b)) for a, b in np.argwhere(A)])
    power, on_circle = A.astype(int), np.zeros(n, dtype=bool)
    for _ in range(n):
        on_circle |= np.diagonal(power) > 0
        power = np.minimum(power @ A, 1)
    assert (found is None) == (not on_circle.any())
    assert found is None or on_circle[found]


# ---- column files -------------------------------------------------------------------------------


def test_trees_of_a_column_file(tmp_path):
    path = tmp_path / "trees.dp"
    path.write_text(SENTENCES)
    first, second = read_trees(path)
    assert first.nodes == (("They", "PRP"), ("ported", "VBD"), ("it", "PRP"))
    assert (first.heads, second.heads) == ((1, None, 1), (None,))
    moved = "\n".join(" ".join(line.split("\t")[::-1]) for line in SENTENCES.split("\n"))
    assert read_trees(io.StringIO(moved), head_column=0)[0].heads == first.heads


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a A 0\nb B x\n", "line 2: the head is 'x'; it must be the number of a token"),
        ("a A 0\nb B -1\n", "line 2: the head is '-1'"),
        ("a A 0\nb B ١\n", "line 2: the head is '١'"),
        ("a A 0\nb B 3\n", "line 2: the head is 3, and the sentence has 2 tokens"),
        ("a A 0\n\nb B 0\nc C 0\n", "line 4: a second root, after <stream>, line 3"),
        ("a A 2\nb B 1\n", "line 1: following heads.*one of them must be 0"),
        ("a A 0\nb B 3\nc C 2\n", "line 2: following heads.*not to the root"),
        ("a A 0\nb B 2\n", "line 2: following heads"),
        ("a\nb\n", "line 1: 1 column, so there is no head_column -1"),
        ("a A 0\nb 1\n", "line 2: 3 columns are expected"),
        ("", "holds no token"),
    ],
)
def test_files_that_hold_no_trees(text, words):
    with pytest.raises(DataError, match=words):
        read_trees(io.StringIO(text))


def test_comments_do_not_move_line_numbers():
    with pytest.raises(DataError, match="line 4: the head is 'x'"):
        read_trees(io.StringIO("# one\na A 0\n# two\nb B x\n"), comments="#")


def test_trees_of_a_corpus():
    corpus = Corpus([[("a", "A", "0"), ("b", "B", "1")]], columns=("word", "tag", "head"))
    (tree,) = corpus_trees(corpus)
    assert (tree.nodes, tree.heads) == ((("a", "A"), ("b", "B")), (None, 0))
    with pytest.raises(DataError, match="no column 'governor'"):
        corpus_trees(corpus, "governor")
    broken = Corpus([[("a", "0")], [("b", "2")]], columns=("word", "head"))
    with pytest.raises(DataError, match="sentence 1, token 0: the head is 2"):
        corpus_trees(broken)


def test_every_dependency_tree_of_the_treebank(data_dir):
    trees = corpus_trees(load_dataset("wsj-dependencies", cache=data_dir)["all"])
    assert len(trees) == 3914
    assert trees[0].nodes[:2] == (("Pierre", "NNP"), ("Vinken", "NNP"))
    assert trees[0].heads[:2] == (1, 7)
    assert trees[0].root == 7


# ---- CoNLL-U ------------------------------------------------------------------------------------

CONLLU = """\
# sent_id = 1
# text = Vámonos ahora
1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tVamos\tir\tVERB\tv\tMood=Imp|Number=Plur\t0\troot\t0:root\t_
2\tnos\tnosotros\tPRON\t_\t_\t1\tobj\t1:obj|3:obj\t_
2.1\tya\tya\tADV\t_\t_\t_\t_\t1:advmod\t_
3\tahora\tahora\tADV\t_\t_\t1\tadvmod\t1:advmod|2.1:dep\t_

1\tSí\tsí\tINTJ\t_\t_\t0\troot\t0:root\t_
"""


def test_basic_trees_of_conllu(tmp_path):
    path = tmp_path / "a.conllu"
    path.write_text(CONLLU, encoding="utf-8")
    first, second = read_conllu(path)
    assert isinstance(first, Tree)
    assert first.heads == (None, 0, 0)
    assert first[0] == {
        "form": "Vamos",
        "lemma": "ir",
        "upos": "VERB",
        "xpos": "v",
        "deprel": "root",
        "feats": ["Mood=Imp", "Number=Plur"],
    }
    assert "xpos" not in first[1]
    assert len(second) == 1
    space, _, _ = FeatureSpace.learn([first])  # a node is a token as it is
    assert {"lemma:ir", "feats:Mood=Imp", "upos:PRON"} <= set(space.names)


def test_enhanced_graphs_of_conllu():
    first, second = read_conllu(io.StringIO(CONLLU), enhanced=True)
    assert type(first) is DAG
    assert [node["form"] for node in first] == ["Vamos", "nos", "ya", "ahora"]
    assert set(first.edges) == {(0, 1), (3, 1), (0, 2), (0, 3), (2, 3)}
    assert (len(second), second.edges) == (1, ())


def row(number, head, deps="_"):
    return f"{number}\tw\tw\tX\t_\t_\t{head}\tdep\t{deps}\t_\n"


@pytest.mark.parametrize(
    ("text", "enhanced", "words"),
    [
        ("# c\n" + row(1, 0) + row(2, 5), False, "line 3: the head is 5"),
        (row(1, 0) + row(2, "_"), False, "line 2: the head is None"),
        (row(1, 0) + "\n" + row(1, 0) + row(2, 0), False, "line 4: a second root"),
        (row(1, 2) + row(2, 1), False, "line 1: following heads"),
        (row(1, 0) + "2\tw\tw\n", False, "line 2: 3 columns; a token of CoNLL-U has 10"),
        (row("x", 0), False, "lines 1 to 1: no CoNLL-U"),
        (row(1, 0, "0:root") + row(2, 1), True, "line 2: no enhanced dependencies"),
        (row(1, 0, "0:root") + row(2, 1, "7:x"), True, "line 2: the head 7 is no node"),
        (row(1, 0, "2:a") + row(2, 1, "1:b"), True, "line 1: the enhanced .* circle"),
    ],
)
def test_conllu_that_is_refused(text, enhanced, words):
    with pytest.raises(DataError, match=words):
        read_conllu(io.StringIO(text), enhanced=enhanced)


def test_conllu_is_asked_for(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "conllu", None)
    with pytest.raises(DataError, match=r"install bayeseq\[trees\]"):
        read_conllu(io.StringIO(CONLLU))
