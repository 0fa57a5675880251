"""No id names a file outside its folder, the file of another id, or a name that a system reserves."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.backends.files import kit

from hansard.backends.files import names
from hansard.testing import strategies

NASTY = [
    "..",
    ".",
    "...",
    "a.",
    "a..",
    "a ",
    " a",
    ".hidden",
    "_no_agent",
    "_common",
    "_tenant",
    "_locks",
    "../../etc/passwd",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "C:\\x",
    "con",
    "CON",
    "nul.txt",
    "NUL",
    "com1",
    "LPT9.jsonl",
    "aux.",
    "a:b",
    "a*b?c",
    'a|b<c>d"e',
    "%2e%2e",
    "%",
    "~a",
    "A",
    "a",
    "Ä",
    "ä",
    unicodedata.normalize("NFD", "ä"),
    "ſ",
    "K",
    "k",
    "İ",
    "😀",
    "\u202eevil",
    "a\nb",
    "a\tb",
    "-rf",
    "a.jsonl",
    "a.tmp",
    "a.lock",
    "x" * 256,
    "x" * 255 + "y",
    "X" * 256,
    "ü" * 128,
    "ü" * 127 + "uu",
]
SAFE = re.compile(r"[a-z0-9%~-][a-z0-9._%~-]*")
DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")
IDS = st.text(min_size=1, max_size=60).filter(lambda id: ("\0" not in id and id.isprintable()) or True)


def is_harmless(name: str) -> bool:
    return (
        bool(SAFE.fullmatch(name))
        and not name.endswith(".")
        and not DEVICES.fullmatch(name)
        and name.casefold() == name
        and len(name) <= 128
    )


def test_nasty_ids_have_harmless_names_of_their_own() -> None:
    escaped = [names.escape(id) for id in NASTY]
    assert [name for name in escaped if not is_harmless(name)] == []
    assert len({name.casefold() for name in escaped}) == len(NASTY)


@given(st.text(min_size=1, max_size=300).filter(lambda id: not any("\ud800" <= char <= "\udfff" for char in id)))
@settings(max_examples=300, deadline=None)
def test_any_name_is_harmless(id: str) -> None:
    assert is_harmless(names.escape(id))
    assert names.is_name(names.escape(id))


@given(strategies.ids(), strategies.ids())
@settings(max_examples=300, deadline=None)
def test_different_ids_have_different_names(one: str, other: str) -> None:
    assert (names.escape(one) == names.escape(other)) == (one == other)


def test_a_plain_id_can_be_recognised() -> None:
    assert names.escape("conv_01a1dd45c6ef-user.7") == "conv_01a1dd45c6ef-user.7"
    assert names.escape("Support Bot") == "~support%20~bot"


def test_every_id_of_a_store_may_be_nasty(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "store"
    with kit.connect(root) as store:
        for id in NASTY:
            store.append_message(id, "user", f"in {id}", user_id=id, agent_id=id)
            store.user(id).records.put([id], id, id)
            store.records.put([id], id, id, conversation_id=id)
            store.tenant(id).append_message("c", "user", f"of {id}")
    with kit.connect(root) as store:
        for id in NASTY:
            assert kit.contents(store, id) == [f"in {id}"]
            assert [each.id for each in store.list_conversations(agent_id=id).items] == [id]
            assert [each.id for each in store.user(id).list_conversations().items] == [id]
            record = store.user(id).records.get([id], id)
            assert record is not None
            assert record.value == id
            assert kit.contents(store.tenant(id), "c") == [f"of {id}"]
        assert store.admin.tenants() == sorted(["default", *NASTY])
        assert [found for found in store.admin.check() if not isinstance(found, int)] == []
    assert [path.name for path in tmp_path.rglob("*") if not path.is_relative_to(root)] == ["deep"]
    assert {len(path.relative_to(root).parts) for path in kit.journals(root)} == {3}
    found = [str(path.relative_to(root)).casefold() for path in root.rglob("*")]
    assert len(found) == len(set(found))
