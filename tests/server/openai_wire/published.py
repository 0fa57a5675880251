"""OpenAI's published OpenAPI document, by which every answer of the wire is checked.

It is part of a crate, which cargo fetches by its name and version; what comes is checked by its hash. Where cargo or
the crate cannot be had, the tests say so, and only the types of the SDK check the answers.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from referencing import Registry
from referencing.jsonschema import DRAFT202012
from tests.server.openai_wire.kept import DOCUMENT, DOCUMENT_HASH

CRATE = "openai-oxide"
VERSION = "0.17.0"
JSON = "application/json"
EVENTS = "text/event-stream"
_ADDRESS = "urn:openai"


class Absent(Exception):
    """The document cannot be had here, and why."""


@cache
def document() -> dict[str, Any]:
    """The document, with its unions made decidable."""
    kept = DOCUMENT
    if not kept.exists():
        whole = yaml.load(_fetched(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=kept.parent, delete=False, encoding="utf-8") as scratch:
            json.dump(whole, scratch, default=str)
        Path(scratch.name).rename(kept)
    whole = json.loads(kept.read_text(encoding="utf-8"))
    schemas = whole["components"]["schemas"]
    return {"paths": _plain(whole["paths"], schemas), "components": {"schemas": _plain(schemas, schemas)}}


def _fetched() -> bytes:
    cargo = shutil.which("cargo")
    if cargo is None:
        raise Absent("OpenAI's document comes with a crate, and there is no cargo")
    with tempfile.TemporaryDirectory() as nowhere:
        try:
            subprocess.run(
                [cargo, "info", "--quiet", f"{CRATE}@{VERSION}"],
                cwd=nowhere,
                capture_output=True,
                timeout=120,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise Absent(f"the crate {CRATE} {VERSION}, which holds OpenAI's document, cannot be fetched") from error
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    found = next(home.glob(f"registry/src/*/{CRATE}-{VERSION}/tests/openapi.yaml"), None)
    if found is None:
        raise Absent(f"cargo has not kept the sources of {CRATE} {VERSION}, which hold OpenAI's document")
    data = found.read_bytes()
    assert hashlib.sha256(data).hexdigest() == DOCUMENT_HASH, f"{CRATE} {VERSION} holds another document"
    return data


# JSON Schema knows no discriminators: without them an error in one of thirty types would be thirty errors.


def _plain(node: Any, schemas: dict[str, Any], *, is_part: bool = False) -> Any:
    if isinstance(node, list):
        return [_plain(each, schemas, is_part=is_part) for each in node]
    if not isinstance(node, dict):
        return node
    kept = {
        name: _plain(value, schemas, is_part=name == "allOf") for name, value in node.items() if name not in _LEFT_OUT
    }
    variants = kept.pop("oneOf", None) or kept.pop("anyOf", None)
    if variants is not None:
        by = node.get("discriminator", {}).get("propertyName")
        kept |= {"anyOf": variants} if by is None else _decided(variants, by, schemas)
    needed, known = kept.get("required"), kept.get("properties")
    if isinstance(needed, list) and isinstance(known, dict) and not is_part and "allOf" not in kept:
        # A slip of the document: a name that is required, and described nowhere. The SDKs do not have it either.
        kept["required"] = [name for name in needed if name in known]
    if node.get("nullable") is True:
        return {"anyOf": [kept, {"type": "null"}]}
    return kept


_LEFT_OUT = ("discriminator", "nullable", "$recursiveRef", "$recursiveAnchor", "example", "examples", "x-oaiMeta")


def _decided(variants: list[Any], by: str, schemas: dict[str, Any]) -> dict[str, Any]:
    """The variants, each only for what says that it is one. A type that the document does not know is let through."""
    chosen: dict[str, list[Any]] = {}
    for variant in variants:
        for value in _names(variant, by, schemas):
            chosen.setdefault(value, []).append(variant)
    rules = [{"if": {"properties": {by: {"const": value}}}, "then": {"anyOf": each}} for value, each in chosen.items()]
    return {"type": "object", "required": [by], "allOf": rules} if rules else {"anyOf": variants}


def _names(schema: dict[str, Any], by: str, schemas: dict[str, Any]) -> list[str]:
    """By what names a variant goes."""
    if "$ref" in schema:
        return _names(schemas[schema["$ref"].rsplit("/", 1)[1]], by, schemas)
    named = schema.get("properties", {}).get(by, {})
    own = named.get("enum") or ([named["const"]] if "const" in named else [])
    return own or [name for part in schema.get("allOf", ()) for name in _names(part, by, schemas)]


@cache
def _registry() -> Registry[Any]:
    resource = DRAFT202012.create_resource(document())
    registry: Registry[Any] = Registry().with_resource(_ADDRESS, resource)
    return registry


@cache
def _validator(pointer: str) -> jsonschema.Draft202012Validator:
    schema = {"$ref": f"{_ADDRESS}#{pointer}"}
    return jsonschema.Draft202012Validator(schema, registry=_registry())


def component(name: str, value: Any) -> list[str]:
    """What is wrong with a value that should be what a component of the document says."""
    return _wrong(f"/components/schemas/{name}", value)


def answer(method: str, path: str, media_type: str, value: Any) -> list[str]:
    """What is wrong with an answer of a route, or with an event of its stream."""
    place = [part.replace("~", "~0").replace("/", "~1") for part in (path, method.lower(), media_type)]
    return _wrong(f"/paths/{place[0]}/{place[1]}/responses/200/content/{place[2]}/schema", value)


def knows(method: str, path: str) -> bool:
    return method.lower() in document()["paths"].get(path, {})


def _wrong(pointer: str, value: Any) -> list[str]:
    found = _validator(pointer).iter_errors(value)
    return [_told(jsonschema.exceptions.best_match([error])) for error in found]


def _told(error: Any) -> str:
    return f"{error.json_path}: {error.message}"[:400]
