"""Flows of CrewAI that talk, run by themselves: `crewai_talk.py CONVERSATION begin|hear URL …`, in pairs."""

from __future__ import annotations

import json
import sys
from typing import Any

from crewai.flow import Flow, listen, persist, start
from crewai.flow.conversation import ChatState, append_message

from hansard import sync

QUESTION, CALL, RESULT, ANSWER = "What is 1 + 2?", "call_1", "3 it is", "The sum is 3."


def flow_of(persistence: Any, *script: dict[str, Any]) -> Any:
    """A chat whose model says, after the user, what the script says."""

    @persist(persistence)
    class Chat(Flow[ChatState]):  # type: ignore[misc]
        @start()
        def hear(self) -> None:
            append_message(self, "user", self.state.last_user_message)

        @listen(hear)
        def answer(self) -> str:
            for said in script:
                append_message(self, **said)
            return str(script[-1]["content"])

    return Chat()


def say(persistence: Any, id: str, text: str, *script: dict[str, Any]) -> Any:
    flow = flow_of(persistence, *script)
    flow.kickoff(inputs={"id": id, "last_user_message": text})
    return flow


def begin(persistence: Any, id: str) -> None:
    call = {"id": CALL, "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
    say(
        persistence,
        id,
        QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": RESULT, "tool_call_id": CALL},
        {"role": "assistant", "content": ANSWER},
    )


def hear(persistence: Any, id: str) -> list[tuple[str, str]]:
    flow = say(persistence, id, "Sure?", {"role": "assistant", "content": "Yes."})
    heard = []
    for message in flow.state.messages[:-1]:
        if message.get("tool_calls"):
            heard.append(("call", message["tool_calls"][0]["function"]["name"]))
        elif message["role"] == "tool":
            heard.append(("result", message["content"]))
        else:
            content = message["content"]
            heard.append((message["role"], content if isinstance(content, str) else content[0]["text"]))
    return heard


def main(id: str, *words: str) -> None:
    for what, url in zip(words[::2], words[1::2], strict=True):
        with sync.connect(url) as store:
            persistence = store.crewai_flow_persistence()
            if what == "begin":
                begin(persistence, id)
            else:
                sys.stdout.write("heard: " + json.dumps(hear(persistence, id)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
