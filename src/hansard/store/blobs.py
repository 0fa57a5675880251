"""Blobs: bytes stored once for each tenant, by their SHA-256."""

from __future__ import annotations

from hansard import codec, rules
from hansard.errors import Denied, NotFound, ValidationError
from hansard.model import Blob
from hansard.store import checks
from hansard.store.core import StorePart, View


class Blobs(StorePart):
    """`store.blobs`. Large base64 in messages becomes blobs automatically; this is for reading them as bytes."""

    def __init__(self, view: View) -> None:
        super().__init__(view)
        view.require(view.backend.capabilities.blobs, "blobs", "store blobs")

    async def put(self, data: bytes) -> Blob:
        """Stores the bytes `data`. A blob that no message refers to is deleted after `rules.BLOB_GRACE`."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise ValidationError(f"a blob is bytes, not a {type(data).__name__}")
        content = bytes(data)
        checks.count(len(content), "the size of the blob", self.limits.content_bytes, least=0)
        sha256 = codec.sha256_of(content)
        context = self._view.context()
        await self._backend.put_blob(context, sha256, content, context.now + rules.BLOB_GRACE)
        return Blob(sha256, len(content))

    async def get(
        self, sha256: str, *, conversation_id: str | int | None = None, message_id: str | int | None = None
    ) -> bytes:
        """Returns the bytes of a blob.

        - `sha256`: its hash.
        - `conversation_id`, `message_id`: a message that refers to it. A user's view must name one of the user's own.
        """
        digest = checks.text(sha256, "sha256")
        if (conversation_id is None) != (message_id is None):
            raise ValidationError("conversation_id and message_id go together: they name the message that has the blob")
        context = self._view.context()
        if conversation_id is not None and message_id is not None:
            id = checks.id_of(conversation_id, "conversation_id", self.limits)
            wanted = checks.message_id(message_id, self.limits)
            messages = await self._backend.find_messages(context, id, [wanted])
            if not any(ref.sha256 == digest for message in messages for ref in message.blobs):
                raise NotFound(f"message {wanted!r} of conversation {id!r} refers to no blob {digest}")
        elif self._view.user is not None:
            raise Denied("a user's view reads a blob through its message: give conversation_id and message_id")
        found = await self._backend.get_blobs(context, [digest])
        if digest not in found:
            raise NotFound(f"there is no blob {digest}")
        data = found[digest]
        codec.check_blob(digest, data, f"tenant {context.tenant!r}")
        return data
