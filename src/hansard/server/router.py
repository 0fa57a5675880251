"""Maps a method and a path to an endpoint.

Paths are matched before percent-decoding, so that ids may contain slashes: `a%2Fb` is one segment.
"""

from __future__ import annotations

from collections.abc import Iterable

from hansard.errors import NotFound, ValidationError
from hansard.server import parameters
from hansard.server.endpoints import Endpoint
from hansard.server.problems import HttpError


class _Node:
    __slots__ = ("children", "endpoints", "parameter")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node] = {}
        self.parameter: _Node | None = None
        self.endpoints: dict[str, Endpoint] = {}


class Router:
    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._root = _Node()
        for endpoint in endpoints:
            self._add(endpoint)

    def _add(self, endpoint: Endpoint) -> None:
        node = self._root
        for segment in _segments(endpoint.path.encode()):
            if segment.startswith(b"{"):
                node.parameter = node.parameter or _Node()
                node = node.parameter
            else:
                node = node.children.setdefault(segment, _Node())
        if endpoint.method in node.endpoints:
            raise ValueError(f"{endpoint.method} {endpoint.path} is declared twice")
        node.endpoints[endpoint.method] = endpoint

    def find(self, method: str, raw_path: bytes) -> tuple[Endpoint, tuple[str, ...]]:
        """Returns the endpoint and the values of its path parameters."""
        node: _Node | None = self._root
        values: list[str] = []
        for segment in _segments(raw_path):
            assert node is not None
            child = node.children.get(segment)
            if child is None:
                child = node.parameter
                values.append(parameters.unquote(segment, "the path"))
            node = child
            if node is None:
                raise NotFound("there is no such route: see /api/v1/openapi.json")
        assert node is not None
        endpoint = node.endpoints.get(method)
        if endpoint is None:
            raise _other_methods(node, method)
        return endpoint, tuple(values)


def _segments(path: bytes) -> list[bytes]:
    return path.split(b"/")[1:]


def _other_methods(node: _Node, method: str) -> Exception:
    if not node.endpoints:
        return NotFound("there is no such route: see /api/v1/openapi.json")
    allowed = ", ".join(sorted(node.endpoints))
    error = ValidationError(f"this route does not support {method}: use {allowed}")
    return HttpError(405, error, ((b"allow", allowed.encode()),))
