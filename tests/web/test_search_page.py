"""The list, the search and the why page: filters, orders, pages, typing."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.wait import PATIENCE
from tests.web.kit import Page, Site, sited

from hansard import Message, Usage
from hansard.model import Stats
from hansard.server.settings import Settings
from hansard.server.web import usage_totals

HOSTILE = '"><img src=x onerror=alert(1)>'


def titles(page: Page) -> list[str]:
    return [each.words for each in page.tree.all("span", "row-title")]


@pytest.fixture
def talks(site: Site) -> Site:
    for number in range(60):
        site.store.append(
            f"c{number:02}",
            [Message("user", f"About the harbour, part {number}" if number % 2 else f"Else {number}")],
            user_id="ann" if number % 3 else "ben",
            agent_id="pilot" if number % 5 else "cook",
            title=f"Talk {number:02}",
            metadata={"shop": number % 4, "tag": "x"},
        )
    return site


def test_the_list_pages_both_ways(talks: Site) -> None:
    page = talks.get("/conversations")
    first = titles(page)
    assert first == [f"Talk {number:02}" for number in range(59, 34, -1)]
    second = page.follow("Older →")
    assert titles(second)[0] == "Talk 34"
    third = second.follow("Older →")
    assert titles(third) == [f"Talk {number:02}" for number in range(9, -1, -1)]
    assert titles(third.follow("← Newer")) == titles(second)
    assert titles(third.follow("← Newer").follow("← Newer")) == first


def test_filters_narrow_the_list(talks: Site) -> None:
    ben = talks.get("/conversations?user=ben&agent=cook")
    assert titles(ben) == ["Talk 45", "Talk 30", "Talk 15", "Talk 00"]
    assert titles(talks.get("/conversations?metadata=shop%3D1,tag%3Dx&agent=cook")) == ["Talk 45", "Talk 25", "Talk 05"]
    assert talks.get("/conversations?metadata=nonsense").status == 400
    talks.store.update_conversation("c10", archived=True)
    assert "Talk 10" not in titles(talks.get("/conversations?user=ann&agent=cook"))
    assert titles(talks.get("/conversations?archived=yes")) == ["Talk 10"]
    assert "Talk 10" in titles(talks.get("/conversations?archived=both&user=ann&agent=cook"))
    # Filters stay while paging.
    page = talks.get("/conversations?user=ann").follow("Older →")
    assert all(row.one("span", "row-facts").words.startswith("ann") for row in page.tree.all("a", "row"))


def test_a_range_of_days_narrows_the_list(site: Site) -> None:
    start = datetime(2026, 1, 1, 12, tzinfo=UTC)
    for number in range(90):
        site.store.append(
            f"d{number:02}", [Message("user", f"d{number:02}", created_at=start + timedelta(hours=6 * number))]
        )
    page = site.get("/conversations?since=2026-01-05&until=2026-01-14")
    seen = titles(page)
    assert [link.words for link in page.tree.one("nav", "pager").all("a")] == ["Older →"]
    later = page.follow("Older →")
    newer = later.follow("← Newer")
    assert titles(newer) == seen
    # Before the range there are others, and no link leads there.
    assert [link.words for link in newer.tree.one("nav", "pager").all("a")] == ["Older →"]
    seen += titles(later)
    inside = [n for n in range(90) if 5 <= (start + timedelta(hours=6 * n)).day <= 14]
    assert seen == [f"d{number:02}" for number in reversed(inside)]
    assert [link.words for link in later.tree.all("a", rel="next")] == []
    assert titles(site.get("/conversations?since=2030-01-01")) == []
    assert titles(site.get("/conversations?until=2025-01-01")) == []
    assert len(titles(site.piece("/conversations?q=d07&since=2026-01-03&until=2026-01-03"))) == 1
    assert titles(site.piece("/conversations?q=d07&until=2026-01-02")) == []
    assert site.get("/conversations?since=tomorrow").status == 400


def test_the_list_is_searched_by_words_titles_and_ids(talks: Site) -> None:
    found = talks.piece("/conversations?q=harbour+part+7")
    assert "Talk 07" in titles(found)
    assert found.tree.all("mark")[0].words in ("harbour", "part", "7", "harbour,")
    assert titles(talks.piece("/conversations?q=talk+5"))[0] == "Talk 59"
    assert titles(talks.piece("/conversations?q=c33")) == ["Talk 33"]
    assert "Nothing found." in talks.piece("/conversations?q=zebra")
    assert titles(talks.piece("/conversations?q=harbour&user=nobody")) == []


def test_a_range_that_ends_with_a_page_has_no_link_to_an_empty_one(site: Site) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(80):
        site.store.append(
            f"d{number:02}", [Message("user", f"d{number:02}", created_at=start + timedelta(hours=number))]
        )
    # The second day has 24 and the third 24: together with two of the fourth, two pages that are full.
    page = site.get("/conversations?since=2026-01-02&until=2026-01-03")
    assert len(titles(page)) == 25
    last = page.follow("Older →")
    assert titles(last)[-1] == "d24"
    assert not last.tree.all("a", rel="next")
    assert not last.follow("← Newer").tree.all("a", rel="prev")
    full = site.get("/conversations?until=2026-01-02").follow("Older →")
    assert titles(full)[-1] == "d00"
    for at in range(80, 82):
        site.store.append(f"d{at}", [Message("user", "x", created_at=start + timedelta(hours=72, minutes=at))])
    exact = site.get("/conversations?since=2026-01-04&until=2026-01-04")
    assert not exact.tree.all("nav", "pager")


def test_older_titles_are_searched_on_request(site: Site) -> None:
    for number in range(230):
        site.store.create_conversation(f"c{number:03}", title="A lighthouse" if number in (3, 229) else "Talk")
    page = site.piece("/conversations?q=lighthouse")
    assert titles(page) == ["A lighthouse"]
    assert "200 newest titles searched" in page
    older = page.follow("Search older titles")
    assert titles(older) == ["A lighthouse"]
    assert older.tree.one("a", "row")["href"].endswith("c003")
    assert "30 more titles searched: there are no more." in older
    # All titles were searched, so there is no note.
    assert "titles searched" not in site.piece("/conversations?q=lighthouse&metadata=a=1")


def test_every_matching_title_is_reached_by_paging(site: Site) -> None:
    for number in range(90):
        site.store.create_conversation(f"c{number:02}", title=f"A lighthouse {number:02}")
    page = site.piece("/conversations?q=lighthouse")
    seen = titles(page)
    assert "25 newest titles searched" in page
    for _ in range(3):
        page = page.follow("Search older titles")
        seen += titles(page)
    assert seen == [f"A lighthouse {number:02}" for number in reversed(range(90))]
    assert "15 more titles searched: there are no more." in page


def test_matching_titles_do_not_hide_matching_messages(site: Site) -> None:
    site.store.append("said", [Message("user", "I saw a lighthouse")], title="The coast")
    for number in range(30):
        site.store.create_conversation(f"c{number:02}", title="A lighthouse")
    assert titles(site.piece("/conversations?q=lighthouse"))[-1] == "The coast"


def test_a_conversation_without_a_title_is_headed_by_the_first_words_of_its_user(site: Site) -> None:
    first = [Message("system", "Be brief."), Message("user", "**Where** is my parcel?\nIt is late.")]
    site.store.append("d73c16cd", [*first, *(Message("assistant", f"Answer {number}") for number in range(6))])
    row = site.get("/conversations").tree.one("a", "row")
    assert row.one("span", "row-title").words == "Where is my parcel?"
    assert row.one("span", "row-text").words == "Answer 5"
    assert row.one("code", "id").words == "d73c16cd"
    page = site.get("/c/d73c16cd")
    assert page.tree.one("h1").words == "Where is my parcel?"
    assert page.tree.one("title").words == "Where is my parcel? · Hansard"
    assert "d73c16cd" in page.main.one("p", "facts-line").words
    assert "Where is my parcel?" in site.get("/c/d73c16cd/why").tree.one("p", "crumbs").words
    assert titles(site.get("/search?q=answer"))[0] == "Where is my parcel?"


def test_without_a_title_and_words_of_a_user_the_id_is_the_heading(site: Site) -> None:
    late = [*(Message("assistant", f"Answer {number}") for number in range(5)), Message("user", "Too late")]
    site.store.append("answers", late)
    site.store.create_conversation("empty")
    site.store.append("once", [Message("user", "Only this")])
    page = site.get("/conversations")
    assert titles(page) == ["Only this", "empty", "answers"]
    once, empty, answers = page.tree.all("a", "row")
    assert not once.all("span", "row-text")  # the heading says the same
    assert empty.one("span", "row-text").words == "—"
    assert not answers.all("code", "id")
    assert answers.one("span", "row-text").words == "Too late"


def test_a_line_of_the_list_shows_preview_count_and_agent(sample: Site) -> None:
    row = next(row for row in sample.get("/conversations").tree.all("a", "row") if "Launch team" in row.words)
    assert "Four of them offered to: kim, ola, 美咲 and Raúl." in row.words
    assert "11 messages" in row.words
    assert "Scout" in row.words


def test_a_conversation_in_progress_is_marked(site: Site) -> None:
    site.store.append_message("c", "assistant", "wait", status="in_progress")
    assert "writing" in site.get("/conversations")


# Search


def test_search_highlights_the_matches(sample: Site) -> None:
    page = sample.get("/search", params={"q": "customs"})
    assert "A late parcel for Tromsø" in titles(page)
    assert {mark.words.lower() for mark in page.tree.all("mark")} == {"customs"}
    hits = [row["href"] for row in page.tree.all("a", "row") if "A late parcel for Tromsø" in row.words]
    there = sample.get("/" + hits[0].removeprefix("./").partition("#")[0])
    # Results of tools are shown with their calls.
    assert hits[0].partition("#")[2] in {each["id"] for each in there.tree.walk()}


def test_search_orders_filters_and_pages(site: Site) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(45):
        words = "lantern " * (1 + number % 3) + f"number {number}"
        site.store.append(
            f"c{number}",
            [Message("user" if number % 2 else "assistant", words, created_at=start + timedelta(days=number))],
            user_id="ann" if number < 40 else "ben",
            title=f"c{number}",
        )
    newest = site.get("/search?q=lantern&order=newest")
    assert titles(newest) == [f"c{number}" for number in range(44, 24, -1)]
    assert titles(newest.follow("More →").follow("More →")) == [f"c{number}" for number in range(4, -1, -1)]
    assert len(titles(site.get("/search?q=lantern&order=relevance"))) == 20
    assert titles(site.get("/search?q=lantern&user=ben&order=newest")) == ["c44", "c43", "c42", "c41", "c40"]
    assert titles(site.get("/search?q=lantern&role=user&since=2026-01-04&until=2026-01-06&order=newest")) == [
        "c5",
        "c3",
    ]
    assert titles(site.get("/search?q=lantern&conversation=c7")) == ["c7"]
    assert titles(site.get("/search?q=lantern+zebra&match=all")) == []
    assert len(titles(site.get("/search?q=lantern+zebra"))) == 20
    assert len(titles(site.get("/search?q=lantern+zebra&match=any"))) == 20
    assert titles(site.get("/search")) == []


def test_a_hit_shows_the_messages_around_it(site: Site) -> None:
    said = ["Where is my order?", "It left the harbour on Monday.", "Thank you **so** much."]
    site.store.append("c", [Message("user" if at % 2 == 0 else "assistant", each) for at, each in enumerate(said)])
    row = site.get("/search?q=harbour").tree.one("a", "row")
    assert [each.words for each in row.all("span", "around")] == ["User Where is my order?", "User Thank you so much."]
    assert row.one("span", "whole").words == "Assistant It left the harbour on Monday."
    assert row["href"].endswith("#m2")
    question = site.get("/search", params={"q": "When did it leave the harbour?"})
    assert question.tree.one("a", "row")["href"] == row["href"]


def test_a_question_about_a_time_searches_that_time(site: Site) -> None:
    now = datetime.now(UTC)
    for days in (1, 200):
        old = now - timedelta(days=days)
        site.store.append(f"c{days}", [Message("user", "The lantern is lit", created_at=old)], title=f"c{days}")
    page = site.get("/search", params={"q": "lantern in the last 3 days"})
    assert titles(page) == ["c1"]
    assert "Only messages of this time:" in page
    assert sorted(titles(site.get("/search?q=lantern"))) == ["c1", "c200"]


def test_a_search_has_filters_with_counts(site: Site) -> None:
    for number in range(3):
        user = "ann" if number else HOSTILE
        site.store.append(f"c{number}", [Message("user", "a lantern")], user_id=user, title=f"T{number}")
    site.store.add_label("c2", "bug")
    page = site.get("/search-filters?q=lantern")
    counts = {each.words: each["href"] for each in page.tree.all("a", "facet")}
    assert {"ann 2", "user 3", "bug 1", "T2 1", f"{HOSTILE} 1"} <= counts.keys()
    assert not page.tree.all("img")
    found = site.get("/" + counts["bug 1"].removeprefix("./"))
    assert titles(found) == ["T2"]
    assert found.tree.one("a", "chip-link").words == "Remove the filter Label bug ×"
    hostile = site.get("/" + counts[f"{HOSTILE} 1"].removeprefix("./"))
    assert titles(hostile) == ["T0"]
    assert not hostile.tree.all("img")
    assert site.get("/search-filters").status == 200
    assert site.get("/search-filters?q=x&since=tomorrow").status == 400


def test_search_includes_other_branches_on_request(sample: Site) -> None:
    assert titles(sample.get("/search", params={"q": "新幹線"})) == []
    assert len(titles(sample.get("/search", params={"q": "新幹線", "branches": "all"}))) == 1


# Why


def decisions(page: Page) -> dict[str, str]:
    rows = [row for row in page.tree.one("table", "decisions").all("tr")[1:] if "unfold" not in row["class"].split()]
    return {row.all("td")[0].one("span", "words").words[:15]: row.all("td")[1].words for row in rows}


def test_the_why_page_explains_every_message(sample: Site) -> None:
    page = sample.get("/c/sample-team/why?agent=scout")
    why = decisions(page)
    assert why["This is the cha"] == "kept instructions are always included"
    assert why["Agreed."] == "dropped not addressed to the agent"
    assert why["@scout what do "] == "kept it fits"
    assert why["Four of them of"] == "kept the newest message is always included"
    tight = decisions(sample.piece("/c/sample-team/why?agent=scout&budget=60"))
    assert tight["@scout what do "] == "dropped no room left in the budget"
    everything = decisions(sample.piece("/c/sample-team/why?addressed=no&agent=scout"))
    assert everything["Agreed."] == "kept it fits"


def test_the_why_page_has_the_prompt_to_copy(sample: Site) -> None:
    page = sample.get("/c/sample-team/why?agent=scout")
    links = {link.words: link["href"] for link in page.tree.all("a") if "data-copy" in link.attributes}
    openai = sample.reader.client.get("/c/sample-team/" + links["Copy as OpenAI JSON"].partition("sample-team/")[2])
    expected = sample.store.assemble_prompt("sample-team", agent_id="scout").messages
    assert openai.json() == {"messages": json.loads(json.dumps(expected))}
    claude = sample.reader.client.get(
        "/c/sample-team/" + links["Copy as Anthropic JSON"].partition("sample-team/")[2]
    ).json()
    assert claude["system"].startswith("This is the channel")
    assert [turn["role"] for turn in claude["messages"]] == ["user", "assistant", "user", "assistant"]


def test_the_why_page_accepts_every_option(sample: Site) -> None:
    options = {
        "agent": "scout",
        "name": "Scout",
        "budget": "500",
        "turns": "5",
        "hours": "100000",
        "scope": "channel",
        "addressed": "no",
        "names": "field",
        "dangling": "close",
        "system": "You are Scout.",
        "branch": "main",
        "format": "gemini",
    }
    page = sample.get("/c/sample-team/why", params=options)
    assert page.status == 200
    assert "system prompt and tools" in page
    assert page.tree.one("textarea", name="system").words == "You are Scout."
    assert sample.get("/c/sample-long/why?turns=500").status == 200
    assert sample.get("/c/nothing/why").status == 404


def test_the_why_page_of_an_empty_conversation_is_empty(site: Site) -> None:
    site.store.create_conversation("c")
    assert "No messages to choose from." in site.get("/c/c/why")


# The overview


def test_the_overview_shows_counts(sample: Site) -> None:
    page = sample.get("/")
    stats = sample.store.stats()
    numbers = page.tree.one("dl", "numbers").words
    assert f"{stats.conversations:,}" in numbers
    assert f"{stats.messages:,}" in numbers
    assert len(page.tree.all("svg", "chart")) == 3
    assert "claude-sonnet-5" in page
    assert "sqlite" in page
    assert len(page.tree.all("a", "row")) == 5
    assert "a crash of the machine" in page
    assert "Messages a day long conversations spread evenly over their days" in page
    assert "none by this server" in page
    bars = page.tree.all("svg", "chart")[0].all("title")
    assert sum(int(bar.words.rpartition(": ")[2]) for bar in bars[-30:] if "k" not in bar.words) > 0
    assert "Not indexed yet" in page
    assert "Last check" in page


def test_much_usage_is_added_up_once_a_minute(site: Site) -> None:
    said = [
        Message("assistant", "x", usage=Usage(input_tokens=1, output_tokens=1, model=f"m{number}"))
        for number in range(5_001)
    ]
    site.store.append("c", said)
    page = site.get("/")
    assert "Totals of this size are computed once a minute" in page
    numbers = page.tree.one("dl", "numbers").words
    assert "10k" in numbers
    site.store.append("c", said)
    later = site.get("/").tree.one("dl", "numbers").words
    assert later == numbers


def test_conversations_that_take_long_to_count_are_left_out(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []

    async def slow(tenant: str | None) -> Stats:
        counts.append(tenant)
        await asyncio.sleep(PATIENCE)
        raise AssertionError("nobody waits that long")

    monkeypatch.setattr(usage_totals, "_PATIENCE", 0.1)
    monkeypatch.setattr(site.api.store.backend, "stats", slow)
    site.store.append("c", Message("user", "Where is my order?"), title="orders")
    for _ in range(3):
        page = site.get("/")
        assert page.status == 200
        assert "There are too many conversations to count them for this page." in page
        assert "orders" in page
        assert "Tokens, 30 days" in page
    assert len(counts) == 1


def test_an_erased_user_is_in_no_figure(site: Site) -> None:
    usage = [Usage(input_tokens=1, output_tokens=1, model=f"m{number}") for number in range(5_001)]
    site.store.append("a", [Message("assistant", "x", usage=each) for each in usage], user_id="adelaide")
    site.store.append("b", [Message("assistant", "x", usage=usage[0])], user_id="ben")
    page = site.get("/")
    assert "Totals of this size are computed once a minute" in page
    assert "adelaide" in page
    assert site.get("/admin").send("/admin/erase", user="adelaide", sure="yes").status == 200
    assert "adelaide" not in site.get("/")


def test_search_by_meaning_where_the_server_embeds(tmp_path: Path) -> None:
    with sited(f"sqlite:///{tmp_path}/a.db") as site:
        assert not site.get("/search").tree.all("select", name="mode")
        refused = site.get("/search?q=shipped&mode=meaning")
        assert refused.status == 501
    settings = Settings(embedder="hansard.search.embedders:Spelling")
    with sited(f"sqlite:///{tmp_path}/b.db", settings) as site:
        site.store.append("parcel", Message("user", "The shipment is late."), title="parcel")
        site.store.append("garden", Message("user", "Roses want water."), title="garden")
        for mode in ("meaning", "hybrid"):
            assert titles(site.get(f"/search?q=When+was+it+shipped&mode={mode}"))[0] == "parcel"
        assert titles(site.get("/search?q=When+was+it+shipped&mode=words")) == []
        assert site.get("/search").tree.all("select", name="mode")
