"""ChatML: a conversation a line, `{"text": "<|im_start|>user\\n…<|im_end|>\\n…"}`, tools as Hermes and Qwen write them.

What users and tools wrote cannot end a turn: marks of ChatML inside of a text are broken up.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from hansard.exporters import training_data
from hansard.exporters.exporter import ExportedConversation
from hansard.exporters.report import ExportReport
from hansard.formats.parts import arguments_of

_MARK = re.compile(r"<\|(?=im_start\||im_end\||im_sep\||endoftext\|)")


class ChatMl:
    name = "chatml"
    title = "ChatML: {'text': '<|im_start|>…'} a line"
    media_type = training_data.NDJSON

    async def write(
        self, conversations: AsyncIterator[ExportedConversation], report: ExportReport
    ) -> AsyncIterator[bytes]:
        async for each in conversations:
            messages = await training_data.chat(each, report)
            if messages is None:
                continue
            turns = [_turn(message, report, each.conversation.id) for message in messages]
            yield training_data.line({"text": "".join(turns)})
            report.wrote(len(messages))


def _turn(message: dict[str, Any], report: ExportReport, id: str) -> str:
    role = "system" if message["role"] == "developer" else message["role"]
    text = _plain(training_data.text_of(message, report, id))
    if role == "tool":
        text = f"<tool_response>\n{text}\n</tool_response>"
    calls = [f"<tool_call>\n{_plain(_call(call))}\n</tool_call>" for call in message.get("tool_calls") or ()]
    return f"<|im_start|>{role}\n" + "\n".join([text, *calls] if text else calls) + "<|im_end|>\n"


def _plain(text: str) -> str:
    return _MARK.sub("<\u200b|", text)


def _call(call: dict[str, Any]) -> str:
    called = call.get("function") or call["custom"]
    arguments = arguments_of(called["arguments"]) if "arguments" in called else {"input": called["input"]}
    return msgspec.json.encode({"name": called["name"], "arguments": arguments}).decode()
