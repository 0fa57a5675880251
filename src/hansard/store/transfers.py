"""Moving conversations out of a store and into one: by a file, or directly into another store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from hansard.contract.backend import Indexed
from hansard.errors import ValidationError
from hansard.model import OnConflict, Progress, Report
from hansard.store import checks, marks
from hansard.store.core import StorePart, View

if TYPE_CHECKING:
    from hansard.exporters.redaction import Redact
    from hansard.exporters.report import ExportReport
    from hansard.transfer.format import Lines
    from hansard.transfer.selection import Choice, Selection
    from hansard.transfer.target import TransferTarget


class TransferMethods(StorePart):
    async def export(
        self,
        *,
        conversation_ids: Iterable[str | int] | None = None,
        user_id: str | int | None = None,
        agent_id: str | int | None = None,
        format: str = "hansard",
        metadata: Mapping[str, Any] | None = None,
        since: datetime | timedelta | None = None,
        until: datetime | timedelta | None = None,
        model: str | None = None,
        label: str | None = None,
        rating: float | None = None,
        redact: Redact | None = None,
        report: ExportReport | None = None,
    ) -> AsyncIterator[bytes]:
        """Yields the tenant as JSON Lines (docs/reference/export-format.md): all of it, or a part.

        Lossless and self-contained, with blobs, branches, summaries and records; streamed in constant memory. Or, with
        `format`, in the format of another program (docs/howto/export.md).

        - `conversation_ids`: only these conversations.
        - `user_id`, `agent_id`: only conversations of this owner, of this agent.
        - `format`: `"openai"`, `"preference"`, `"sharegpt"`, `"chatml"`, `"markdown"`, `"html"`, `"csv"`, `"parquet"`,
          `"chatgpt"`, `"chatgpt-zip"`, `"librechat"`, `"librechat-zip"` or that of a plugin.
        - `metadata`: only conversations whose metadata has these keys with equal values.
        - `since`, `until`: only conversations whose last message is not older, or is older; a time or an age.
        - `model`: only conversations in which this model answered.
        - `label`: only conversations that have this label themselves.
        - `rating`: only conversations with a message that somebody rated with this value.
        - `redact`: a function that every text passes through; native content and media are left out. Only for other
          formats.
        - `report`: is filled with what was written, and with what the format cannot represent. Only for other formats.
        """
        choice = self._choice(conversation_ids, user_id, agent_id)
        selection = self._selection(
            choice, metadata=metadata, since=since, until=until, model=model, label=label, rating=rating
        )
        if checks.text(format, "format") != "hansard":
            pieces = self._export_foreign(format, selection, redact, report)
        elif redact is not None or report is not None:
            raise ValidationError("Hansard's own format loses nothing: leave redact and report out")
        else:
            from hansard.transfer.export import export

            pieces = export(self._view, selection)
        async for piece in pieces:
            yield piece

    def _selection(
        self,
        choice: Choice,
        *,
        metadata: Mapping[str, Any] | None,
        since: datetime | timedelta | None,
        until: datetime | timedelta | None,
        model: str | None,
        label: str | None,
        rating: float | None,
    ) -> Selection:
        from hansard.transfer.selection import Selection

        now = self._view.clock()
        return Selection(
            choice,
            checks.metadata(metadata),
            None if since is None else checks.moment(since, now, "since"),
            None if until is None else checks.moment(until, now, "until"),
            checks.optional_text(model, "model"),
            None if label is None else marks.checked_label(label, self.limits),
            None if rating is None else marks.checked_value(rating),
        )

    def _export_foreign(
        self, format: str, selection: Selection, redact: Redact | None, report: ExportReport | None
    ) -> AsyncIterator[bytes]:
        from hansard.exporters import ExportReport, exporter_named
        from hansard.exporters.redaction import Redaction
        from hansard.exporters.source import export
        from hansard.store.store import Store

        redaction = None if redact is None else Redaction(checks.function(redact, "redact"))
        exporter = exporter_named(format)
        return export(cast(Store, self), exporter, selection, redaction, ExportReport() if report is None else report)

    async def import_(
        self,
        lines: Lines,
        *,
        on_conflict: OnConflict = "skip",
        verify: bool = False,
        progress: Progress | None = None,
    ) -> Report:
        """Stores an export. Safe to repeat; continues where it was interrupted.

        Equal content that is already stored is skipped. Nothing is stored before the hashes in the file are verified,
        and counts are compared afterwards.

        - `lines`: a file, its path, or its lines.
        - `on_conflict`: for a conversation that is stored with other content: `"skip"` leaves and reports it, `"error"`
          raises `Conflict`.
        - `verify`: also read back every message that was stored.
        - `progress`: called with the report so far.
        """
        from hansard.transfer.import_ import import_lines

        report = await import_lines(_target(self._view, on_conflict, progress, verify=verify), lines)
        await _catch_up(self._view)
        return report

    async def copy_to(
        self,
        other: TransferMethods,
        *,
        conversation_ids: Iterable[str | int] | None = None,
        user_id: str | int | None = None,
        agent_id: str | int | None = None,
        on_conflict: OnConflict = "skip",
        verify: bool = True,
        progress: Progress | None = None,
    ) -> Report:
        """Copies the tenant, or a part of it, exactly into another store, and verifies the copy by reading it back.

        Safe to repeat: continues where it was interrupted, and adds what was written since. The report lists what the
        other store cannot store exactly.

        - `other`: the store to copy into.
        - `conversation_ids`: only these conversations.
        - `user_id`, `agent_id`: only conversations of this owner, of this agent.
        - `on_conflict`, `progress`: as in `import_`.
        - `verify`: False does not read the copy back.
        """
        from hansard.transfer.copy import copy

        target = _target(_view_of(other), on_conflict, progress, verify=verify)
        report = await copy(self._view, target, self._choice(conversation_ids, user_id, agent_id))
        await _catch_up(target.view)
        return report

    def _choice(
        self, conversation_ids: Iterable[str | int] | None, user_id: str | int | None, agent_id: str | int | None
    ) -> Choice:
        from hansard.transfer.selection import Choice

        checks.only_one(conversation_ids=conversation_ids, user_id=user_id)
        checks.only_one(conversation_ids=conversation_ids, agent_id=agent_id)
        ids = None
        if conversation_ids is not None:
            given = checks.items(conversation_ids, "conversation_ids", "ids")
            ids = tuple(checks.id_of(id, "a conversation id", self.limits) for id in given)
        user = checks.optional_id(user_id, "user_id", self.limits)
        if self._view.user is not None and user not in (None, self._view.user):
            raise ValidationError("a user's view reads only that user's conversations: leave user_id out")
        return Choice(ids, user, checks.optional_id(agent_id, "agent_id", self.limits))


def _view_of(store: object) -> View:
    if not isinstance(store, StorePart):
        raise ValidationError(f"the other store must be a hansard.Store, not a {type(store).__name__}")
    return store._view


def _target(view: View, on_conflict: OnConflict, progress: Progress | None, *, verify: bool) -> TransferTarget:
    from hansard.transfer.target import TransferTarget

    checks.function(progress, "progress")
    conflict = checks.one_of(on_conflict, ("skip", "error"), "on_conflict")
    return TransferTarget(view, conflict, progress, verify=checks.flag(verify, "verify"))


async def copy_tenants(
    view: View,
    other: object,
    tenants: Iterable[str],
    on_conflict: OnConflict,
    progress: Progress | None,
    *,
    verify: bool,
) -> Report:
    """Copies each tenant into the tenant of the same name."""
    from hansard.transfer.copy import copy
    from hansard.transfer.selection import Choice

    report = Report()
    theirs = _view_of(other)
    names = list(tenants)
    for name in names:
        target = _target(theirs.of_tenant(name), on_conflict, progress, verify=verify)
        target.share(report, f"tenant {name!r}, ")
        await copy(view.of_tenant(name), target, Choice())
    await _catch_up(theirs, names)
    return report


async def _catch_up(view: View, tenants: Iterable[str] = ()) -> None:
    """Indexes what was imported in bulk."""
    if view.backend.capabilities.search == "index":
        await cast(Indexed, view.backend).catch_up()
    if view.embeddings is not None:
        for name in tenants or [view.tenant]:
            view.embeddings.start_over(name)
