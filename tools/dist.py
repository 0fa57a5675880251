"""Builds a release and checks it as a user meets it: `make dist`.

Wheel and sdist are built, their metadata and content are checked, and the wheel is installed in empty environments,
first bare and then with the extra of the server. In each, a small program uses the store. At last, a bill of materials
of the installed server is written beside the files. Nothing is published.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
PROGRAM = """
import asyncio, hansard, hansard.sync
async def main():
    async with hansard.connect("sqlite:///chats.db") as store:
        await store.append_message("order-17", "user", "Where is my order?")
        assert [hit.message.seq for hit in await store.search("order")] == [1]
asyncio.run(main())
with hansard.sync.connect("sqlite:///chats.db") as store:
    assert store.get_conversation("order-17").message_count == 1
print(hansard.__version__)
"""


def run(*command: str | Path, folder: Path = ROOT) -> str:
    done = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def program(name: str) -> Path:
    """A program of the environment that runs this."""
    return Path(sys.executable).with_name(name)


def version() -> str:
    scope: dict[str, str] = {}
    exec((ROOT / "src/hansard/version.py").read_text("utf-8"), scope)
    return scope["VERSION"]


def check_tag(tag: str | None) -> None:
    """A release is built from the tag of its version."""
    if tag and tag != f"v{version()}":
        sys.exit(f"the tag is {tag}, and src/hansard/version.py says {version()}: they must agree")


def build(uv: str) -> tuple[Path, Path]:
    shutil.rmtree(DIST, ignore_errors=True)
    run(uv, "build", "--quiet", "--no-build-isolation", "--python", sys.executable, "--out-dir", DIST)
    (DIST / ".gitignore").unlink(missing_ok=True)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    return wheel, sdist


def check_metadata(wheel: Path, sdist: Path) -> None:
    run(program("twine"), "check", "--strict", wheel, sdist)
    run(program("check-wheel-contents"), wheel)
    for file in (wheel, sdist):
        assert f"hansard-{version()}" in file.name, file.name


def environment(uv: str, folder: Path, requirement: str) -> Path:
    """Returns the Python of a new environment that contains only the wheel and what it requires."""
    folder.mkdir()
    run(uv, "venv", "--quiet", "--python", sys.executable, folder / ".venv")
    python = folder / ".venv/bin/python"
    run(uv, "pip", "install", "--quiet", "--python", python, requirement)
    return python


def smoke(python: Path, folder: Path) -> None:
    assert run(python, "-c", PROGRAM, folder=folder).strip() == version()


def smoke_server(python: Path, folder: Path) -> None:
    """Starts the installed server, stores and finds a message, and stops it."""
    hansard = python.with_name("hansard")
    serving = subprocess.Popen(
        [hansard, "serve", "--port", "0"], cwd=folder, stderr=subprocess.PIPE, text=True, env=_environment()
    )
    try:
        assert serving.stderr is not None
        address = serving.stderr.readline().split(" on ")[1].split(",")[0]
        _ask(f"{address}/api/v1/conversations/c/messages", {"messages": [{"role": "user", "content": "a lost parcel"}]})
        found = _ask(f"{address}/api/v1/search", {"query": "parcel"})
        assert len(found["items"]) == 1, found
        assert b"<html" in urllib.request.urlopen(address + "/").read()
        assert b"openapi" in urllib.request.urlopen(address + "/api/v1/openapi.json").read()
    finally:
        serving.terminate()
        assert serving.wait(30) == 0


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("HANSARD_", "PYTHON"))}


def _ask(url: str, body: object) -> dict[str, list[object]]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    answer: dict[str, list[object]] = json.load(urllib.request.urlopen(request))
    return answer


def write_bill_of_materials(python: Path) -> Path:
    target = DIST / f"hansard-{version()}.cdx.json"
    run(program("cyclonedx-py"), "environment", "--output-reproducible", "--output-file", target, python)
    text = target.read_text("utf-8")
    names = {component["name"] for component in json.loads(text)["components"]}
    assert {"hansard", "starlette", "msgspec"} <= names, names
    return target


def find_uv() -> str:
    return shutil.which("uv") or str(ROOT / ".tools/bin/uv")


def main() -> None:
    check_tag(os.environ.get("TAG"))
    uv = sys.argv[1] if len(sys.argv) > 1 else find_uv()
    began = time.monotonic()
    wheel, sdist = build(uv)
    check_metadata(wheel, sdist)
    with tempfile.TemporaryDirectory() as scratch:
        bare = environment(uv, Path(scratch, "bare"), str(wheel))
        smoke(bare, Path(scratch, "bare"))
        told = subprocess.run([bare.with_name("hansard"), "serve"], capture_output=True, text=True, check=False)
        assert "pip install 'hansard[server]'" in told.stderr, told.stderr
        full = environment(uv, Path(scratch, "full"), f"hansard[server,s3] @ {wheel.as_uri()}")
        smoke(full, Path(scratch, "full"))
        smoke_server(full, Path(scratch, "full"))
        bill = write_bill_of_materials(full)
    print(f"{wheel.name}, {sdist.name} and {bill.name} are in dist/ ({time.monotonic() - began:.0f} s)")


if __name__ == "__main__":
    main()
