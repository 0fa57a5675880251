"""JSON in and out, verbatim; what JSON cannot say is refused, with the place."""

from __future__ import annotations

import base64
import enum
import math
import subprocess
import sys
from collections import OrderedDict, UserDict
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from hansard import codec
from hansard.errors import Corrupt, QuotaExceeded, ValidationError
from hansard.limits import Limits
from hansard.model import Message, Participant, Source, Usage, from_micros
from hansard.testing import facts, strategies

LIMITS = Limits(blob_bytes=100, content_bytes=10_000, depth=20)


@given(strategies.json_values(20))
def test_any_json_value_comes_back(value: Any) -> None:
    text, copy = codec.snapshot(value, "content")
    assert facts(copy) == facts(value)
    assert facts(codec.decode(text, "here")) == facts(value)


def test_a_snapshot_is_private() -> None:
    value = {"a": [1]}
    _, copy = codec.snapshot(value, "content")
    value["a"].append(2)
    assert copy == {"a": [1]}


class Colour(enum.StrEnum):
    RED = "red"


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("given_value", "kept"),
    [
        ((1, (2,)), [1, [2]]),
        ({"a": (1,)}, {"a": [1]}),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        ([Colour.RED], ["red"]),
        ({"k": Text("x")}, {"k": "x"}),
        (True, True),
    ],
)
def test_what_python_writes_as_json(given_value: Any, kept: Any) -> None:
    assert facts(codec.snapshot(given_value, "content")[1]) == facts(kept)


@dataclass
class Data:
    x: int = 1


circular: list[Any] = []
circular.append({"a": circular})


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"a": [1, math.nan]}, r"content\.a\[1\] is nan"),
        (math.inf, "content is inf"),
        ([-math.inf], r"content\[0\] is -inf"),
        ({"a": b"x"}, r"content\.a is bytes"),
        (bytearray(b"x"), "content is bytes"),
        ({1: "x"}, "content has the key 1, a int"),
        ({"a": {None: 1}}, r"content\.a has the key None"),
        ({"a": {1, 2}}, r"content\.a is a set"),
        ([datetime(2026, 1, 1, tzinfo=UTC)], r"content\[0\] is a datetime"),
        (Decimal("1.5"), "content is a Decimal"),
        ([Data()], r"content\[0\] is a Data"),
        (object(), "content is a object"),
        ([Participant("user", "u")], r"content\[0\] is a Participant"),
        (circular, "contains itself"),
        ({"a": "\ud800"}, r"content\.a has half of a surrogate pair \(U\+D800\) at character 0"),
        ({"\udfff": 1}, "a key of content has half of a surrogate pair"),
        ([10**5000], r"content\[0\] is an integer of more digits"),
        (UserDict(a=1), "content is a UserDict"),
    ],
)
def test_what_json_cannot_say(value: Any, where: str) -> None:
    with pytest.raises(ValidationError, match=where):
        codec.snapshot(value, "content")


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("value", [{"k" * 10_000: {"end": math.nan}}, {"end": {1}}])
@pytest.mark.parametrize("levels", [1, 100])
def test_the_place_in_a_message_is_short(value: Any, levels: int) -> None:
    for _ in range(levels):
        value = [value]
    with pytest.raises(ValidationError, match=r"^content\[0\].*end is .*, which JSON cannot represent$") as raised:
        codec.snapshot(value, "content")
    assert len(str(raised.value)) < 250


def test_what_is_nested_too_deeply_is_refused() -> None:
    assert codec.snapshot(nested(20), "content", depth=20)[1] == nested(20)
    with pytest.raises(ValidationError, match="nested too deeply"):
        codec.snapshot(nested(21), "content", depth=20)
    with pytest.raises(ValidationError, match="nested too deeply"):
        codec.snapshot(nested(100_000), "content", depth=20)
    # Brackets in text are no depth.
    assert codec.snapshot("[" * 500, "content", depth=20)[1] == "[" * 500


@pytest.mark.parametrize("damaged", ["", "{", '{"a":}', "nul", b"\xff", '"\\ud800"'])
def test_damaged_json_is_corrupt(damaged: str | bytes) -> None:
    with pytest.raises(Corrupt, match="unreadable JSON in row 5") as refused:
        codec.decode(damaged, "row 5")
    assert refused.value.where == "row 5"


def test_the_size_of_a_body_is_in_bytes() -> None:
    assert codec.body_of("aé😀", "text", LIMITS).size == 7
    assert codec.body_of(["é"], "json", LIMITS).size == 6
    with pytest.raises(QuotaExceeded) as refused:
        codec.body_of("é" * 5001, "text", LIMITS)
    assert (refused.value.limit, refused.value.value) == (10_000, 10_002)


@given(strategies.json_values(20), st.binary(min_size=75, max_size=200), st.sampled_from(["", "data:a/b;base64,"]))
def test_base64_is_moved_out_and_put_back(value: Any, data: bytes, prefix: str) -> None:
    content = [value, {"deep": prefix + base64.b64encode(data).decode()}, value]
    body = codec.body_of(content, "json", Limits(blob_bytes=100, content_bytes=10**6))
    assert len(body.refs) >= 1
    assert body.blobs[body.refs[-1].sha256] == data
    assert codec.content_of(body.text, "json", "here") == body.content
    assert facts(codec.restore(codec.decode(body.text, "here"), body.refs, body.blobs)) == facts(content)


@given(st.text(st.sampled_from("ABCabc019+/=-_ \n"), max_size=60))
def test_only_what_encodes_to_the_same_text_is_base64(text: str) -> None:
    found = codec.unwrap_base64(text)
    if found is not None:
        prefix, data = found
        assert prefix + base64.b64encode(data).decode() == text


def test_long_base64_is_decoded_piece_by_piece() -> None:
    data = bytes(range(256)) * 9000
    text = base64.b64encode(data).decode()
    assert len(text) > 2 * codec._PIECE
    assert codec.unwrap_base64(text) == ("", data)
    assert codec.unwrap_base64(f"data:a/b;base64,{text}") == ("data:a/b;base64,", data)
    at = codec._PIECE
    for wrong in (f"{text[: at - 2]}=={text[at:]}", f"{text[: at - 4]}QQ=={text[at:]}", f"{text[:-4]}QR=="):
        assert codec.unwrap_base64(wrong) is None


def test_small_base64_stays() -> None:
    body = codec.body_of("QUJD" * 24, "text", LIMITS)
    assert (body.refs, body.text) == ((), "QUJD" * 24)
    assert codec.body_of("QUJD" * 25, "text", LIMITS).refs[0].path == ()
    assert codec.body_of("QUJD" * 2000, "text", structs.replace(LIMITS, blob_bytes=0)).refs == ()


@given(strategies.messages())
def test_the_rest_of_a_message_comes_back(message: Message) -> None:
    text = codec.encode_extra(structs.replace(message, updated_at=from_micros(7), edited_at=from_micros(5)))
    assert text is not None
    extra = codec.decode_extra(text, "here")
    for name in ("participant", "mentions", "scope", "status", "pinned", "trace_id", "sources", "usage", "metadata"):
        assert facts(getattr(extra, name)) == facts(getattr(message, name)), name
    assert (extra.updated_at, extra.edited_at) == (7, 5)


def test_a_plain_message_has_no_rest() -> None:
    assert codec.encode_extra(Message("user", "x")) is None
    rare: dict[str, Any]
    for rare in (
        {"participant": Participant("user", "u")},
        {"mentions": ("a",)},
        {"scope": "dm"},
        {"status": "blocked"},
        {"pinned": True},
        {"trace_id": ""},
        {"sources": (Source(),)},
        {"usage": Usage()},
        {"metadata": {}},
    ):
        assert codec.encode_extra(Message("user", "x", **rare)) is not None, rare


@pytest.mark.parametrize("damaged", ["", "[]", '{"status": 5}', '{"participant": {}}', '{"status": "unheard of"}'])
def test_damaged_fields_are_corrupt(damaged: str) -> None:
    with pytest.raises(Corrupt, match="unreadable fields in row 5"):
        codec.decode_extra(damaged, "row 5")


NAMESPACES = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), max_size=4).map(tuple)


@given(NAMESPACES)
def test_namespaces_come_back(namespace: tuple[str, ...]) -> None:
    assert codec.unpack_namespace(codec.pack_namespace(namespace)) == namespace


@given(NAMESPACES, NAMESPACES)
def test_packed_namespaces_sort_as_tuples(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    encoded = [tuple(element.encode() for element in each) for each in (one, other)]
    assert (codec.pack_namespace(one) < codec.pack_namespace(other)) == (encoded[0] < encoded[1])


@given(NAMESPACES, NAMESPACES)
def test_a_prefix_is_a_prefix(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    is_prefix = other[: len(one)] == one
    assert codec.pack_namespace(other).startswith(codec.pack_namespace(one)) == is_prefix


def test_a_digest_knows_where_an_id_ends() -> None:
    assert codec.digest("ab", "c") != codec.digest("a", "bc") != codec.digest("abc")
    assert codec.digest("a", "b") == codec.digest("a", "b")


_THREADS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from msgspec import Struct

from hansard.backends.shared import documents


def fresh():
    made = {"Struct": Struct}
    exec("class A(Struct):\\n    x: 'int'\\n    y: 'dict[str, list[int]] | None' = None", made)
    exec("class B(Struct):\\n    a: 'A'\\n    b: 'list[A]'\\n    c: 'tuple[int, str] | None' = None", made)
    for kind in (made["A"], made["B"]):
        kind.__module__ = "__main__"
    globals().update(made)
    return made["B"]


def decode(kind, barrier):
    barrier.wait()
    return documents.decode(b'{"a": {"x": 1}, "b": []}', kind, "here").a.x


sys.setswitchinterval(1e-6)
with ThreadPoolExecutor(4) as pool:
    for _ in range(500):
        kind, barrier = fresh(), Barrier(4)
        assert [each.result() for each in [pool.submit(decode, kind, barrier) for _ in range(4)]] == [1, 1, 1, 1]
"""


def test_threads_may_decode_a_type_for_the_first_time_at_once() -> None:
    """msgspec alone crashes the process."""
    run = subprocess.run([sys.executable, "-c", _THREADS], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
