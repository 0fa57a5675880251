"""Embedders are installed whole and checked, or not at all."""

from __future__ import annotations

import http.server
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import msgspec
import pytest
from msgspec import structs

from hansard.errors import Corrupt, NotFound, Unavailable, Unsupported, ValidationError
from hansard.search import catalogue, installation
from hansard.search.catalogue import Artifact, ModelSettings
from hansard.search.embedders import by_name

# Longer than one block of a download, so that progress is reported before the end.
MODEL, TOKENIZER = b"a model " * 50_000, b'{"a": "tokenizer"}'


@pytest.fixture
def jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A jar of the shape of the real ones, and the only one in the catalogue."""
    repository = tmp_path / "repository"
    artifact = Artifact(
        settings=ModelSettings(name="tiny-v1", pooling="cls", query_prefix="Q: "),
        languages="none",
        licence="MIT",
        artifact="tiny-model",
        version="1.0",
        size=0,
        installed_size=len(MODEL) + len(TOKENIZER),
        sha256="",
        model_sha256=sha256(MODEL).hexdigest(),
        tokenizer_sha256=sha256(TOKENIZER).hexdigest(),
    )
    path = repository / artifact.path
    path.parent.mkdir(parents=True)
    with ZipFile(path, "w") as archive:
        archive.writestr("tiny-v1-q.onnx", MODEL)
        archive.writestr("tiny-v1-q-tokenizer.json", TOKENIZER)
        archive.writestr("README", "a model")
    data = path.read_bytes()
    pinned = structs.replace(artifact, size=len(data), sha256=sha256(data).hexdigest())
    monkeypatch.setattr(catalogue, "ARTIFACTS", {"tiny": pinned})
    monkeypatch.setenv(installation.FOLDER, str(tmp_path / "embedders"))
    monkeypatch.delenv(installation.REPOSITORY, raising=False)
    return path


def repository_of(jar: Path) -> Path:
    return jar.parents[4]


def assert_nothing_is_there() -> None:
    assert installation.installed() == []
    assert not installation.folder().exists() or list(installation.folder().iterdir()) == []


def test_from_a_jar(jar: Path) -> None:
    made = installation.install("tiny", jar)
    assert {path.name for path in made.path.iterdir()} == {"model.onnx", "tokenizer.json", "embedder.json"}
    assert (made.path / "model.onnx").read_bytes() == MODEL
    assert installation.installed() == [made]
    assert installation.path_of("tiny") == made.path
    assert installation.install("tiny", jar) == made, "again: it is replaced"
    assert list(installation.folder().iterdir()) == [made.path], "and nothing is left over"
    assert installation.remove("tiny") == made
    assert_nothing_is_there()
    with pytest.raises(NotFound, match="not installed"):
        installation.remove("tiny")


def test_from_a_folder(jar: Path, tmp_path: Path) -> None:
    assert installation.install("tiny", jar.parent).size > len(MODEL), "a folder with the jar"
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(ValidationError, match=r"no model\.onnx"):
        installation.install("tiny", folder)
    (folder / "model.onnx").write_bytes(MODEL)
    (folder / "tokenizer.json").write_bytes(TOKENIZER)
    assert installation.install("tiny", folder).size > len(MODEL)
    with pytest.raises(NotFound, match="no folder or jar"):
        installation.install("tiny", tmp_path / "nowhere")


def test_another_file_is_refused(jar: Path, tmp_path: Path) -> None:
    with ZipFile(jar, "a") as archive:
        archive.writestr("more", "x")
    with pytest.raises(Corrupt, match=r"nothing was installed: the SHA-256 of .* is [0-9a-f]{64}, and the pinned one"):
        installation.install("tiny", jar)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(MODEL)
    (folder / "tokenizer.json").write_bytes(TOKENIZER + b" ")
    with pytest.raises(Corrupt, match="nothing was installed"):
        installation.install("tiny", folder)
    assert_nothing_is_there()


def test_a_name_that_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(installation.FOLDER, str(tmp_path / "embedders"))
    with pytest.raises(NotFound, match="one of bge-small-en, minilm, e5-small, bge-small-zh"):
        installation.install("gpt")
    assert installation.path_of("../embedders") is None
    with pytest.raises(ValidationError, match="hansard embedder install bge-small-zh"):
        by_name("bge-small-zh")
    with pytest.raises(ValidationError, match="the name of an installed embedder"):
        by_name("gpt")


class Repository(http.server.SimpleHTTPRequestHandler):
    may_finish = threading.Event()
    """The last 4 KiB of a file are held back until this is set."""

    def log_message(self, format: str, *args: Any) -> None: ...

    def copyfile(self, source: Any, outputfile: Any) -> None:
        data = source.read()
        with suppress(ConnectionError):  # a killed client does not wait for the rest
            outputfile.write(data[:-4096])
            outputfile.flush()
            self.may_finish.wait()
            outputfile.write(data[-4096:])


@pytest.fixture
def served(jar: Path) -> Iterator[http.server.ThreadingHTTPServer]:
    folder = str(repository_of(jar))

    def handler(*args: Any) -> Repository:
        return Repository(*args, directory=folder)

    Repository.may_finish.set()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        Repository.may_finish.set()
        server.shutdown()
        thread.join()


def test_from_a_repository(jar: Path, served: http.server.ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"http://127.0.0.1:{served.server_port}"
    seen: list[int] = []
    for where in (repository_of(jar).as_uri(), address + "/"):
        monkeypatch.setenv(installation.REPOSITORY, where)
        installation.install("tiny", progress=seen.append)
        assert seen[-1] == jar.stat().st_size
        installation.remove("tiny")
    monkeypatch.setenv(installation.REPOSITORY, address + "/none")
    with pytest.raises(Unavailable, match="cannot be fetched: HTTP Error 404"):
        installation.install("tiny")
    monkeypatch.setenv(installation.REPOSITORY, "ftp://somewhere")
    with pytest.raises(ValidationError, match="must begin with https://"):
        installation.install("tiny")
    jar.write_bytes(jar.read_bytes() + b"x" * 1_000_000)
    monkeypatch.setenv(installation.REPOSITORY, address)
    with pytest.raises(Corrupt, match="nothing was installed"):
        installation.install("tiny")
    assert_nothing_is_there()


def test_with_a_client(jar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of the client's name that does what the real one does; the real one is tried with a real model."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(Unsupported, match=r"dev\.langchain4j:tiny-model:1\.0.*mvn.*HANSARD_MAVEN_REPOSITORY.*--from"):
        installation.install("tiny")
    client = programs / "mvn"
    copy = f'for word in "$@"; do case $word in -DoutputDirectory=*) /bin/cp "{jar}" "${{word#*=}}";; esac; done'
    client.write_text(f"#!/bin/sh\n{copy}\n")
    client.chmod(0o755)
    assert installation.install("tiny").name == "tiny"
    client.write_text("#!/bin/sh\necho '[ERROR] no such artifact'\nexit 1\n")
    with pytest.raises(Unavailable, match=r"mvn could not fetch .*: \[ERROR\] no such artifact"):
        installation.install("tiny")
    assert [each.name for each in installation.installed()] == ["tiny"], "the one that was there stays"


def test_a_full_disk(jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(jar.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(Unavailable, match=r"no space for the embedder.*HANSARD_EMBEDDERS"):
        installation.install("tiny", jar)
    assert_nothing_is_there()


def test_a_killed_installation_leaves_none(jar: Path, served: http.server.ThreadingHTTPServer) -> None:
    Repository.may_finish.clear()
    environment = os.environ | {installation.REPOSITORY: f"http://127.0.0.1:{served.server_port}"}
    artifact = catalogue.ARTIFACTS["tiny"]
    program = (
        "import msgspec, sys; from hansard.search import catalogue, installation\n"
        "catalogue.ARTIFACTS['tiny'] = msgspec.json.decode(sys.argv[1], type=catalogue.Artifact)\n"
        "installation.install('tiny', progress=lambda done: print(done, flush=True))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, msgspec.json.encode(artifact).decode()],
        env=environment,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.kill()
    Repository.may_finish.set()
    assert installation.installed() == []
    (left,) = installation.folder().iterdir()
    os.utime(left, (0, 0))
    made = installation.install("tiny", jar)
    assert list(installation.folder().iterdir()) == [made.path], "what the killed one left is deleted, after a while"
