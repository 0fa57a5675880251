"""What a release consists of is valid and consistent. `make dist` builds and uses it."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml
from tools import dist

from hansard.version import VERSION

ROOT = Path(__file__).parents[1]
SCHEMAS = {
    ".github/workflows/*.yml": "vendor.github-workflows",
    ".github/ISSUE_TEMPLATE/[!c]*.yml": "vendor.github-issue-forms",
    ".github/ISSUE_TEMPLATE/config.yml": "vendor.github-issue-config",
    "CITATION.cff": "vendor.citation-file-format",
}
TARGETS = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def lint(schema: str, *files: Path) -> None:
    command = [str(Path(sys.executable).with_name("check-jsonschema")), "--builtin-schema", schema, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("pattern", SCHEMAS)
def test_files_match_their_schemas(pattern: str) -> None:
    files = list(ROOT.glob(pattern))
    assert files
    lint(SCHEMAS[pattern], *files)


def test_workflows_call_the_targets_of_the_makefile() -> None:
    for path in (ROOT / ".github/workflows").glob("*.yml"):
        text = path.read_text("utf-8")
        called = re.findall(r"run: make (\w+)", text)
        assert called, path
        assert set(called) <= TARGETS
        assert "http" not in text, "no addresses"


def test_the_version_is_the_same_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == VERSION == dist.version()
    assert f"image: hansard:{VERSION}" in (ROOT / "deploy/kubernetes/hansard.yaml").read_text("utf-8")


def test_a_tag_must_be_the_version() -> None:
    dist.check_tag(None)
    dist.check_tag(f"v{VERSION}")
    with pytest.raises(SystemExit, match=r"the tag is v9\.9\.9, and src/hansard/version\.py says"):
        dist.check_tag("v9.9.9")


def test_the_archives_are_valid_and_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make dist` also installs the wheel; that takes longer than a test may."""
    monkeypatch.setattr(dist, "DIST", tmp_path / "dist")
    wheel, sdist = dist.build(dist.find_uv())
    dist.check_metadata(wheel, sdist)
    packed = set(zipfile.ZipFile(wheel).namelist())
    for path in (ROOT / "src").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            assert path.relative_to(ROOT / "src").as_posix() in packed
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"Makefile", "CITATION.cff", "LICENSE", "deploy/Dockerfile", "constraints.txt", "docs/index.md"} <= names
