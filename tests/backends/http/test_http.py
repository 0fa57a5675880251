"""The `http` backend when the connection breaks, when the server refuses, and when nobody is there."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from tests.server.kit import serving
from tests.wait import until

from hansard import connect, sync, wire
from hansard.analysis import Clause, Lookup, Query
from hansard.analysis.queries import Phrase
from hansard.contract.backend import Indexed
from hansard.contract.types import Append, Context, ConversationQuery, Draft
from hansard.errors import (
    Conflict,
    ConversationNotFound,
    Denied,
    NotFound,
    Unauthenticated,
    Unavailable,
    ValidationError,
)
from hansard.model import Message
from hansard.server.key_file import KeyFile
from hansard.server.settings import Settings
from hansard.store import Store


class Cutting:
    """A wire to the server that is cut: before a request reaches it, or before its answer comes back."""

    def __init__(self, address: str) -> None:
        host, _, port = address.removeprefix("http://").partition(":")
        self._server = (host, int(port))
        self.cut = ""
        """`request`, `answer`, or nothing."""
        self.times = 0
        """How many more to cut."""
        self.address = ""
        self._relays: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Cutting:
        self._listening = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.address = f"http://127.0.0.1:{self._listening.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listening.close()
        await asyncio.gather(*self._relays)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._relays.append(task)
        ours, theirs = await asyncio.open_connection(*self._server)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                request = await whole(reader)
                if self._is_cut("request"):
                    break
                theirs.write(request)
                answer = await whole(ours)
                if self._is_cut("answer"):
                    break
                writer.write(answer)
        for each in (writer, theirs):
            each.close()
            with suppress(ConnectionError):
                await each.wait_closed()

    def _is_cut(self, what: str) -> bool:
        if self.cut != what or self.times <= 0:
            return False
        self.times -= 1
        return True


async def whole(reader: asyncio.StreamReader) -> bytes:
    """A request or an answer, to its end."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    return head + await reader.readexactly(int(length[1]) if length else 0)


def scenario(play: Callable[[Store, Cutting], Awaitable[None]]) -> None:
    async def run(address: str) -> None:
        async with Cutting(address) as wire, connect(wire.address) as store:
            await play(store, wire)

    with serving() as api:
        asyncio.run(run(api.address))


@pytest.mark.parametrize("cut", ["request", "answer"])
def test_an_append_is_stored_once_whatever_breaks(cut: str) -> None:
    async def play(store: Store, wire: Cutting) -> None:
        for number in range(5):
            wire.cut, wire.times = cut, 2
            appended = await store.append(
                "c", [Message("user", number), Message("user", {"id": "given"}, id=f"m{number}")]
            )
            assert len(appended.messages) == 2
        contents = [message.content async for message in store.iter_messages("c")]
        assert contents[::2] == list(range(5))
        assert len(contents) == 10

    scenario(play)


@pytest.mark.parametrize("cut", ["request", "answer"])
def test_a_read_is_repeated(cut: str) -> None:
    async def play(store: Store, wire: Cutting) -> None:
        await store.append_message("c", "user", "x")
        wire.cut, wire.times = cut, 2
        assert [message.content for message in await store.get_messages("c")] == ["x"]

    scenario(play)


@pytest.mark.parametrize("cut", ["request", "answer"])
def test_another_write_tells_that_nobody_knows(cut: str) -> None:
    async def play(store: Store, wire: Cutting) -> None:
        await store.append_message("c", "user", "x")
        wire.cut, wire.times = cut, 1
        with pytest.raises(Unavailable) as lost:
            await store.update_conversation("c", title="t")
        assert lost.value.outcome == "unknown"
        found = await store.get_conversation("c")
        assert found is not None
        assert found.title == ("t" if cut == "answer" else None), "and it was done once, or not at all"

    scenario(play)


def test_an_append_that_keeps_failing_tells_that_nobody_knows() -> None:
    async def play(store: Store, wire: Cutting) -> None:
        wire.cut, wire.times = "answer", 99
        with pytest.raises(Unavailable) as lost:
            await store.append_message("c", "user", "x", id="m")
        assert lost.value.outcome == "unknown"
        wire.times = 0
        await store.append_message("c", "user", "x", id="m")
        assert len(await store.get_messages("c")) == 1

    scenario(play)


def test_nobody_there() -> None:
    with pytest.raises(Unavailable) as nobody, sync.connect("http://127.0.0.1:9"):
        pass
    assert nobody.value.outcome == "not_applied"


def test_a_server_that_went_away() -> None:
    with serving() as api:
        store = sync.connect(api.address)
        store.append_message("c", "user", "x")
    for call in (lambda: store.append_message("c", "user", "y"), lambda: store.get_messages("c")):
        with pytest.raises(Unavailable) as gone:
            call()
        assert gone.value.outcome == "not_applied"
    store.close()


def test_errors_are_the_classes_that_the_server_met() -> None:
    with serving() as api, sync.connect(api.address) as store:
        store.append_message("c", "user", "x")
        with pytest.raises(Conflict) as late:
            store.append("c", Message("user", "y"), expected_version=7)
        assert (late.value.expected, late.value.actual) == (7, 1)
        with pytest.raises(ConversationNotFound):
            store.append("never", Message("user", "y"), create=False)
        with pytest.raises(NotFound):
            store.get_messages("c", branch="never")


def test_what_is_not_a_hansard_server(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
        writer.close()

    async def run() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(Unavailable):
                await connect(f"http://127.0.0.1:{port}")

    asyncio.run(run())


# Keys


def test_the_key_comes_from_the_environment_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    token = keys.create("x", ["read", "write"], tenant="acme")[1]
    (tmp_path / "key").write_text(token + "\n")
    with serving(settings=Settings(keys=keys.path)) as api:
        with pytest.raises(Unauthenticated):
            sync.connect(api.address)
        with pytest.raises(NotFound):
            sync.connect(f"{api.address}?key_file={tmp_path}/nothing")
        with sync.connect(f"{api.address}?key_file={tmp_path}/key") as store:
            store.tenant("acme").append_message("c", "user", "x")
        monkeypatch.setenv("HANSARD_KEY", token)
        with sync.connect(api.address) as store:
            assert len(store.tenant("acme").get_messages("c")) == 1


def test_urls_that_are_wrong() -> None:
    for url in ("http://", "https:///x", "http://:hsk_secret@127.0.0.1:9", "http://127.0.0.1:9?kee_file=x"):
        with pytest.raises(ValidationError) as wrong:
            sync.connect(url)
        assert "hsk_secret" not in str(wrong.value)


def test_a_tenants_key_opens_that_tenant_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    with serving(settings=Settings(keys=keys.path)) as api:
        every = ["read", "write", "admin"]
        monkeypatch.setenv("HANSARD_KEY", keys.create("x", every, tenant="acme")[1])
        with sync.connect(api.address) as store:
            acme = store.tenant("acme")
            acme.user("u").append_message("c", "user", "x")
            assert acme.stats().messages == 1
            assert acme.check() == []
            refused: list[Callable[[], Any]] = [
                lambda: store.get_messages("c"),
                lambda: store.tenant("evil").append_message("c", "user", "x"),
                store.admin.tenants,
                store.admin.stats,
                lambda: list(store.admin.check()),
                lambda: store.admin.delete_tenant("acme"),
                store.purge,
            ]
            for call in refused:
                with pytest.raises(Denied):
                    call()
        monkeypatch.setenv("HANSARD_KEY", keys.create("y", every, tenant="acme", user="u")[1])
        with sync.connect(api.address) as store, pytest.raises(Denied):
            store.tenant("acme").user("u").get_messages("c")
        monkeypatch.setenv("HANSARD_KEY", keys.create("z", ["read"], tenant="acme")[1])
        with sync.connect(api.address) as store:
            assert len(store.tenant("acme").get_messages("c")) == 1
            with pytest.raises(Denied):
                store.tenant("acme").append_message("c", "user", "x")


def test_only_a_key_with_admin_sees_what_has_expired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = KeyFile(tmp_path / "keys.json")

    async def expired(address: str) -> list[str]:
        async with connect(address) as store:
            context = Context("acme", datetime.now(UTC), with_expired=True)
            page, _ = await store.backend.list_conversations(context, ConversationQuery())
            return [each.id for each in page]

    with serving(settings=Settings(keys=keys.path)) as api:
        monkeypatch.setenv("HANSARD_KEY", keys.create("a", ["read", "write", "admin"], tenant="acme")[1])
        with sync.connect(api.address) as store:
            acme = store.tenant("acme")
            acme.append_message("old", "user", "x", user_id="ann")
            acme.update_conversation("old", expires_at=datetime.now(UTC) + timedelta(milliseconds=50))
            until(lambda: acme.get_conversation("old") is None)
        assert asyncio.run(expired(api.address)) == ["old"]
        for scopes in (["read"], ["read", "write"]):
            monkeypatch.setenv("HANSARD_KEY", keys.create("b", scopes, tenant="acme")[1])
            with pytest.raises(Denied, match="expired"):
                asyncio.run(expired(api.address))
            with sync.connect(api.address) as store, pytest.raises(Denied):
                store.tenant("acme").erase_user("ann")
        monkeypatch.setenv("HANSARD_KEY", keys.create("c", ["read", "write", "admin"], tenant="acme")[1])
        with sync.connect(api.address) as store:
            assert store.tenant("acme").erase_user("ann").messages == 1
        assert asyncio.run(expired(api.address)) == []


# Searching


@pytest.mark.parametrize("storage", ["memory://", "sqlite:///{0}/chats.db"])
def test_the_server_searches_with_its_index_or_without(storage: str, tmp_path: Path) -> None:
    with serving(storage.format(tmp_path)) as api, sync.connect(api.address) as store:
        assert store.capabilities.search == "index"
        store.append("c", [Message("user", text) for text in ("a red fox", "a blue bird", "red and blue")])
        for query, match, found in (
            ("red blue", "all", ["red and blue"]),
            ("red blue", "any", ["red and blue", "a blue bird", "a red fox"]),
            ("red -blue", "all", ["a red fox"]),
            ("fox\ud800 a", "all", ["a red fox"]),
            ('"a blue" OR fox*', "all", ["a blue bird", "a red fox"]),
        ):
            hits = store.search(query, match=match, order="newest")  # type: ignore[arg-type]
            assert [hit.message.content for hit in hits] == found, query
        assert sum(store.admin.reindex()) >= 0
        assert len(store.search("red")) == 2


def test_a_tenants_key_searches_and_imports_without_being_an_operators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    with serving(f"sqlite:///{tmp_path}/chats.db", Settings(keys=keys.path)) as api:
        monkeypatch.setenv("HANSARD_KEY", keys.create("x", ["read", "write"], tenant="acme")[1])
        with sync.connect("memory://") as source, sync.connect(api.address) as store:
            source.append_message("c", "user", "the words")
            acme = store.tenant("acme")
            assert acme.import_(source.export()).conversations == 1
            assert [hit.message.content for hit in acme.search("words")] == ["the words"]
            for refused in (lambda: store.search("words"), lambda: list(store.admin.reindex())):
                with pytest.raises(Denied):
                    refused()


def test_terms_that_nobody_typed_are_not_sent() -> None:
    made_up = Query("red", ((Clause((Phrase(('" OR owner: "x',)),)),),))
    with serving() as api:

        async def play() -> None:
            async with connect(api.address) as store:
                backend = cast(Indexed, store.backend)
                with pytest.raises(ValidationError):
                    await backend.search(Context("default", datetime.now(UTC)), Lookup(made_up))

        asyncio.run(play())


HOSTILE: list[tuple[str, dict[str, Any]]] = [
    (
        "append",
        {
            "id": "c",
            "append": {
                "drafts": [
                    {"message": {"role": "x", "content": None, "id": "m"}, "body": "", "size": 0, "given_id": True}
                ],
                "new": None,
            },
        },
    ),
    (
        "append",
        {
            "id": "c",
            "append": {
                "drafts": [
                    {
                        "message": {"role": "user", "content": None, "id": "m", "format": "json"},
                        "body": "{",
                        "size": 1,
                        "given_id": True,
                    }
                ],
                "new": None,
            },
        },
    ),
    ("append", {"id": "c", "append": {"drafts": [], "new": {}, "blobs": {"a" * 64: "AAAA"}}}),
    ("append", {"id": "", "append": {"drafts": [], "new": {}}}),
    ("append", {"id": "c", "append": {"drafts": [], "new": {}, "expected_version": 10**30}}),
    ("get_messages", {"id": "c", "query": {"above": [10**30, 0]}}),
    ("get_messages", {"id": "c", "query": {"limit": -1}}),
    ("list_conversations", {"query": {"offset": -1}}),
    ("scan_records", {"query": {"limit": -(2**62)}}),
    ("get_messages", {"id": "c\u0000", "query": {}}),
    ("search", {"lookup": {"text": "x", "any": False, "where": {"query": {"text": ""}, "limit": 0}}}),
    ("search", {"lookup": {"text": "x", "any": False, "where": {"query": {"text": ""}, "branch": "b"}}}),
    ("search", {"lookup": {"text": "x", "any": False, "where": {"query": {"text": ""}, "below": [10**30, 0, ""]}}}),
    ("search", {"lookup": {"text": "x", "any": False, "where": {}}}),
    ("append", {"id": "c", "append": {"drafts": [], "new": {}}}),
    ("sweep", {"context": {"tenant": "default", "now": "0001-01-01T00:00:00Z"}, "limit": 5}),
    ("restore", {"restore": {"image": {"conversation": {"id": "c"}, "seq": 0, "lanes": []}}}),
    ("restore", {"restore": {"image": {"conversation": {"id": "c"}, "seq": -1, "lanes": [{"id": "main", "line": 0}]}}}),
    ("write_records", {"writes": [{"namespace": ["n"], "key": "k", "value": 5}]}),
    ("read_rows", {"id": "c", "after_seq": 2**70, "limit": 1, "max_bytes": 1}),
]


@pytest.mark.parametrize(("name", "arguments"), HOSTILE)
def test_what_no_store_would_send(name: str, arguments: dict[str, Any], tmp_path: Path) -> None:
    context = {"tenant": "default", "now": "2026-01-01T00:00:00Z"}
    with serving(f"sqlite:///{tmp_path}/chats.db") as api:
        answer = api.post(f"/backend/{name}", json={"context": context, **arguments})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid"), answer.text


def test_terms_of_a_message_are_neither_sent_nor_taken_from_a_client() -> None:
    draft = Draft(Message("user", "Hello", "m1", format="text"), "Hello", 5, True, ("goodbye", ""))
    append = Append((draft,), None)
    for changed in (wire.pack(append), wire.unpack(append)):
        assert changed.drafts[0].terms is None
