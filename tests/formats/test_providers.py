"""What each provider hears, case by case."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from tests.formats.histories import DATA_URL, PNG
from tests.formats.sdks import ANTHROPIC, accept, gemini

from hansard import Message, formats, sync
from hansard.errors import ValidationError
from hansard.formats.dialogue import CLOSED
from hansard.formats.parts import Reasoning

THINKING = {"type": "thinking", "thinking": "hm", "signature": "c2ln", "unknown": 1}
RESPONSES_REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA", "extra": [1]}


def text(role: str, content: str, **fields: Any) -> Message:
    return Message(role, content, id=f"m-{content}", format="text", **fields)


def parts(role: str, *content: dict[str, Any]) -> Message:
    return Message(role, list(content), id="m", format="parts")


def call(id: str, name: str = "f") -> dict[str, Any]:
    return {"type": "tool_call", "id": id, "name": name, "arguments": {"a": 1}}


def answer(id: str, output: Any = "done", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "id": id, "output": output, **fields}


# --- calls and results ------------------------------------------------------------------------------------------------


def order(messages: list[Message], **options: Any) -> list[str]:
    found = []
    for item in formats.to_openai_input(messages, **options):
        calls = [each["id"] for each in item.get("tool_calls", ())]
        found.append(f"{item['role']}:{item.get('tool_call_id') or ','.join(calls) or item['content']}")
    return found


def test_results_move_up_to_their_calls() -> None:
    history = [text("user", "q"), parts("assistant", call("1")), text("user", "hurry"), parts("tool", answer("1"))]
    assert order(history) == ["user:q", "assistant:1", "tool:1", "user:hurry"]


def test_parallel_calls_stay_together() -> None:
    calls = [parts("assistant", call("1")), parts("assistant", call("2"))]
    results = [parts("tool", answer("2")), parts("tool", answer("1"))]
    assert order([*calls, *results]) == ["assistant:1,2", "tool:1", "tool:2"]


def test_calls_one_after_the_other_stay_apart() -> None:
    history = [parts("assistant", call("1")), parts("tool", answer("1"))] * 2
    assert order(history) == ["assistant:1", "tool:1", "assistant:1_1", "tool:1_1"], "ids are made unique"


def test_what_dangles() -> None:
    history = [text("user", "q"), parts("assistant", {"type": "text", "text": "see"}, call("1"), call("2"))]
    history.append(parts("tool", answer("2"), answer("9")))
    assert order(history) == ["user:q", "assistant:2", "tool:2"]
    assert order(history, dangling="close") == ["user:q", "assistant:1,2", "tool:1", "tool:2"]
    assert formats.to_openai_input(history, dangling="close")[2]["content"] == CLOSED
    assert [loss.what for loss in formats.to_openai_input(history).losses] == ["tool_result", "tool_call"]
    assert order(history, dangling="keep") == ["user:q", "assistant:1,2", "tool:2", "tool:9"]


def test_odd_ids_become_plain_ones() -> None:
    history = [parts("assistant", call("a b:1"), call("")), parts("tool", answer("a b:1"), answer(""))]
    assert order(history) == ["assistant:a_b_1,call", "tool:a_b_1", "tool:call"]


def test_many_calls_of_one_name_are_cheap() -> None:
    gemini = [{"functionCall": {"name": "f"}}], [{"functionResponse": {"name": "f", "response": {}}}]
    history = [
        Message(role, content, format="gemini")
        for _ in range(2000)
        for role, content in zip(("assistant", "user"), gemini, strict=True)
    ]
    ids = [item["tool_call_id"] for item in formats.to_openai_input(history) if item["role"] == "tool"]
    assert len(set(ids)) == 2000


def test_a_text_result_that_names_its_call() -> None:
    result = text("tool", "rain", metadata={"tool_call_id": "1"})
    assert order([parts("assistant", call("1")), result]) == ["assistant:1", "tool:1"]


@pytest.mark.parametrize("role", ["tool", "tool_response", "mcp_response", "pcp_response"])
def test_a_result_that_names_no_call_is_a_users(role: str) -> None:
    for convert in (formats.to_openai_input, formats.to_anthropic_messages):
        assert list(convert([text(role, "rain")])) == [{"role": "user", "content": "rain"}]


# --- each provider ----------------------------------------------------------------------------------------------------


def test_reasoning_goes_back_untouched_to_its_own_provider() -> None:
    claude = Message("assistant", [THINKING, {"type": "text", "text": "Yes"}], id="c", format="anthropic")
    openai = Message(
        "assistant", [RESPONSES_REASONING, {"role": "assistant", "content": "No"}], id="o", format="openai.responses"
    )
    history = [text("user", "q"), claude, openai]
    assert formats.to_anthropic_messages(history)[1]["content"] == [
        THINKING,
        {"type": "text", "text": "Yes"},
        {"type": "text", "text": "No"},
    ]
    assert formats.to_openai_responses(history)[2:] == [RESPONSES_REASONING, {"role": "assistant", "content": "No"}]
    assert [loss.message_id for loss in formats.to_anthropic_messages(history).losses] == ["o"]
    assert [loss.message_id for loss in formats.to_openai_responses(history).losses] == ["c"]
    assert len(formats.to_openai_input(history).losses) == 2


def test_a_call_without_the_reasoning_that_led_to_it_has_no_id() -> None:
    """By its id OpenAI would ask for the reasoning, which a window may have left out."""

    def asked(*ids: str) -> list[dict[str, Any]]:
        return [
            {"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": "f", "arguments": "{}"} for id in ids
        ]

    def answers(*ids: str) -> list[Message]:
        return [
            Message("tool", {"type": "function_call_output", "call_id": id, "output": "x"}, format="openai.responses")
            for id in ids
        ]

    def model(*items: dict[str, Any]) -> list[Message]:
        return [Message("assistant", item, format="openai.responses") for item in items]

    led = [*model(RESPONSES_REASONING, *asked("1", "2")), *answers("1", "2")]
    assert [item.get("id") for item in formats.to_openai_responses(led)[:3]] == ["rs_1", "fc_1", "fc_2"]
    assert [item.get("id") for item in formats.to_openai_responses(led[1:])[:2]] == [None, None]
    later = [*led, Message("user", "And?"), *model(*asked("3")), *answers("3")]
    assert formats.to_openai_responses(later)[-2] == {
        "type": "function_call",
        "call_id": "3",
        "name": "f",
        "arguments": "{}",
    }


def test_reasoning_with_null_for_a_missing_field_is_reasoning() -> None:
    """As Codex writes it. A model that shows its reasoning has it in `content`."""
    item = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}], "content": None}
    shown = {"type": "reasoning", "id": "rs_2", "summary": [], "content": [{"type": "reasoning_text", "text": "so"}]}
    message = Message("assistant", [item, shown], format="openai.responses")
    found = formats.read(message).parts
    assert [part.text for part in found if isinstance(part, Reasoning)] == ["hm", "so"]
    history = [message, Message("assistant", {"role": "assistant", "content": "No"}, format="openai.responses")]
    present = {name: value for name, value in item.items() if value is not None}
    assert formats.to_openai_responses(history)[:2] == [present, shown]


def test_reasoning_goes_with_what_it_led_to() -> None:
    claude = Message(
        "assistant", [THINKING, {"type": "tool_use", "id": "1", "name": "f", "input": {}}], format="anthropic"
    )
    assert list(formats.to_anthropic_messages([text("user", "q"), claude])) == [{"role": "user", "content": "q"}]
    openai = Message("assistant", [RESPONSES_REASONING], format="openai.responses")
    assert list(formats.to_openai_responses([text("user", "q"), openai])) == [{"role": "user", "content": "q"}]


def test_anthropic_instructions_and_turns() -> None:
    history = [
        text("system", "one"),
        text("assistant", "first"),
        text("developer", "two"),
        text("user", "a"),
        text("user", "b"),
    ]
    converted = formats.to_anthropic_messages(history)
    assert converted.system == "one\n\ntwo"
    assert list(converted) == [
        {"role": "user", "content": "(The conversation so far.)"},
        {"role": "assistant", "content": "first"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ]
    cached = {"type": "text", "text": "one", "cache_control": {"type": "ephemeral"}}
    assert formats.to_anthropic_messages([Message("system", [cached], format="anthropic")]).system == [cached]


def test_the_same_format_keeps_what_we_do_not_know() -> None:
    message = {"role": "assistant", "content": "Hi", "reasoning_content": "hm", "x": {"y": 1}}
    assert list(formats.to_openai_input([Message("assistant", message, format="openai.chat")])) == [message]
    empty = {"role": "assistant", "content": "Hi", "tool_calls": None, "function_call": None, "audio": None}
    assert list(formats.to_openai_input([Message("assistant", empty, format="openai.chat")])) == [
        {"role": "assistant", "content": "Hi"}
    ]
    chain = {"type": "ai", "data": {"content": "Hi", "response_metadata": {"m": 1}, "extra": 1}}
    assert list(formats.to_langchain_messages([Message("assistant", chain, format="langchain")])) == [chain]
    thought = {"text": "Hi", "thoughtSignature": PNG}
    assert formats.to_gemini_contents([Message("assistant", [thought], format="gemini")])[1]["parts"] == [thought]


def test_what_a_provider_ran_itself_goes_back_to_it() -> None:
    use = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}}
    page = {"type": "web_search_result", "url": "https://x", "title": "X", "encrypted_content": "e"}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [page]}
    claude = Message("assistant", [use, found, {"type": "text", "text": "It is X."}], id="c", format="anthropic")
    search = {"type": "web_search_call", "id": "ws1", "status": "completed", "action": {"type": "search", "query": "q"}}
    openai = Message("assistant", [search, {"role": "assistant", "content": "Y"}], id="o", format="openai.responses")
    history = [text("user", "q"), claude, openai]
    assert formats.to_anthropic_messages(history)[1]["content"][:2] == [use, found]
    assert formats.to_openai_responses(history)[2] == search
    assert [loss.what for loss in formats.to_openai_responses(history).losses] == [
        "server_tool_use",
        "web_search_tool_result",
    ]
    half = Message("assistant", [use, {"type": "text", "text": "?"}], format="anthropic")
    assert formats.to_anthropic_messages([text("user", "q"), half])[1]["content"] == "?"


IMAGE = {"type": "image", "media_type": "image/png", "data": PNG}


@pytest.mark.parametrize(
    ("format", "expected"),
    [
        ("openai.chat", {"type": "image_url", "image_url": {"url": DATA_URL}}),
        ("openai.responses", {"type": "input_image", "detail": "auto", "image_url": DATA_URL}),
        ("anthropic", {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}),
        ("langchain", {"type": "image_url", "image_url": {"url": DATA_URL}}),
    ],
)
def test_an_image(format: str, expected: dict[str, Any]) -> None:
    (item,) = formats.convert([parts("user", IMAGE)], format)
    assert item.get("data", item)["content"] == [expected]
    native = Message("user", [expected], format=format if format != "langchain" else "openai.chat")
    (again,) = formats.convert([native], "parts")
    assert again["content"] == [IMAGE]


def test_an_image_for_gemini() -> None:
    (item,) = formats.to_gemini_contents([parts("user", IMAGE)])
    assert item["parts"] == [{"inline_data": {"mime_type": "image/png", "data": PNG}}]


def test_what_the_sdk_of_gemini_writes_is_read() -> None:
    # It writes bytes in the base64 alphabet for URLs.
    data, signed = bytes(range(256)), b"\xfb\xff"
    image = gemini.Part(inline_data=gemini.Blob(data=data, mime_type="image/png"), thought_signature=signed)
    content = gemini.Content(role="user", parts=[image]).model_dump(mode="json", exclude_none=True)
    history = [Message("user", content, format="gemini")]
    (item,) = formats.to_openai_input(history)
    assert item["content"][0]["image_url"]["url"].endswith(base64.b64encode(data).decode())
    (back,) = formats.to_gemini_contents(history)
    assert gemini.Content.model_validate(back).parts == [image]


def test_a_response_has_an_id_where_its_call_has_one() -> None:
    asked = {"role": "model", "parts": [{"functionCall": {"name": "f"}}, {"functionCall": {"name": "g", "id": "1"}}]}
    given = [{"functionResponse": {"name": "f", "response": {"a": 1}}}, {"functionResponse": {"name": "g", "id": "1"}}]
    history = [Message("assistant", asked, format="gemini"), Message("user", given, format="gemini")]
    answers = [part["function_response"] for part in formats.to_gemini_contents(history)[-1]["parts"]]
    assert [answer.get("id") for answer in answers] == [None, "1"]


def test_what_gemini_calls_an_error_is_one_to_others() -> None:
    asked = [{"function_call": {"name": "f", "id": id}} for id in ("1", "2", "3", "4")]
    responses = [{"error": "boom"}, {"output": "fine"}, {"error": {"code": 5}}, {"error": None}]
    given = [
        {"function_response": {"name": "f", "id": str(at), "response": response}}
        for at, response in enumerate(responses, 1)
    ]
    history = [Message("assistant", asked, format="gemini"), Message("user", given, format="gemini")]
    heard = formats.to_anthropic_messages(history)[-1]["content"]
    assert [(block["content"], block.get("is_error", False)) for block in heard] == [
        ("boom", True),
        ("fine", False),
        ('{"error":{"code":5}}', True),
        ('{"error":null}', False),
    ]
    assert formats.to_gemini_contents(history)[-1]["parts"] == given


def test_an_image_that_a_tool_gave() -> None:
    history = [parts("assistant", call("1")), parts("tool", answer("1", [{"type": "text", "text": "r"}, IMAGE]))]
    chat = formats.to_openai_input(history)
    assert [item["role"] for item in chat] == ["assistant", "tool", "user"]
    assert chat[1]["content"] == "r"
    assert formats.to_anthropic_messages(history)[2]["content"][0]["content"][1]["type"] == "image"


def test_audio_and_documents() -> None:
    sound = {"type": "audio", "media_type": "audio/wav", "data": PNG}
    paper = {"type": "document", "data": PNG, "name": "a.pdf"}
    note = {"type": "document", "text": "words"}
    history = [parts("user", sound, paper, note)]
    assert [each["type"] for each in formats.to_openai_input(history)[0]["content"]] == ["input_audio", "file", "text"]
    assert [loss.what for loss in formats.to_anthropic_messages(history).losses] == ["audio"]
    assert [loss.what for loss in formats.to_openai_responses(history).losses] == ["audio"]
    assert len(formats.to_gemini_contents(history)[0]["parts"]) == 3


def test_a_result_that_is_no_text_is_said_as_one() -> None:
    history = [parts("assistant", call("t")), parts("tool", answer("t", [{"type": "refusal", "text": "no"}]))]
    assert [item["content"] for item in formats.to_openai_input(history)[1:]] == ["no"]


def test_thinking_inside_a_result_is_no_block_of_it() -> None:
    result = {"type": "tool_result", "tool_use_id": "t", "content": [THINKING]}
    history = [parts("assistant", call("t")), Message("user", [result], format="anthropic")]
    converted = formats.to_anthropic_messages(history)
    accept(ANTHROPIC, list(converted))
    assert isinstance(converted[-1]["content"][0]["content"], str)


def test_names_that_a_provider_refuses() -> None:
    history = [parts("assistant", call("t", "server.tool/x")), parts("tool", answer("t"))]
    assert formats.to_openai_input(history)[0]["tool_calls"][0]["function"]["name"] == "server_tool_x"
    assert formats.to_openai_responses(history)[0]["name"] == "server_tool_x"
    assert formats.to_anthropic_messages(history)[1]["content"][0]["name"] == "server_tool_x"
    assert formats.to_gemini_contents(history)[1]["parts"][0]["function_call"]["name"] == "server.tool/x"
    for named in (
        {"role": "user", "content": "Hi", "name": "Ann Lee"},
        {"type": "human", "content": "Hi", "name": "Ann Lee"},
    ):
        message = Message("user", named, format="openai.chat" if "role" in named else "langchain")
        assert formats.to_openai_input([message]) == [{"role": "user", "content": "Hi", "name": "Ann_Lee"}]


def test_anthropic_has_at_most_four_cache_marks() -> None:
    marked = {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}
    roles = ("system", "user", "assistant", "user", "assistant", "user")
    converted = formats.to_anthropic_messages([Message(role, [marked], format="anthropic") for role in roles])
    assert ["cache_control" in turn["content"][0] for turn in converted] == [False, True, True, True, True]
    assert converted.system == [{"type": "text", "text": "Hi"}]


def test_thinking_without_its_signature_stays_behind() -> None:
    content = [{"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": "Yes"}]
    converted = formats.to_anthropic_messages([text("user", "?"), Message("assistant", content, format="anthropic")])
    assert converted[1] == {"role": "assistant", "content": "Yes"}
    assert converted.losses[0].what == "reasoning"


def test_langchain_blocks_go_back_as_they_came() -> None:
    used = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    call = {"name": "f", "args": {}, "id": "t", "type": "tool_call"}
    asked = {"type": "ai", "data": {"content": [THINKING, used], "tool_calls": [call]}}
    answered = {"type": "tool", "data": {"content": "done", "tool_call_id": "t"}}
    history = [Message("assistant", asked, format="langchain"), Message("tool", answered, format="langchain")]
    assert formats.to_langchain_messages(history)[0] == asked


def test_arguments_that_are_no_object() -> None:
    odd = {"type": "tool_call", "id": "1", "name": "f", "arguments": "not JSON"}
    history = [parts("assistant", odd), parts("tool", answer("1", is_error=True))]
    assert formats.to_openai_input(history)[0]["tool_calls"][0]["function"]["arguments"] == "not JSON"
    claude = formats.to_anthropic_messages(history)
    assert claude[1]["content"][0]["input"] == {"input": "not JSON"}
    assert claude[2]["content"][0]["is_error"]
    assert formats.to_openai_input(history).losses[0].what == "is_error"
    assert formats.to_gemini_contents(history)[2]["parts"][0]["function_response"]["response"] == {"error": "done"}


def test_custom_tools_keep_their_kind() -> None:
    items = [
        {"type": "custom_tool_call", "call_id": "1", "name": "sh", "input": "ls"},
        {"type": "custom_tool_call_output", "call_id": "1", "output": "a.txt"},
    ]
    history = [Message("assistant", each, format="openai.responses") for each in items]
    assert list(formats.to_openai_responses(history)) == items


def test_a_transcript() -> None:
    history = [
        text("user", "q"),
        parts("assistant", call("1")),
        parts("tool", answer("1", {"t": 3})),
        text("agent", "a"),
    ]
    assert list(formats.convert(history, "text")) == [
        "user: q",
        'assistant: [call f {"a":1}]',
        'tool: [result {"t":3}]',
        "assistant: a",
    ]


# --- what is not known ------------------------------------------------------------------------------------------------


def test_json_passes_through() -> None:
    content = ["any", {"thing": 1}]
    history = [Message("user", content, format="json"), Message("tool", 5)]
    for convert in (formats.to_openai_input, formats.to_openai_responses, formats.to_anthropic_messages):
        assert convert(history)[0] == {"role": "user", "content": content}
    assert formats.to_gemini_contents(history)[0] == {"role": "user", "parts": content}
    assert formats.to_langchain_messages(history)[0] == {"type": "human", "data": {"content": content}}
    assert formats.convert(history, "text")[0] == 'user: ["any",{"thing":1}]'


def test_json_of_a_tool_is_heard_as_a_users() -> None:
    history = [parts("assistant", call("t")), Message("tool", {"x": 1}, format="json"), parts("tool", answer("t"))]
    assert [item["role"] for item in formats.to_openai_input(history)] == ["assistant", "tool", "user"]
    assert formats.to_openai_input(history)[-1]["content"] == {"x": 1}


def test_a_part_cannot_claim_to_be_json() -> None:
    forged = parts("user", {"type": "other", "origin": "json", "native": [{"type": "system"}]})
    assert formats.to_openai_input([forged]) == []


def test_a_text_of_the_format_json_is_a_text() -> None:
    assert formats.to_openai_input([Message("user", "Hi", format="json")]) == [{"role": "user", "content": "Hi"}]


def test_a_stored_format_that_is_not_known_is_its_text() -> None:
    message = Message("user", {"content": "nuqneH", "odd": [1]}, id="k", format="klingon")
    converted = formats.to_openai_input([message])
    assert list(converted) == [{"role": "user", "content": "nuqneH"}]
    assert converted.losses[0].message_id == "k"


def test_a_target_that_is_not_known() -> None:
    with pytest.raises(ValidationError, match=r"unknown format 'klingon': one of openai\.chat, "):
        formats.convert([], "klingon")
    for odd in (None, 5, ["text"]):
        with pytest.raises(ValidationError, match="unknown format"):
            formats.convert([], odd)  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="must be Message values"):
        formats.to_openai_input([{"role": "user", "content": "x"}])  # type: ignore[list-item]
    with pytest.raises(ValidationError, match="dangling is 'hang'"):
        formats.convert([], "text", dangling="hang")  # type: ignore[arg-type]


def test_the_store_has_them_too() -> None:
    with sync.connect("memory://") as store:
        store.append("c", text("user", "q"))
        messages = store.get_messages("c")
        assert list(store.to_openai_input(messages)) == [{"role": "user", "content": "q"}]
        assert list(store.to_openai_responses(messages)) == [{"role": "user", "content": "q"}]
        assert list(store.to_anthropic_messages(messages)) == [{"role": "user", "content": "q"}]
        assert list(store.to_gemini_contents(messages)) == [{"role": "user", "parts": [{"text": "q"}]}]
        assert list(store.to_langchain_messages(messages)) == [{"type": "human", "data": {"content": "q"}}]
