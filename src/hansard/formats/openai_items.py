"""The items of OpenAI's Conversations and Responses: checked on input, completed on output.

One item is one message, stored as it came in the format `openai.responses`, with the fields that the API itself fills
in: `type`, `id`, `status`, and content as a list of parts. New types appear often, so an unknown one is stored as it
is. A message of another format is read as one item or several; several have the ids `msg_x.0`, `msg_x.1`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from hansard.formats.openai_responses import FORMAT
from hansard.model import Message, Status

INPUT_ROLES = ("user", "assistant", "system", "developer")
_OUTPUT_ROLES = (*INPUT_ROLES, "tool")
_STATUSES: dict[str, Status] = {"in_progress": "in_progress", "incomplete": "interrupted"}
_SHOWN = {"complete": "completed", "in_progress": "in_progress"}


class BadItem(Exception):
    """An invalid item: what is wrong, where, and OpenAI's name for it."""

    def __init__(self, what: str, param: str, code: str) -> None:
        super().__init__(what)
        self.param = param
        self.code = code


class _Kind(Struct, frozen=True):
    """What is known about a type of item."""

    prefix: str
    role: str = "assistant"
    needs: Mapping[str, Any] = {}
    """Required fields, and their types."""
    fills: Mapping[str, Any] = {}
    """Fields that the API fills in if they are missing."""


_DONE = {"status": "completed"}
_CALL = {"call_id": str}
_KINDS: dict[str, _Kind] = {
    "message": _Kind("msg_"),
    "function_call": _Kind("fc_", needs={"call_id": str, "name": str, "arguments": str}, fills=_DONE),
    "function_call_output": _Kind("fco_", "tool", {"output": (str, list)}, _DONE),
    "reasoning": _Kind("rs_", needs={"summary": list}),
    "file_search_call": _Kind("fs_", needs={"queries": list}, fills=_DONE),
    "web_search_call": _Kind("ws_", needs={"action": dict}, fills=_DONE),
    "image_generation_call": _Kind("ig_", fills={"result": None, **_DONE}),
    "computer_call": _Kind("cu_", needs=_CALL, fills={"pending_safety_checks": [], **_DONE}),
    "computer_call_output": _Kind("cuo_", "tool", {"call_id": str, "output": dict}, _DONE),
    "code_interpreter_call": _Kind("ci_", needs={"container_id": str}, fills={"code": None, "outputs": None, **_DONE}),
    "local_shell_call": _Kind("lsh_", needs={"call_id": str, "action": dict}, fills=_DONE),
    "local_shell_call_output": _Kind("lsho_", "tool", {"output": str}),
    "shell_call": _Kind("sh_", needs={"call_id": str, "action": dict}, fills={"environment": None, **_DONE}),
    "shell_call_output": _Kind("sho_", "tool", {"call_id": str, "output": list}, {"max_output_length": None, **_DONE}),
    "apply_patch_call": _Kind("apc_", needs={"call_id": str, "operation": dict}, fills=_DONE),
    "apply_patch_call_output": _Kind("apco_", "tool", _CALL, _DONE),
    "mcp_list_tools": _Kind("mcpl_", needs={"server_label": str, "tools": list}),
    "mcp_approval_request": _Kind("mcpr_", needs={"server_label": str, "name": str, "arguments": str}),
    "mcp_approval_response": _Kind("mcpa_", "tool", {"approval_request_id": str, "approve": bool}),
    "mcp_call": _Kind("mcp_", needs={"server_label": str, "name": str, "arguments": str}),
    "custom_tool_call": _Kind("ctc_", needs={"call_id": str, "name": str, "input": str}),
    "custom_tool_call_output": _Kind("ctco_", "tool", {"call_id": str, "output": (str, list)}),
    "tool_search_call": _Kind("tsc_", fills={"arguments": {}, "execution": "server", **_DONE}),
    "tool_search_output": _Kind("tso_", "tool", {"tools": list}, {"execution": "server", **_DONE}),
    "additional_tools": _Kind("at_", "developer", {"role": str, "tools": list}),
    "configuration_update": _Kind("cfg_", "developer"),
    "program": _Kind("prog_", needs={"call_id": str, "code": str, "fingerprint": str}),
    "program_output": _Kind("progo_", "tool", {"call_id": str, "result": str}, _DONE),
    "compaction": _Kind("cmp_", needs={"encrypted_content": str}),
}
UNKNOWN_PREFIX = "item_"
_UNKNOWN = _Kind(UNKNOWN_PREFIX)
KINDS = tuple(_KINDS)
"""The known types of items."""

_PIECES: dict[str, dict[str, Any]] = {
    "input_text": {"text": str},
    "output_text": {"text": str},
    "text": {"text": str},
    "summary_text": {"text": str},
    "reasoning_text": {"text": str},
    "refusal": {"refusal": str},
}
_PIECE_FILLS: dict[str, dict[str, Any]] = {
    "output_text": {"annotations": [], "logprobs": []},
    "input_image": {"detail": "auto"},
    "computer_screenshot": {"detail": "auto"},
}
_NAMES = {str: "a string", list: "an array", dict: "an object", bool: "a boolean", (str, list): "a string or an array"}


# Input


def kind_of(item: Mapping[str, Any]) -> str:
    """Returns the type of an item: one that has only a role is a message."""
    kind = item.get("type")
    return kind if isinstance(kind, str) else "message" if "role" in item else "item_reference"


def prefix_of(item: Mapping[str, Any]) -> str:
    """Returns how the id of such an item begins."""
    return _KINDS.get(kind_of(item), _UNKNOWN).prefix


def checked(item: Any, where: str) -> dict[str, Any]:
    """Returns an item as the API stores it: as it came, with missing fields filled in. `BadItem` if it is invalid."""
    if not isinstance(item, dict):
        raise _wrong_type(where, "an object", item)
    if not isinstance(item.get("type"), str | None) or item.get("type") == "":
        raise _wrong_type(f"{where}.type", "a string that is not empty", item["type"])
    if not isinstance(item.get("status"), str | None):
        raise _wrong_type(f"{where}.status", "a string", item["status"])
    if not isinstance(item.get("id"), str | None) or item.get("id") == "":
        raise _wrong_type(f"{where}.id", "a string that is not empty", item["id"])
    kind = kind_of(item)
    if kind == "item_reference" and item.get("id") is None:
        raise BadItem(f"Missing required parameter: '{where}.type'.", f"{where}.type", "missing_required_parameter")
    if kind == "item_reference":
        raise BadItem(
            f"Item '{item.get('id')}' is a reference: a conversation keeps items, so send the item itself.",
            f"{where}.type",
            "invalid_value",
        )
    if kind == "message":
        return _checked_message(item, where)
    known = _KINDS.get(kind, _UNKNOWN)
    for name, wanted in known.needs.items():
        _require(item, name, wanted, where)
    return _filled(item, known.fills)


def _checked_message(item: dict[str, Any], where: str) -> dict[str, Any]:
    role = _require(item, "role", str, where)
    if role not in INPUT_ROLES:
        allowed = ", ".join(f"'{each}'" for each in INPUT_ROLES)
        raise BadItem(f"Invalid value: '{role}'. Supported values are: {allowed}.", f"{where}.role", "invalid_value")
    content = _require(item, "content", (str, list), where)
    if isinstance(content, list):
        for number, piece in enumerate(content):
            _check_piece(piece, f"{where}.content[{number}]")
    filled = item if isinstance(item.get("type"), str) else {**item, "type": "message"}
    return _with_pieces(_filled(filled, _DONE))


def _check_piece(piece: Any, where: str) -> None:
    if not isinstance(piece, dict):
        raise _wrong_type(where, "an object", piece)
    kind = _require(piece, "type", str, where)
    for name, wanted in _PIECES.get(kind, {}).items():
        _require(piece, name, wanted, where)


def _require(item: dict[str, Any], name: str, wanted: Any, where: str) -> Any:
    if name not in item:
        raise BadItem(f"Missing required parameter: '{where}.{name}'.", f"{where}.{name}", "missing_required_parameter")
    if not isinstance(item[name], wanted):
        raise _wrong_type(f"{where}.{name}", _NAMES[wanted], item[name])
    return item[name]


def _wrong_type(where: str, wanted: str, given: Any) -> BadItem:
    names = {
        dict: "an object",
        list: "an array",
        str: "a string",
        bool: "a boolean",
        int: "an integer",
        float: "a number",
    }
    got = names.get(type(given), "null")
    return BadItem(f"Invalid type for '{where}': expected {wanted}, but got {got} instead.", where, "invalid_type")


def message_of(item: dict[str, Any], id: str) -> Message:
    """Returns the message that stores a checked item."""
    kind = item["type"]
    role = item["role"] if kind == "message" else _KINDS.get(kind, _UNKNOWN).role
    status = item.get("status")
    return Message(
        role,
        item if item.get("id") == id else {**item, "id": id},
        id,
        format=FORMAT,
        status=_STATUSES.get(status, "complete") if isinstance(status, str) else "complete",
    )


# Output


def items_of(message: Message) -> list[dict[str, Any]]:
    """Returns a message as items: at least one, in any format."""
    if message.format == FORMAT:
        content = message.content
        if is_item(content):
            return [_completed(content, message, message.id)]
        if isinstance(content, list) and content and all(map(is_item, content)):
            return _numbered(content, message)
    from hansard.formats.registry import convert

    return _numbered(list(convert([message], FORMAT, dangling="keep")), message)


def is_item(content: Any) -> bool:
    """Whether it is an item of any type, and not a part of one."""
    if not isinstance(content, dict):
        return False
    return "role" in content or (isinstance(content.get("type"), str) and content["type"] not in _PIECE_TYPES)


_PIECE_TYPES = frozenset({*_PIECES, *_PIECE_FILLS, "input_file", "input_audio"})


def _numbered(items: list[dict[str, Any]], message: Message) -> list[dict[str, Any]]:
    if not items:
        # The format cannot represent any of its content: show its text.
        items = [{"role": message.role, "content": message.text}]
    if len(items) == 1:
        return [_completed(items[0], message, message.id)]
    return [_completed(item, message, f"{message.id}.{number}") for number, item in enumerate(items)]


def _completed(item: dict[str, Any], message: Message, id: str) -> dict[str, Any]:
    kind = kind_of(item)
    whole = {**item, "type": kind, "id": id}
    if kind == "message":
        if item.get("role") not in _OUTPUT_ROLES:
            whole["role"] = message.role if message.role in _OUTPUT_ROLES else "assistant"
        whole["status"] = item.get("status") or _SHOWN.get(message.status, "incomplete")
        return _with_pieces(whole)
    return _filled(whole, _KINDS.get(kind, _UNKNOWN).fills)


def _filled(item: dict[str, Any], fills: Mapping[str, Any]) -> dict[str, Any]:
    missing = {
        name: value
        for name, value in fills.items()
        if item.get(name) is None and (value is not None or name not in item)
    }
    return {**item, **missing} if missing else item


def _with_pieces(item: dict[str, Any]) -> dict[str, Any]:
    """Returns a message whose content is a list of parts, each completed as the API does it."""
    content = item.get("content")
    if isinstance(content, list):
        pieces = [_whole_piece(piece, item) for piece in content]
        if all(one is other for one, other in zip(pieces, content, strict=True)):
            return item
    else:
        pieces = [] if content is None else [_text_piece(content, item)]
    return {**item, "content": pieces}


def _whole_piece(piece: Any, item: dict[str, Any]) -> Any:
    if not isinstance(piece, dict):
        return _text_piece(piece, item)
    fills = _PIECE_FILLS.get(piece.get("type", ""))
    return piece if fills is None else _filled(piece, fills)


def _text_piece(text: Any, item: dict[str, Any]) -> dict[str, Any]:
    from hansard.formats.parts import as_text

    plain = as_text(text)
    if item["role"] == "assistant":
        return {"type": "output_text", "text": plain, "annotations": [], "logprobs": []}
    return {"type": "input_text", "text": plain}


def is_piece(value: Any) -> bool:
    """Whether it is a part of a message, of a known type."""
    return isinstance(value, dict) and value.get("type") in _PIECE_TYPES


# Ids of one item of several

_PART = re.compile(r"(.+)\.(\d{1,6})", re.DOTALL)


def split_id(id: str) -> tuple[str, int] | None:
    """Returns the message and the number that the id of one item of several names."""
    found = _PART.fullmatch(id)
    return None if found is None else (found[1], int(found[2]))
