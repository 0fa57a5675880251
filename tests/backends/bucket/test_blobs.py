"""Blobs in a bucket, over real S3: written before their message, stored once, removed with the last reference."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from tests.backends.bucket.conftest import NO_S3, Prefixes
from tests.contract.backends import BACKENDS, BY_URL, quick_folder
from tests.server.test_server import serving as serving_process
from tests.servers import s3
from tests.wait import PATIENCE

import hansard
from hansard import Corrupt, Problem, Unavailable, Unsupported, ValidationError, sync
from hansard.backends import bucket_blobs
from hansard.backends.bucket import Bucket

pytestmark = NO_S3
DATA = b"a picture of an order" * 200
SHA256 = hashlib.sha256(DATA).hexdigest()
IMAGE = [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(DATA).decode()}}]
_ALL = ("sqlite", "files-delta", "postgres", "redis", "memory", "keyvalue-file", "cassandra")
STORAGES = [name for name in _ALL if name in BY_URL]
AWAY = "s3://bucket/x?endpoint=http://127.0.0.1:9&region=us-east-1"


@pytest.fixture(params=STORAGES)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with quick_folder() as folder:
        target = BACKENDS[request.param](folder)
        assert target.url is not None
        yield target.url
        target.discard()


def objects(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def problems(store: sync.Store) -> list[str]:
    return [found.what for found in store.admin.check() if isinstance(found, Problem)]


def test_a_blob_is_kept_once_and_removed_with_its_last_message(url: str, bucket: Prefixes) -> None:
    where, folder = bucket.new()
    with sync.connect(url, blobs=where) as store:
        first = store.append_message("one", "user", IMAGE)
        store.append_message("two", "user", IMAGE)
        assert objects(folder) == [f"default/{SHA256}"]
        assert (folder / "default" / SHA256).read_bytes() == DATA
        assert store.get_messages("one")[0].content == IMAGE
        assert store.blobs.get(SHA256) == DATA
        assert problems(store) == []

        assert store.delete_message("one", first).blobs == 0
        assert objects(folder) == [f"default/{SHA256}"]
        assert store.get_messages("two")[0].content == IMAGE
        receipt = store.delete_conversation("two")
        assert (receipt.blobs, receipt.physically_gone) == (1, False)
        assert objects(folder) == []


def test_check_finds_objects_that_are_missing_or_damaged(url: str, bucket: Prefixes) -> None:
    where, _ = bucket.new()
    with sync.connect(url, blobs=where) as store:
        store.append_message("c", "user", IMAGE)
        Bucket(where).put(f"default/{SHA256}", b"something else")
        assert [what for what in problems(store) if "damaged in the bucket" in what]
        with pytest.raises(Corrupt):
            store.get_messages("c")
        Bucket(where).remove(f"default/{SHA256}")
        assert [what for what in problems(store) if f"blob {SHA256} is missing in the bucket" in what]
        with pytest.raises(Corrupt):
            store.get_messages("c")


def test_without_its_bucket_a_store_says_where_the_blob_is(url: str, bucket: Prefixes) -> None:
    if url == "memory://":
        pytest.skip("memory is gone when it is closed")
    where, _ = bucket.new()
    with sync.connect(url, blobs=where) as store:
        store.append_message("c", "user", IMAGE)
    with sync.connect(url) as store:
        assert problems(store) == []
        assert store.get_messages("c", blobs="refs")[0].blobs[0].sha256 == SHA256
        with pytest.raises(Unavailable, match="is in a bucket: open the store with blobs="):
            store.get_messages("c")
        store.append_message("d", "user", IMAGE)
    with sync.connect(url, blobs=where) as store:
        assert store.get_messages("c")[0].content == IMAGE


def test_a_bucket_that_is_away_refuses_blobs_and_nothing_else(url: str, bucket: Prefixes) -> None:
    with sync.connect(url, blobs=AWAY) as store:
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9.*nothing was stored") as caught:
            store.append_message("c", "user", IMAGE)
        assert caught.value.outcome == "not_applied"
        assert store.get_conversation("c") is None
        store.append_message("c", "user", "words")
        assert [message.text for message in store.get_messages("c")] == ["words"]


def test_a_deletion_while_the_bucket_is_away_is_finished_by_purge(
    tmp_path: Path, bucket: Prefixes, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, folder = bucket.new()
    url = f"sqlite:///{tmp_path}/chats.db"
    with sync.connect(url, blobs=where) as store:
        store.append_message("c", "user", IMAGE)
    with sync.connect(url, blobs=AWAY) as store:
        assert not store.delete_conversation("c").physically_gone
        assert store.get_conversation("c") is None
    assert objects(folder) == [f"default/{SHA256}"]
    with sync.connect(url, blobs=where) as store:
        store.purge()
        assert objects(folder) == [f"default/{SHA256}"], "a young object may belong to a write in progress"
        monkeypatch.setattr(bucket_blobs, "_GRACE", timedelta())
        store.purge()
    assert objects(folder) == []


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("dies", [False, True])
def test_a_blob_that_is_stored_while_it_is_removed_is_not_lost(
    dies: bool, tmp_path: Path, bucket: Prefixes, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, folder = bucket.new()
    url, main = f"sqlite:///{tmp_path}/a.db", f"default/{SHA256}"
    remove = Bucket.remove
    with sync.connect(url, blobs=where) as store, sync.connect(url, blobs=where) as other:
        first = store.append_message("one", "user", IMAGE)

        def remove_late(self: Bucket, name: str) -> None:
            if name == main:
                monkeypatch.setattr(Bucket, "remove", remove)
                other.append_message("two", "user", IMAGE)
            remove(self, name)
            if dies:
                raise Killed

        monkeypatch.setattr(Bucket, "remove", remove_late)
        with pytest.raises(Killed) if dies else nullcontext():
            store.delete_message("one", first)
        assert other.get_messages("two")[0].content == IMAGE
        assert problems(other) == []
        monkeypatch.setattr(bucket_blobs, "_GRACE", timedelta())
        store.purge()
        assert objects(folder) == [main]
        other.delete_conversation("two")
        assert objects(folder) == []


def test_a_deletion_does_not_list_the_objects_of_the_tenant(
    tmp_path: Path, bucket: Prefixes, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, folder = bucket.new()
    with sync.connect(f"sqlite:///{tmp_path}/a.db", blobs=where) as store:
        monkeypatch.setattr(Bucket, "list", None)
        store.append_message("one", "user", IMAGE)
        store.branch("one", branch_id="other", activate=False)
        store.append_message("one", "user", [*IMAGE, {"type": "text", "text": "again"}], branch="other")
        store.delete_branch("one", "other")
        assert objects(folder) == [f"default/{SHA256}"]
        assert store.delete_conversation("one").blobs == 1
        assert not store.delete_conversation("one")
        assert objects(folder) == []


def test_a_copy_and_an_export_contain_the_bytes(tmp_path: Path, bucket: Prefixes) -> None:
    where, folder = bucket.new()
    option = f"?blobs={quote(where, safe='')}"
    with sync.connect(f"sqlite:///{tmp_path}/from.db{option}") as store:
        store.tenant("acme/1").append_message("c", "user", IMAGE)
        assert objects(folder) == [f"acme%2F1/{SHA256}"]
        with sync.connect(f"sqlite:///{tmp_path}/to.db") as other:
            store.tenant("acme/1").copy_to(other.tenant("acme/1"))
            assert other.tenant("acme/1").get_messages("c")[0].content == IMAGE
        assert store.admin.delete_tenant("acme/1")
    assert objects(folder) == []


@pytest.mark.parametrize("wrong", ["s3://", "gs://bucket", "s3://bucket?colour=red", "bucket"])
def test_a_wrong_bucket_is_refused(wrong: str) -> None:
    with pytest.raises(ValidationError, match="is not s3://BUCKET/PREFIX"):
        sync.connect("memory://", blobs=wrong)


@pytest.mark.parametrize("endpoint", ["nonsense", "ftp://server", "http://", "/"])
def test_a_wrong_endpoint_is_refused(endpoint: str) -> None:
    with pytest.raises(ValidationError, match="is not a URL that begins with https"):
        sync.connect("memory://", blobs=f"s3://bucket?endpoint={endpoint}")


def test_a_bucket_is_text() -> None:
    with pytest.raises(ValidationError, match="must be text, not a int"):
        sync.connect("memory://", blobs=5)  # type: ignore[arg-type]


def test_a_bucket_that_does_not_exist_is_unavailable(bucket: Prefixes, tmp_path: Path) -> None:
    missing = f"s3://nowhere/x?endpoint={bucket.endpoint}&region=us-east-1"
    with sync.connect(f"sqlite:///{tmp_path}/chats.db", blobs=missing) as store:
        with pytest.raises(Unavailable, match=r"nowhere.*does not exist.*nothing was stored") as caught:
            store.append_message("c", "user", IMAGE)
        assert caught.value.outcome == "not_applied"
        assert store.get_conversation("c") is None
    with pytest.raises(Unavailable, match="does not exist"):
        Bucket(missing).get("x")


@pytest.mark.parametrize("tenant", [".", "..", "a/b", "a%2Fb", "…"])
def test_each_tenant_has_a_folder(tenant: str, bucket: Prefixes, tmp_path: Path) -> None:
    where, folder = bucket.new()
    with sync.connect(f"sqlite:///{tmp_path}/chats.db", blobs=where) as store:
        view = store.tenant(tenant)
        view.append_message("c", "user", IMAGE)
        assert view.get_messages("c")[0].content == IMAGE
        assert len(objects(folder)) == 1
        assert view.delete_conversation("c").blobs == 1
        assert objects(folder) == []


@pytest.mark.parametrize("longer", ["inner", "inner/removed"])
def test_a_purge_leaves_the_objects_of_a_store_with_a_longer_prefix(
    longer: str, bucket: Prefixes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_blobs, "_GRACE", timedelta())
    where, folder = bucket.new()
    path, _, query = where.partition("?")
    with (
        sync.connect(f"sqlite:///{tmp_path}/outer.db", blobs=where) as outer,
        sync.connect(f"sqlite:///{tmp_path}/inner.db", blobs=f"{path}/{longer}?{query}") as inner,
    ):
        inner.append_message("c", "user", IMAGE)
        outer.purge()
        assert objects(folder) == [f"{longer}/default/{SHA256}"]
        assert inner.get_messages("c")[0].content == IMAGE


def test_a_store_without_blobs_of_its_own_is_refused() -> None:
    with pytest.raises(Unsupported, match="none keeps no blobs of its own"):
        sync.connect("none://", blobs=AWAY)


def test_a_server_keeps_blobs_in_the_bucket_of_its_url(tmp_path: Path, bucket: Prefixes) -> None:
    where, folder = bucket.new()
    secrets = {"AWS_ACCESS_KEY_ID": s3.KEY, "AWS_SECRET_ACCESS_KEY": s3.SECRET}
    url = f"sqlite:///made.db?blobs={quote(where, safe='')}"
    with serving_process(tmp_path, url, **secrets) as (address, _):
        body = {"messages": [{"role": "user", "content": IMAGE}]}
        path = address + "/api/v1/conversations/c/messages"
        assert httpx.post(path, json=body, timeout=PATIENCE).status_code == 200
        assert objects(folder) == [f"default/{SHA256}"]
        assert json.loads(httpx.get(path, timeout=PATIENCE).content)["items"][0]["content"] == IMAGE


def test_the_async_api_keeps_blobs_in_a_bucket(tmp_path: Path, bucket: Prefixes) -> None:
    where, folder = bucket.new()

    async def run() -> None:
        async with hansard.connect(f"sqlite:///{tmp_path}/chats.db", blobs=where) as store:
            await store.append_message("c", "user", IMAGE)
            assert (await store.get_messages("c"))[0].content == IMAGE
            assert (await store.pop_message("c")).content == IMAGE  # type: ignore[union-attr]

    asyncio.run(run())
    assert objects(folder) == []
