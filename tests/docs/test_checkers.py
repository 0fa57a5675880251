"""The checks of the documentation can fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs import pages, test_examples, test_links

PAGE = """\
# A page

See [it](other.md#gone) and `code[0](x)`.

## `first`, `second`

Takes `url`.

### Deeper

```python
print(await one())
```

```text
2
```

## The last: one

`end`
"""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    (tmp_path / "other.md").write_text("# Here\n")
    return path


def test_blocks_know_their_line(page: Path) -> None:
    assert pages.blocks(page) == [
        ("python", "print(await one())\n", 12),
        ("text", "2\n", 16),
    ]


def test_sections_headings_and_words() -> None:
    sections = pages.sections(PAGE, 2)
    assert list(sections) == ["`first`, `second`", "The last: one"]
    assert pages.code_words(sections["`first`, `second`"]) == {"url"}
    assert pages.anchors(PAGE) == {"a-page", "first-second", "deeper", "the-last-one"}
    assert pages.links(PAGE) == ["other.md#gone"]


def test_other_output_fails(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page.write_text(PAGE.replace("await one()", "1"))
    with pytest.raises(AssertionError, match="prints this"):
        test_examples.test_blocks_run(page, tmp_path, monkeypatch)


def test_an_error_names_the_line_of_the_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NameError) as raised:
        test_examples.test_blocks_run(page, tmp_path, monkeypatch)
    assert (raised.traceback[-1].path, raised.traceback[-1].lineno + 1) == (page, 12)


def test_a_link_to_a_missing_heading_fails(page: Path) -> None:
    with pytest.raises(AssertionError, match="no such heading"):
        test_links.test_links_resolve(page)
