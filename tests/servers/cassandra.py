"""A real Cassandra for the tests: one node a run, started by the first test that needs it, stopped when the run ends.

`$HANSARD_TEST_CASSANDRA` names another node to use instead, by its URL without a keyspace.
"""

from __future__ import annotations

import itertools
import os
import secrets
import signal
from functools import cache
from pathlib import Path

from tests.servers import runs
from tools import cassandra
from tools.cassandra import Node

from hansard.backends.cassandra.connection import Link
from hansard.backends.cassandra.options import options_of
from hansard.blocking import LoopThread
from hansard.urls import Url

OTHER_NODE = os.environ.get("HANSARD_TEST_CASSANDRA")
KEYSPACE = "hansard_tests"
ROOM = 1024**3
"""What its files may take."""

_numbers = itertools.count()
_run = secrets.token_hex(4)
_started: list[Node] = []
"""By this process."""


def why_absent() -> str | None:
    """None when there is a node to be had; else the reason why not."""
    if OTHER_NODE:
        return None
    if (free := runs.free()) < ROOM:
        return f"{free >> 20} MB left for its files, and a node may take {ROOM >> 20}"
    return cassandra.why_absent()


def _facts() -> Path:
    return runs.folder() / "cassandra.url"


def url() -> str:
    """The node of this run, or the one that the environment names."""
    if OTHER_NODE:
        return OTHER_NODE
    with runs.lock("cassandra"):
        if not _facts().exists():
            node = Node(runs.folder() / "cassandra")
            node.start()
            assert node.process is not None
            _started.append(node)
            _facts().write_text(f"{node.url} {node.process.pid}")
    return _facts().read_text().split()[0]


def let_go() -> None:
    """At the end of each process of a run but the last."""
    if _started:
        _started.pop().leave()


def stop_shared() -> None:
    """At the end of the run, whichever process started it."""
    if _started:
        _started.pop().kill()
    elif _facts().exists():
        os.kill(int(_facts().read_text().split()[1]), signal.SIGKILL)


@cache
def _stay_connected() -> None:
    """The stores of one process share their connections: this one keeps them from being closed between tests."""
    link = Link(options_of(Url(f"{url()}/{KEYSPACE}"))[0], "")
    thread = LoopThread()
    thread.run(link.open())

    def let_go() -> None:
        thread.run(link.close())
        thread.stop()

    runs.at_end(let_go)


def fresh() -> str:
    """A store in the keyspace of the tests, with a prefix that nothing has used: tables are dear to make."""
    _stay_connected()
    return f"{url()}/{KEYSPACE}?prefix=t{_run}-{os.getpid()}-{next(_numbers)}"
