"""A transaction pooler, as strict as they come: every transaction meets another session than the one before.

It speaks just enough of PostgreSQL's protocol to hand each client's transactions to two sessions of a real server by
turns. Whatever a client leaves in a session (a setting, a prepared statement, a lock, a LISTEN) is not there when it
comes back. Like its real relatives, it refuses settings in the startup packet.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

SOCKET = ".s.PGSQL.5432"
_ALLOWED = {"user", "database", "client_encoding", "application_name"}


class Session:
    """A session of the real server, which one client at a time may use."""

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.lock = asyncio.Lock()


class Pooler:
    def __init__(self, server: Path) -> None:
        self._server = server
        self._sessions: list[Session] = []
        self._greeting = b""
        self._serving: set[asyncio.Task[None] | None] = set()
        self.transactions = 0

    async def open(self) -> None:
        self._sessions = [Session(*await self._connect()) for _ in range(2)]
        self._turns = itertools.cycle(self._sessions)

    async def _connect(self) -> tuple[StreamReader, StreamWriter]:
        reader, writer = await asyncio.open_unix_connection(str(self._server / SOCKET))
        parameters = b"user\0postgres\0database\0postgres\0client_encoding\0utf-8\0\0"
        writer.write(struct.pack("!ii", len(parameters) + 8, 196608) + parameters)
        self._greeting = b"".join([message async for message in answer(reader)])
        return reader, writer

    async def close(self) -> None:
        await asyncio.gather(*(task for task in self._serving if task is not None))
        for session in self._sessions:
            session.writer.close()
            await session.writer.wait_closed()

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._serving.add(asyncio.current_task())
        try:
            if await self._greet(reader, writer):
                await self._relay(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has gone
        finally:
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)

    async def _greet(self, reader: StreamReader, writer: StreamWriter) -> bool:
        (length,) = struct.unpack("!i", await reader.readexactly(4))
        words = (await reader.readexactly(length - 4))[4:].split(b"\0")
        refused = {word.decode() for word in words[::2] if word} - _ALLOWED
        if refused:
            text = f"SFATAL\0C08P01\0Munsupported startup parameter: {min(refused)}\0\0".encode()
            writer.write(b"E" + struct.pack("!i", len(text) + 4) + text)
        else:
            writer.write(self._greeting)
        await writer.drain()
        return not refused

    async def _relay(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Transaction after transaction, each on the session whose turn it is."""
        coming = asyncio.ensure_future(read(reader))
        while (message := await coming)[:1] != b"X":
            session = next(self._turns)
            self.transactions += 1
            async with session.lock:
                session.writer.write(message)
                coming = asyncio.ensure_future(read(reader))
                answering = asyncio.ensure_future(self._answer(session, writer))
                while not answering.done():
                    await asyncio.wait({coming, answering}, return_when=asyncio.FIRST_COMPLETED)
                    if coming.done() and not answering.done():
                        if coming.exception() is not None:
                            # The client has left in the middle of a transaction, which ends with its session.
                            answering.cancel()
                            session.writer.close()
                            session.reader, session.writer = await self._connect()
                        session.writer.write(coming.result())
                        coming = asyncio.ensure_future(read(reader))

    async def _answer(self, session: Session, writer: StreamWriter) -> None:
        """Until the transaction has ended."""
        status = b""
        while status != b"I":
            async for message in answer(session.reader):
                writer.write(message)
                status = message[-1:]
            await writer.drain()


async def read(reader: StreamReader) -> bytes:
    head = await reader.readexactly(5)
    return head + await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)


async def answer(reader: StreamReader) -> AsyncIterator[bytes]:
    """What the server says, up to ReadyForQuery."""
    while True:
        message = await read(reader)
        yield message
        if message[:1] == b"Z":
            return


@asynccontextmanager
async def pooler(server: Path, folder: Path) -> AsyncIterator[Pooler]:
    """A pooler in front of the server whose socket lies in `server`; its own lies in `folder`."""
    made = Pooler(server)
    await made.open()
    front = await asyncio.start_unix_server(made.serve, str(folder / SOCKET))
    try:
        yield made
    finally:
        front.close()
        await made.close()
