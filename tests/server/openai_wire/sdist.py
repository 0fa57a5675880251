"""The source archive of the OpenAI SDK, which holds its generated tests: fetched once, checked by its pinned hash.

The wheel that is installed has no tests. They are kept beside the installed packages, and go with them.
"""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import subprocess
import tarfile
import tempfile
import tomllib
import urllib.request
from http.client import HTTPException
from pathlib import Path

from tests.server.openai_wire.kept import GENERATED_TESTS

ROOT = Path(__file__).parents[3]
NAME = GENERATED_TESTS.name


class Absent(Exception):
    """The archive cannot be had here, and why."""


def folder() -> Path:
    """Where the archive is unpacked."""
    kept = GENERATED_TESTS
    if not kept.exists():
        data = _fetch()
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
            with tarfile.open(fileobj=io.BytesIO(data)) as archive:
                archive.extractall(scratch, filter="data")
            try:
                (Path(scratch) / NAME).rename(kept)
            except OSError:
                # Another worker was faster.
                if not kept.exists():
                    raise
    return kept


def _fetch() -> bytes:
    url = _address()
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            data: bytes = answer.read()
    except (OSError, HTTPException) as error:  # the second when it breaks off in the middle
        raise Absent(f"the archive of {NAME} cannot be fetched: {error}") from error
    digest = hashlib.sha256(data).hexdigest()
    if digest not in _pinned():
        raise AssertionError(f"the archive of {NAME} has the hash {digest}, which constraints.txt does not know")
    return data


def _pinned() -> set[str]:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    entry = re.search(rf"^{re.escape(NAME.replace('-', '=='))} (.*?)^\w", text, re.MULTILINE | re.DOTALL)
    assert entry is not None
    return set(re.findall(r"sha256:(\w+)", entry[1]))


def _address() -> str:
    """Where the configured index keeps the archive: uv knows."""
    uv = shutil.which("uv") or str(ROOT / ".tools/bin/uv")
    asked = [uv, "pip", "compile", "--quiet", "--no-deps", "--no-header", "--format", "pylock.toml", "-"]
    try:
        done = subprocess.run(
            asked, input=NAME.replace("-", "=="), capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Absent(f"the index cannot be asked for {NAME}: {error}") from error
    return str(tomllib.loads(done.stdout)["packages"][0]["sdist"]["url"])
