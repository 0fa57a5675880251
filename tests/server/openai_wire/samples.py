"""One item of every type that the Conversations API takes, in its smallest whole form."""

from __future__ import annotations

from typing import Any

ITEMS: dict[str, dict[str, Any]] = {
    "message": {"role": "user", "content": "Where is my order?"},
    "function_call": {"call_id": "call_1", "name": "find", "arguments": '{"id": 17}'},
    "function_call_output": {"call_id": "call_1", "output": "It is on its way."},
    "reasoning": {"id": "rs_1", "summary": [{"type": "summary_text", "text": "Look it up."}], "encrypted_content": "g"},
    "file_search_call": {"id": "fs_1", "queries": ["order"], "results": [{"file_id": "f", "text": "found"}]},
    "web_search_call": {
        "id": "ws_1",
        "action": {"type": "search", "query": "order", "sources": [{"type": "url", "url": "https://x.example"}]},
    },
    "image_generation_call": {"id": "ig_1", "result": "aGVsbG8="},
    "computer_call": {"id": "cu_1", "call_id": "call_2", "action": {"type": "wait"}},
    "computer_call_output": {
        "call_id": "call_2",
        "output": {"type": "computer_screenshot", "image_url": "https://x.example/a.png"},
    },
    "code_interpreter_call": {
        "id": "ci_1",
        "container_id": "c",
        "code": "1 + 1",
        "outputs": [{"type": "logs", "logs": "2"}],
    },
    "local_shell_call": {
        "id": "lsh_1",
        "call_id": "call_3",
        "action": {"type": "exec", "command": ["ls"], "env": {}},
    },
    "local_shell_call_output": {"id": "lsho_1", "output": '{"stdout": ""}'},
    "shell_call": {"call_id": "call_4", "action": {"commands": ["ls"], "max_output_length": 9, "timeout_ms": 9}},
    "shell_call_output": {
        "call_id": "call_4",
        "output": [{"outcome": {"type": "exit", "exit_code": 0}, "stdout": "a", "stderr": ""}],
    },
    "apply_patch_call": {
        "call_id": "call_5",
        "operation": {"type": "create_file", "path": "a.txt", "diff": "+a"},
    },
    "apply_patch_call_output": {"call_id": "call_5", "output": "done"},
    "mcp_list_tools": {"id": "mcpl_1", "server_label": "s", "tools": [{"name": "t", "input_schema": {}}]},
    "mcp_approval_request": {"id": "mcpr_1", "server_label": "s", "name": "t", "arguments": "{}"},
    "mcp_approval_response": {"approval_request_id": "mcpr_1", "approve": True},
    "mcp_call": {"id": "mcp_1", "server_label": "s", "name": "t", "arguments": "{}", "output": "x"},
    "custom_tool_call": {"call_id": "call_6", "name": "grep", "input": "order"},
    "custom_tool_call_output": {"call_id": "call_6", "output": "nothing"},
    "tool_search_call": {"arguments": {"q": "x"}, "execution": "client", "call_id": "call_7"},
    "tool_search_output": {"tools": [], "execution": "client", "call_id": "call_7"},
    "additional_tools": {"role": "developer", "tools": [{"type": "web_search"}]},
    "configuration_update": {"reasoning": {"effort": "low"}},
    "program": {"id": "prog_1", "call_id": "call_8", "code": "return 1", "fingerprint": "opaque"},
    "program_output": {"id": "progo_1", "call_id": "call_8", "result": "1"},
    "compaction": {"encrypted_content": "opaque"},
}
UNKNOWN = {"type": "telepathy_call", "thought": {"b": 1, "a": [None, 1.5, 12345678901234567890]}, "status": "sent"}
"""A type that nobody knows yet."""


def sample(kind: str) -> Any:
    return {"type": kind, **ITEMS[kind]}
