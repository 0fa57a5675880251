"""ShareGPT: an array of `{"id", "conversations": [{"from", "value"}, …]}`, with tools as LLaMA-Factory reads them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec

from hansard.exporters import training_data
from hansard.exporters.exporter import ExportedConversation
from hansard.exporters.json_array import json_array
from hansard.exporters.report import ExportReport
from hansard.formats.parts import arguments_of

_SPEAKERS = {"user": "human", "assistant": "gpt", "tool": "observation"}


class ShareGptExporter:
    name = "sharegpt"
    title = "ShareGPT: an array of {'id', 'conversations': [{'from', 'value'}]}"
    media_type = "application/json"

    async def write(
        self, conversations: AsyncIterator[ExportedConversation], report: ExportReport
    ) -> AsyncIterator[bytes]:
        async for piece in json_array(_objects(conversations, report)):
            yield piece


async def _objects(
    conversations: AsyncIterator[ExportedConversation], report: ExportReport
) -> AsyncIterator[dict[str, Any]]:
    async for each in conversations:
        messages = await training_data.chat(each, report)
        if messages is None:
            continue
        id = each.conversation.id
        made = {"id": id, "conversations": [turn for message in messages for turn in _turns(message, report, id)]}
        if tools := training_data.tools_of(each.conversation, messages):
            made["tools"] = msgspec.json.encode(tools).decode()
        yield made
        report.wrote(len(messages))


def _turns(message: dict[str, Any], report: ExportReport, id: str) -> Iterator[dict[str, str]]:
    text = training_data.text_of(message, report, id)
    if text or not message.get("tool_calls"):
        yield {"from": _SPEAKERS.get(message["role"], "system"), "value": text}
    calls = [_call(call) for call in message.get("tool_calls") or ()]
    if calls:
        yield {"from": "function_call", "value": msgspec.json.encode(calls[0] if len(calls) == 1 else calls).decode()}


def _call(call: dict[str, Any]) -> dict[str, Any]:
    if call.get("type") == "custom":
        return {"name": call["custom"]["name"], "arguments": {"input": call["custom"]["input"]}}
    return {"name": call["function"]["name"], "arguments": arguments_of(call["function"]["arguments"])}
