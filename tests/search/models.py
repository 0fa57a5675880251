"""The real models that tests run: installed once, with the command's own code, beside the installed packages."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from hansard.errors import Unavailable, Unsupported
from hansard.search import Onnx, installation

FOLDER = Path(sys.prefix) / "share" / "embedders"


def place(name: str) -> Path:
    return FOLDER / name


def installed(name: str) -> Onnx:
    """Returns the embedder; skips the test where it cannot be had."""
    if not place(name).exists():
        before = os.environ.get(installation.FOLDER)
        os.environ[installation.FOLDER] = str(FOLDER)
        try:
            installation.install(name)
        except (Unavailable, Unsupported) as error:
            pytest.skip(f"the embedder {name} cannot be had: {error}")
        finally:
            if before is None:
                del os.environ[installation.FOLDER]
            else:
                os.environ[installation.FOLDER] = before
    return Onnx(place(name))
