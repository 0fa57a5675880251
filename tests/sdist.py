"""Source archives of installed packages, which hold the packages' own tests: fetched once, checked by the pinned hash.

The wheels that are installed have no tests. The archives are kept beside the installed packages, and go with them.
"""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import urllib.request
from http.client import HTTPException
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("langgraph", "langgraph-checkpoint", "langgraph-checkpoint-sqlite", "openai")
"""Those whose own tests are run here."""


class Absent(Exception):
    """The archive cannot be had here, and why."""


def place(package: str) -> Path:
    """Where the archive of an installed package is kept, once it is fetched."""
    return Path(sys.prefix) / "share" / f"{package}-{version(package)}"


def folder(package: str) -> Path:
    """The unpacked archive, which is fetched if it is not there yet."""
    kept = place(package)
    if not kept.exists():
        data = _fetch(f"{package}=={version(package)}")
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
            with tarfile.open(fileobj=io.BytesIO(data)) as archive:
                archive.extractall(scratch, filter="data")
            (unpacked,) = Path(scratch).iterdir()
            try:
                unpacked.rename(kept)
            except OSError:
                # Another worker was faster.
                if not kept.exists():
                    raise
    return kept


def _fetch(release: str) -> bytes:
    url = _address(release)
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            data: bytes = answer.read()
    except (OSError, HTTPException) as error:  # the second when it breaks off in the middle
        raise Absent(f"the archive of {release} cannot be fetched: {error}") from error
    digest = hashlib.sha256(data).hexdigest()
    if digest not in _pinned(release):
        raise AssertionError(f"the archive of {release} has the hash {digest}, which constraints.txt does not know")
    return data


def _pinned(release: str) -> set[str]:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    entry = re.search(rf"^{re.escape(release)} (.*?)^\w", text, re.MULTILINE | re.DOTALL)
    assert entry is not None
    return set(re.findall(r"sha256:(\w+)", entry[1]))


def _address(release: str) -> str:
    """Where the configured index keeps the archive: uv knows."""
    uv = shutil.which("uv") or str(ROOT / ".tools/bin/uv")
    asked = [uv, "pip", "compile", "--quiet", "--no-deps", "--no-header", "--format", "pylock.toml", "-"]
    try:
        done = subprocess.run(asked, input=release, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise Absent(f"the index cannot be asked for {release}: {error}") from error
    return str(tomllib.loads(done.stdout)["packages"][0]["sdist"]["url"])
