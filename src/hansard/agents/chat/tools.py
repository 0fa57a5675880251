"""Tools for a model: their names and parameters, and how a call is run."""

from __future__ import annotations

import inspect
import logging
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from hansard.errors import ValidationError
from hansard.formats import parts

logger = logging.getLogger("hansard.chat")


class Tool(Protocol):
    """A tool as a chat uses it: `store.search_tool(…)` is one, and `tool_of` makes one of a function."""

    @property
    def name(self) -> str: ...

    def openai(self) -> dict[str, Any]: ...

    def anthropic(self) -> dict[str, Any]: ...

    async def run(self, arguments: Any) -> Any:
        """Returns the result: text, or any JSON value. `arguments` are a model's: JSON text, or decoded."""
        ...


class FunctionTool(Struct, frozen=True):
    """A function of yours, plain or async. The types of its parameters define what a model may pass."""

    name: str
    description: str
    parameters: dict[str, Any]
    function: Callable[..., Any]
    arguments: Any

    def openai(self) -> dict[str, Any]:
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}

    def anthropic(self) -> dict[str, Any]:
        return {"name": self.name, "description": self.description, "input_schema": self.parameters}

    async def run(self, arguments: Any) -> Any:
        given = parts.arguments_of(arguments) if isinstance(arguments, str) else arguments
        if not isinstance(given, Mapping):
            raise ValidationError("the arguments are not a JSON object")
        found = msgspec.convert(dict(given), self.arguments, strict=False)
        result = self.function(**{name: getattr(found, name) for name in found.__struct_fields__})
        return await result if inspect.isawaitable(result) else result


def tools_of(values: Iterable[Any]) -> list[Tool]:
    """Returns tools whose names are all different: models call them by name, and providers refuse a name twice."""
    tools = [tool_of(value) for value in values]
    names = [tool.name for tool in tools]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValidationError(f"several tools are called {', '.join(sorted(twice))}: a model calls a tool by its name")
    return tools


def tool_of(value: Any) -> Tool:
    """Returns a tool, or makes one of a function from its name, docstring and parameter types."""
    if hasattr(value, "openai") and hasattr(value, "run"):
        return value  # type: ignore[no-any-return]
    if not callable(value):
        raise ValidationError(f"a tool must be a function, or have name, openai, anthropic and run, not {value!r}")
    name = parts.plain_name(getattr(value, "__name__", type(value).__name__))
    shape = _shape(value, name)
    schemas, components = msgspec.json.schema_components([shape], ref_template="#/$defs/{name}")
    (schema,) = schemas
    schema = components.pop(schema["$ref"].rpartition("/")[2]) if "$ref" in schema else schema
    schema.pop("title", None)
    if components:
        schema["$defs"] = components
    return FunctionTool(name, inspect.getdoc(value) or "", schema, value, shape)


def _shape(function: Callable[..., Any], name: str) -> Any:
    hints = typing.get_type_hints(function)
    fields: list[Any] = []
    for each in inspect.signature(function).parameters.values():
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD, each.POSITIONAL_ONLY):
            raise ValidationError(f"tool {name!r} has a parameter {each.name!r} that a model cannot pass by name")
        hint = hints.get(each.name, Any)
        fields.append((each.name, hint) if each.default is each.empty else (each.name, hint, each.default))
    # In the order of the function; parameters with a default may come first.
    return msgspec.defstruct(name, fields, kw_only=True)


async def run_tool(tools: Mapping[str, Tool], name: str, arguments: Any) -> tuple[Any, bool]:
    """Returns the output of a call, and whether it is an error. The model gets a failure too, and can try again."""
    tool = tools.get(name)
    if tool is None:
        return f"There is no tool {name!r}: there are {', '.join(tools) or 'none'}.", True
    try:
        output = await tool.run(arguments)
        return (output if isinstance(output, str) else msgspec.to_builtins(output)), False
    except Exception as error:
        logger.info("tool %s failed", name, exc_info=error)
        return f"Error: {type(error).__name__}: {error}", True
