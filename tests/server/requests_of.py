"""A request for every route, built from its declaration, so that a new route is tested without further code."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from msgspec import inspect

from hansard.server.endpoints import NDJSON, Endpoint
from hansard.testing.contract.walls import SECRET

OWNER, ID, MESSAGE, BRANCH, KEY = "ada", "victim", "the-message", "side", "k"

PLACES = {
    "conversation_id": ID,
    "message_id": MESSAGE,
    "branch": BRANCH,
    "key": KEY,
    "user_id": OWNER,
    "tenant": "acme",
    "namespace": ["n"],
    "ids": [MESSAGE],
    "at": MESSAGE,
    "sha256": "a" * 64,
    "file_name": "chats.csv",
    "id": ID,
    "label": "theirs",
    "share_id": "share_x",
}
"""Values that name data behind the wall, by parameter."""

BODIES: dict[str, Any] = {
    "append_messages": {"messages": [{"role": "user", "content": "x", "id": MESSAGE}], "create": False},
    "replace_messages": {"messages": [{"role": "user", "content": "x"}]},
    "update_message": {"content": "x"},
    "update_conversation": {"title": "mine", "metadata": {"a": None}},
    "create_conversation": {"id": ID},
    "purge": {"older_than_seconds": 0},
    "write_records": {"writes": [{"namespace": ["n"], "key": KEY, "value": 1, "expected_revision": 1}]},
    "get_records": {"keys": [{"namespace": ["n"], "key": KEY}]},
    "search": {"query": SECRET, "all_branches": True, "read_from": "replica"},
    "summarize": {"keep": 0},
    "rebuild_summaries": {"keep": 0},
    "put_record": {"value": "x", "conversation_id": ID},
}
"""Bodies that would change data where the smallest body would not."""

LINES = b'{"role":"user","content":"x"}\n'
ROWS = f"conversation_id,role,content,id\n{ID},user,x,{MESSAGE}\n{ID},user,x,another\n".encode()


SMALLEST: dict[type[inspect.Type], Any] = {
    inspect.StrType: "x",
    inspect.IntType: 1,
    inspect.FloatType: 0.1,
    inspect.BoolType: False,
    inspect.DateTimeType: "2026-01-01T00:00:00Z",
    inspect.ListType: [],
    inspect.CollectionType: [],
    inspect.VarTupleType: [],
    inspect.DictType: {},
}


def made_up(kind: Any) -> Any:
    """Returns the smallest value of a type."""
    found = kind if isinstance(kind, inspect.Type) else inspect.type_info(kind)
    if isinstance(found, inspect.StructType):
        required = [field for field in found.fields if field.required]
        return {field.encode_name: PLACES.get(field.encode_name, made_up(field.type)) for field in required}
    return found.values[0] if isinstance(found, inspect.LiteralType) else SMALLEST.get(type(found))


def request_of(endpoint: Endpoint, **places: str) -> dict[str, Any]:
    """Returns the arguments of an `httpx` request that names data behind the wall."""
    names: dict[str, Any] = PLACES | places
    path = endpoint.path
    for name in endpoint.parameters:
        path = path.replace(f"{{{name}}}", quote(names[name], safe=""))
    query = {
        field.encode_name: names.get(field.encode_name, made_up(field.type))
        for field in inspect.type_info(endpoint.query).fields  # type: ignore[attr-defined]
        if field.required
    }
    request: dict[str, Any] = {"method": endpoint.method, "url": f"{path}?{urlencode(query, doseq=True)}".rstrip("?")}
    if endpoint.body is not None:
        body = BODIES.get(endpoint.name) or made_up(endpoint.body)
        raw = msgspec.json.encode(body)
        raw = raw.replace(ID.encode(), names["conversation_id"].encode())
        return request | {"content": raw, "headers": {"Content-Type": "application/json"}}
    if endpoint.consumes is not None:
        return request | {
            "content": LINES if endpoint.consumes == NDJSON else ROWS if endpoint.name == "import_file" else b"x",
            "headers": {"Content-Type": endpoint.consumes},
        }
    return request
