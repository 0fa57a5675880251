"""What this machine lacks. The tests that need it are skipped, and the head of the run names it.

What a test fetches is named as long as it is not here: whether it can be had, only the test finds out.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests import sdist
from tests.adapters import crewai_environment
from tests.contract.backends import ABSENT, NO_SERVER, NOT_CHOSEN
from tests.search import models
from tests.server.openai_wire import kept
from tests.servers import chromium, redisearch


def absences() -> Iterator[str]:
    """The name of each, and the reason."""
    reasons = NO_SERVER | NOT_CHOSEN
    for name in ABSENT:
        yield f"{name} ({reasons.get(name, 'its package is not installed')})"
    for name, reason in (*_programs(), *_fetched(), *_system()):
        if reason is not None:
            yield f"{name} ({reason})"


def _programs() -> Iterator[tuple[str, str | None]]:
    yield "chromium", chromium.why_absent()
    yield "CrewAI", crewai_environment.why_absent()
    yield "curl", None if shutil.which("curl") else "not on the PATH"
    wordllama = importlib.util.find_spec("wordllama")
    yield "wordllama", None if wordllama else "not installed: it has no wheel for this Python"


def _fetched() -> Iterator[tuple[str, str | None]]:
    """What is fetched once, and the program that fetches it."""
    for name, place, program in (
        *((f"the tests of {package}", sdist.place(package), None) for package in sdist.PACKAGES),
        ("the embedder bge-small-en", models.place("bge-small-en"), "mvn"),
        ("the query engine of Redis", redisearch.PLACE, None),
        ("OpenAI's package for Node", kept.NODE, "npm"),
        ("OpenAI's OpenAPI document", kept.DOCUMENT, "cargo"),
    ):
        if place.exists():
            reason = None
        elif program is not None and shutil.which(program) is None:
            reason = f"{program} is not on the PATH to fetch it"
        else:
            reason = "not fetched yet: its tests try to"
        yield name, reason


def _system() -> Iterator[tuple[str, str | None]]:
    yield "file permissions", "root may read and write anything" if os.geteuid() == 0 else None
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    yield "a process's children in /proc", None if children.exists() else "this system does not tell them"
    yield "/dev/full", None if Path("/dev/full").exists() else "this system has no such device"
