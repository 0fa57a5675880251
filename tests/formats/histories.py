"""Histories in every format: as providers write them, and the same with anything wrong somewhere inside."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

from hansard.model import ROLES, Message
from hansard.testing import strategies

PNG = "iVBORw0KGgo="
DATA_URL = f"data:image/png;base64,{PNG}"

IDS = st.sampled_from(["t1", "t2", "t 3!", ""])
TEXTS = st.sampled_from(["Hello", "  ", "", "Ünï 😀", "a\0b"]) | strategies.texts()
ARGUMENTS = st.sampled_from(["{}", '{"city": "Oslo"}', "not JSON", "[1]", ""])
OBJECTS = st.dictionaries(st.sampled_from(["a", "b"]), strategies.json_values(3), max_size=2)


def block(type: str, **fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    made = {name: value if isinstance(value, st.SearchStrategy) else st.just(value) for name, value in fields.items()}
    return st.fixed_dictionaries({"type": st.just(type), **made})


def some(*blocks: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.one_of(*blocks), max_size=4)


# --- each format as its provider writes it ----------------------------------------------------------------------------

CHAT_PIECES = (
    block("text", text=TEXTS),
    block("image_url", image_url=st.sampled_from([{"url": DATA_URL}, {"url": "https://x/y.png", "detail": "low"}])),
    block("input_audio", input_audio={"data": PNG, "format": "wav"}),
    block("file", file=st.sampled_from([{"file_id": "f1"}, {"file_data": DATA_URL, "filename": "a.pdf"}])),
    block("refusal", refusal=TEXTS),
)
CHAT_CALL = block(
    "function", id=IDS, function=st.fixed_dictionaries({"name": st.just("f"), "arguments": ARGUMENTS})
) | block("custom", id=IDS, custom={"name": "c", "input": "free text"})
CHAT = (
    st.fixed_dictionaries({"role": st.sampled_from(["user", "system"]), "content": TEXTS | some(*CHAT_PIECES)})
    | st.fixed_dictionaries(
        {"role": st.just("assistant"), "content": st.none() | TEXTS},
        optional={
            "tool_calls": st.lists(CHAT_CALL, max_size=3),
            "refusal": st.none() | TEXTS,
            "name": st.just("Ann"),
            "audio": st.none() | st.just({"id": "a1"}),
            "reasoning_content": TEXTS,
        },
    )
    | st.fixed_dictionaries(
        {"role": st.just("tool"), "tool_call_id": IDS, "content": TEXTS | some(CHAT_PIECES[0], CHAT_PIECES[1])}
    )
    | some(*CHAT_PIECES)
    | TEXTS
)

RESPONSES_PIECES = (
    block("input_text", text=TEXTS),
    block("output_text", text=TEXTS, annotations=[]),
    block("input_image", detail="auto", image_url=DATA_URL),
    block("input_image", file_id="f1"),
    block("input_file", file_id="f1"),
    block("refusal", refusal=TEXTS),
)
RESPONSES_ITEM = (
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system"]), "content": TEXTS | some(*RESPONSES_PIECES)}
    )
    | block("message", id="m1", role="assistant", status="completed", content=some(*RESPONSES_PIECES))
    | block("function_call", id="fc1", call_id=IDS, name="f", arguments=ARGUMENTS)
    | block("custom_tool_call", call_id=IDS, name="c", input=TEXTS)
    | block("function_call_output", call_id=IDS, output=TEXTS | some(*RESPONSES_PIECES[:3]))
    | block("custom_tool_call_output", call_id=IDS, output=TEXTS)
    | block("reasoning", id="rs1", summary=[{"type": "summary_text", "text": "hm"}], encrypted_content="gAAA")
    | block("web_search_call", id="ws1", status="completed", action={"type": "search", "query": "q"})
    | block("file_search_call", id="fs1", status="completed", queries=["q"])
    | block("code_interpreter_call", id="ci1", code="1", container_id="c", outputs=None, status="completed")
    | block("mcp_call", id="mcp1", arguments="{}", name="f", server_label="s", output="r")
    | block("image_generation_call", id="ig1", result=PNG, status="completed")
)
RESPONSES = RESPONSES_ITEM | st.lists(RESPONSES_ITEM, max_size=4)

ANTHROPIC_BLOCKS = (
    block("text", text=TEXTS),
    block("text", text=TEXTS, cache_control={"type": "ephemeral"}),
    block("image", source={"type": "base64", "media_type": "image/png", "data": PNG}),
    block("document", source={"type": "text", "media_type": "text/plain", "data": "words"}, title="T"),
    block("thinking", thinking=TEXTS, signature="sig=="),
    block("redacted_thinking", data="xyz"),
    block("tool_use", id=IDS, name="f", input=OBJECTS),
    block("tool_result", tool_use_id=IDS, content=TEXTS, is_error=st.booleans()),
    block(
        "tool_result",
        tool_use_id=IDS,
        content=[{"type": "text", "text": "r"}, {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}],
    ),
    block("server_tool_use", id="s1", name="web_search", input={}),
    block("web_search_tool_result", tool_use_id="s1", content=[]),
    block("code_execution_tool_result", tool_use_id="s1", content={}),
)
ANTHROPIC = (
    TEXTS
    | some(*ANTHROPIC_BLOCKS)
    | st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": some(*ANTHROPIC_BLOCKS)})
)

GEMINI_PARTS = (
    st.fixed_dictionaries({"text": TEXTS}),
    st.just({"text": "hm", "thought": True}),
    st.just({"text": "", "thoughtSignature": PNG}),
    st.fixed_dictionaries({"functionCall": st.fixed_dictionaries({"name": st.just("f"), "args": OBJECTS})}),
    st.fixed_dictionaries({"function_call": st.fixed_dictionaries({"id": IDS, "name": st.just("f")})}),
    st.fixed_dictionaries({"functionResponse": st.fixed_dictionaries({"name": st.just("f"), "response": OBJECTS})}),
    st.fixed_dictionaries({"function_response": st.fixed_dictionaries({"id": IDS, "name": st.just("f")})}),
    st.just({"inlineData": {"mimeType": "image/png", "data": PNG}}),
    st.just({"file_data": {"file_uri": "gs://x", "mime_type": "audio/wav"}}),
    st.just({"executableCode": {"code": "1", "language": "PYTHON"}}),
)
GEMINI = (
    st.fixed_dictionaries({"role": st.sampled_from(["user", "model"]), "parts": some(*GEMINI_PARTS)})
    | some(*GEMINI_PARTS)
    | TEXTS
)

LANGCHAIN_CALL = st.fixed_dictionaries({"name": st.just("f"), "args": OBJECTS, "id": IDS, "type": st.just("tool_call")})
LANGCHAIN_DATA = st.fixed_dictionaries(
    {"content": TEXTS | some(TEXTS, *CHAT_PIECES, block("image", base64=PNG, mime_type="image/png"))},
    optional={
        "tool_calls": st.lists(LANGCHAIN_CALL, max_size=2),
        "additional_kwargs": OBJECTS,
        "name": st.none() | st.just("Ann"),
        "id": st.just("run-1"),
        "usage_metadata": st.just({"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
    },
)
LANGCHAIN = (
    st.fixed_dictionaries({"type": st.sampled_from(["human", "ai", "system"]), "data": LANGCHAIN_DATA})
    | st.fixed_dictionaries(
        {"type": st.just("tool"), "data": st.fixed_dictionaries({"content": TEXTS, "tool_call_id": IDS})}
    )
    | st.builds(lambda data: {"type": "ai", **data}, LANGCHAIN_DATA)
    | st.builds(
        lambda data: {"lc": 1, "type": "constructor", "id": ["langchain", "AIMessage"], "kwargs": data}, LANGCHAIN_DATA
    )
)

PARTS = some(
    block("text", text=TEXTS),
    block("image", media_type="image/png", data=PNG),
    block("audio", media_type="audio/wav", data=PNG),
    block("document", text="words"),
    block("tool_call", id=IDS, name="f", arguments=OBJECTS | TEXTS),
    block("tool_result", id=IDS, output=TEXTS | OBJECTS | st.just([{"type": "text", "text": "r"}])),
    block("reasoning", text="hm", native={"type": "thinking"}, origin="anthropic"),
    block("refusal", text=TEXTS),
    block("other", native={"type": "odd"}, origin="x"),
)

REALTIME_PIECES = (
    block("input_text", text=TEXTS),
    block("output_text", text=TEXTS),
    block("input_audio", transcript=st.none() | TEXTS),
    block("output_audio", transcript=TEXTS, audio=PNG),
    block("input_image", image_url=DATA_URL, detail="auto"),
)
REALTIME = (
    block("message", id="item_1", role=st.sampled_from(["user", "assistant", "system"]), content=some(*REALTIME_PIECES))
    | block("function_call", id="item_2", call_id=IDS, name="f", arguments=st.just('{"a": 1}') | TEXTS)
    | block("function_call_output", id="item_3", call_id=IDS, output=TEXTS)
    | block("mcp_list_tools", id="item_4", server_label="s", tools=[])
)

CONTENTS = {
    "openai.chat": CHAT,
    "openai.responses": RESPONSES,
    "openai.realtime": REALTIME,
    "anthropic": ANTHROPIC,
    "gemini": GEMINI,
    "langchain": LANGCHAIN,
    "parts": PARTS,
    "text": TEXTS,
}


# --- the same, with anything wrong somewhere inside -------------------------------------------------------------------


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    if isinstance(value, dict):
        found += [place for key, item in value.items() for place in places(item, (*path, key))]
    elif isinstance(value, list):
        found += [place for index, item in enumerate(value) for place in places(item, (*path, index))]
    return found


@st.composite
def broken(draw: st.DrawFn, contents: st.SearchStrategy[Any]) -> Any:
    """Content in which one value, anywhere, was replaced by any JSON value."""
    content = copy.deepcopy(draw(contents))
    path = draw(st.sampled_from(places(content)))
    value = draw(strategies.json_values(4))
    if not path:
        return value
    place = content
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return content


@st.composite
def messages(draw: st.DrawFn, formats: st.SearchStrategy[str] | None = None, *, well_formed: bool = False) -> Message:
    format = draw(st.sampled_from(sorted(CONTENTS)) if formats is None else formats)
    content = CONTENTS[format]
    if not well_formed and format != "text":
        content = content | broken(content)
    metadata = draw(st.none() | st.builds(lambda id: {"tool_call_id": id}, IDS)) if format == "text" else None
    return Message(draw(st.sampled_from(ROLES)), draw(content), id="m", format=format, metadata=metadata)


def histories(*, well_formed: bool = False) -> st.SearchStrategy[list[Message]]:
    unknown = st.builds(
        Message, st.sampled_from(ROLES), strategies.json_values(), st.just("m"), format=st.just("klingon")
    )
    return st.lists(messages(well_formed=well_formed) | unknown, max_size=8)
