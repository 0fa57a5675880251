"""Elements of a JSON array are cut at the right places, however the text looks."""

from __future__ import annotations

import io
import itertools
import json
from typing import Any

import pytest

from hansard.importers import json_stream
from hansard.importers.json_stream import ARRAY_BLOCK, BLOCK, array_elements

ARRAYS: dict[str, list[Any]] = {
    "flat": [{"a": 1}, {"a": 2}, {"a": 3}],
    "objects inside": [{"a": [{"b": 1}, {"b": 2}], "c": {"d": {}}}, {"a": [{"b": 3}, {"b": 4}]}],
    "brackets in texts": [{"a": "}, {"}, {"a": '"}, {"'}, {"a": "\\"}, {"a": "]}["}],
    "arrays": [[1, [2]], {"a": []}, []],
    "deep": [{"a": [[[[[[[[[[{"b": "]"}, {}]]]]]]]]]]}, {"a": 1}, {"a": [{}, {}]}],
    "across blocks": [{"a": "x" * (ARRAY_BLOCK // 2 - 7)}, {"a": [{"b": "}, {"}, {"c": "\\"}]}] * 5,
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("separators", [(",", ":"), (" ,\n ", " : ")], ids=["dense", "spaced"])
def test_elements_are_those_of_the_array(name: str, separators: tuple[str, str]) -> None:
    text = json.dumps(ARRAYS[name], separators=separators)
    assert [each.value for each in array_elements(io.BytesIO(text.encode()))] == ARRAYS[name]


def test_many_elements_with_objects_inside_are_read_without_counting_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [{"messages": [{"text": "}, {"}, {"text": "\\"}], "n": number} for number in range(100)]
    steps = _count_brackets(monkeypatch)
    assert [each.value for each in array_elements(io.BytesIO(json.dumps(given).encode()))] == given
    assert len(steps) < 120


def test_a_damaged_element_is_reported_and_the_rest_is_read() -> None:
    found = [*array_elements(io.BytesIO(b'[{"a": 1}, {"a": tru}, {"a": [{"b": 2}, {"b": 3}]}, {"a": 4}]'))]
    assert [each.value for each in found] == [{"a": 1}, None, {"a": [{"b": 2}, {"b": 3}]}, {"a": 4}]
    assert [each.number for each in found if each.problem] == [2]


def test_an_element_above_the_limit_is_not_taken() -> None:
    text = json.dumps([{"a": "x" * 100}, {"a": "y"}, {"a": "z" * 100}])
    found = [*array_elements(io.BytesIO(text.encode()), most_bytes=50)]
    assert [each.value for each in found] == [None, {"a": "y"}, None]


def test_whole_elements_are_read_without_counting_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps([{"a": [[[[]]]], "n": number} for number in range(100)])
    steps = _count_brackets(monkeypatch)
    assert len([*array_elements(io.BytesIO(text.encode()))]) == 100
    assert len(steps) < 120


def _count_brackets(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    steps: list[int] = []
    brackets = json_stream._Splitter._brackets

    def counted(splitter: json_stream._Splitter, block: bytes) -> Any:
        for at in brackets(splitter, block):
            steps.append(at)
            yield at

    monkeypatch.setattr(json_stream._Splitter, "_brackets", counted)
    return steps


def test_lines_may_end_with_carriage_returns() -> None:
    rows: list[dict[str, Any]] = [{"n": number, "text": "x" * (number % 7) * 1_000} for number in range(1_000)]
    assert sum(len(row["text"]) for row in rows) > 2 * BLOCK
    for end in ("\r", "\n", "\r\n"):
        text = end.join([json.dumps(row) for row in rows]).encode()
        for whole in (text, text + end.encode()):
            found = [*json_stream.lines(io.BytesIO(whole))]
            assert [each.value for each in found] == rows
            assert [each.number for each in found] == [*range(1, 1_001)]


def test_a_carriage_return_at_the_end_of_the_first_block_may_precede_a_newline() -> None:
    first = b'{"a": "%s"}' % (b"x" * (BLOCK - 10))
    assert len(first) == BLOCK - 1
    found = [*json_stream.lines(io.BytesIO(b"\r\n".join((first, b"2", b"3"))), blank=True)]
    assert [(each.number, each.value) for each in found[1:]] == [(2, 2), (3, 3)]


def test_a_carriage_return_in_a_long_line_does_not_end_it() -> None:
    rows = [{"a": 1, "b": "x" * BLOCK}, {"c": 2}]
    text = "\n".join(map(json.dumps, rows)).replace(", ", ",\r", 1)
    assert [each.value for each in json_stream.lines(io.BytesIO(text.encode()))] == rows


def test_a_line_above_the_limit_is_skipped_whatever_its_end() -> None:
    for end in (b"\r", b"\n"):
        found = [*json_stream.lines(io.BytesIO(end.join((b"1", b"2" * 500, b"3", b""))), most_bytes=100)]
        assert [(each.number, each.value) for each in found] == [(1, 1), (2, None), (3, 3)]
        assert found[1].problem == "the line is longer than 100 bytes"


@pytest.mark.parametrize("most", [5, 12, 40, BLOCK])
@pytest.mark.parametrize("length", [1, 4, 12, 39, BLOCK - 5, BLOCK + 5])
def test_lines_are_cut_at_their_newlines_across_blocks(length: int, most: int) -> None:
    """As `readline` with a limit would read them."""
    texts = [b'"' + b"x" * length + b'"\n', b"1\n", b"\n", b'"' + b"y" * length + b'"\n', b"[2]"]
    found = [*json_stream.lines(io.BytesIO(b"".join(texts)), most)]
    whole = {number: each for number, each in enumerate(texts, 1) if each.strip()}
    assert [each.number for each in found] == [*whole]
    for each in found:
        line = whole[each.number]
        is_long = len(line) > most
        assert (each.problem is not None, each.line) == (is_long, b"" if is_long else line)


ODD_LINES = (
    *(b"{", b"}", b'{"a":1}', b'{"a":{"b":2}}', b'{"a":1} {"b":2}', b'{"a":1', b'"b":2}', b'{"a":"}', b'{"}', b"[{}]"),
    *(b"", b" ", b"null", b'\xef\xbb\xbf{"a":1}', b'{"a":"\xff"}', b'{"a":1}\r', b' {"a":1} ', b"{}}"),
)


@pytest.mark.parametrize("end", [b"\n", b""], ids=["ended", "not ended"])
def test_lines_are_decoded_together_as_alone(end: bytes) -> None:
    for one, other in itertools.product(ODD_LINES, repeat=2):
        split = [b'{"n":0}', one, other, b'{"n":1}', other, one, b'{"n":2}']
        text = b"\n".join(split) + end
        alone = [json_stream._element(number, line, line) for number, line in enumerate(io.BytesIO(text), 1)]
        assert [*json_stream.lines(io.BytesIO(text))] == [each for each in alone if each.line.strip()]
