"""Ordered trees and directed acyclic graphs whose nodes are tokens, and files that hold them.

A `Tree` or a `DAG` is a sequence of tokens (`len`, iteration, indices) that also knows its edges: a
labeler for sequences takes it as the sequence of its nodes, `MarginalizedPerceptron` and
`MarginalizedSVM` with a `TreeKernel` or `DAGKernel` follow the edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, overload

import numpy as np

from bayeseq.data.columns import Corpus, Source, iter_lines, numbered_sentences, source_name
from bayeseq.data.errors import DataError


@dataclass(frozen=True, eq=True)
class DAG(Sequence[Any]):
    """A directed acyclic graph with a token (a feature list, a dict, any value) at each node.

    >>> graph = DAG([["a"], ["b"], ["c"]], [(0, 2), (1, 2)])
    >>> len(graph), graph[2], graph.edges
    (3, ['c'], ((0, 2), (1, 2)))
    """

    nodes: Sequence[Any]
    edges: Sequence[tuple[int, int]]
    """(parent, child), nodes counted from 0; no edge twice, and no circle"""

    def __post_init__(self) -> None:
        edges = tuple((int(a), int(b)) for a, b in self.edges)
        object.__setattr__(self, "nodes", tuple(self.nodes))
        object.__setattr__(self, "edges", edges)
        for a, b in edges:
            if not (0 <= a < len(self.nodes) and 0 <= b < len(self.nodes)):
                raise DataError(
                    f"edge ({a}, {b}) leads to no node; nodes are 0 to {len(self.nodes) - 1}"
                )
        if len(set(edges)) < len(edges):
            raise DataError("an edge is given twice; give each once")
        if (node := on_a_circle(len(self.nodes), edges)) is not None:
            raise DataError(f"the edges run in a circle through node {node}; turn or drop one")

    def __len__(self) -> int:
        return len(self.nodes)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...
    def __getitem__(self, index: Any) -> Any:
        """A node's token."""
        return self.nodes[index]

    def with_nodes(self, nodes: Iterable[Any]) -> Self:
        """The same edges between other tokens, one for each node."""
        nodes = tuple(nodes)
        if len(nodes) != len(self.nodes):
            raise DataError(f"{len(nodes)} tokens are given for {len(self.nodes)} nodes")
        return type(self)(nodes, self._edge_argument())

    def _edge_argument(self) -> Any:
        return self.edges


class Tree(DAG):
    """An ordered tree: every node but the root has one head, and children are in node order.

    >>> tree = Tree([["They"], ["ported"], ["it"]], [1, None, 1])
    >>> tree.root, tree.edges
    (1, ((1, 0), (1, 2)))
    """

    heads: tuple[int | None, ...]
    """The parent of each node, None at the root"""

    def __init__(self, nodes: Sequence[Any], heads: Sequence[int | None]) -> None:
        if len(heads) != len(nodes):
            raise DataError(f"{len(heads)} heads are given for {len(nodes)} nodes")
        object.__setattr__(self, "heads", tuple(heads))
        roots = [t for t, head in enumerate(heads) if head is None]
        if len(roots) > 1:
            raise DataError(
                f"nodes {roots[0]} and {roots[1]} are both roots; a tree has one: give them a "
                "common head, or use a DAG"
            )
        super().__init__(nodes, [(head, t) for t, head in enumerate(heads) if head is not None])

    @property
    def root(self) -> int:
        """The node without a head."""
        return self.heads.index(None)

    def _edge_argument(self) -> Any:
        return self.heads


def edges_of(X: Any) -> tuple[np.ndarray, ...] | None:
    """(E, 2) the edges of each structure of a list of trees or DAGs; None for plain sequences.

    >>> edges_of([Tree([["a"], ["b"]], [None, 0])])
    (array([[0, 1]]),)
    """
    if not isinstance(X, list | tuple) or not any(isinstance(x, DAG) for x in X):
        return None
    for i, x in enumerate(X):
        if not isinstance(x, DAG):
            raise DataError(
                f"sequence {i} is a {type(x).__name__}, and others are trees or graphs; make it "
                "one too, with bayeseq.Tree or bayeseq.DAG"
            )
    return tuple(np.array(x.edges, dtype=np.int64).reshape(-1, 2) for x in X)


def on_a_circle(n_nodes: int, edges: Iterable[tuple[int, int]]) -> int | None:
    """A node on a circle of edges, or None.

    >>> on_a_circle(4, [(0, 1), (1, 2), (2, 1), (2, 3)])
    1
    """
    parents: list[list[int]] = [[] for _ in range(n_nodes)]
    children: list[list[int]] = [[] for _ in range(n_nodes)]
    for a, b in edges:
        parents[b].append(a)
        children[a].append(b)
    waiting = [len(found) for found in parents]
    ready = [t for t in range(n_nodes) if not waiting[t]]
    left = set(range(n_nodes))
    while ready:
        node = ready.pop()
        left.discard(node)
        for child in children[node]:
            waiting[child] -= 1
            if not waiting[child]:
                ready.append(child)
    if not left:
        return None
    node, seen = min(left), set()  # every node left has a parent left: going up, one comes twice
    while node not in seen:
        seen.add(node)
        node = min(parent for parent in parents[node] if parent in left)
    circle = {node}
    while (node := min(parent for parent in parents[node] if parent in left)) not in circle:
        circle.add(node)
    return min(circle)


# ---- trees in column files ----------------------------------------------------------------------


def read_trees(
    source: Source,
    *,
    head_column: int = -1,
    encoding: str = "utf-8",
    comments: str | None = None,
) -> list[Tree]:
    """The dependency trees of a column file: a token a line, a blank line after each sentence.

    `head_column` holds the head of each token, counted from 1 in its sentence, 0 at the root. The
    nodes of a tree are the tuples of the other columns.

    >>> import io
    >>> (tree,) = read_trees(io.StringIO("Mr. NNP 2\\nVinken NNP 3\\nis VBZ 0\\n"))
    >>> tree.nodes[0], tree.heads
    (('Mr.', 'NNP'), (1, 2, None))
    """
    trees = []
    name = source_name(source)
    for lines, rows in numbered_sentences(source, encoding, comments, docstart=False):
        width = len(rows[0])
        if not -width <= head_column < width or width == 1:
            raise DataError(
                f"{name}, line {lines[0]}: {width} column{'s' if width != 1 else ''}, so there is "
                f"no head_column {head_column} beside a word"
            )

        def where(t: int, lines: Sequence[int] = lines) -> str:
            return f"{name}, line {lines[t]}"

        heads = _heads([row[head_column] for row in rows], where)
        k = head_column % width
        trees.append(_tree([row[:k] + row[k + 1 :] for row in rows], heads, where))
    return trees


def corpus_trees(corpus: Corpus, head: str = "head") -> list[Tree]:
    """The trees of a corpus one of whose columns holds heads, such as that of wsj-dependencies.

    >>> rows = [("Mr.", "2"), ("Vinken", "3"), ("is", "0")]
    >>> corpus_trees(Corpus([rows], columns=("word", "head")))[0].heads
    (1, 2, None)
    """
    if corpus.columns is None or head not in corpus.columns:
        raise DataError(f"the corpus has no column {head!r}; its columns are {corpus.columns}")
    k = corpus.columns.index(head)
    trees = []
    for i, rows in enumerate(corpus.sentences):

        def where(t: int, i: int = i) -> str:
            return f"sentence {i}, token {t}"

        heads = _heads([row[k] for row in rows], where)
        trees.append(_tree([row[:k] + row[k + 1 :] for row in rows], heads, where))
    return trees


def _heads(texts: Sequence[Any], where: Callable[[int], str]) -> list[int | None]:
    """Heads counted from 0, None at a root, from texts that count from 1."""
    heads: list[int | None] = []
    for t, text in enumerate(texts):
        if (
            not (isinstance(text, int) or (isinstance(text, str) and text.isascii()))
            or not str(text).isdecimal()
        ):
            raise DataError(
                f"{where(t)}: the head is {text!r}; it must be the number of a token of the "
                "sentence, or 0 at the root"
            )
        head = int(text)
        if head > len(texts):
            raise DataError(
                f"{where(t)}: the head is {head}, and the sentence has {len(texts)} tokens"
            )
        heads.append(head - 1 if head else None)
    return heads


def _tree(nodes: Sequence[Any], heads: Sequence[int | None], where: Callable[[int], str]) -> Tree:
    """The tree, or an error that says where it is none."""
    roots = [t for t, head in enumerate(heads) if head is None]
    if len(roots) > 1:
        raise DataError(
            f"{where(roots[1])}: a second root, after {where(roots[0])}; a tree has one: give it "
            "a head, or cut the sentence"
        )
    edges = [(head, t) for t, head in enumerate(heads) if head is not None]
    if (node := on_a_circle(len(nodes), edges)) is not None:
        raise DataError(
            f"{where(node)}: following heads from here leads back here; one of them must be 0"
            if not roots
            else f"{where(node)}: following heads from here leads back here, not to the root"
        )
    return Tree(nodes, heads)


# ---- CoNLL-U ------------------------------------------------------------------------------------


def read_conllu(source: Source, *, enhanced: bool = False, encoding: str = "utf-8") -> list[DAG]:
    """The trees of a CoNLL-U file; with `enhanced`, the graphs of its DEPS column as DAGs.

    A node is a dict of the columns that have a value: form, lemma, upos, xpos, feats (a list of
    "name=value"), deprel. Lines of multiword tokens hold no node; empty nodes (8.1) are nodes of
    the enhanced graph alone. Enhanced graphs may have circles, which are refused.
    Needs the package conllu: `pip install bayeseq[trees]`.

    >>> import io
    >>> text = "1 They they PRON _ _ 2 nsubj _ _|2 ran run VERB _ _ 0 root _ _|"
    >>> (tree,) = read_conllu(io.StringIO(text.replace(" ", "\\t").replace("|", "\\n")))
    >>> tree.heads, tree[1]["lemma"]
    ((1, None), 'run')
    """
    read: Callable[..., DAG] = _enhanced if enhanced else _basic
    name = source_name(source)
    found = []
    for lines, tokens in _conllu_sentences(source, name, encoding):

        def where(t: int, lines: Sequence[int] = lines) -> str:
            return f"{name}, line {lines[t]}"

        found.append(read(tokens, where))
    return found


def _basic(tokens: Sequence[Any], where: Callable[[int], str]) -> Tree:
    words = [t for t, token in enumerate(tokens) if isinstance(token["id"], int)]

    def place(t: int) -> str:
        return where(words[t])

    heads = _heads([tokens[t]["head"] for t in words], place)
    return _tree([_node(tokens[t]) for t in words], heads, place)


def _enhanced(tokens: Sequence[Any], where: Callable[[int], str]) -> DAG:
    kept = [t for t, token in enumerate(tokens) if not _is_range(token["id"])]
    number = {tokens[t]["id"]: k for k, t in enumerate(kept)}
    edges = []
    for k, t in enumerate(kept):
        deps = tokens[t]["deps"]
        if not isinstance(deps, list):
            raise DataError(
                f"{where(t)}: no enhanced dependencies in the DEPS column; read the basic tree "
                "with enhanced=False"
            )
        for _, head in deps:
            if head == 0:
                continue
            if head not in number:
                raise DataError(f"{where(t)}: the head {head!r} is no node of the sentence")
            edges.append((number[head], k))
    edges = sorted(set(edges))  # two relations to one head are one edge
    if (node := on_a_circle(len(kept), edges)) is not None:
        raise DataError(
            f"{where(kept[node])}: the enhanced dependencies run in a circle; drop an edge of it, "
            "or read the basic tree with enhanced=False"
        )
    return DAG([_node(tokens[t]) for t in kept], edges)


def _is_range(identity: Any) -> bool:
    return isinstance(identity, tuple) and identity[1] == "-"


def _node(token: Any) -> dict[str, Any]:
    node = {
        name: token[name]
        for name in ("form", "lemma", "upos", "xpos", "deprel")
        if token[name] is not None
    }
    if token["feats"]:
        node["feats"] = [f"{name}={value}" for name, value in token["feats"].items()]
    return node


def _conllu_sentences(
    source: Source, name: str, encoding: str
) -> Iterator[tuple[list[int], list[Any]]]:
    """The line number of each token of a sentence, and the tokens."""
    try:
        import conllu
    except ImportError as error:
        raise DataError(
            "CoNLL-U files are read by the package conllu, which is not installed; "
            "install bayeseq[trees]"
        ) from error
    block: list[str] = []
    lines: list[int] = []
    for number, line in enumerate([*iter_lines(source, encoding), ""], 1):
        if line.strip():
            if not line.startswith("#"):
                block.append(line)
                lines.append(number)
            continue
        if block:
            for k, text in enumerate(block):
                if text.count("\t") != 9:
                    raise DataError(
                        f"{name}, line {lines[k]}: {text.count(chr(9)) + 1} columns; a token of "
                        "CoNLL-U has 10, with a tab between them"
                    )
            try:
                (sentence,) = conllu.parse("\n".join(block) + "\n\n")
            except conllu.exceptions.ParseException as error:
                raise DataError(
                    f"{name}, lines {lines[0]} to {lines[-1]}: no CoNLL-U ({error})"
                ) from error
            yield lines, list(sentence)
        block, lines = [], []
