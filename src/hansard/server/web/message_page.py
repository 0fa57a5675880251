"""The page of one message, its JSON, and its images, audio and documents."""

from __future__ import annotations

import base64
import binascii
import re
from urllib.parse import quote

import msgspec
from markupsafe import Markup

from hansard import formats
from hansard.errors import NotFound
from hansard.executor import run_in_thread
from hansard.formats.parts import Media, split_data_url
from hansard.rendering import highlight
from hansard.server.endpoints import HttpResponse, NoQuery
from hansard.server.web import content, headings, transcript
from hansard.server.web.conversation import ONE, MessageSlice, base_of, neighbours_of
from hansard.server.web.page_request import SANDBOX_HEADERS, NoForm, PageRequest, PageRoutes
from hansard.server.web.transcript import TranscriptContext

MESSAGE = ONE + "/m/{message_id}"
routes = PageRoutes()

_SHOWN = {
    *("image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"),
    *("audio/mpeg", "audio/mp3", "audio/wav", "audio/x-wav", "audio/ogg", "audio/webm", "audio/mp4", "audio/flac"),
}
"""Types that a browser may show. Everything else, such as SVG with scripts, is only sent as a download."""
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"ID3", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
)
_NUMBER = re.compile(r"[0-9]{1,6}")


@routes.page(MESSAGE)
async def see_message(request: PageRequest[NoQuery, NoForm]) -> HttpResponse:
    """A message by itself."""
    conversation = await request.conversation()
    message = await request.store.get_message(conversation.id, request.path[1], blobs="refs")
    base = base_of(request, conversation)
    neighbours = await neighbours_of(request, MessageSlice([message], message.branch, has_older=True, has_newer=True))
    transcript_context = TranscriptContext(
        conversation, base, request.may("write"), neighbours=neighbours, most=content.WHOLE
    )
    html = await run_in_thread(transcript.render_message, message, transcript_context)
    raw = content.pretty(message)
    return request.render(
        "message.html",
        html=html,
        message=message,
        heading=await headings.heading_of(request.store, conversation),
        conversation=conversation,
        base=base,
        raw=Markup(highlight.json(raw[: content.MOST])),
        is_raw_cut=len(raw) > content.MOST,
        is_text=isinstance(message.content, str) and not message.blobs,
    )


@routes.page(MESSAGE + "/raw")
async def see_message_json(request: PageRequest[NoQuery, NoForm]) -> HttpResponse:
    """A message as it is stored, as JSON."""
    message = await request.store.get_message(request.path[0], request.path[1])
    return HttpResponse(
        msgspec.json.format(msgspec.json.encode(message), indent=2) + b"\n", 200, SANDBOX_HEADERS, "application/json"
    )


@routes.page(MESSAGE + "/media/{number}")
async def see_media(request: PageRequest[NoQuery, NoForm]) -> HttpResponse:
    """The bytes of an image, audio or document."""
    message = await request.store.get_message(request.path[0], request.path[1])
    found = content.media_of(formats.read(message))
    number = request.path[2]
    if not _NUMBER.fullmatch(number) or int(number) >= len(found):
        raise NotFound(f"the message has no part {number[:20]!r}")
    media = found[int(number)]
    data, type = _bytes_of(media)
    if type in _SHOWN:
        return HttpResponse(data, 200, SANDBOX_HEADERS, type)
    name = quote(media.name or f"part-{number}", safe="")
    disposition = (b"content-disposition", f"attachment; filename*=UTF-8''{name}".encode())
    return HttpResponse(data, 200, (*SANDBOX_HEADERS, disposition), "application/octet-stream")


def _bytes_of(media: Media) -> tuple[bytes, str]:
    """Returns the bytes and their media type, detected from the first bytes, else as declared."""
    claimed, encoded = media.media_type or "", media.data
    if not encoded and media.url is not None:
        claimed, encoded = split_data_url(media.url) or (claimed, None)
    if not encoded:
        raise NotFound("the bytes are not stored here")
    try:
        altchars = b"-_" if "-" in encoded or "_" in encoded else None
        data = base64.b64decode("".join(encoded.split()), altchars=altchars, validate=True)
    except (binascii.Error, ValueError) as error:
        raise NotFound("what is stored is not base64") from error
    return data, _sniffed(data) or claimed.lower()


def _sniffed(data: bytes) -> str | None:
    if data[:4] == b"RIFF":
        return {b"WAVE": "audio/wav", b"WEBP": "image/webp"}.get(data[8:12])
    return next((type for magic, type in _MAGIC if data.startswith(magic)), None)
