"""The Lua scripts, run by their hash, or by their text if a server does not know them yet."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Any

from msgspec import Struct
from redis.exceptions import NoScriptError

from hansard.backends.redis.nodes import Nodes


class Script(Struct, frozen=True):
    text: str
    sha1: str

    changes: bool = True

    async def run(self, nodes: Nodes, keys: Sequence[str], values: Sequence[Any], *, write: bool = True) -> Any:
        """Runs the script on the server of the first key."""
        rest = (len(keys), *keys, *values)
        try:
            return await nodes.ask(keys[0], ("EVALSHA", self.sha1, *rest), write=write, changes=self.changes)
        except NoScriptError:
            # The server was restarted, or a replica took over: nothing was run, and the text loads the script.
            return await nodes.ask(keys[0], ("EVAL", self.text, *rest), write=write, changes=self.changes)


def _load(*names: str, changes: bool = True) -> Script:
    folder = resources.files("hansard.backends.redis") / "scripts"
    text = "\n".join((folder / f"{name}.lua").read_text("utf-8") for name in names)
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(), changes)


READ = _load("read", changes=False)
WRITE = _load("ops", "write")
APPLY = _load("ops", "apply")
MARK = _load("mark")
INDEX = _load("index")
