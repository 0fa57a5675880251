"""A store that is opened lazily: made while its storage is away, and there when its storage is."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from tests.server.kit import serving
from tests.servers import postgres, redis
from tools.cassandra import free_port

import hansard
from hansard import Chat, Closed, ConversationNotFound, Unavailable, Unsupported, ValidationError, sync
from hansard.agents.chat import fallback_store as stores_module
from hansard.backends import schemes
from hansard.blocking import LoopThread
from hansard.chat import EchoModel


class Line:
    """A port at which nobody listens, until it is connected to a server."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = parts.hostname, parts.port
        options = dict(parse_qsl(parts.query))
        folder = options.pop("host", None)
        self._socket = None if folder is None else str(next(Path(folder).glob(".s.PGSQL.*[0-9]")))
        self._port = free_port("127.0.0.1")
        user, at, _ = parts.netloc.rpartition("@")
        self.url = parts._replace(netloc=f"{user}{at}127.0.0.1:{self._port}", query=urlencode(options)).geturl()
        self._thread = LoopThread()
        self._listening: asyncio.Server | None = None
        self._relays: set[asyncio.Task[None]] = set()

    def connect(self) -> None:
        self._thread.run(self._connect())

    def cut(self) -> None:
        self._thread.run(self._cut())

    def close(self) -> None:
        self.cut()
        self._thread.stop()

    async def _connect(self) -> None:
        self._listening = await asyncio.start_server(self._relay, "127.0.0.1", self._port)

    async def _cut(self) -> None:
        if self._listening is not None:
            self._listening.close()
        for relay in self._relays:
            relay.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._relays.add(task)
        if self._socket is None:
            there, back = await asyncio.open_connection(*self._server)
        else:
            there, back = await asyncio.open_unix_connection(self._socket)
        try:
            await asyncio.gather(_pump(reader, back), _pump(there, writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            back.close()
            self._relays.discard(task)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


Lines = Callable[[str], Line]


@pytest.fixture
def line_to(tmp_path: Path) -> Iterator[Lines]:
    """A line to an empty store of a scheme, which is not connected yet."""
    with ExitStack() as stack:

        def make(scheme: str) -> Line:
            match scheme:
                case "http":
                    url = stack.enter_context(serving(f"sqlite:///{tmp_path}/served.db")).address
                case "postgresql":
                    url = postgres.with_schema(postgres.new_schema())
                case _:
                    url = redis.fresh_port_url()
            line = Line(url)
            stack.callback(line.close)
            return line

        yield make


@pytest.mark.parametrize("scheme", ["http", "postgresql", "redis"])
def test_it_is_made_while_the_storage_is_away_and_opens_when_that_is_back(line_to: Lines, scheme: str) -> None:
    line = line_to(scheme)
    with pytest.raises(Unavailable):
        sync.connect(line.url)
    with sync.connect(line.url, lazy=True) as store:
        assert store.capabilities.name == scheme
        assert not store.capabilities.blocking
        for call in (
            lambda: store.append_message("c", "user", "Hello"),
            lambda: store.get_conversation("c"),
            lambda: store.list_conversations().items,
            lambda: store.search("Hello"),
            lambda: store.records.get(("a",), "b"),
            store.check,
            store.stats,
        ):
            with pytest.raises(Unavailable) as refused:
                call()
            assert refused.value.outcome == "not_applied"
        line.connect()
        store.append_message("c", "user", "Hello again")
        assert [hit.message.text for hit in store.search("hello")] == ["Hello again"]
        assert store.capabilities.durability != "none"
        assert store.check() == []
        assert [message.text for message in store.tenant("default").iter_messages("c")] == ["Hello again"]
    with pytest.raises(Closed):
        store.get_messages("c")


def test_async_and_by_many_at_once(line_to: Lines) -> None:
    line = line_to("http")

    async def main() -> None:
        async with hansard.connect(line.url, lazy=True) as store:
            with pytest.raises(Unavailable):
                await store.get_messages("c")
            line.connect()
            await asyncio.gather(*(store.append_message("c", "user", str(number)) for number in range(20)))
            found = await store.get_conversation("c")
            assert found is not None
            assert found.message_count == 20

    asyncio.run(main())


def test_one_that_is_never_used_opens_nothing(line_to: Lines) -> None:
    line = line_to("http")
    with sync.connect(line.url, lazy=True) as store:
        pass
    line.connect()
    with pytest.raises(Closed):
        store.append_message("c", "user", "Hello")


def test_what_needs_no_network_is_opened_at_once(tmp_path: Path) -> None:
    with sync.connect(f"sqlite:///{tmp_path}/chats.db", lazy=True) as store:
        assert (tmp_path / "chats.db").exists()
        assert store.capabilities.blocking


def test_what_is_wrong_with_the_url_is_told_at_once() -> None:
    with pytest.raises(ValidationError, match="unknown scheme"):
        sync.connect("gopher://x", lazy=True)
    with pytest.raises(ValidationError, match="lazy must be True or False"):
        sync.connect("memory://", lazy="yes")  # type: ignore[arg-type]


def test_a_missing_extra_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scheme = schemes.Scheme("hansard.backends.pigeon", extra="pigeon")
    monkeypatch.setitem(schemes.SCHEMES, "pigeon", scheme)
    with pytest.raises(Unsupported, match=r"pip install 'hansard\[pigeon\]'"):
        sync.connect("pigeon://x", lazy=True)


@pytest.mark.parametrize("scheme", ["http", "postgresql", "redis"])
def test_a_chat_that_is_launched_offline(line_to: Lines, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores_module, "_PAUSE", 0.0)
    line = line_to(scheme)

    async def main() -> None:
        async with (
            hansard.connect(line.url, lazy=True) as remote,
            hansard.connect("memory://") as local,
            Chat(remote, EchoModel(), conversation_id="c", fallback=local) as chat,
        ):
            with pytest.raises(Unavailable, match="none of its conversations is in the fallback"):
                await chat.conversations()
            with pytest.raises(Unavailable, match="only the store has it"):
                await chat.switch("elsewhere")
            with pytest.raises(Unavailable, match="only the store has it"):
                await chat.history()
            await chat.send("Hello")
            assert chat.is_away
            assert [message.text for message in await chat.history()] == ["Hello", "You said: Hello"]
            assert [each.id for each in (await chat.conversations()).items] == ["c"]
            line.connect()
            with pytest.raises(ConversationNotFound):
                await chat.switch("elsewhere")
            assert not chat.is_away
            await chat.send("And again")
            found = await remote.get_conversation("c")
            assert found is not None
            assert found.message_count == 4

    asyncio.run(main())


def test_callers_that_wait_for_one_attempt_share_its_failure() -> None:
    """A server that takes connections and never answers."""

    async def play() -> None:
        with closing(socket.create_server(("127.0.0.1", 0))) as silent:
            silent.setblocking(False)
            url = f"http://127.0.0.1:{silent.getsockname()[1]}?timeout=1"
            async with hansard.connect(url, lazy=True) as store:
                calls = [store.get_conversation("c") for _ in range(10)]
                found = await asyncio.gather(*calls, return_exceptions=True)
                assert all(isinstance(each, Unavailable) for each in found)
                together = _count_connections(silent)
                with pytest.raises(Unavailable):
                    await store.get_conversation("c")
                assert _count_connections(silent) == together > 0, "a later call tries anew"

    asyncio.run(play())


def _count_connections(listening: socket.socket) -> int:
    """Returns how many connections came since the last time."""
    count = 0
    with suppress(BlockingIOError):
        while True:
            listening.accept()[0].close()
            count += 1
    return count
