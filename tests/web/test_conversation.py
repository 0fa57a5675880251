"""A conversation on its page: participants, tools with their results, branches, summaries, paging, live."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urljoin

import pytest
from tests.web.kit import Page, Site

from hansard import Message, Participant
from hansard.server.web import markup


def texts(page: Page) -> list[str]:
    return [each.one("div", "body").one("div", "said").words for each in page.messages()]


def test_every_message_shows_its_participant(site: Site) -> None:
    site.store.append(
        "c",
        [
            Message("system", "Be brief."),
            Message("user", "Hello"),
            Message("assistant", "Hi"),
            {"role": "user", "content": "Me too", "participant": {"kind": "user", "id": "u2", "display_name": "Ben"}},
            {"role": "agent", "content": "I see", "participant": {"kind": "agent", "id": "scout"}},
        ],
        user_id="ann",
        agent_id="helper",
    )
    page = site.get("/c/c")
    assert [each.one("span", "name").words for each in page.messages()] == ["System", "ann", "helper", "Ben", "scout"]
    assert texts(page) == ["Be brief.", "Hello", "Hi", "Me too", "I see"]
    assert page.messages()[4].one("span", "role").words == "agent"


def test_the_people_are_all_who_have_written(site: Site) -> None:
    written = [
        Message("user", "x"),
        Message("assistant", "y"),
        Message("user", "z", participant=Participant("user", "bo")),
    ]
    site.store.append("c", written, user_id="ann", agent_id="helper")
    assert [each.words for each in site.get("/c/c").tree.one("ul", "people").all("li")] == [
        *("ann user", "helper agent", "bo user")
    ]


def test_the_head_shows_few_of_many_labels(site: Site) -> None:
    site.store.append("c", [Message("user", "x")])
    for number in range(24):
        site.store.add_label("c", f"label {number:02}")
    page = site.get("/c/c")
    assert [each.words for each in page.tree.one("div", "titles").all(None, "label")] == [
        *("label 00", "label 01", "label 02", "21 more")
    ]
    assert len(page.tree.one("form", "labels").all("span", "label")) == 24


def test_long_arguments_of_a_call_end_with_an_ellipsis(site: Site) -> None:
    call = {"type": "tool_call", "id": "c", "name": "write", "arguments": {"path": "/a", "text": "word " * 50}}
    site.store.append("c", [Message("assistant", [call], format="parts")])
    assert site.get("/c/c").tree.one("span", "args").words == f"path: /a, text: {'word ' * 7}word…"


def test_an_interrupted_answer_shows_its_reason(site: Site) -> None:
    metadata = {"error": "The model is overloaded"}
    site.store.append("c", [Message("assistant", "", status="interrupted", metadata=metadata)])
    page = site.get("/c/c")
    assert "The model is overloaded" in page
    assert ">empty<" not in page


def test_messages_that_a_program_hides_are_folded(site: Site) -> None:
    hidden = {"hidden": True}
    written = [Message("user", "You are in /src", metadata=hidden), Message("user", "Hi", metadata={"hidden": False})]
    site.store.append("c", written)
    context, said = site.get("/c/c").messages()
    fold = context.one("details", "fold")
    assert fold.one("summary").words == "Hidden message"
    assert fold.one("div", "said").words == "You are in /src"
    assert said.one("div", "said").words == "Hi"
    assert not said.all("details", "fold")


def test_markdown_code_and_tables_are_rendered(sample: Site) -> None:
    page = sample.get("/c/sample-parser")
    code = [each for each in page.tree.all("pre", "code") if "def parse" in each.text]
    assert len(code) == 1
    assert "def" in [each.text for each in code[0].all("span", "k-k")]
    table = sample.get("/c/sample-parcel").tree.one("div", "messages").one("table")
    assert [cell.words for cell in table.all("th")] == ["step", "when", "state"]
    assert table.all("td")[2]["class"] == "to-center"


def test_results_are_shown_within_their_calls(sample: Site) -> None:
    page = sample.get("/c/sample-parcel")
    calls = page.tree.all("details", "call")
    assert [each.one("span", "tool-name").words for each in calls] == ["track_parcel", "quote_refund"]
    assert all("open" not in each.attributes for each in calls)
    assert "held at customs" in calls[0].one("div", "result").text
    # Eight messages are stored; two of them are results, shown within their calls.
    assert len(page.messages()) == 6
    assert calls[0].one("div", "result")["id"] == "m4"
    failed = sample.get("/c/sample-parser").tree.all("details", "failed")
    assert len(failed) == 1
    assert "ValueError" in failed[0].text
    open_call = sample.get("/c/sample-heating").tree.one("details", "call")
    assert "no result yet" in open_call.words


def test_a_result_without_its_call_is_shown_by_itself(site: Site) -> None:
    site.store.append(
        "c", [Message("tool", {"role": "tool", "tool_call_id": "t9", "content": "42"}, format="openai.chat")]
    )
    (message,) = site.get("/c/c").messages()
    assert message.one("div", "result").one("pre").words == "42"


def test_reasoning_status_sources_and_usage_are_shown(sample: Site) -> None:
    parser = sample.get("/c/sample-parser").tree
    assert "Run the one test first" in parser.one("details", "reasoning").text
    parcel = sample.get("/c/sample-parcel")
    assert "Returns and refunds, section 4" in parcel.tree.one("details", "sources").words
    assert "claude-sonnet-5 · 871 in · 142 out · 600 cached · $0.0047" in parcel
    heating = sample.get("/c/sample-heating").tree
    states = [state.words for state in heating.one("div", "messages").all("span", "state")]
    assert states == ["interrupted", "blocked", "refused", "no result yet"]


def test_pictures_and_sounds_have_addresses(sample: Site) -> None:
    page = sample.get("/c/sample-chart")
    picture = page.tree.one("div", "messages").one("img")
    found = sample.reader.client.get(urljoin(page.url, picture["src"]))
    assert (found.headers["content-type"], found.content[:4]) == ("image/png", b"\x89PNG")
    sound = sample.reader.client.get(urljoin(page.url, page.tree.one("audio")["src"]))
    assert (sound.headers["content-type"], sound.content[:4]) == ("audio/wav", b"RIFF")


def test_every_picture_of_a_message_has_its_own_address(site: Site) -> None:
    """Large ones are blobs, small ones are not; each has its own address."""
    pictures = [
        b"\x89PNG\r\n\x1a\n" + bytes([number]) * size for number, size in ((1, 20), (2, 9000), (3, 30), (4, 8000))
    ]
    parts = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(each).decode()}"}}
        for each in pictures
    ]
    site.store.append("c", [Message("user", parts, format="openai.chat")])
    page = site.get("/c/c")
    found = [sample_of(site, page, each["src"]) for each in page.tree.all("img")]
    assert found == pictures


def sample_of(site: Site, page: Page, address: str) -> bytes:
    return site.reader.client.get(urljoin(page.url, address)).content


def test_edits_and_pins_are_marked(site: Site) -> None:
    site.store.append("c", [Message("user", "Earlier", id="m", pinned=True)])
    site.store.update_message("c", "m", content="Before")
    (message,) = site.get("/c/c").messages()
    assert [each.words for each in message.all("span", "state")] == ["edited", "pinned"]


def test_a_message_that_only_grew_is_not_marked_as_edited(site: Site) -> None:
    site.store.append_message("c", "assistant", "", id="m", status="in_progress")
    site.store.update_message("c", "m", content="Grown", status="complete")
    site.store.rate("c", "m", 1)
    (message,) = site.get("/c/c").messages()
    assert [each.words for each in message.all("span", "state")] == ["rated good"]


def test_branches_are_listed_and_linked(sample: Site) -> None:
    page = sample.get("/c/sample-kyoto")
    tree = page.tree.one("ul", "tree")
    assert [(each["class"], each.one("a", "branch").words) for each in tree.all("li")] == [
        ("depth0 shown", "main"),
        ("depth1", "cheaper"),
        ("depth1", "by-train"),
    ]
    cheaper = page.follow("cheaper")
    assert "ゲストハウス" in cheaper
    assert "branch cheaper" in cheaper
    assert "18,000" not in cheaper.tree.one("div", "messages").text


def test_summaries_are_shown_where_their_range_ends(sample: Site) -> None:
    page = sample.get("/c/sample-long").follow("Older messages")
    summary = page.tree.one("details", "summary")
    assert "Summary of messages 1 to 2,376" in summary.words
    log = [node for node in page.tree.walk() if node is summary or "message" in node["class"].split()]
    assert log[log.index(summary) - 1]["data-seq"] == "2376"


def test_a_summary_of_another_branch_is_not_shown(site: Site) -> None:
    site.store.append("c", [Message("user", str(number), id=str(number)) for number in range(1, 7)])
    site.store.branch("c", at="2", branch_id="side", activate=False)
    site.store.add_summary("c", "All of main", from_seq=1, to_seq=5)
    site.store.add_summary("c", "The shared part", from_seq=1, to_seq=2)
    assert len(site.get("/c/c").tree.all("details", "summary")) == 2
    (shown,) = site.get("/c/c?branch=side").tree.all("details", "summary")
    assert "The shared part" in shown.text


def test_a_summary_that_ends_with_a_result_is_shown_after_its_call(sample: Site, site: Site) -> None:
    messages = sample.store.get_messages("sample-parcel")
    site.store.append("c", messages)
    site.store.add_summary("c", "So far", from_seq=1, to_seq=5)
    page = site.get("/c/c")
    log = [node for node in page.tree.walk() if {"message", "summary"} & set(node["class"].split())]
    at = next(number for number, node in enumerate(log) if "summary" in node["class"].split())
    assert log[at - 1]["data-seq"] == "3"


def calling(number: int) -> list[Message]:
    """So many messages, of which the eleventh calls a tool and the twelfth has its result."""
    said = [Message("user", f"word {each}", id=f"w{each}") for each in range(1, 32)]
    call = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": '{"a": 1}'}}
    asks = {"role": "assistant", "content": None, "tool_calls": [call]}
    said[10] = Message("assistant", asks, format="openai.chat", id="asks")
    answer = {"role": "tool", "content": "found it", "tool_call_id": "call_1"}
    said[11] = Message("tool", answer, format="openai.chat", id="answers")
    return said[:number]


def test_a_result_and_its_call_in_two_stretches_have_links_to_each_other(site: Site) -> None:
    site.store.append("c", calling(31))
    page = site.get("/c/c")  # from the twelfth on
    result = page.messages()[0].one("div", "result")
    assert "found it" in result.words
    link = result.one("a", data_to="m11")
    assert link.words == "look_up"
    assert [each["data-seq"] for each in page.follow("look_up").messages() if each["id"] == "m11"] == ["11"]
    call = page.follow("Older messages").messages()[-1]
    assert "result further on" in call.words
    assert "no result yet" not in call.words
    assert call.one("a", data_to="m12").words == "Its result"


def test_a_result_and_its_call_in_one_stretch_are_one(site: Site) -> None:
    site.store.append("c", calling(20))
    page = site.get("/c/c")
    assert len(page.messages()) == 19
    assert not page.tree.all("a", data_to="m12")
    alone = site.get("/c/c/m/asks").messages()[0]
    assert alone.one("a", data_to="m12").words == "Its result"
    assert site.get("/c/c/m/answers").messages()[0].one("a", data_to="m11").words == "look_up"


def test_a_call_without_a_result_is_marked_as_waiting(site: Site) -> None:
    site.store.append("c", calling(11))
    assert "no result yet" in site.get("/c/c").messages()[-1].words
    assert "no result yet" in site.get("/c/c/m/asks").messages()[0].words


def test_integers_of_any_size_are_shown(site: Site) -> None:
    site.store.append(
        "c",
        [
            Message("user", {"n": 10**40}, format="json"),
            Message("user", [{"type": "x", "n": -(10**30)}], format="parts"),
        ],
    )
    page = site.get("/c/c")
    assert "1" + "0" * 40 in page.tree.text
    assert page.status == 200


def test_it_opens_at_its_end_and_pages_both_ways(sample: Site) -> None:
    page = sample.get("/c/sample-long")
    seqs = [int(each["data-seq"]) for each in page.messages()]
    assert seqs == list(range(2381, 2401))
    older = page.follow("Older messages")
    assert [int(each["data-seq"]) for each in older.messages()] == list(range(2341, 2381))
    back = older.follow("Newer messages")
    assert [int(each["data-seq"]) for each in back.messages()] == seqs
    assert [link.words for link in back.tree.all("a", "further")] == ["Older messages"]


def test_every_message_is_reached_by_paging(site: Site) -> None:
    site.store.append("c", [Message("user", str(number)) for number in range(95)])
    page = site.get("/c/c")
    seen: list[str] = []
    while True:
        seen = [*texts(page), *seen]
        if not any(link.words == "Older messages" for link in page.tree.all("a")):
            break
        page = page.follow("Older messages")
    assert seen == [str(number) for number in range(95)]


def test_a_message_has_an_address(sample: Site) -> None:
    page = sample.get("/c/sample-long?at=log-1000")
    seqs = [int(each["data-seq"]) for each in page.messages()]
    assert (seqs[0], seqs[-1], 1000 in seqs) == (980, 1020, True)
    assert {link.words for link in page.tree.all("a", "further")} == {"Older messages", "Newer messages"}
    alone = sample.get("/c/sample-long/m/log-1000")
    assert len(alone.messages()) == 1
    raw = sample.reader.client.get("/c/sample-long/m/log-1000/raw").json()
    assert raw["id"] == "log-1000"


def test_a_message_of_another_branch_opens_there(sample: Site) -> None:
    (other,) = [each for each in sample.store.get_messages("sample-kyoto", branch="cheaper") if "4,500" in each.text]
    page = sample.get(f"/c/sample-kyoto?at={other.id}")
    assert texts(page)[-1].startswith("もちろんです")
    assert "branch cheaper" in page
    shared = sample.get("/c/sample-kyoto?at=sample-kyoto-1")
    assert len(shared.messages()) == 4


def test_a_fragment_contains_only_messages(sample: Site) -> None:
    piece = sample.piece("/c/sample-long")
    assert len(piece.messages()) == 20
    assert piece.tree.all("html") == []


def test_an_empty_conversation_has_a_page(site: Site) -> None:
    site.store.create_conversation("c", title="Nothing yet")
    page = site.get("/c/c")
    assert "No messages" in page
    assert page.tree.one("h1").words == "Nothing yet"


def test_new_messages_arrive_as_html(site: Site) -> None:
    """New messages come as HTML, links as seen from the page that listens, and one in progress grows."""
    site.store.append("c", [Message("user", "first", id="m1")])
    page = site.get("/c/c")
    tail = urljoin(page.url, page.tree.one("div", "messages")["data-tail"])
    with site.reader.client.stream("GET", tail) as events:
        assert events.headers["content-type"].startswith("text/event-stream")
        lines = events.iter_lines()
        assert next(lines).startswith("id: ")
        site.store.append_message("c", "assistant", "*gro*", id="m2", status="in_progress")
        first = _event(lines)
        site.store.update_message("c", "m2", content="*grown*", status="complete")
        last = _event(lines)
    assert (first["seq"], first["status"]) == (2, "in_progress")
    assert "<em>gro</em>" in first["html"]
    assert last["status"] == "complete"
    assert 'href="../c/c/m/m2"' in last["html"]
    assert 'href="../c/c/m/m2"' in site.get("/c/c").answer.text


def _event(lines: Iterator[str]) -> dict[str, Any]:
    for line in lines:
        if line.startswith("data: {") and len(line) > 10:
            return json.loads(line[6:])  # type: ignore[no-any-return]
    raise AssertionError("the stream ended")


@pytest.mark.parametrize("number", [0, 1, 19, 20, 21])
def test_a_page_has_a_limited_number_of_messages(site: Site, number: int) -> None:
    site.store.create_conversation("c")
    if number:
        site.store.append("c", [Message("user", str(each)) for each in range(number)])
    page = site.get("/c/c")
    assert len(page.messages()) == min(number, 20)
    assert bool(page.tree.all("a", "further")) == (number > 20)


def test_days_are_shown_between_messages(site: Site) -> None:
    days = [
        datetime(2026, 1, 30, 12, tzinfo=UTC),
        datetime(2026, 1, 30, 13, tzinfo=UTC),
        datetime(2026, 2, 1, tzinfo=UTC),
    ]
    site.store.append("c", [Message("user", "x", created_at=day) for day in days])
    assert [each.words for each in site.get("/c/c").tree.all("p", "day")] == ["30 January 2026", "1 February 2026"]


# Seen again


def test_an_unchanged_page_is_not_rendered_again(site: Site) -> None:
    site.store.append("c", [Message("user", "Where is my parcel?")], title="Parcels")
    for path in ("/c/c", "/search?q=parcel"):
        first = site.get(path)
        known = len(markup.html_cache)
        assert site.get(path).answer.text == first.answer.text
        assert len(markup.html_cache) == known > 0


def test_an_answer_with_a_secret_is_not_cached(site: Site) -> None:
    site.store.append("c", [Message("user", "Where is my parcel?")])
    page = site.get("/c/c/access")
    known = len(markup.html_cache)
    assert page.send("/shares/add", expires="day").tree.one("a", "secret")["href"]
    assert len(markup.html_cache) == known


def test_a_changed_page_is_rendered_again(site: Site) -> None:
    stored = site.store.append("c", [Message("user", "Where is my parcel?")], title="Parcels").messages[0]
    assert site.get("/c/c").tree.one("title").words == "Parcels · Hansard"
    assert "Where is my parcel?" in site.get("/search?q=parcel")
    site.store.update_message("c", stored.id, content="Where is the parcel?")
    assert texts(site.get("/c/c")) == ["Where is the parcel?"]
    assert "Where is the parcel?" in site.get("/search?q=parcel")
    site.store.update_conversation("c", title="Orders")
    page = site.get("/c/c")
    assert (page.tree.one("title").words, page.tree.one("h1").words) == ("Orders · Hansard", "Orders")
    site.store.branch("c", empty=True, branch_id="other")
    assert [each.words for each in site.get("/c/c").tree.one("ul", "tree").all("a", "branch")] == ["main", "other"]
