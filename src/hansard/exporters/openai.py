"""OpenAI's files for supervised fine-tuning: a conversation a line, `{"messages": […], "tools": […]}`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from hansard.exporters import training_data
from hansard.exporters.exporter import ExportedConversation
from hansard.exporters.report import ExportReport


class OpenAi:
    name = "openai"
    title = "OpenAI fine-tuning: {'messages', 'tools'} a line"
    media_type = training_data.NDJSON

    async def write(
        self, conversations: AsyncIterator[ExportedConversation], report: ExportReport
    ) -> AsyncIterator[bytes]:
        async for each in conversations:
            messages = await training_data.chat(each, report)
            if messages is None:
                continue
            example: dict[str, Any] = {"messages": messages}
            if tools := training_data.tools_of(each.conversation, messages):
                example["tools"] = tools
            yield training_data.line(example)
            report.wrote(len(messages))
