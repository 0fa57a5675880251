"""`hansard chat`: a whole chat in a terminal, or through a pipe."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.chat import wire
from tests.cli.shell import Shell

from hansard import sync


def test_each_line_of_stdin_is_answered_and_stored(shell: Shell) -> None:
    lines = ["I bought a lamp", "and a chair", "/history", "/search lamp", "/why", "/list"]
    done = shell("chat", "c", "--agent", "helper", stdin="\n".join(lines))
    assert done.out.splitlines()[:6] == [
        "You said: I bought a lamp",
        "You said: and a chair",
        "   1 user: I bought a lamp",
        "   2 assistant: You said: I bought a lamp",
        "   3 user: and a chair",
        "   4 assistant: You said: and a chair",
    ]
    assert "   1 user: I bought a lamp" in done.out.splitlines()[6:]
    assert "3 kept, 0 dropped" in done.out
    assert "* c, 4 messages" in done.out
    assert "conversation c, model echo" in done.err
    assert shell("show", "c", "--json").json["conversation"]["agent_id"] == "helper"


def test_chat_commands_switch_branches_and_conversations(shell: Shell) -> None:
    lines = ["Where to?", "Thanks", "/edit 1 Where to, by train?", "/history", "/branch", "/branch main", "/history 1"]
    lines += ["/again", "/new other", "Hello", "/switch c", "/history 1", "/help"]
    out = shell("chat", "c", stdin="\n".join(lines)).out.splitlines()
    assert out[2:5] == [
        "You said: Where to, by train?",
        "   5 user: Where to, by train?",
        "   6 assistant: You said: Where to, by train?",
    ]
    assert out[5] == "  main, 4 messages"
    assert out[6].startswith("* branch_")
    assert out[7] == "* main, 4 messages"
    assert out[9] == "   4 assistant: You said: Thanks"
    assert out[10:13] == ["You said: Thanks", "You said: Hello", "   7 assistant: You said: Thanks"]
    assert any(line.startswith("/history [N]") for line in out)


def test_chat_continues_the_newest_conversation(shell: Shell) -> None:
    assert "no conversation yet" in shell.fails(2, "chat", "--last")
    shell("chat", "c", "--user", "ann", stdin="one")
    shell("chat", "d", "--user", "ben", stdin="two")
    assert "conversation c," in shell("chat", "--last", "--user", "ann", stdin="more").err
    assert shell("show", "c", "--json").json["conversation"]["message_count"] == 4


def test_impossible_options_and_commands_are_refused(shell: Shell) -> None:
    assert "leave --json out" in shell.run("chat", "--json").err
    assert "unknown model" in shell.fails(2, "chat", "--model", "gpt")
    assert "leave CONVERSATION out" in shell.fails(2, "chat", "c", "--last")
    for line, code in (
        ("/nonsense", 2),
        ("/edit 9 text", 4),
        ("/edit 1", 2),
        ("/switch nowhere", 4),
        ("/history x", 2),
    ):
        done = shell.run("chat", "c", stdin=f"hello\n{line}\n")
        assert done.code == code, done
        assert done.err.splitlines()[-1].startswith("hansard: ")


def test_control_characters_are_escaped(shell: Shell) -> None:
    assert "\x1b" not in shell("chat", "c", stdin="a\x1b[31mb\n").out


def test_the_chat_continues_after_a_wrong_command(shell: Shell) -> None:
    done = shell.answer("/nonsense\nhello\n/quit", "chat", "c")
    assert done.code == 0, done
    assert "unknown command /nonsense" in done.err
    assert "You said: hello" in done.out


@contextmanager
def stalling() -> Iterator[str]:
    """A model that sends two words and then stalls."""

    def script(path: str, body: dict[str, Any]) -> list[Any]:
        return [wire.chunk(content="Well, "), wire.chunk(content="let me think")]

    ready: list[Any] = []
    begun = threading.Event()

    async def serve() -> None:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            for event in script("", {}):
                writer.write(f"data: {json.dumps(event)}\n\n".encode())
            await writer.drain()
            await reader.read()  # until the client has gone
            writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        over = asyncio.Event()
        ready.extend((server.sockets[0].getsockname()[1], asyncio.get_running_loop(), over))
        begun.set()
        await over.wait()
        server.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    begun.wait(60)
    try:
        yield f"http://127.0.0.1:{ready[0]}/v1"
    finally:
        ready[1].call_soon_threadsafe(ready[2].set)
        thread.join(60)


def test_ctrl_c_stops_an_answer_and_not_the_chat(shell: Shell) -> None:
    with stalling() as url:
        child = shell.start("chat", "c", "--model", "openai:m", "--base-url", url, stdin=subprocess.PIPE)
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"Hm?\n")
        child.stdin.flush()
        heard = b""
        while not heard.endswith(b"think"):
            heard += child.stdout.read(1)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(b"/history\n", timeout=60)
    assert child.returncode == 0, err
    assert b"(interrupted)" in err
    assert b"2 assistant (interrupted): Well, let me think" in out
    with sync.connect(f"sqlite:///{shell.folder}/hansard.db") as store:
        assert [message.status for message in store.get_messages("c")] == ["complete", "interrupted"]
