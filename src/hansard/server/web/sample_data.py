"""Sample data: several weeks of conversations of several agents and users.

The sample is an export, `sample.jsonl.gz`, whose times are shifted so that it ends now. It can be loaded twice:
existing conversations stay unchanged. To change the sample, change a store that contains it and export it again.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.resources import files

import msgspec
from msgspec import Struct

from hansard.connection import connect
from hansard.store import Store
from hansard.transfer.format import Checksum

_TIME = re.compile(rb'(?<=_at":")[^"]+')
_SEAL = re.compile(rb'(?<=^\{"type":")((?:check|end|eof)".*"sha256":")[0-9a-f]{64}')
_CONVERSATION = b'{"type":"conversation"'


class SampleReport(Struct, frozen=True):
    conversations: int
    messages: int


class _Header(Struct):
    exported_at: datetime


async def load_sample_into(url: str, tenant: str | None, user: str | None) -> SampleReport:
    """Loads the sample into the store of a URL, in the view of a tenant and a user."""
    async with connect(url) as store:
        view = store if tenant is None else store.tenant(tenant)
        return await load_sample(view if user is None else view.user(user))


async def load_sample(store: Store, now: datetime | None = None) -> SampleReport:
    """Loads the conversations of the sample that the view does not have yet."""
    report = await store.import_(_lines(now or datetime.now(UTC), store.user_id))
    return SampleReport(report.conversations, report.messages)


def _lines(now: datetime, owner: str | None) -> Iterator[bytes]:
    """Yields the export with shifted times and new checksums; with an owner, all conversations belong to them."""
    packed = (files("hansard.server.web") / "sample.jsonl.gz").read_bytes()
    first, *lines = gzip.decompress(packed).splitlines()
    yield first
    passed = now - msgspec.json.decode(first, type=_Header).exported_at
    seal = Checksum()
    for line in lines:
        moved = _TIME.sub(lambda found: _later(found[0], passed), line)
        if owner is not None and moved.startswith(_CONVERSATION):
            moved = _owned(moved, owner)
        moved = _SEAL.sub(rb"\g<1>" + seal.sha256.encode(), moved)
        seal.add([moved])
        yield moved


def _later(time: bytes, passed: timedelta) -> bytes:
    at = datetime.fromisoformat(time.decode()) + passed
    return at.isoformat().replace("+00:00", "Z").encode()


def _owned(line: bytes, owner: str) -> bytes:
    given = msgspec.json.decode(line)
    given["conversation"]["user_id"] = owner
    return msgspec.json.encode(given)
