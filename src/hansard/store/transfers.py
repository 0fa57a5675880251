"""Moving conversations out of a store and into one: as a file, or straight into another store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, cast

from hansard.contract.backend import Indexed
from hansard.errors import ValidationError
from hansard.model import OnConflict, Progress, Report
from hansard.store import checks
from hansard.store.core import StorePart, View

if TYPE_CHECKING:
    from hansard.transfer.export import Choice
    from hansard.transfer.format import Lines
    from hansard.transfer.target import TransferTarget


class TransferMethods(StorePart):
    async def export(
        self,
        *,
        conversation_ids: Iterable[str | int] | None = None,
        user_id: str | int | None = None,
        agent_id: str | int | None = None,
    ) -> AsyncIterator[bytes]:
        """The tenant as JSON Lines (docs/reference/export-format.md): all, or these conversations, this user or agent.

        Lossless and self-contained, with blobs, branches, summaries and records; streamed in constant memory.
        """
        from hansard.transfer.export import export

        async for line in export(self._view, self._choice(conversation_ids, user_id, agent_id)):
            yield line

    async def import_(
        self,
        lines: Lines,
        *,
        on_conflict: OnConflict = "skip",
        verify: bool = False,
        progress: Progress | None = None,
    ) -> Report:
        """Stores an export: a file, its path, or lines. Can be repeated, and goes on where it was cut off.

        What is here already and the same is passed over. A conversation that is here with other content is left alone
        and reported, or raises `Conflict` with `on_conflict="error"`. Nothing is stored before the hashes in the file
        have held, and counts are compared afterwards; `verify` also reads back every message that was stored.
        `progress` is called with the report so far.
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
        """Copies the tenant, or a part of it, into the other store: exactly, and verified by reading it back.

        Can be repeated: goes on where it was cut off, and adds what was written since. Conflicts are as in `import_`.
        Where the other store cannot keep something exactly, the report lists it.
        """
        from hansard.transfer.copy import copy

        target = _target(_view_of(other), on_conflict, progress, verify=verify)
        report = await copy(self._view, target, self._choice(conversation_ids, user_id, agent_id))
        await _catch_up(target.view)
        return report

    def _choice(
        self, conversation_ids: Iterable[str | int] | None, user_id: str | int | None, agent_id: str | int | None
    ) -> Choice:
        from hansard.transfer.export import Choice

        checks.only_one(conversation_ids=conversation_ids, user_id=user_id)
        checks.only_one(conversation_ids=conversation_ids, agent_id=agent_id)
        ids = None
        if conversation_ids is not None:
            given = checks.items(conversation_ids, "conversation_ids", "ids")
            ids = tuple(checks.id_of(id, "a conversation id", self.limits) for id in given)
        user = checks.optional_id(user_id, "user_id", self.limits)
        if self._view.user is not None and user not in (None, self._view.user):
            raise ValidationError("a user's view reads only that user's: leave user_id out")
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
    """Each tenant into the one of the same name."""
    from hansard.transfer.copy import copy
    from hansard.transfer.export import Choice

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
    """What came in bulk ends indexed."""
    if view.backend.capabilities.search == "index":
        await cast(Indexed, view.backend).catch_up()
    if view.embeddings is not None:
        for name in tenants or [view.tenant]:
            view.embeddings.start_over(name)
