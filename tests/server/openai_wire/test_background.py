"""Responses in the background: polled, followed, cancelled, deleted; and left behind by a server that was killed."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.server.openai_wire.conftest import client_of
from tests.server.openai_wire.endpoint import endpoint
from tests.server.openai_wire.stored import Kit, kit, missing, texts
from tests.server.test_server import serving as serving_process
from tests.wait import PATIENCE, coming, until

from hansard import sync
from hansard.server.openai import background, response_record

ENDED = ("completed", "failed", "cancelled", "incomplete")


@pytest.fixture(scope="module")
def served() -> Iterator[Kit]:
    with kit() as made:
        yield made


@pytest.fixture
def stored(served: Kit) -> Iterator[Kit]:
    model = served.model
    model.says, model.breaks, model.id, model.output, model.script = "It is on its way.", "", None, None, None
    model.asked, model.hung_up, model.waits = [], threading.Event(), None
    yield served
    if model.waits is not None:
        model.waits.set()


def begin(kit: Kit, **more: Any) -> Any:
    """A response that the endpoint is still thinking about."""
    kit.model.waits = threading.Event()
    asked = kit.model.count
    made = kit.ask(background=True, **more)
    until(lambda: kit.model.count > asked)
    return made


def end(kit: Kit, id: str) -> Any:
    """The response when it has come to its end."""
    if kit.model.waits is not None:
        kit.model.waits.set()
    return until(lambda: found if (found := kit.client.responses.retrieve(id)).status in ENDED else None)


class TestPolling:
    @pytest.mark.parametrize("place", ["conversation", "alone", "previous"])
    def test_to_the_end(self, stored: Kit, place: str) -> None:
        more: dict[str, Any] = {"metadata": {"a": "b"}, "instructions": "Be short."}
        if place == "conversation":
            more["conversation"] = stored.client.conversations.create().id
        if place == "previous":
            more["previous_response_id"] = stored.ask("before").id
        made = begin(stored, **more)
        assert (made.status, made.background, made.output) == ("queued", True, [])
        assert (made.metadata, made.instructions, made.model) == ({"a": "b"}, "Be short.", "m-1")
        assert "background" not in stored.model.asked[-1]
        waiting = stored.client.responses.retrieve(made.id)
        assert waiting.status in ("queued", "in_progress")
        assert texts(stored.client.responses.input_items.list(made.id)) == ["Where is my order?"]
        done = end(stored, made.id)
        assert (done.status, done.output_text, done.background) == ("completed", "It is on its way.", True)
        assert done.id == made.id
        if place == "conversation":
            assert done.conversation is not None
            said = texts(stored.client.conversations.items.list(done.conversation.id))
            assert said == ["It is on its way.", "Where is my order?"]
        assert len(stored.client.responses.input_items.list(made.id).data) == 1
        again = stored.ask("And now?", previous_response_id=made.id)
        assert again.output_text
        assert [item["content"] for item in stored.model.asked[-1]["input"]][-3:] == [
            "Where is my order?",
            "It is on its way.",
            "And now?",
        ]

    def test_async(self, stored: Kit) -> None:
        async def run() -> None:
            address = stored.api.address + "/v1"
            async with openai.AsyncOpenAI(base_url=address, api_key="x", max_retries=0) as client:
                made = await client.responses.create(model="m", input="hi", background=True)

                async def ended() -> Any:
                    found = await client.responses.retrieve(made.id)
                    return found if found.status in ENDED else None

                found = await coming(ended)
                assert found.output_text == "It is on its way."
                assert (await client.responses.cancel(made.id)) == found, "too late"

        asyncio.run(run())

    def test_the_lease_is_renewed(self, stored: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(response_record, "LEASE", timedelta(seconds=1))
        monkeypatch.setattr(background, "_RENEW", 0.1)
        made = begin(stored)
        began = datetime.now(UTC)
        until(lambda: datetime.now(UTC) - began > timedelta(seconds=2))
        assert stored.client.responses.retrieve(made.id).status == "queued"
        assert end(stored, made.id).status == "completed"

    @pytest.mark.parametrize(
        ("breaks", "code"), [("refuse", "invalid_prompt"), ("fail", "server_error"), ("middle", "server_error")]
    )
    def test_an_endpoint_that_fails(self, stored: Kit, breaks: str, code: str) -> None:
        stored.model.breaks = breaks
        id = stored.client.conversations.create().id
        made = stored.ask(background=True, conversation=id)
        done = end(stored, made.id)
        assert done.status == "failed"
        assert done.error is not None
        assert done.error.code == code
        assert stored.client.conversations.items.list(id).data == [], "nothing is left in the conversation"
        with pytest.raises(openai.BadRequestError):
            stored.ask(previous_response_id=made.id)
        stored.client.responses.delete(made.id)
        assert missing(stored.client.responses.retrieve, made.id)

    def test_what_is_refused(self, stored: Kit) -> None:
        with pytest.raises(openai.BadRequestError) as caught:
            stored.ask(background=True, store=False)
        assert caught.value.param == "store"
        assert missing(stored.ask, background=True, conversation="conv_never")
        assert stored.model.count == 0

    def test_nothing_said_at_all(self, stored: Kit) -> None:
        id = stored.client.conversations.create(items=[{"role": "user", "content": "hi"}]).id
        whole = {**stored.model.response(), "output": []}
        data = {"type": "response.completed", "sequence_number": 0, "response": whole}
        stored.model.script = iter([f"event: response.completed\ndata: {json.dumps(data)}\n\n"])
        made = stored.client.responses.create(model="m", conversation=id, background=True)
        done = end(stored, made.id)
        assert (done.status, done.output) == ("completed", [])

    @pytest.mark.parametrize(
        "status", [{}, {"status": None}, {"status": 5}, {"status": "queued"}, {"status": "failed"}]
    )
    def test_an_endpoint_that_ends_without_an_answer(self, stored: Kit, status: dict[str, Any]) -> None:
        whole = {name: value for name, value in stored.model.response().items() if name != "status"}
        data = {"type": "response.failed", "sequence_number": 0, "response": {**whole, **status, "output": []}}
        stored.model.script = iter([f"event: response.failed\ndata: {json.dumps(data)}\n\n"])
        made = stored.ask(background=True)
        done = end(stored, made.id)
        assert done.status == "failed"
        assert done.error is not None
        assert stored.client.responses.cancel(made.id) == done
        assert list(stored.client.responses.retrieve(made.id, stream=True))[-1].type == "response.failed"

    @pytest.mark.parametrize("place", ["conversation", "alone"])
    def test_it_is_there_at_every_moment(self, stored: Kit, place: str) -> None:
        """Also between the writes that store an answer."""

        def statuses(id: str) -> list[str | None]:
            seen: list[str | None] = ["queued"]
            while seen[-1] not in ENDED:
                seen.append(stored.client.responses.retrieve(id).status)
            return seen

        for _ in range(5):
            named = {"conversation": stored.client.conversations.create().id} if place == "conversation" else {}
            made = begin(stored, **named)
            with ThreadPoolExecutor(4) as pool:
                polls = [pool.submit(statuses, made.id) for _ in range(4)]
                assert stored.model.waits is not None
                stored.model.waits.set()
                for poll in polls:
                    seen = poll.result(PATIENCE)
                    assert seen[-1] == "completed"
                    assert set(seen) <= {"queued", "in_progress", "completed"}

    def test_no_more_than_a_process_can_take(self, stored: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(background, "_MOST", 1)
        made = begin(stored)
        with pytest.raises(openai.RateLimitError):
            stored.ask(background=True)
        assert end(stored, made.id).status == "completed"
        assert until(lambda: not missing(stored.ask, background=True))


class TestStream:
    def test_from_the_beginning(self, stored: Kit) -> None:
        seen: list[Any] = []
        stored.model.waits = threading.Event()
        for event in stored.ask(background=True, stream=True):
            seen.append(event)
            if event.type == "response.in_progress":
                stored.model.waits.set()
        assert seen[-1].type == "response.completed"
        assert [event.sequence_number for event in seen] == [*range(len(seen))]
        id = seen[-1].response.id
        assert id == seen[0].response.id
        again: list[Any] = list(stored.client.responses.retrieve(id, stream=True, starting_after=3))
        assert [event.sequence_number for event in again] == [*range(4, len(seen))], "it goes on where it broke"
        assert again == seen[4:]

    def test_who_leaves_ends_nothing(self, stored: Kit) -> None:
        stored.model.waits = threading.Event()
        stream = stored.ask(background=True, stream=True)
        id = next(stream).response.id
        stream.close()
        assert end(stored, id).status == "completed"

    def test_joined_while_under_way(self, stored: Kit) -> None:
        made = begin(stored)
        with ThreadPoolExecutor(1) as pool:
            follow = pool.submit(lambda: list(stored.client.responses.retrieve(made.id, stream=True, starting_after=1)))
            end(stored, made.id)
            assert follow.result(PATIENCE)[-1].type == "response.completed"

    def test_one_that_is_cancelled_or_deleted(self, stored: Kit) -> None:
        for change, last in (
            (stored.client.responses.cancel, "response.incomplete"),
            (stored.client.responses.delete, "error"),
        ):
            made = begin(stored)
            with ThreadPoolExecutor(1) as pool:
                stream = stored.client.responses.retrieve(made.id, stream=True)
                next(stream)
                follow = pool.submit(list, stream)
                change(made.id)
                assert follow.result(PATIENCE)[-1].type == last


class TestCancel:
    def test_the_endpoint_is_hung_up_on(self, stored: Kit) -> None:
        def forever() -> Iterator[str]:
            while True:
                yield ": still there\n\n"

        stored.model.script = forever()
        id = stored.client.conversations.create().id
        made = stored.ask(background=True, conversation=id)
        until(lambda: stored.model.count)
        done = stored.client.responses.cancel(made.id)
        assert (done.status, done.output, done.error) == ("cancelled", [], None)
        assert stored.model.hung_up.wait(PATIENCE)
        assert stored.client.responses.cancel(made.id) == done, "to cancel it again is no harm"
        assert stored.client.responses.retrieve(made.id) == done
        assert stored.client.conversations.items.list(id).data == []

    def test_before_the_endpoint_has_said_anything(self, stored: Kit) -> None:
        made = begin(stored)
        assert stored.client.responses.cancel(made.id).status == "cancelled"
        assert stored.model.waits is not None
        stored.model.waits.set()
        assert stored.client.responses.retrieve(made.id).status == "cancelled"

    def test_only_in_the_background(self, stored: Kit) -> None:
        with pytest.raises(openai.BadRequestError):
            stored.client.responses.cancel(stored.ask().id)

    def test_by_several_at_once(self, stored: Kit) -> None:
        made = begin(stored)
        with ThreadPoolExecutor(8) as pool:
            done = list(pool.map(lambda _: stored.client.responses.cancel(made.id).status, range(8)))
        assert done == ["cancelled"] * 8

    def test_cancelled_deleted_and_answered_at_once(self, stored: Kit) -> None:
        """Whoever wins, the response is one thing to everybody, and what is deleted leaves nothing behind."""
        for number in range(12):
            made = begin(stored)
            calls = [stored.client.responses.cancel, stored.client.responses.delete] * 2
            assert stored.model.waits is not None
            with ThreadPoolExecutor(4) as pool:
                futures = [pool.submit(missing, call, made.id) for call in calls]
                stored.model.waits.set()
                deleted = [future.result(PATIENCE) for future in futures][1::2]
            assert sorted(deleted) == [False, True], number
            assert missing(stored.client.responses.retrieve, made.id)

    def test_its_conversation_is_deleted_meanwhile(self, stored: Kit) -> None:
        id = stored.client.conversations.create().id
        made = begin(stored, conversation=id)
        stored.client.conversations.delete(id)
        assert missing(stored.client.responses.retrieve, made.id)
        assert stored.model.waits is not None
        stored.model.waits.set()
        assert missing(stored.client.conversations.retrieve, id)

    def test_walls(self, stored: Kit) -> None:
        made = begin(stored)
        with client_of(stored.api, default_headers={"Hansard-User": "eve"}) as eve:
            assert missing(eve.responses.cancel, made.id)
            assert missing(eve.responses.delete, made.id)
        assert end(stored, made.id).status == "completed"


class TestServersThatEnd:
    @pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
    def test_a_response_does_not_stay_in_progress(self, tmp_path: Path, how: signal.Signals) -> None:
        with endpoint() as model:
            model.waits = threading.Event()
            with serving_process(tmp_path, "sqlite:///made.db", "--upstream", model.address) as (address, process):
                with openai.OpenAI(base_url=address + "/v1", api_key="x") as client:
                    made = client.responses.create(model="m", input="hi", background=True)
                    until(lambda: model.count)
                process.send_signal(how)
                process.wait(PATIENCE)
            model.waits.set()
        url = f"sqlite:///{tmp_path}/made.db"
        with sync.connect(url) as store:
            (record,) = store.records.scan(response_record.NAMESPACE).items
            if how == signal.SIGKILL:
                until_ = datetime.fromisoformat(record.value["lease_until"])
                assert until_ - datetime.now(UTC) <= response_record.LEASE
                # Nobody needs to wait here for the rest of it.
                value = {**record.value, "lease_until": (datetime.now(UTC) - timedelta(seconds=1)).isoformat()}
                store.records.put(response_record.NAMESPACE, record.key, value)
        with kit(url) as after:
            found = after.client.responses.retrieve(made.id)
            assert found.status == "failed"
            assert found.error is not None
            assert "ended before" in found.error.message
            assert after.client.responses.cancel(made.id) == found
            assert [event.type for event in after.client.responses.retrieve(made.id, stream=True)][
                -1
            ] == "response.failed"
            after.client.responses.delete(made.id)
            assert missing(after.client.responses.retrieve, made.id)

    @pytest.mark.parametrize(("seconds", "status"), [(30, "in_progress"), (-1, "failed")])
    def test_between_the_record_and_the_messages(self, tmp_path: Path, seconds: int, status: str) -> None:
        url = f"sqlite:///{tmp_path}/chats.db"
        with kit(url) as served, sync.connect(url) as store:
            made = served.ask(background=True, conversation=served.client.conversations.create().id)
            end(served, made.id)
            record = store.records.get(response_record.NAMESPACE, made.id)
            assert record is not None
            lease = (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()
            value = {**record.value, "is_claimed": True, "lease_until": lease, "last": "msg_never", "output": []}
            store.records.put(response_record.NAMESPACE, made.id, value, conversation_id=record.conversation_id)
            found = served.client.responses.retrieve(made.id)
            assert (found.status, found.output) == (status, [])

    def test_by_another_worker(self, tmp_path: Path) -> None:
        """Each request may meet another process: what it knows it has from the record."""
        url = f"sqlite:///{tmp_path}/chats.db"
        with kit(url) as one, kit(url) as two:
            made = begin(one)
            assert two.client.responses.retrieve(made.id).status == "queued"
            follow = two.client.responses.retrieve(made.id, stream=True)
            assert next(follow).type == "response.created"
            done = end(one, made.id)
            assert list(follow)[-1].type == "response.completed"
            assert two.client.responses.retrieve(made.id) == done
            made = begin(one)
            assert two.client.responses.cancel(made.id).status == "cancelled"
            assert one.client.responses.retrieve(made.id).status == "cancelled"
            assert one.model.waits is not None
            one.model.waits.set()
            assert one.client.responses.retrieve(made.id).status == "cancelled", "the answer comes too late"
