"""The pictures of the docs are taken by `tools/screenshots.py`, and none is missing."""

from __future__ import annotations

import re
from pathlib import Path

from tools.screenshots import SHOTS

DOCS = Path(__file__).parents[2] / "docs"


def test_every_picture_that_is_shown_is_there_and_can_be_taken_again() -> None:
    pictures = {path.stem for path in (DOCS / "images").glob("*.png")}
    texts = [path.read_text("utf-8") for path in (*DOCS.rglob("*.md"), DOCS.parent / "README.md")]
    shown = {name for text in texts for name in re.findall(r"images/([\w-]+)\.png", text)}
    assert shown <= pictures
    assert pictures <= SHOTS.keys()
