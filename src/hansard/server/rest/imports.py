"""Uploads of other programs' exports, stored in the caller's view."""

from __future__ import annotations

from hansard.errors import Conflict, QuotaExceeded, Unsupported
from hansard.importers import ImportReport
from hansard.server import uploads
from hansard.server.endpoints import BYTES, Routes
from hansard.server.request import Request
from hansard.server.uploads import ImportFileQuery

routes = Routes()


@routes.post("/import/{file_name}", consumes=BYTES, errors=(Conflict, QuotaExceeded, Unsupported))
async def import_file(request: Request[ImportFileQuery, None]) -> ImportReport:
    """Imports a file of another program, such as the zip of ChatGPT, and reports what was stored and what was not.

    The file's name tells what it may be. `dry_run` only counts. Can be repeated: only what is new is stored.
    """
    async with uploads.received(request, request.path[0]) as path:
        return await uploads.imported(request, path, request.query)
