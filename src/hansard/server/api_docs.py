"""The OpenAPI document as a page of HTML, at `/api/docs` and on the site of the documentation.

Rendered here, without a script and without a file from elsewhere, so that it also works where a browser reaches nothing
but this server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from html import escape
from typing import Any

from hansard.server.web import static_files

Json = dict[str, Any]


@cache
def _style() -> str:
    return static_files.address("api.css")


def page(document: Json) -> str:
    """Returns the page at `/api/docs`."""
    title = f"{document['info']['title']} {document['info']['version']}: REST API"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(title)}</title><link rel="stylesheet" href="../{_style()}"></head>'
        f'<body class="api"><header><h1>{escape(title)}</h1>'
        '<p><a href="v1/openapi.json">OpenAPI document</a> · <a href="../">Conversations</a></p></header>'
        f"<nav>{''.join(_contents(document))}</nav><main>{fragment(document)}</main></body></html>"
    )


def _contents(document: Json) -> Iterator[str]:
    for tag in _by_tag(document):
        yield f'<a href="#{escape(tag)}">{escape(tag)}</a> '
    yield '<a href="#schemas">schemas</a>'


def fragment(document: Json) -> str:
    """Returns every operation and schema, to be put into a page."""
    return "".join(_fragment(document))


def _fragment(document: Json) -> Iterator[str]:
    for tag, operations in _by_tag(document).items():
        yield f'<h2 id="{escape(tag)}">{escape(tag)}</h2>'
        for method, path, operation in operations:
            yield from _operation(document, method, path, operation)
    yield '<h2 id="schemas">schemas</h2>'
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield f'<details id="schema-{escape(name)}"><summary><code>{escape(name)}</code></summary>'
        yield f"{_text(schema)}{_fields(schema)}</details>"


def _by_tag(document: Json) -> dict[str, list[tuple[str, str, Json]]]:
    found: dict[str, list[tuple[str, str, Json]]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            found.setdefault(operation["tags"][0], []).append((method.upper(), path, operation))
    return found


def _operation(document: Json, method: str, path: str, operation: Json) -> Iterator[str]:
    yield (
        f'<details id="{escape(operation["operationId"])}"><summary><b class="{method.lower()}">{method}</b> '
        f"<code>{escape(path)}</code> <span>{_words(operation['summary'])}</span></summary>"
    )
    yield f"<p>Scope: <code>{escape(operation['x-scope'])}</code></p>"
    parameters = [_resolved(document, each) for each in operation["parameters"]]
    if parameters:
        rows = ((each["name"], each["in"], _type(each["schema"]), each.get("required"), each) for each in parameters)
        yield f"<h4>Parameters</h4>{_table(('name', 'in', 'type', ''), map(_parameter, rows))}"
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"<h4>Body: <code>{escape(media)}</code></h4><p>{_type(content['schema'])}</p>"
    answers = [_answer(status, _resolved(document, each)) for status, each in operation["responses"].items()]
    yield f"<h4>Responses</h4>{_table(('status', 'meaning', 'content'), answers)}</details>"


def _parameter(row: tuple[str, str, str, bool | None, Json]) -> tuple[str, str, str, str]:
    name, place, kind, required, each = row
    return f"<code>{escape(name)}</code>{_required(required)}", place, kind, _text(each) or _text(each["schema"])


def _answer(status: str, response: Json) -> tuple[str, str, str]:
    content = response.get("content", {})
    kinds = ", ".join(
        f"<code>{escape(media)}</code> {_type(each.get('schema', {}))}" for media, each in content.items()
    )
    return f"<code>{escape(status)}</code>", _words(response.get("description", "")), kinds


def _resolved(document: Json, each: Json) -> Json:
    if "$ref" not in each:
        return each
    found: Any = document
    for part in each["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return dict(found)


def _fields(schema: Json) -> str:
    required = schema.get("required", ())
    rows = [
        (f"<code>{escape(name)}</code>{_required(name in required)}", _type(each), _text(each))
        for name, each in schema.get("properties", {}).items()
    ]
    return _table(("field", "type", ""), rows) if rows else f"<p>{_type(schema)}</p>"


def _required(is_required: bool | None) -> str:
    return " <em>required</em>" if is_required else ""


def _text(each: Json) -> str:
    return _words(each.get("description", ""))


def _words(text: str) -> str:
    """Returns a text of the document, in which backticks mark code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _type(schema: Json) -> str:
    """Returns the type of a value in words, with links to the schemas that it names."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#schema-{name}">{name}</a>'
    if "anyOf" in schema or "oneOf" in schema:
        return " or ".join(dict.fromkeys(map(_type, schema.get("anyOf") or schema["oneOf"])))
    if "enum" in schema:
        return " or ".join(f"<code>{escape(str(value))}</code>" for value in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"array of {_type(schema.get('items') or {})}" if schema.get("items") is not False else "array"
    words = [escape(str(kind)), escape(schema.get("format", "")), *_limits(schema)]
    return " ".join(word for word in words if word)


def _limits(schema: Json) -> Iterator[str]:
    for name, word in (("minimum", "≥"), ("maximum", "≤"), ("minLength", "length ≥"), ("maxLength", "length ≤")):
        if name in schema:
            yield f"{word} {schema[name]}"
    if "default" in schema:
        yield f"= <code>{escape(str(schema['default']))}</code>"


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
