"""Import by dropping a file: the export of another program, or one of ours, with progress and a report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from hansard.errors import Corrupt, Denied, FormatMismatch, QuotaExceeded, ValidationError
from hansard.importers import ImportReport, importers
from hansard.model import Report
from hansard.server import uploads
from hansard.server.endpoints import BYTES, HttpResponse, Id, NoQuery
from hansard.server.problems import HttpError
from hansard.server.uploads import ImportFileQuery
from hansard.server.web import cookies
from hansard.server.web.page_request import NoForm, PageRequest, PageRoutes

routes = PageRoutes()

PROOF = b"hansard-proof"
"""The header with the proof of a form: the body is the file."""
_SIGN = b'{"hansard":'


class ImportOptions(Struct, frozen=True, forbid_unknown_fields=True):
    source: Id | None = None
    agent: Id | None = None
    only_count: bool = False


@routes.page("/import")
async def see_import(request: PageRequest[NoQuery, NoForm]) -> HttpResponse:
    """The page to drop a file on."""
    if not request.may("write"):
        raise Denied("importing needs a key with the scope write")
    return request.render("import.html", sources=[importer.name for importer in importers()])


@routes.form("/import/{file_name}", consumes=BYTES)
async def do_import(request: PageRequest[ImportOptions, None]) -> HttpResponse:
    """Imports a file, and reports what was stored and what was not."""
    proof = request.headers.get(PROOF, b"").decode("latin-1")
    cookies.check_form(request, proof)
    options = request.query
    async with uploads.received(request, request.path[0]) as path:
        if _is_own_export(path) and options.source is None:
            report: Report | ImportReport = await _restore(request, path, only_count=options.only_count)
        else:
            query = ImportFileQuery(source=options.source, agent_id=options.agent, dry_run=options.only_count)
            report = await uploads.imported(request, path, query)
    request.services.forget()
    template = "import_own_report.html" if isinstance(report, Report) else "import_report.html"
    values = {"report": report, "file": request.path[0], "only_count": options.only_count}
    return request.render_fragment(template, **values)


def _is_own_export(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(200).replace(b" ", b"").startswith(_SIGN)


async def _restore(request: PageRequest[ImportOptions, None], path: Path, *, only_count: bool) -> Report:
    if only_count:
        raise ValidationError("an export of Hansard cannot only be counted: import it, what is stored already stays")
    try:
        return await request.store.import_(_lines(path, request.context.settings.max_body_bytes))
    except (Corrupt, FormatMismatch) as error:
        # The file is damaged, not the store, so the reader gets the message.
        raise HttpError(422, error) from error


def _lines(path: Path, most: int) -> Iterator[bytes]:
    """Yields the lines of a file. Refuses a line that is longer than the API accepts: it would be held in memory."""
    with path.open("rb") as file:
        while line := file.readline(most + 1):
            if len(line) > most:
                text = f"a line of the file is longer than {most:,} bytes"
                raise HttpError(413, QuotaExceeded(text, limit=most, value=len(line)))
            yield line
