"""Deletes checkpoints without breaking those that stay.

A checkpoint that stays may depend on one that is deleted: an unchanged value is stored in an older record, and a delta
channel is rebuilt from the writes of its ancestors. The values are moved; the ancestors stay.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from hansard.adapters.langgraph import records
from hansard.adapters.langgraph.delta import MESSAGES
from hansard.adapters.langgraph.forms import CHECKPOINTS, WRITES
from hansard.adapters.langgraph.reader import CheckpointReader, LoadedCheckpoint
from hansard.adapters.langgraph.records import Saved
from hansard.errors import Conflict, ValidationError
from hansard.store import Store
from hansard.store.records import Delete, Put

Places = dict[tuple[tuple[str, ...], str], LoadedCheckpoint]


async def prune(store: Store, reader: CheckpointReader, thread_id: str, strategy: str) -> None:
    if strategy not in ("keep_latest", "delete"):
        raise ValidationError(f"strategy is {strategy!r}: one of 'keep_latest', 'delete'")
    is_done = False
    while not is_done:
        every = await reader.everything((CHECKPOINTS, thread_id))
        kept = list(_newest(every).values()) if strategy == "keep_latest" else []
        is_done = await _keep_only(store, reader, every, kept)
    if strategy == "delete":
        await _delete_all(store, (WRITES, thread_id))


async def delete_runs(store: Store, reader: CheckpointReader, run_ids: set[str]) -> set[str]:
    """Deletes the checkpoints of these runs; returns their threads."""
    if not run_ids:
        return set()
    every = await reader.everything((CHECKPOINTS,))
    touched = {found.thread_id for found in every if reader.metadata(found).get("run_id") in run_ids}
    for thread_id in touched:
        is_done = False
        while not is_done:
            of_thread = await reader.everything((CHECKPOINTS, thread_id))
            kept = [found for found in of_thread if reader.metadata(found).get("run_id") not in run_ids]
            is_done = await _keep_only(store, reader, of_thread, kept)
    return touched


def _newest(every: Iterable[LoadedCheckpoint]) -> dict[tuple[str, ...], LoadedCheckpoint]:
    return {found.namespace: found for found in sorted(every, key=lambda found: found.id)}


async def _keep_only(
    store: Store, reader: CheckpointReader, every: list[LoadedCheckpoint], kept: list[LoadedCheckpoint]
) -> bool:
    """False if a checkpoint was put meanwhile, which may depend on what would be deleted."""
    places: Places = {(found.namespace, found.id): found for found in every}
    staying = {(found.namespace, found.id) for found in kept}
    for found in kept:
        staying |= _ancestors_needed(places, reader, found)
    going = [found for place, found in places.items() if place not in staying]
    if not going:
        return True
    # At the revisions that were read: putting a checkpoint changes its parent, or needs nothing of it.
    moved = {(put.namespace, put.key): put for put in _moved(places, staying)}
    ends = [found for found in _newest(kept).values() if (found.namespace, found.id) not in moved]
    batch: list[Put | Delete] = [*moved.values(), *(_put(found, found.saved) for found in ends)]
    for found in going:
        batch.append(Delete(found.namespace, found.id, found.revision))
        writes = records.namespace(WRITES, found.thread_id, found.ns)
        scan = store.records.iter(writes, key_prefix=f"{found.id}.", exact=True)
        batch += [Delete(writes, record.key) async for record in scan]
    try:
        await store.records.write(batch)
    except Conflict:
        return False
    return True


def _ancestors_needed(
    places: Places, reader: CheckpointReader, found: LoadedCheckpoint
) -> set[tuple[tuple[str, ...], str]]:
    """Returns the ancestors from whose writes the delta channels of a checkpoint are rebuilt."""
    wanted = set(reader.metadata(found).get("counters_since_delta_snapshot") or ()) - _held(found)
    needed = set()
    at: LoadedCheckpoint | None = found
    while wanted and at is not None and at.saved.parent is not None:
        place = (found.namespace, at.saved.parent)
        at = places.get(place)
        if at is not None:
            needed.add(place)
            wanted -= _held(at)
    return needed


def _held(found: LoadedCheckpoint) -> set[str]:
    return {*found.saved.values, *found.saved.homes, *([MESSAGES] if found.saved.runs is not None else [])}


def _moved(places: Places, staying: set[tuple[tuple[str, ...], str]]) -> Iterable[Put]:
    """Returns the records that stay, with the values that they had in deleted records."""
    new_homes: dict[tuple[tuple[str, ...], str, str], str] = {}
    for namespace, id in sorted(staying):
        found = places[namespace, id]
        values, homes = dict(found.saved.values), dict(found.saved.homes)
        for channel, home in found.saved.homes.items():
            holder = places.get((namespace, home))
            if (namespace, home) in staying or holder is None or channel not in holder.saved.values:
                continue
            if moved := new_homes.get((namespace, home, channel)):
                homes[channel] = moved
            else:
                values[channel] = holder.saved.values[channel]
                del homes[channel]
                new_homes[namespace, home, channel] = id
        if homes != found.saved.homes:
            yield _put(found, structs.replace(found.saved, values=values, homes=homes))


def _put(found: LoadedCheckpoint, saved: Saved) -> Put:
    return Put(found.namespace, found.id, records.pack(saved), found.revision, conversation_id=found.thread_id)


async def _delete_all(store: Store, prefix: tuple[str, ...]) -> None:
    unreachable = [Delete(record.namespace, record.key) async for record in store.records.iter(prefix)]
    await store.records.write(unreachable)
