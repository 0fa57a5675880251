"""Exports, imports and copies a whole store of ours. Each function runs in its own process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks.contenders import NotAvailable, load
from benchmarks.measure import check
from benchmarks.scenarios.bulk import Place

if TYPE_CHECKING:
    from hansard import Report


def offers(method: str) -> bool:
    """Whether our Store has this method."""
    try:
        load("ours")
    except NotAvailable:
        return False
    from hansard import Store

    return hasattr(Store, method)


def export_file(source: Place, file: Path) -> None:
    asyncio.run(_export(source[1], file))


def import_file(target: Place, file: Path) -> float:
    return asyncio.run(_import(target[1], file))


def copy_store(source: Place, target: Place) -> float:
    return asyncio.run(_copy(source[1], target[1]))


async def _export(url: str, file: Path) -> None:
    from hansard import connect

    async with connect(url) as store:
        with file.open("wb") as out:
            async for line in store.export():
                out.write(line)


async def _import(url: str, file: Path) -> float:
    from hansard import connect

    begin = perf_counter()
    async with connect(url) as store:
        report = await store.import_(file)
    seconds = perf_counter() - begin
    check_report(report)
    return seconds


async def _copy(source_url: str, target_url: str) -> float:
    from hansard import connect

    async with connect(source_url) as source:
        begin = perf_counter()
        async with connect(target_url) as target:
            report = await source.copy_to(target)
        seconds = perf_counter() - begin
    check_report(report)
    return seconds


def check_report(report: Report) -> None:
    check(report.verified, "what was moved is not the same")
    check(not report.conflicts and not report.losses, f"moving reports {report.conflicts} and {report.losses}")
