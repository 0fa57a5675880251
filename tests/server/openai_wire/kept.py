"""Where the things that these tests fetch are kept: beside the installed packages, with which they go."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

NPM_PACKAGES = ("openai@7.53.0", "node@22.23.3")
DOCUMENT_HASH = "0b6aa15de4b9e8b3d278a00be7c287dba48e60c6ba55579fb715d40d1ad97c59"

_FOLDER = Path(sys.prefix) / "share"
DOCUMENT = _FOLDER / f"openai-openapi-{DOCUMENT_HASH[:16]}.json"


def npm_folder(packages: Sequence[str]) -> Path:
    return _FOLDER / "npm-{}".format("-".join(packages).replace("@", "-").replace("/", "-"))


NODE = npm_folder(NPM_PACKAGES)
