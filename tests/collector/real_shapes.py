"""Sessions in the shapes that the programs write: Claude Code 2.1.326, Codex 0.169.0 and Gemini CLI 0.61.0.

Written by hand after files of those versions. Only what a reader of them has to know is here.
"""

from __future__ import annotations

from typing import Any

from tests.collector.agent_files import CODEX_SESSION, SESSION, codex_line, text_of

CODEX_SUBAGENT = "019aa8d2-0000-7000-8000-000000000002"

TOKENS = {"input_tokens": 11, "cache_read_input_tokens": 300, "output_tokens": 42}


def _claude(kind: str, uuid: str, parent: str | None, message: Any, **more: Any) -> dict[str, Any]:
    return {
        "parentUuid": parent,
        "type": kind,
        "message": message,
        "uuid": uuid,
        "timestamp": "2026-01-02T03:04:05.678Z",
        "cwd": "/projects/birds",
        "sessionId": SESSION,
        "version": "2.1.326",
        "gitBranch": "main",
    } | more


def _block(uuid: str, parent: str, response: str, block: dict[str, Any], **usage: int) -> dict[str, Any]:
    """A block of a response. Each says the tokens of the whole response, as far as they are known."""
    about = {"id": response, "role": "assistant", "model": "claude-test", "content": [block]}
    return _claude("assistant", uuid, parent, about | {"usage": TOKENS | usage})


def _call(id: str, command: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "Bash", "input": {"command": command}}


def _result(uuid: str, parent: str, call: str, output: str, **more: Any) -> dict[str, Any]:
    block = {"tool_use_id": call, "type": "tool_result", "content": output}
    return _claude("user", uuid, parent, {"role": "user", "content": [block]}, sourceToolAssistantUUID=parent, **more)


def _side(uuid: str, parent: str, kind: str) -> dict[str, Any]:
    return {
        "parentUuid": parent,
        "attachment": {"type": kind},
        "type": "attachment",
        "uuid": uuid,
        "sessionId": SESSION,
    }


def claude_session() -> list[bytes]:
    """Two calls at once, of which each result follows its own call; then a compaction."""
    lines = [
        {"type": "queue-operation", "operation": "enqueue", "sessionId": SESSION, "content": "Count the birds"},
        _claude("user", "u1", None, {"role": "user", "content": "Count the birds"}),
        _side("x1", "u1", "environment"),
        _block(
            "a1", "x1", "msg_1", {"type": "thinking", "thinking": "Two places.", "signature": "c2ln"}, output_tokens=1
        ),
        _block("a2", "a1", "msg_1", _call("t1", "ls pond")),
        _block("a3", "a2", "msg_1", _call("t2", "ls wood")),
        _result("r1", "a2", "t1", "heron"),
        _result("r2", "a3", "t2", "owl"),
        _claude("user", "s2", "r2", {"role": "user", "content": "About owls."}, isMeta=True, sourceToolUseID="t2"),
        _side("x2", "s2", "prompt_snapshot"),
        _block("a4", "x2", "msg_2", {"type": "thinking", "thinking": "That is two.", "signature": "c2ln"}),
        _block("a5", "a4", "msg_2", {"type": "text", "text": "Two birds."}),
        {"type": "cost-state", "sessionId": SESSION, "totalCostUSD": 0.25},
        {
            "parentUuid": None,
            "logicalParentUuid": "a5",
            "type": "system",
            "subtype": "compact_boundary",
            "uuid": "b1",
            "sessionId": SESSION,
        },
        _claude("user", "u2", "b1", {"role": "user", "content": "This session continues."}, isCompactSummary=True),
        _claude("user", "u3", "u2", {"role": "user", "content": "Which one fishes?"}),
        _block("a6", "u3", "msg_3", {"type": "text", "text": "The heron."}),
        {"type": "cost-state", "sessionId": SESSION, "totalCostUSD": 0.375},
    ]
    return [text_of(line) for line in lines]


CLAUDE_ORDER = ["u1", "a1", "a2", "a3", "r1", "r2", "s2", "a4", "a5", "u2", "u3", "a6"]


def _codex_tokens(input_tokens: int, output_tokens: int) -> bytes:
    used = {"input_tokens": input_tokens, "output_tokens": output_tokens, "total_tokens": 6859}
    return codex_line("event_msg", type="token_count", info={"last_token_usage": used})


def _codex_text(id: str, role: str, text: str) -> bytes:
    kind = "output_text" if role == "assistant" else "input_text"
    return codex_line("response_item", type="message", id=id, role=role, content=[{"type": kind, "text": text}])


def _codex_meta() -> bytes:
    return codex_line(
        "session_meta",
        session_id=CODEX_SESSION,
        id=CODEX_SESSION,
        cwd="/projects/birds",
        cli_version="0.169.0",
        source="exec",
        git={"branch": "main"},
    )


def codex_session() -> list[bytes]:
    """An answer with its tokens, then a compaction, after which the count of tokens is that of what is left."""
    return [
        _codex_meta(),
        _codex_text("msg_1", "user", "<environment_context>\n  <cwd>/projects/birds</cwd>\n</environment_context>"),
        codex_line("turn_context", model="gpt-test"),
        _codex_text("msg_2", "user", "What is a heron?"),
        codex_line("response_item", type="reasoning", id="rs_1", summary=[], encrypted_content="gAAA"),
        _codex_text("msg_3", "assistant", "A bird."),
        _codex_tokens(120, 30),
        codex_line("compacted", message="A summary", replacement_history=[]),
        _codex_tokens(0, 0),
        _codex_text("msg_4", "user", "Thank you"),
        _codex_text("msg_5", "assistant", "You are welcome."),
        _codex_tokens(90, 10),
    ]


def codex_repeated_ids() -> list[bytes]:
    """A server of one's own that begins to count items again after a restart."""
    return [
        *codex_session(),
        _codex_text("msg_6", "user", "And a stork?"),
        codex_line("response_item", type="reasoning", id="rs_1", summary=[], content=None, encrypted_content="gBBB"),
        _codex_text("msg_3", "assistant", "A bird, too."),
        _codex_tokens(95, 12),
        _codex_text("msg_7", "user", "And a wren?"),
        _codex_text("msg_3", "assistant", "A bird again."),
        _codex_tokens(99, 13),
    ]


def codex_rolled_back() -> list[bytes]:
    """The user goes back two turns, an interrupted one among them, and later to before the first one."""
    aborted = "<turn_aborted>\nThe user interrupted the previous turn.\n</turn_aborted>"
    return [
        *codex_session(),
        _codex_text("msg_6", "user", "And a stork?"),
        _codex_text("msg_7", "user", aborted),
        codex_line("event_msg", type="thread_rolled_back", num_turns=2),
        _codex_text("msg_8", "user", "What does it eat?"),
        _codex_text("msg_9", "assistant", "Fish."),
        codex_line("event_msg", type="thread_rolled_back", num_turns=9),
        _codex_text("msg_10", "user", "What is a crane?"),
    ]


def codex_subagent() -> list[bytes]:
    """A subagent's session: what it says of itself, then a copy of the lines of the session that it works for."""
    spawned = {"parent_thread_id": CODEX_SESSION, "depth": 1, "agent_path": "/root/counter"}
    return [
        codex_line(
            "session_meta",
            session_id=CODEX_SESSION,
            id=CODEX_SUBAGENT,
            forked_from_id=CODEX_SESSION,
            parent_thread_id=CODEX_SESSION,
            cwd="/projects/birds",
            source={"subagent": {"thread_spawn": spawned}},
            agent_path="/root/counter",
        ),
        _codex_meta(),
        _codex_text("msg_2", "user", "What is a heron?"),
        codex_line(
            "response_item",
            type="agent_message",
            id="amsg_1",
            author="/root",
            recipient="/root/counter",
            content=[{"type": "input_text", "text": "Count the herons."}, {"type": "encrypted_content", "x": 1}],
        ),
        _codex_text("msg_6", "assistant", "Seven."),
    ]


def _gemini(id: str, kind: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"id": id, "timestamp": "2026-01-02T03:04:06.000Z", "type": kind, "content": content} | more


def _gemini_header(session: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"sessionId": session, "projectHash": "abc", "startTime": "2026-01-02T03:04:05.000Z", "kind": kind} | more


_GEMINI_CONTEXT = _gemini("ctx", "user", [{"text": "<session_context>\nToday is a day.\n</session_context>"}])
_GEMINI_ANSWER: dict[str, Any] = {
    "thoughts": [{"subject": "Looking", "description": "In the file."}],
    "tokens": {"input": 120, "output": 30, "cached": 20, "thoughts": 5},
    "model": "gemini-test",
}


def gemini_empty() -> list[bytes]:
    """What is left in another file when a session is resumed."""
    return [text_of(_gemini_header("gem-1", "main")), text_of({"$set": {"messages": [_GEMINI_CONTEXT]}})]


def gemini_session() -> list[bytes]:
    """A tool whose result is with its call, and once more in the user's name; then the session is resumed, for which
    all messages are written again in another shape; then the user goes back."""
    response = {"functionResponse": {"id": "c1", "name": "read_file", "response": {"output": "Grey."}}}
    call = {"id": "c1", "name": "read_file", "args": {"path": "heron.txt"}}
    done = call | {"status": "success", "result": [response]}
    question = _gemini("g1", "user", [{"text": "What colour is it?"}])
    calling = _gemini("g2", "gemini", "Let me look.", **_GEMINI_ANSWER)
    rewritten = [
        {"text": "**Looking** In the file.", "thought": True},
        {"text": "Let me look."},
        {"functionCall": call},
    ]
    lines: list[dict[str, Any]] = [
        _gemini_header("gem-1", "main"),
        {"$set": {"messages": [_GEMINI_CONTEXT], "lastUpdated": "2026-01-02T03:04:07.000Z"}},
        question,
        calling,
        calling | {"toolCalls": [done]},
        _gemini("g3", "user", [response]),
        _gemini("g4", "gemini", "It is grey.", **_GEMINI_ANSWER),
        {"$set": {"sessionId": "gem-1"}},
        {
            "$set": {
                "messages": [
                    _GEMINI_CONTEXT,
                    question,
                    calling | {"content": rewritten, "toolCalls": [done]},
                    _gemini("g2_response", "user", [response]),
                    _gemini("g3", "user", [response]),
                    _gemini("g4", "gemini", [{"text": "It is grey."}], **_GEMINI_ANSWER),
                ]
            }
        },
        _gemini("g5", "user", [{"text": "And the owl?"}, {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}]),
        _gemini("g6", "gemini", "Brown.", **_GEMINI_ANSWER),
        {"$rewindTo": "g5"},
        _gemini("g7", "user", [{"text": "And the stork?"}]),
        _gemini("g8", "gemini", "White.", **_GEMINI_ANSWER),
    ]
    return [text_of(line) for line in lines]


def gemini_subagent() -> list[bytes]:
    lines = [
        _gemini_header("gem-2", "subagent", directories=["/projects/birds"]),
        _gemini("h1", "user", [{"text": "Count the herons."}]),
        _gemini("h2", "gemini", "Seven.", model="gemini-test"),
    ]
    return [text_of(line) for line in lines]
