"""A real server, in a process of its own, that serves any number of stores: one for each test, by the path of a URL.

Starting a server takes longer than a test. This one begins when the first test needs it, and is stopped by its process
id at the end.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import urllib.request
from functools import cache
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send
from tests.servers import runs
from tests.wait import PATIENCE

from hansard.store import Store
from hansard.testing import Target

ROOT = Path(__file__).parents[2]


class ServedTarget(Target):
    """A store behind the server: in a file of the folder, or in the server's memory until `forget`."""

    def __init__(self, folder: Path, url: str = "http://{0}", *, in_memory: bool = False) -> None:
        where = "memory://" if in_memory else f"sqlite:///{folder}/hansard.db"
        self._address = f"{address()}/{f'{folder} {where}'.encode().hex()}"
        self._in_memory = in_memory
        super().__init__(url.format(self._address.removeprefix("http://")))

    def close(self) -> None:
        """Closes the stores. A file stays; a store in memory stays until `forget`."""
        super().close()
        if not self._in_memory:
            self.forget()

    def forget(self) -> None:
        request = urllib.request.Request(self._address + "/forget", method="POST")
        urllib.request.urlopen(request, timeout=120).close()


@cache
def address() -> str:
    """Returns the address of this process's server."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.contract.many"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def stop() -> None:
        process.terminate()
        process.communicate(timeout=PATIENCE)

    runs.at_end(stop)
    return process.stdout.readline().strip()


class Many:
    """An application that chooses the store by the first segment of a path: a folder and a URL."""

    def __init__(self) -> None:
        self._stores: dict[str, tuple[Store, ASGIApp]] = {}
        self._lock = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = scope["path"].split("/")[1]
        if scope["path"] == f"/{name}/forget":
            await self._forget(name)
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})
            return
        async with self._lock:
            if name not in self._stores:
                self._stores[name] = await self._open(name)
        await self._stores[name][1]({**scope, "root_path": f"/{name}"}, receive, send)

    async def _open(self, name: str) -> tuple[Store, ASGIApp]:
        from hansard import connect
        from hansard.server.app import create_app

        store = await connect(bytes.fromhex(name).decode().rpartition(" ")[2])
        return store, create_app(store)

    async def _forget(self, name: str) -> None:
        async with self._lock:
            found = self._stores.pop(name, None)
            if found is not None:
                await found[0].close()


def main() -> None:
    from hansard.server.process import HttpServer, config_of, listen

    with listen("127.0.0.1", 0) as listening:
        print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)  # noqa: T201
        asyncio.run(HttpServer(config_of(Many())).serve(sockets=[listening]))


if __name__ == "__main__":
    main()
