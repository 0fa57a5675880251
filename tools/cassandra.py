"""An Apache Cassandra of our own, for tests, from the jars that Maven Central has.

    python tools/cassandra.py fetch              fetches the jars and prepares a quick start, once
    python tools/cassandra.py run FOLDER         runs one node there, prints its URL, until it is interrupted

The jars come through Maven, with whatever repository it is set up for, or from the repository whose address is in
`HANSARD_MAVEN_REPOSITORY`. Each must have the hash that `cassandra-jars.txt` says. The PATH must have Java 11 or 17.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Literal

VERSION = "5.0.9"
HOME = Path(__file__).parents[1] / ".tools" / "cassandra"
JARS = HOME / "jars"
ARCHIVE = HOME / "classes.jsa"
"""The classes of a running node, ready to be mapped: starting is twice as quick."""
_PINNED = Path(__file__).with_name("cassandra-jars.txt")
_PATIENCE = 180.0
_FETCH_PATIENCE = 600
_JAVA = (11, 17)
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

CommitLogSync = Literal["periodic", "group", "batch"]

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>hansard</groupId><artifactId>cassandra-for-tests</artifactId><version>1</version>
<dependencies><dependency><groupId>org.apache.cassandra</groupId><artifactId>cassandra-all</artifactId>
<version>{0}</version></dependency></dependencies></project>
"""

_EXPORTED = (
    "java.base/jdk.internal.misc",
    "java.base/java.lang.ref",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.management/com.sun.jmx.remote.security",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
)
_OPENED = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "jdk.management/com.sun.management.internal",
)
_FLAGS = (
    "-Xms256m",
    "-Xmx256m",
    "-Xss512k",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:MaxDirectMemorySize=256m",
    "-XX:+PerfDisableSharedMem",
    "-Xlog:disable",
    "-Xlog:all=error:stderr",
    "-Djdk.attach.allowAttachSelf=true",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Djava.net.preferIPv4Stack=true",
    "-Dchronicle.analytics.disable=true",
    "-Dcassandra-foreground=yes",
    "-Dcassandra.skip_wait_for_gossip_to_settle=0",
    "-Dcassandra.ring_delay_ms=1000",
    "-Dcassandra.superuser_setup_delay_ms=0",
    "-Dcassandra.consistent.rangemovement=false",
)
_SYNC = {
    "periodic": "commitlog_sync: periodic\ncommitlog_sync_period: 10000ms",
    "group": "commitlog_sync: group\ncommitlog_sync_group_window: 1ms",
    "batch": "commitlog_sync: batch",
}
_AUTH = """authenticator: PasswordAuthenticator
authorizer: CassandraAuthorizer
permissions_validity: 100ms
roles_validity: 100ms
"""
"""The first role is `cassandra`, with that password."""
_FORMATS = """storage_compatibility_mode: NONE
memtable:
  configurations:
    trie: {class_name: TrieMemtable}
    default: {inherits: trie}
sstable: {selected_format: bti}
"""
"""Those of 5.0, which older versions do not know."""
_LOGBACK = """<configuration><appender name="console" class="ch.qos.logback.core.ConsoleAppender"><encoder>
<pattern>%d %-5level %logger{20} %msg%n</pattern></encoder></appender>
<root level="WARN"><appender-ref ref="console"/></root></configuration>
"""

# What to fetch


def pinned(pins: Path = _PINNED) -> dict[str, str]:
    """The hash of each jar, by its path in a repository."""
    lines = pins.read_text().splitlines()
    return {path: sha256 for sha256, path in (line.split() for line in lines)}


def why_absent() -> str | None:
    """Why no node can be started here; None if one can."""
    if reason := _why_no_java():
        return reason
    # Only jars with the right hash get into the folder, and all of them at once.
    return None if JARS.exists() else "its jars are not here: python tools/cassandra.py fetch"


@cache
def _why_no_java() -> str | None:
    if shutil.which("java") is None:
        return "no java on the PATH"
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) not in _JAVA:
        return f"the java on the PATH is {found[1] if found else 'unknown'}, and Cassandra {VERSION} runs on 11 and 17"
    return None


def why_not_fetched() -> str | None:
    """Fetches the jars if they are not here. Returns None, or the reason why that failed."""
    if reason := _why_no_java():
        return reason
    if not JARS.exists():
        HOME.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="new-", dir=HOME) as folder:
            fetched = Path(folder) / "jars"
            fetched.mkdir()
            if reason := fetch(fetched, VERSION, pinned()):
                return reason
            fetched.rename(JARS)
    if not ARCHIVE.exists():
        _make_archive()
    return None


def fetch(folder: Path, version: str, pins: dict[str, str]) -> str | None:
    """Fetches the jars of a version. Returns None, or the reason why that failed."""
    if repository := os.environ.get("HANSARD_MAVEN_REPOSITORY"):
        reason = _download(repository.rstrip("/"), folder, pins)
    elif shutil.which("mvn"):
        reason = _ask_maven(folder, version)
    else:
        reason = "neither mvn on the PATH nor HANSARD_MAVEN_REPOSITORY"
    if reason:
        return reason
    wrong = [path for path, sha256 in pins.items() if _hash(folder / Path(path).name) != sha256]
    return f"these jars are missing or have the wrong hash: {', '.join(wrong)}" if wrong else None


def _hash(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None


def _download(repository: str, folder: Path, pins: dict[str, str]) -> str | None:
    def one(path: str) -> None:
        with urllib.request.urlopen(f"{repository}/{path}", timeout=60) as answer:
            (folder / Path(path).name).write_bytes(answer.read())

    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(one, pins))
    except OSError as error:
        return f"HANSARD_MAVEN_REPOSITORY does not have them: {error}"
    return None


def _ask_maven(folder: Path, version: str) -> str | None:
    with tempfile.TemporaryDirectory(prefix="hansard-") as project:
        (Path(project) / "pom.xml").write_text(_POM.format(version))
        command = ["mvn", "--quiet", "--batch-mode", _COPY, "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
        try:
            done = subprocess.run(
                command, cwd=project, capture_output=True, text=True, timeout=_FETCH_PATIENCE, check=False
            )
        except subprocess.TimeoutExpired:
            return f"mvn took longer than {_FETCH_PATIENCE} seconds"
    errors = [line for line in done.stdout.splitlines() if "ERROR" in line]
    return f"mvn failed: {(errors or ['?'])[0]}" if done.returncode else None


def _make_archive() -> None:
    with tempfile.TemporaryDirectory(prefix="hansard-") as folder:
        node = Node(Path(folder))
        made = ARCHIVE.with_suffix(".new")
        node.start(f"-XX:ArchiveClassesAtExit={made}")
        node.stop()
        made.rename(ARCHIVE)


# Nodes


def free_port(address: str) -> int:
    """Returns a port below those that systems give to outgoing connections.

    A node listens seconds later, and again after each restart: until then one of those could be taken.
    """
    while True:
        # Not from `random`, which has the same seed in every process of a test run.
        port = 10_000 + secrets.randbelow(22_768)
        with socket.socket() as one, suppress(OSError):
            one.bind((address, port))
            return port


class Node:
    """One node in a folder of its own. Those of one ring have the same `seeds` and ports, and different addresses."""

    formats = _FORMATS

    def __init__(
        self,
        folder: Path,
        *,
        sync: CommitLogSync = "periodic",
        address: str = "127.0.0.1",
        seeds: tuple[str, ...] = (),
        ports: tuple[int, int] | None = None,
        paxos: str = "v2",
        asks_passwords: bool = False,
    ) -> None:
        self.folder = folder
        self.address = address
        self.port, self._storage_port = ports or (free_port(address), free_port(address))
        self._seeds = seeds or (address,)
        self._sync: CommitLogSync = sync
        self.paxos = paxos
        self._auth = _AUTH if asks_passwords else ""
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Without a keyspace."""
        return f"cassandra://{self.address}:{self.port}"

    def start(self, *flags: str) -> None:
        """Returns when it answers."""
        self.launch(*flags)
        self.wait()

    def launch(self, *flags: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "cassandra.yaml").write_text(self._settings())
        (self.folder / "logback.xml").write_text(_LOGBACK)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self._command(), *flags, "org.apache.cassandra.service.CassandraDaemon"],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                start_new_session=True,
            )

    def wait(self) -> None:
        give_up = time.monotonic() + _PATIENCE
        while not self._answers():
            assert self.process is not None
            if self.process.poll() is not None or time.monotonic() > give_up:
                raise AssertionError(f"the node does not start:\n{(self.folder / 'log').read_text()[-3000:]}")
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            socket.create_connection((self.address, self.port), 1).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As a crash of it would."""
        self._end(signal.SIGKILL)

    def leave(self) -> None:
        """Lets it run on when this process ends: another one stops it, by its process id."""
        if self.process is not None:
            self.process.returncode = 0  # Else Popen warns about a process that still runs.
        self.process = None

    def freeze(self) -> None:
        """It keeps its connections, and answers nothing."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(_PATIENCE)
        self.process = None

    def _command(self) -> list[str]:
        folder = self.folder
        return [
            self.java(),
            *_FLAGS,
            *(each for name in _EXPORTED for each in ("--add-exports", f"{name}=ALL-UNNAMED")),
            *(each for name in _OPENED for each in ("--add-opens", f"{name}=ALL-UNNAMED")),
            *self._archive(),
            f"-Dcassandra.config=file://{folder}/cassandra.yaml",
            f"-Dlogback.configurationFile=file:{folder}/logback.xml",
            f"-Dcassandra.storagedir={folder}",
            f"-Dcassandra.logdir={folder}",
            f"-Dcassandra.jmx.local.port={free_port(self.address)}",
            "-cp",
            ":".join(map(str, self.jars())),
        ]

    @classmethod
    def java(cls) -> str:
        return "java"

    def jars(self) -> list[Path]:
        return [JARS / Path(path).name for path in sorted(pinned())]

    def _archive(self) -> list[str]:
        return [f"-XX:SharedArchiveFile={ARCHIVE}"] if ARCHIVE.exists() else []

    def _settings(self) -> str:
        number, size = self._seeds.index(self.address), len(self._seeds)
        return f"""cluster_name: hansard
num_tokens: 1
initial_token: {-(2**63) + number * (2**64 // size)}
auto_bootstrap: false
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
data_file_directories: [{self.folder}/data]
commitlog_directory: {self.folder}/commitlog
saved_caches_directory: {self.folder}/caches
hints_directory: {self.folder}/hints
cdc_raw_directory: {self.folder}/cdc
{_SYNC[self._sync]}
commitlog_segment_size: 32MiB
commitlog_total_space: 256MiB
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters: [{{seeds: "{",".join(self._seeds)}"}}]
listen_address: {self.address}
rpc_address: {self.address}
storage_port: {self._storage_port}
native_transport_port: {self.port}
start_native_transport: true
endpoint_snitch: SimpleSnitch
paxos_variant: {self.paxos}
{self._auth}{self.formats}memtable_heap_space: 64MiB
memtable_offheap_space: 64MiB
memtable_allocation_type: offheap_objects
key_cache_size: 8MiB
file_cache_size: 32MiB
networking_cache_size: 16MiB
concurrent_reads: 16
concurrent_writes: 16
concurrent_compactors: 1
hinted_handoff_enabled: true
"""


def main(arguments: list[str]) -> None:
    if reason := why_not_fetched():
        print(f"Apache Cassandra cannot be had ({reason}): the tests that need it will be skipped")
        sys.exit(arguments[:1] == ["run"])
    if arguments[:1] == ["run"]:
        node = Node(Path(arguments[1]).absolute())
        node.start()
        # Not before: the node would inherit it, and not hear that it shall end.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        print(node.url, flush=True)
        try:
            signal.sigwait({signal.SIGINT, signal.SIGTERM})
        finally:
            node.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
