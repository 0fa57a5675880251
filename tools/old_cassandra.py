"""An Apache Cassandra 4.1, which Hansard refuses: `python tools/old_cassandra.py` fetches its jars, as `cassandra.py`.

It runs on Java 11, which is the one on the PATH, or the program that `HANSARD_JAVA_11` names.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from tools.cassandra import HOME, Node, fetch, pinned

VERSION = "4.1.9"
JARS = HOME / f"jars-{VERSION}"
_PINS = Path(__file__).with_name("cassandra-4.1-jars.txt")


class OldNode(Node):
    formats = ""

    @classmethod
    def java(cls) -> str:
        return os.environ.get("HANSARD_JAVA_11", "java")

    def jars(self) -> list[Path]:
        return [JARS / Path(path).name for path in sorted(pinned(_PINS))]

    def _archive(self) -> list[str]:
        return []


@cache
def why_absent() -> str | None:
    """Why no node can be started here; None if one can. Fetches the jars if they are not here."""
    try:
        said = subprocess.run([OldNode.java(), "-version"], capture_output=True, text=True, check=False).stderr
    except OSError as error:
        return f"no Java 11: {error}"
    if not re.search(r'version "11\b', said):
        return f"Cassandra {VERSION} runs on Java 11, and there is another: HANSARD_JAVA_11 can name it"
    return why_not_fetched()


def why_not_fetched() -> str | None:
    if JARS.exists():
        return None
    HOME.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="new-", dir=HOME) as folder:
        fetched = Path(folder) / "jars"
        fetched.mkdir()
        if reason := fetch(fetched, VERSION, pinned(_PINS)):
            return reason
        fetched.rename(JARS)
    return None


if __name__ == "__main__":
    print(why_absent() or JARS)
