"""Fetches axe-core, which tests the pages for people with disabilities. Without it, those tests are skipped.

    python tools/axe.py

It comes through npm, with whatever registry that is set up for, and must have the hash below. It is a tool (MPL-2.0)
that only the tests run: nothing of it is in the package.
"""

from __future__ import annotations

import base64
import hashlib
import io
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

VERSION = "4.14.0"
SHA512 = "9WTZxEjsZ7b13TH8JPmbV2z8CHbl80/2hm3XPEG4JgNdQLK81IBRXmSxHfMAOkSqQeRxT/0dwNDz2GOm3zzpcQ=="
SCRIPT = Path(__file__).parents[1] / ".tools" / "axe" / VERSION / "axe.min.js"
PATIENCE = 120


def why_absent() -> str | None:
    return None if SCRIPT.exists() else "axe-core is not there: python tools/axe.py fetches it"


def fetch() -> str | None:
    """Fetches axe-core if it is missing. Returns None, or the reason why it could not be fetched."""
    if SCRIPT.exists():
        return None
    npm = shutil.which("npm")
    if npm is None:
        return "there is no npm to fetch it with"
    with tempfile.TemporaryDirectory() as folder:
        try:
            subprocess.run(
                [npm, "pack", f"axe-core@{VERSION}", "--silent"],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PATIENCE,
                check=True,
            )
            packed = next(Path(folder).glob("*.tgz")).read_bytes()
        except (OSError, subprocess.SubprocessError, StopIteration) as error:
            return f"npm could not fetch it: {error}"
    return _unpack(packed)


def _unpack(packed: bytes) -> str | None:
    if base64.b64encode(hashlib.sha512(packed).digest()).decode() != SHA512:
        return "what npm fetched does not have the hash that it should have"
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        file = archive.extractfile("package/axe.min.js")
        assert file is not None
        content = file.read()
    SCRIPT.parent.mkdir(parents=True, exist_ok=True)
    part = SCRIPT.with_suffix(".part")
    part.write_bytes(content)
    part.replace(SCRIPT)
    return None


if __name__ == "__main__" and (reason := fetch()):
    print(f"axe-core is not there ({reason}): the tests that need it will be skipped")
