"""A framework that is not installed is an error of one line that names the extra; `import hansard` needs none."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from hansard import Unsupported, sync

ACCESSORS: dict[str, tuple[str, str, Callable[[sync.Store], Any]]] = {
    "adk": ("google.adk", "adk", lambda store: store.adk_session_service()),
    "claude": ("claude_agent_sdk", "claude", lambda store: store.claude_session_store()),
    "crewai": ("crewai", "crewai_memory", lambda store: store.crewai_memory_storage()),
    "langgraph": ("langgraph", "langgraph", lambda store: store.langgraph_checkpointer),
    "openai-agents": ("agents", "openai_agents", lambda store: store.openai_session("s")),
    "pydantic-ai": ("pydantic_ai", "pydantic_ai", lambda store: store.pydantic_ai_store()),
}


@pytest.mark.parametrize("extra", ACCESSORS)
def test_the_error_names_the_extra(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package, module, accessor = ACCESSORS[extra]
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    for name in [name for name in sys.modules if name.startswith(f"hansard.adapters.{module}")]:
        monkeypatch.delitem(sys.modules, name)
    with sync.connect("memory://") as store, pytest.raises(Unsupported) as error:
        accessor(store)
    assert f"pip install 'hansard[{extra}]'" in str(error.value)
    assert "\n" not in str(error.value)
