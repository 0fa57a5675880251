"""From a URL to a store: what is mistyped is named, what is missing is named, what is foreign is found."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import hansard
from hansard import sync
from hansard.backends import schemes
from hansard.backends.schemes import Scheme
from hansard.errors import Unsupported, ValidationError
from hansard.testing import Clock
from hansard.urls import Url, shown, suggest


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqllite:///x.db", "did you mean 'sqlite'"),
        ("memroy://", "did you mean 'memory'"),
        ("files:///x", "did you mean 'file'"),
        ("SQLight:///x", "did you mean 'sqlite'"),
        ("gopher://x", "known are"),
        ("chats.db", "is not a URL: write for example 'sqlite:///chats.db'"),
        ("", "is not a URL"),
        ("://x", "unknown scheme"),
        ("memory://?max_mesages=5", "unknown option 'max_mesages' in .*: did you mean 'max_messages'"),
        ("memory://?max_messages=0", "a whole number of at least 1"),
        ("memory://?max_messages=-1", "a whole number of at least 1"),
        ("memory://?max_messages=ten", "a whole number of at least 1"),
        ("memory://?max_messages=", "a whole number of at least 1"),
        ("none://?anything=1", "unknown option 'anything'"),
        ("memory://[", "is not a URL"),
    ],
)
def test_a_typo_is_named(url: str, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        sync.connect(url)


@pytest.mark.parametrize("url", [5, b"memory://", Path("chats.db")])
def test_what_is_no_text_is_no_url(url: object) -> None:
    with pytest.raises(ValidationError, match="a URL is text"):
        sync.connect(url)  # type: ignore[arg-type]


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(schemes.SCHEMES, "pigeon", Scheme("hansard.backends.pigeon", extra="pigeon"))
    with pytest.raises(Unsupported, match=r"pip install 'hansard\[pigeon\]'") as refused:
        sync.connect("pigeon://x")
    assert refused.value.capability == "pigeon"


def test_the_parts_of_a_url() -> None:
    url = Url("Sqlite://host:5/a%20b/c#d.db?mode=delta&flag=yes&n=7&empty=")
    assert (url.scheme, url.netloc, url.path) == ("sqlite", "host:5", "/a b/c#d.db")
    assert url.choice("mode", ("delta", "snapshot"), "snapshot") == "delta"
    assert url.choice("missing", ("a", "b"), "b") == "b"
    assert url.flag("flag")
    assert not url.flag("missing")
    assert url.number("n") == 7
    assert url.option("empty") == ""
    url.finish(())


@pytest.mark.parametrize("value", ["maybe", "2", "TRUE "])
def test_a_flag_is_yes_or_no(value: str) -> None:
    with pytest.raises(ValidationError, match="flag="):
        Url(f"x://?flag={value}").flag("flag")


def test_suggestions() -> None:
    assert suggest("mod", ("mode", "durability")) == ": did you mean 'mode'?"
    assert suggest("zzz", ("mode",)) == ": known are mode"
    assert suggest("zzz", ()) == ": there are none"


FOREIGN = """
from hansard.backends.memory import MemoryBackend
opened = []

async def open_backend(url, *, blocking, upgrade):
    opened.append((url.netloc, url.option("size"), blocking, upgrade))
    url.finish(("size",))
    return MemoryBackend()
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "foreign_backend", raising=False)
    install(tmp_path)


def install(tmp_path: Path) -> None:
    """Leaves a distribution as pip does: a module, and metadata with an entry point."""
    (tmp_path / "foreign_backend.py").write_text(FOREIGN)
    info = tmp_path / "foreign_backend-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign-backend\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[hansard.backends]\nforeign = foreign_backend:open_backend\n")
    (info / "RECORD").write_text("foreign_backend.py,,\n")


@pytest.mark.usefixtures("installed")
def test_a_foreign_scheme_is_found_by_its_entry_point() -> None:
    with sync.connect("foreign://here?size=3") as store:
        store.append_message("c", "user", "x")
        assert len(store.get_messages("c")) == 1
    assert sys.modules["foreign_backend"].opened == [("here", "3", True, False)]


@pytest.mark.usefixtures("installed")
def test_installed_packages_are_searched_once_for_a_foreign_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    sync.connect("foreign://here").close()
    monkeypatch.delattr("importlib.metadata.entry_points")
    sync.connect("foreign://here").close()


def test_a_foreign_scheme_may_be_installed_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "foreign_backend", raising=False)
    with pytest.raises(ValidationError, match="unknown scheme"):
        sync.connect("foreign://here")
    install(tmp_path)
    sync.connect("foreign://here").close()


@pytest.mark.usefixtures("installed")
def test_a_foreign_scheme_is_suggested() -> None:
    with pytest.raises(ValidationError, match="did you mean 'foreign'"):
        sync.connect("foriegn://here")
    with pytest.raises(ValidationError, match="did you mean 'size'"):
        sync.connect("foreign://here?sise=3")


def test_the_default_url(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HANSARD_URL", raising=False)
    assert schemes.default_url() == "sqlite:///hansard.db"
    monkeypatch.setenv("HANSARD_URL", "memory://")
    with sync.connect() as store:
        assert store.capabilities.name == "memory"
    monkeypatch.setenv("HANSARD_URL", "")
    assert schemes.default_url() == "sqlite:///hansard.db"


def test_ways_to_connect() -> None:
    import asyncio

    async def main() -> None:
        store = await hansard.connect("memory://", clock=Clock())
        await store.append_message("c", "user", "x")
        await store.close()
        with pytest.raises(hansard.Closed):
            await store.get_messages("c")
        async with hansard.connect("memory://") as other:
            assert await other.get_messages("c") == []
        with pytest.raises(hansard.Closed):
            await other.get_messages("c")

    asyncio.run(main())


def test_a_store_over_a_backend_of_ones_own() -> None:
    from hansard.backends.memory import MemoryBackend

    with sync.Store.over(MemoryBackend(), tenant="acme") as store:
        store.append_message("c", "user", "x")
        assert store.admin.tenants() == ["acme"]
    with pytest.raises(ValidationError, match="tenant is empty"):
        sync.Store.over(MemoryBackend(), tenant="")


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("postgresql://me:secret@host/db", "postgresql://me:…@host/db"),
        ("postgresql://me@host/db?password=secret&schema=x", "postgresql://me@host/db?password=…&schema=x"),
        ("postgresql://host/db?direct_url=postgresql%3A%2F%2Fme%3Asecret%40h", "postgresql://host/db?direct_url=…"),
        ("redis://:secret@host/0", "redis://:…@host/0"),
        ("sqlite:////a:b@c.db", "sqlite:////a:b@c.db"),
        ("file:///a/b:c", "file:///a/b:c"),
    ],
)
def test_a_password_is_not_shown(url: str, seen: str) -> None:
    assert shown(url) == Url(url).text == seen
