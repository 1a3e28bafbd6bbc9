"""Pages taken apart, with nothing but the standard library."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Node:
    """An element: its tag, attributes, children and text, in order."""

    def __init__(self, tag: str, attributes: dict[str, str | None]) -> None:
        self.tag, self.attributes = tag, attributes
        self.children: list[Node | str] = []

    def all(self, tag: str = "", cls: str = "") -> list[Node]:
        """The elements below with a tag and a class, in the order of the page."""
        found = []
        for child in self.children:
            if isinstance(child, Node):
                classes = (child.attributes.get("class") or "").split()
                if tag in ("", child.tag) and (not cls or cls in classes):
                    found.append(child)
                found += child.all(tag, cls)
        return found

    @property
    def text(self) -> str:
        return "".join(c if isinstance(c, str) else c.text for c in self.children)

    def __getitem__(self, name: str) -> str:
        return self.attributes[name] or ""


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Node("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), f"{tag} has an attribute twice: {names}"
        node = Node(tag, dict(attrs))
        self.open[-1].children.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def parsed(html: str) -> Node:
    """The page as a tree; every element must be closed where it should be."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == [reader.root], f"<{reader.open[-1].tag}> is never closed"
    return reader.root


def skeleton(node: Node) -> list[Any]:
    """Tags and names of attributes: all of a page that text must not change. Isolates, which set
    apart letters that run the other way, do not count."""
    found: list[Any] = []
    for child in node.children:
        if isinstance(child, Node) and child.tag == "bdi":
            assert not child.attributes
            found += skeleton(child)
        elif isinstance(child, Node):
            found.append([child.tag, sorted(child.attributes), skeleton(child)])
    return found


def assert_harmless(html: str) -> Node:
    """No script, nothing fetched, no id twice, links only to what is there."""
    root = parsed(html)
    everything = root.all()
    assert not {node.tag for node in everything} & {
        "script",
        "iframe",
        "object",
        "embed",
        "link",
        "base",
        "form",
        "img",
    }
    ids = [node["id"] for node in everything if "id" in node.attributes]
    assert len(set(ids)) == len(ids)
    for node in everything:
        for name, value in node.attributes.items():
            assert not name.startswith("on"), name
            if name in ("href", "xlink:href", "src"):
                assert value is not None
                inside = value.startswith("#") and value[1:] in ids
                assert inside or value.startswith("data:image/png;base64,"), value
            if name == "style":
                assert "url(" not in (value or "").replace("url(#", "")
    return root


HOSTILE = [
    "<script>document.title='owned'</script>",
    '"><img src=x onerror="document.title=1">',
    "' onmouseover='x",
    "&lt;b&gt;&amp;",
    "\u202eabc\u2066",
    "a\u200bb",
    "x" * 5000,
    "new\nline",
    "\x1b[31mred\x00",
    "",
    "</span></p></div>",
    "<!--",
    "]]>",
    "\ud800",
]


def words_of(node: Node) -> list[str]:
    """The tokens: all that has a title, but for the tags of entities."""
    return [span.text for span in titled(node)]


def titled(node: Node) -> list[Node]:
    spans = node.all("span")
    return [x for x in spans if "title" in x.attributes and "bq-l" not in classes(x)]


def classes(node: Node) -> str:
    return node.attributes.get("class") or ""


def cells(node: Node) -> list[list[str]]:
    return [[c.text for c in row.children if isinstance(c, Node)] for row in node.all("tr")]


def section(page: str, name: str) -> Node:
    (found,) = [s for s in parsed(page).all("section") if s["id"] == name]
    return found


def sections(page: str) -> list[str]:
    return [s["id"] for s in parsed(page).all("section")]
