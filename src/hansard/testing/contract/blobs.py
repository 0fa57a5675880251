"""Large base64 is stored once, as a blob; content is still returned unchanged."""

from __future__ import annotations

import base64
import hashlib
import random
from collections.abc import Callable
from typing import Any

import pytest

from hansard import rules
from hansard.errors import NotFound, ValidationError
from hansard.limits import Limits
from hansard.model import Message
from hansard.testing.clock import Clock
from hansard.testing.comparison import facts
from hansard.testing.contract.base import HOUR, Contract, assert_exact, contents, history, require, rows, say
from hansard.testing.targets import Driver

SIZE = 6000


def data(seed: int, size: int = SIZE) -> bytes:
    return random.Random(seed).randbytes(size)


def picture(seed: int) -> list[Any]:
    """Content with a picture inside, as a model's API takes it."""
    url = "data:image/png;base64," + base64.b64encode(data(seed)).decode()
    return [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": url, "detail": "low"}}]


def spare_bits(last: str) -> str:
    """Returns another last character for the same bytes, so that encoding them again returns another text."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    return alphabet[alphabet.index(last) + 1]


def count(store: Driver) -> int:
    return store.stats().blobs


class TestBlobs(Contract):
    needs = ("blobs",)

    def test_content_with_blobs_is_returned_unchanged(self, store: Driver) -> None:
        stored = say(store, "c", picture(1))[0]
        assert facts(stored.content) == facts(picture(1))
        read = store.get_messages("c")[0]
        assert facts(read.content) == facts(picture(1))
        assert read.blobs == ()
        assert facts(store.get_message("c", stored.id)) == facts(read) == facts(stored)
        assert history(store, "c") == [picture(1)]
        assert count(store) == 1

    def test_content_may_be_read_as_references(self, store: Driver) -> None:
        id = say(store, "c", picture(1))[0].id
        for read in (store.get_messages("c", blobs="refs")[0], store.get_message("c", id, blobs="refs")):
            assert read.content[1]["image_url"] == {"url": "", "detail": "low"}
            (ref,) = read.blobs
            assert ref.sha256 == hashlib.sha256(data(1)).hexdigest()
            assert (ref.size, ref.path) == (SIZE, (1, "image_url", "url"))
            assert (ref.prefix, ref.media_type) == ("data:image/png;base64,", "image/png")
            assert store.blobs.get(ref.sha256) == data(1)
            assert store.blobs.get(ref.sha256, conversation_id="c", message_id=id) == data(1)

    def test_equal_bytes_are_stored_once(self, store: Driver) -> None:
        for conversation in ("c", "d"):
            say(store, conversation, picture(1), picture(1), {"again": picture(1), "other": picture(2)})
        assert count(store) == 2
        assert history(store, "d")[2] == {"again": picture(1), "other": picture(2)}

    def test_a_plain_base64_text_is_stored_as_a_blob(self, store: Driver) -> None:
        text = base64.b64encode(data(3)).decode()
        say(store, "c", text)
        assert count(store) == 1
        assert history(store, "c") == [text]

    @rows(
        "change",
        [
            lambda text: text + "=",
            lambda text: text[:-1],
            lambda text: text[:100] + "\n" + text[100:],
            lambda text: text.replace("+", "-").replace("/", "_"),
            lambda text: text + " ",
            lambda text: text[:-3] + spare_bits(text[-3]) + "==",
            lambda text: "data:image/png," + text,
            lambda text: text[:4000],
        ],
        ids=["padding", "cut", "newline", "url-safe", "space", "spare bits", "no base64", "small"],
    )
    def test_text_that_is_not_exact_base64_is_stored_as_text(self, store: Driver, change: Any) -> None:
        odd = change(base64.b64encode(data(4, SIZE + 1)).decode())
        say(store, "c", {"x": odd}, odd)
        assert history(store, "c") == [{"x": odd}, odd]
        assert count(store) == 0

    def test_content_cannot_forge_a_reference_to_a_blob(self, store: Driver) -> None:
        say(store, "c", picture(1))
        read = store.get_messages("c", blobs="refs")[0]
        forged = {"sha256": read.blobs[0].sha256, "$blob": read.blobs[0].sha256}
        say(store, "d", forged)
        assert history(store, "d") == [forged]
        with pytest.raises(ValidationError):
            store.append("d", Message("user", "", blobs=read.blobs))
        assert history(store, "d") == [forged]

    def test_deleting_removes_blobs_without_other_references(self, store: Driver) -> None:
        shared, own = say(store, "c", picture(1), picture(2))
        say(store, "d", picture(1))
        assert store.delete_message("c", own.id).blobs == 1
        assert count(store) == 1
        assert store.delete_message("c", shared.id).blobs == 0
        assert history(store, "d") == [picture(1)]
        assert store.delete_conversation("d").blobs == 1
        assert count(store) == 0

    def test_every_kind_of_removal_removes_blobs(self, store: Driver) -> None:
        removals: list[Callable[[], object]] = [
            lambda: store.pop_message("c"),
            lambda: store.clear_messages("c"),
            lambda: store.replace_messages("c", []),
            lambda: store.update_message("c", store.get_messages("c")[0].id, content="plain"),
        ]
        for number, remove in enumerate(removals):
            say(store, "c", picture(number))
            assert count(store) == 1
            remove()
            store.purge()
            assert count(store) == 0
            store.clear_messages("c")
        assert store.check() == []

    def test_a_blob_stays_while_a_branch_refers_to_it(self, store: Driver) -> None:
        require(store, "branches")
        say(store, "c", "a", picture(1))
        store.branch("c", branch_id="side")
        store.pop_message("c")
        store.purge()
        assert history(store, "c", branch="main") == ["a", picture(1)]

    def test_updating_content_replaces_its_blobs(self, store: Driver) -> None:
        id = say(store, "c", picture(1))[0].id
        updated = store.update_message("c", id, content=picture(2))
        assert facts(updated.content) == facts(picture(2))
        assert history(store, "c") == [picture(2)]
        store.purge()
        assert count(store) == 1
        updated = store.update_message("c", id, pinned=True)
        assert facts(updated.content) == facts(picture(2))
        assert_exact(store, "c")

    def test_a_popped_message_is_returned_with_its_blobs(self, store: Driver) -> None:
        # Its blob may be removed with it, so it must be read before.
        say(store, "c", "x", picture(1))
        popped = store.pop_message("c")
        assert popped is not None
        assert facts(popped.content) == facts(picture(1))
        assert popped.blobs == ()
        assert count(store) == 0

    def test_a_duplicate_is_returned_with_its_blobs(self, store: Driver) -> None:
        require(store, "our ids")
        store.append("c", Message("user", picture(1), id="m"))
        again = store.append("c", Message("user", "other", id="m"))
        assert facts(contents(again.messages)) == facts([picture(1)])
        store.replace_messages("c", [Message("user", picture(1), id="m"), Message("user", picture(2))])
        assert history(store, "c") == [picture(1), picture(2)]

    def test_an_unreferenced_blob_is_purged_after_the_grace_period(self, store: Driver, clock: Clock) -> None:
        blob = store.blobs.put(b"bytes\0\xff")
        assert (blob.size, blob.sha256) == (7, hashlib.sha256(b"bytes\0\xff").hexdigest())
        assert store.blobs.get(blob.sha256) == b"bytes\0\xff"
        assert store.blobs.put(b"bytes\0\xff") == blob
        assert store.blobs.get(store.blobs.put(b"").sha256) == b""
        clock.advance(rules.BLOB_GRACE - HOUR / 2)
        store.purge()
        assert store.blobs.get(blob.sha256), "it is kept for the grace period"
        clock.advance(HOUR)
        assert store.purge().blobs == 2
        with pytest.raises(NotFound):
            store.blobs.get(blob.sha256)

    def test_putting_a_blob_again_renews_the_grace_period(self, store: Driver, clock: Clock) -> None:
        blob = store.blobs.put(b"x")
        clock.advance(rules.BLOB_GRACE - HOUR / 2)
        store.blobs.put(b"x")
        clock.advance(HOUR * 0.75)
        store.purge()
        assert store.blobs.get(blob.sha256) == b"x"

    def test_a_missing_blob_is_not_found(self, store: Driver) -> None:
        with pytest.raises(NotFound):
            store.blobs.get("0" * 64)

    def test_a_blob_is_not_read_through_a_message_without_it(self, store: Driver) -> None:
        first, second = say(store, "c", picture(1), picture(2))
        sha256 = store.get_message("c", first.id, blobs="refs").blobs[0].sha256
        with pytest.raises(NotFound):
            store.blobs.get(sha256, conversation_id="c", message_id=second.id)

    def test_the_blob_threshold_is_configurable(self, store: Driver) -> None:
        never = store.again(limits=Limits(blob_bytes=0))
        say(never, "c", picture(1))
        assert count(store) == 0
        early = store.again(limits=Limits(blob_bytes=16))
        say(early, "d", base64.b64encode(b"0123456789ab").decode())
        assert count(store) == 1
        assert history(store, "c") == [picture(1)]
        assert history(store, "d") == [base64.b64encode(b"0123456789ab").decode()]
