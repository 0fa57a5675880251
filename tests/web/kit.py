"""A reader of the pages over HTTP: it parses pages, follows links and fills in forms, without scripts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin

import httpx
from tests.server.kit import Served, serving
from tests.wait import PATIENCE

from hansard import sync
from hansard.server.settings import Settings

_VOID = {"meta", "link", "input", "br", "hr", "img"}


class Node:
    """An element, or with the tag `#text` a text."""

    def __init__(self, tag: str, attributes: dict[str, str | None], parent: Node | None = None) -> None:
        self.tag = tag
        self.attributes = attributes
        self.parent = parent
        self.children: list[Node] = []
        self.own = ""

    @property
    def text(self) -> str:
        return self.own + "".join(child.text for child in self.children)

    @property
    def words(self) -> str:
        """The text as a reader sees it."""
        return " ".join(self.text.split())

    def __getitem__(self, name: str) -> str:
        return self.attributes.get(name) or ""

    def walk(self) -> Iterator[Node]:
        yield self
        for child in self.children:
            yield from child.walk()

    def all(self, tag: str | None = None, cls: str | None = None, **attributes: str) -> list[Node]:
        return [
            node
            for node in self.walk()
            if (tag is None or node.tag == tag)
            and (cls is None or cls in node["class"].split())
            and all(node.attributes.get(name.replace("_", "-")) == value for name, value in attributes.items())
        ]

    def one(self, tag: str | None = None, cls: str | None = None, **attributes: str) -> Node:
        found = self.all(tag, cls, **attributes)
        assert len(found) == 1, f"{len(found)} of {tag} {cls} {attributes}"
        return found[0]


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = self._at = Node("#root", {})

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, dict(attrs), self._at)
        self._at.children.append(node)
        if tag not in _VOID:
            self._at = node

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._at.children.append(Node(tag, dict(attrs), self._at))

    def handle_endtag(self, tag: str) -> None:
        at: Node | None = self._at
        while at is not None and at.tag != tag:
            at = at.parent
        if at is not None and at.parent is not None:
            self._at = at.parent

    def handle_data(self, data: str) -> None:
        text = Node("#text", {}, self._at)
        text.own = data
        self._at.children.append(text)


def parse(html: str) -> Node:
    parser = _Parser()
    parser.feed(html)
    parser.close()
    return parser.root


class Page:
    """An answer, parsed."""

    def __init__(self, reader: Reader, answer: httpx.Response) -> None:
        self._reader = reader
        self.answer = answer
        self.status = answer.status_code
        self.url = str(answer.url)
        self.tree = parse(answer.text)

    def __contains__(self, words: str) -> bool:
        return words in self.tree.words

    @property
    def main(self) -> Node:
        return self.tree.one("main")

    def messages(self) -> list[Node]:
        return self.tree.all("article", "message")

    def follow(self, words: str) -> Page:
        """Clicks on a link."""
        links = [link for link in self.tree.all("a") if link.words == words]
        assert links, f"there is no link {words!r}"
        return self._reader.get(urljoin(self.url, links[0]["href"]))

    def send(self, action: str, **given: Any) -> Page:
        """Fills in the first form whose address ends so, and sends it."""
        forms = [form for form in self.tree.all("form") if form["action"].endswith(action)]
        assert forms, f"there is no form for {action!r}"
        form = forms[0]
        fields = {node["name"]: node["value"] for node in form.all("input", type="hidden")}
        fields |= {node["name"]: _chosen(node) for node in form.all("select")}
        url = urljoin(self.url, form["action"])
        if form["method"] == "get":
            return self._reader.get(url, params=fields | given)
        return self._reader.post(url, fields | given)


def _chosen(select: Node) -> str:
    options = select.all("option")
    chosen = [each for each in options if "selected" in each.attributes] or options
    return str(chosen[0].attributes.get("value", chosen[0].words))


class Reader:
    """A reader with a browser without scripts."""

    def __init__(self, address: str, **options: Any) -> None:
        self.client = httpx.Client(base_url=address, follow_redirects=True, timeout=PATIENCE, **options)
        self.address = address

    def get(self, url: str, **options: Any) -> Page:
        return Page(self, self.client.get(url, **options))

    def post(self, url: str, fields: dict[str, Any], **options: Any) -> Page:
        return Page(self, self.client.post(url, data=fields, **options))

    def piece(self, url: str, **options: Any) -> Page:
        return self.get(url, headers={"Hansard-Piece": "1"}, **options)

    def sign_in(self, key: str, url: str = "/") -> Page:
        return self.get(url).send("sign-in", key=key)


class Site:
    """A server with its store and a reader."""

    def __init__(self, api: Served, store: sync.Store, reader: Reader) -> None:
        self.api = api
        self.store = store
        self.reader = reader
        self.get = reader.get
        self.piece = reader.piece


@contextmanager
def sited(url: str, settings: Settings | None = None) -> Iterator[Site]:
    """A site over a store that other processes may open too."""
    with serving(url, settings) as api, sync.connect(url) as store:
        reader = Reader(api.address)
        try:
            yield Site(api, store, reader)
        finally:
            reader.client.close()
