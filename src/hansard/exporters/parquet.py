"""Parquet, a row for each message of each branch, for pandas, DuckDB and Spark. Needs `pyarrow`."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from typing import Any

from hansard.errors import Unsupported
from hansard.exporters import table
from hansard.exporters.exporter import ExportedConversation
from hansard.exporters.report import ExportReport

_ROWS = 1_000
_BYTES = 16 << 20
"""Rows of a row group, and the text in it: a group is in memory until it is written."""


class Parquet:
    name = "parquet"
    title = "Parquet, a row a message"
    media_type = "application/vnd.apache.parquet"

    async def write(
        self, conversations: AsyncIterator[ExportedConversation], report: ExportReport
    ) -> AsyncIterator[bytes]:
        file = _File()
        group: list[dict[str, Any]] = []
        size = 0
        async for row in table.rows(conversations, report):
            group.append(row)
            size += len(row["content"]) + len(row["native"] or "")
            if len(group) >= _ROWS or size >= _BYTES:
                yield file.written(group)
                group, size = [], 0
        yield file.written(group) + file.closed()


class _File:
    """A Parquet file that is taken away while it is written."""

    def __init__(self) -> None:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError as error:
            needs = "the export as Parquet needs an extra: pip install 'hansard[parquet]'"
            raise Unsupported(needs, capability="parquet") from error
        kinds = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
        self._schema = pyarrow.schema([(name, kinds[kind]) for name, kind in table.COLUMNS.items()])
        self._sink = _Sink()
        self._table = pyarrow.Table
        self._writer = pyarrow.parquet.ParquetWriter(self._sink, self._schema, compression="zstd")

    def written(self, rows: list[dict[str, Any]]) -> bytes:
        if rows:
            self._writer.write_table(self._table.from_pylist(rows, schema=self._schema))
        return self._sink.taken()

    def closed(self) -> bytes:
        self._writer.close()
        return self._sink.taken()


class _Sink(io.RawIOBase):
    """Keeps what was written until it is taken. Knows its position, which Parquet writes into its footer."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, piece: Any) -> int:
        self._pieces.append(bytes(piece))
        self._position += len(self._pieces[-1])
        return len(self._pieces[-1])

    def tell(self) -> int:
        return self._position

    def taken(self) -> bytes:
        found = b"".join(self._pieces)
        self._pieces.clear()
        return found
