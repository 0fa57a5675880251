"""Installs embedders into a folder of the user: from a file, a Maven repository, or with a Maven client.

What is installed has the pinned SHA-256, or nothing is installed. A folder appears whole, by a rename. No address of a
repository is written here: the client knows its own, and `HANSARD_MAVEN_REPOSITORY` names another.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from hansard.errors import Corrupt, NotFound, Unavailable, Unsupported, ValidationError
from hansard.search import catalogue
from hansard.search.catalogue import Artifact
from hansard.search.onnx import SETTINGS, Files, read_files
from hansard.urls import shown

REPOSITORY = "HANSARD_MAVEN_REPOSITORY"
FOLDER = "HANSARD_EMBEDDERS"
_STAGING = ".staging-"
_BLOCK = 1 << 18
_SECONDS = 60.0
_CLIENT_SECONDS = 1800.0
_LEAST_FREE = 1 << 20

OnProgress = Callable[[int], None]
"""Receives how many bytes of the artifact are there."""


class Installed(Struct, frozen=True):
    """An embedder in the folder."""

    name: str
    path: Path
    size: int


def folder() -> Path:
    """Returns where embedders are installed: `$HANSARD_EMBEDDERS`, or a folder in the user's data."""
    if given := os.environ.get(FOLDER):
        return Path(given).expanduser()
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "hansard" / "embedders"


def installed() -> list[Installed]:
    try:
        found = sorted(path for path in folder().iterdir() if path.is_dir() and not path.name.startswith("."))
    except FileNotFoundError:
        return []
    return [Installed(path.name, path, sum(file.stat().st_size for file in path.iterdir())) for path in found]


def path_of(name: str) -> Path | None:
    """Returns the folder of an installed embedder."""
    path = folder() / name
    return path if path.parent == folder() and not name.startswith(".") and path.is_dir() else None


def remove(name: str) -> Installed:
    found = next((each for each in installed() if each.name == name), None)
    if found is None:
        raise NotFound(f"the embedder {name!r} is not installed in {str(folder())!r}")
    with _in_staging() as staging:
        # By a rename first, so that no reader finds half of it.
        found.path.rename(staging / name)
    return found


def install(name: str, source: Path | None = None, progress: OnProgress = lambda done: None) -> Installed:
    """Installs an embedder of the catalogue, replacing one of the same name."""
    artifact = catalogue.find(name)
    with _in_staging(artifact.size + artifact.installed_size) as staging:
        files = _from(source, artifact, staging, progress)
        made = staging / "new"
        made.mkdir()
        _write(made / "model.onnx", files.model)
        _write(made / "tokenizer.json", files.tokenizer)
        _write(made / SETTINGS, msgspec.json.encode(artifact.settings))
        _replace(folder() / name, made, staging / "old")
    return next(each for each in installed() if each.name == name)


def _replace(target: Path, made: Path, old: Path) -> None:
    if target.exists():
        target.rename(old)
    try:
        made.rename(target)
    except OSError as error:
        # Another process has just installed the same files.
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


@contextmanager
def _in_staging(needed: int = 0) -> Iterator[Path]:
    """Makes a folder beside the installed ones, and deletes it at the end."""
    root = folder()
    try:
        root.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(root).free < needed + _LEAST_FREE:
            raise OSError(errno.ENOSPC, "no space left on the device")
        _remove_leftovers(root)
        with tempfile.TemporaryDirectory(prefix=_STAGING, dir=root) as staging:
            yield Path(staging)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise Unavailable(f"{str(root)!r} cannot be written: {error}", retryable=False) from error
        raise Unavailable(
            f"no space for the embedder in {str(root)!r}: it needs {needed // 1_000_000} MB; free some, or "
            f"set {FOLDER} to a folder on another disk",
            retryable=False,
        ) from error


def _remove_leftovers(root: Path) -> None:
    """Deletes the folders of installations that were killed."""
    for path in root.glob(f"{_STAGING}*"):
        if path.stat().st_mtime < time.time() - _CLIENT_SECONDS:
            shutil.rmtree(path, ignore_errors=True)


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


# Sources


def _from(source: Path | None, artifact: Artifact, staging: Path, progress: OnProgress) -> Files:
    if source is not None:
        return _given(source.expanduser(), artifact)
    jar = staging / "artifact.jar"
    if address := os.environ.get(REPOSITORY):
        _download(address, artifact, jar, progress)
    elif client := shutil.which("mvn"):
        _run_client(client, artifact, staging, jar)
    else:
        raise Unsupported(
            f"no way to get {artifact.coordinates}: put a Maven client (mvn) on the PATH, set {REPOSITORY} to the "
            "address of a Maven repository, or fetch the jar yourself and pass --from FILE",
            capability="embedder install",
        )
    return _given(jar, artifact)


def _given(source: Path, artifact: Artifact) -> Files:
    """Returns the files of a jar or a folder, if they have the pinned hashes."""
    if source.is_dir() and (inside := source / Path(artifact.path).name).exists():
        source = inside
    if source.is_file():
        with source.open("rb") as file:
            _check(file.read(), artifact.sha256, source)
    files = read_files(source)
    _check(files.model, artifact.model_sha256, source)
    _check(files.tokenizer, artifact.tokenizer_sha256, source)
    return files


def _check(data: bytes, wanted: str, source: Path) -> None:
    found = sha256(data).hexdigest()
    if found != wanted:
        raise Corrupt(
            f"nothing was installed: the SHA-256 of {source.name!r} is {found}, and the pinned one {wanted}",
            where=str(source),
        )


def _download(address: str, artifact: Artifact, jar: Path, progress: OnProgress) -> None:
    if urlsplit(address).scheme not in ("http", "https", "file"):
        raise ValidationError(f"{REPOSITORY} is {shown(address)!r}: it must begin with https://, http:// or file://")
    url = f"{address.rstrip('/')}/{artifact.path}"
    try:
        with urllib.request.urlopen(url, timeout=_SECONDS) as answer, jar.open("wb") as file:
            done = 0
            # A byte more than expected is enough to find out that it is another file.
            while (block := answer.read(_BLOCK)) and done <= artifact.size:
                done += file.write(block)
                progress(done)
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        raise Unavailable(f"{shown(url)} cannot be fetched: {error}") from error


def _run_client(client: str, artifact: Artifact, staging: Path, jar: Path) -> None:
    """Lets the Maven client fetch the jar, by its own settings, mirrors and credentials."""
    output = staging / "client"
    output.mkdir()
    # In a folder of its own, so that it reads no project file of the caller.
    command = [client, "-B", "-q", "dependency:copy", f"-Dartifact={artifact.coordinates}:jar"]
    try:
        done = subprocess.run(
            [*command, f"-DoutputDirectory={output}"],
            cwd=staging,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_CLIENT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"mvn did not fetch {artifact.coordinates} within {_CLIENT_SECONDS:g} seconds") from error
    found = list(output.glob("*.jar"))
    if done.returncode or len(found) != 1:
        said = next((line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line), "it says nothing")
        raise Unavailable(f"mvn could not fetch {artifact.coordinates}: {said.strip()}")
    found[0].rename(jar)
