"""The list of conversations as a list and a table: sorted, filtered and counted, with all of it in the address."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urljoin

import pytest
from tests.web.kit import Page, Site, sited

import hansard
from hansard import Message, Usage
from hansard.server.web import conversation_facts, conversations

START = datetime(2026, 1, 1, tzinfo=UTC)
HOSTILE = '"><img src=x onerror=alert(1)>{{777*777}}'


@pytest.fixture(scope="module")
def talks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Three conversations that differ in everything that the table shows."""
    folder = tmp_path_factory.mktemp("list")
    with sited(f"sqlite:///{folder}/chats.db") as site:
        _talk(site, "short", 1, cost=0.5, tokens=900, seconds=5, user="ann", project="/srv/shop", model="dear")
        _talk(site, "long", 3, cost=2.25, tokens=100, seconds=4000, user="ben", imported_from="chatgpt", model="cheap")
        _talk(site, "failed", 2, cost=0.001, tokens=10, seconds=60, user="ann", model="cheap")
        failed = [{"type": "tool_result", "tool_use_id": "t", "content": "no", "is_error": True}]
        site.store.append(
            "failed", [Message("user", failed, format="anthropic", created_at=START + timedelta(hours=9))]
        )
        site.store.add_label("long", "bug")
        site.store.rate("long", site.store.get_messages("long")[-1].id, -1, by="ann")
        site.store.rate("short", site.store.get_messages("short")[-1].id, 1, by="ann")
        yield site


def _talk(site: Site, id: str, turns: int, *, cost: float, tokens: int, seconds: int, user: str, **more: str) -> None:
    model = more.pop("model")
    usage = Usage(input_tokens=tokens, cost=cost, model=model)
    said = []
    for turn in range(turns):
        said.append(Message("user", f"Question {turn} of {id}", created_at=START + timedelta(hours=turn)))
        said.append(Message("assistant", f"Answer {turn} of {id}", created_at=START + timedelta(hours=turn)))
    said[-1] = Message("assistant", "Bye", usage=usage, created_at=START + timedelta(seconds=seconds))
    site.store.append(id, said, user_id=user, agent_id="helper", metadata=more, title=f"Title {id}")


def ids(page: Page) -> list[str]:
    links = [*page.tree.all("a", "row"), *page.tree.all("a", "to")]
    return [link["href"].rpartition("/")[2] for link in links]


def test_the_table_shows_what_each_conversation_took(talks: Site) -> None:
    page = talks.get("/conversations?view=table")
    heads = [each.words for each in page.tree.one("thead").all("th")]
    assert heads[:3] == ["Conversation", "User", "Agent"]
    assert heads[3:] == ["Messages", "Tokens", "Cost", "Duration", "Errors", "Rating", "Last ↓", "Menu"]
    rows = {
        row.one("a", "to").words: [cell.words for cell in row.all("td")] for row in page.tree.one("tbody").all("tr")
    }
    assert rows["Title long"][1:9] == ["ben", "helper chatgpt", "6", "100", "$2.25", "1 h 6 min", "", "-1"]
    assert rows["Title short"][3:9] == ["2", "900", "$0.50", "5 s", "", "1"]
    assert rows["Title failed"][3:8] == ["5", "10", "$0.001", "9 h", "1"]
    assert page.tree.one("th", aria_sort="descending").words == "Last ↓"


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("messages", ["long", "failed", "short"]),
        ("tokens", ["short", "long", "failed"]),
        ("cost", ["long", "short", "failed"]),
        ("duration", ["failed", "long", "short"]),
        ("errors", ["failed", "long", "short"]),
        ("rating", ["short", "long", "failed"]),
        ("last_message_at", ["failed", "long", "short"]),
    ],
)
def test_every_column_sorts_both_ways(talks: Site, sort: str, expected: list[str]) -> None:
    for view in ("list", "table"):
        assert ids(talks.piece(f"/conversations?sort={sort}&view={view}")) == expected
        assert ids(talks.piece(f"/conversations?sort={sort}&order=asc&view={view}")) == expected[::-1]


def test_a_click_on_a_column_sorts_by_it_and_another_turns_it(talks: Site) -> None:
    page = talks.get("/conversations?view=table&density=compact&user=ann").follow("Cost")
    assert "sort=cost" in page.url
    assert ids(page) == ["short", "failed"]
    turned = page.follow("Cost ↓")
    assert ids(turned) == ["failed", "short"]
    assert {"view=table", "density=compact", "user=ann", "order=asc"} <= set(turned.url.partition("?")[2].split("&"))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("user=ann", ["failed", "short"]),
        ("agent=helper", ["failed", "long", "short"]),
        ("model=cheap", ["failed", "long"]),
        ("model=cheap&user=ann", ["failed"]),
        ("framework=chatgpt", ["long"]),
        ("framework=anthropic", ["failed"]),
        ("project=/srv/shop", ["short"]),
        ("label=bug", ["long"]),
        ("label=none", []),
        ("since=2026-01-01&until=2026-01-01", ["failed", "long", "short"]),
        ("since=2026-01-02&order=asc", []),
        ("until=2025-12-31&order=asc", []),
        ("q=bye&framework=chatgpt", ["long"]),
    ],
)
def test_filters_narrow_the_list_and_are_chips_that_can_be_removed(
    talks: Site, given: str, expected: list[str]
) -> None:
    page = talks.get(f"/conversations?{given}")
    assert ids(page) == expected
    chips = page.tree.all("a", "chip-link")
    names = [each for each in given.split("&") if not each.startswith(("q=", "order="))]
    assert len(chips) == len(names)
    removed = talks.get(urljoin(page.url, chips[0]["href"]))
    assert len(removed.tree.all("a", "chip-link")) == len(names) - 1


def test_facets_count_the_matches(talks: Site) -> None:
    page = talks.get("/filters")
    counts = {each.words: each for each in page.tree.all("a", "facet")}
    for words in (
        "ann 2",
        "ben 1",
        "helper 3",
        "cheap 2",
        "dear 1",
        "chatgpt 1",
        "anthropic 1",
        "/srv/shop 1",
        "bug 1",
    ):
        assert words in counts, words
    assert "3 matches" in page
    # The script puts them into the page of the list, which must have the same depth.
    assert counts["ann 2"]["href"] == "./conversations?user=ann"
    assert ids(talks.get(urljoin(page.url, counts["chatgpt 1"]["href"]))) == ["long"]
    narrowed = talks.piece("/filters?user=ann&view=table")
    assert not [each for each in narrowed.tree.all("a", "facet") if "chatgpt" in each.words]
    assert "view=table" in narrowed.tree.all("a", "facet")[0]["href"]
    found = talks.piece("/filters?q=title+long")
    assert "long" in ids(talks.get("/conversations?q=title+long"))
    assert found.status == 200


def test_a_row_has_first_and_last_words_and_badges(talks: Site) -> None:
    row = next(each for each in talks.get("/conversations").tree.all("a", "row") if "Title long" in each.words)
    assert [each.words for each in row.all("span", "row-text")] == ["Question 0 of long", "Bye"]
    assert [each.words for each in row.all("span", "badge")] == ["chatgpt", "helper", "bug"]
    compact = talks.get("/conversations?density=compact")
    assert not compact.tree.all("span", "row-text")
    assert len(compact.tree.all("ul", "compact")) == 1


def test_a_time_without_matches_is_no_filter(site: Site) -> None:
    site.store.append("old", [Message("user", "x", created_at=datetime(2023, 1, 1, tzinfo=UTC))])
    assert "Time" not in [each.words for each in site.get("/filters").tree.all("h2")]
    site.store.append("new", [Message("user", "x")])
    assert "Time" in [each.words for each in site.get("/filters").tree.all("h2")]


def test_what_no_index_sorts_covers_the_first_matches_and_says_so(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "MOST_MATCHES", 30)
    monkeypatch.setattr(conversations, "_STEP", 10)
    for number in range(40):
        site.store.append(f"c{number:02}", [Message("user", "x")] * (1 + number % 4))
    page = site.get("/conversations?sort=messages")
    assert "Only the newest 30 matches are sorted and filtered so" in page
    assert len(ids(page)) == 25
    last = page.follow("Next →")
    assert len(ids(last)) == 5
    assert not last.tree.all("a", rel="next")
    assert ids(last.follow("← Previous")) == ids(page)
    assert min(ids(page) + ids(last)) == "c10"
    assert "Counts cover the newest 30 matches." in site.get("/filters")
    assert "Only the newest" not in site.get("/conversations")


def test_reading_for_the_table_is_bounded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation_facts, "MOST_MESSAGES", 4)
    usage = Usage(input_tokens=10)
    site.store.append("c", [Message("assistant", "x", usage=usage) for _ in range(9)])
    row = site.get("/conversations?view=table").tree.one("tbody").one("tr")
    assert [cell.words for cell in row.all("td")][3:5] == ["9", "40+"]
    site.store.append("c", [Message("assistant", "x", usage=Usage(input_tokens=1000))])
    row = site.get("/conversations?view=table").tree.one("tbody").one("tr")
    assert [cell.words for cell in row.all("td")][3:5] == ["10", "1.03k+"]


def test_a_rating_is_shown_at_once(site: Site) -> None:
    site.store.append("c", [Message("assistant", "x", id="m")])
    assert site.get("/conversations?view=table").tree.one("tbody").all("td")[8].words == ""
    site.store.rate("c", "m", 4, by="ann")
    assert site.get("/conversations?view=table").tree.one("tbody").all("td")[8].words == "4"


def test_hostile_values_are_text_everywhere(site: Site) -> None:
    usage = Usage(input_tokens=1, model=HOSTILE)
    said = [Message("assistant", HOSTILE, usage=usage)]
    about = {"project": HOSTILE, "imported_from": HOSTILE}
    site.store.append("c", said, user_id=HOSTILE, agent_id=HOSTILE, title=HOSTILE, metadata=about)
    site.store.add_label("c", HOSTILE)
    for path in ("/conversations", "/conversations?view=table", "/filters"):
        page = site.get(path)
        assert not page.tree.all("img")
        assert "603729" not in page.main.words
        assert HOSTILE in page.tree.text
    for name in ("user", "agent", "model", "framework", "project", "label"):
        page = site.get("/conversations", params={name: HOSTILE})
        assert ids(page) == ["c"], name
        assert not page.tree.all("img")
        assert HOSTILE in page.tree.one("a", "chip-link").text
    for wrong in ("sort=x", "view=x", "density=x", "order=x", "page=0", "page=x", "page=99999", "label=" + "x" * 300):
        assert site.get(f"/conversations?{wrong}").status == 400, wrong
    assert site.get("/conversations?sort=cost&page=900").status == 200


def test_a_search_of_the_list_keeps_its_filters(talks: Site) -> None:
    """By words, by title and by id alike."""
    assert sorted(ids(talks.get("/conversations?q=Question"))) == ["failed", "long", "short"]
    for words, filters, wanted in (
        ("Question", "label=bug", ["long"]),
        ("Question", "project=/srv/shop", ["short"]),
        ("Title", "label=bug", ["long"]),
        ("short", "label=bug", []),
        ("short", "user=ben", []),
        ("short", "agent=other", []),
        ("short", "metadata=imported_from=chatgpt", []),
        ("short", "user=ann&metadata=project=/srv/shop", ["short"]),
    ):
        assert ids(talks.get(f"/conversations?q={words}&{filters}")) == wanted, (words, filters)


def test_filters_at_the_limits_of_their_types(talks: Site) -> None:
    for page in ("conversations", "filters", "search", "search-filters"):
        assert talks.get(f"/{page}?q=Answer&since=0001-01-01&until=9999-12-31").status == 200, page
        for deep in ("[" * 3000, "[" * 800 + "]" * 800):
            assert talks.get(f"/{page}?q=Answer&metadata=k={deep}").status in (200, 400), page
    assert len(ids(talks.get("/conversations?until=9999-12-31"))) == 3


def test_facts_are_read_without_holding_many_messages_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation_facts, "_MESSAGES_AT_ONCE", 10)
    held = most = 0

    async def run() -> dict[str, conversation_facts.ConversationFacts]:
        async with hansard.connect("memory://") as store:
            for number in range(12):
                said = [Message("user", "Hello", usage=Usage(input_tokens=1)) for _ in range(4)]
                await store.append(f"c{number}", said)
            inner = store.get_messages

            async def get_messages(*given: Any, **options: Any) -> Any:
                nonlocal held, most
                found = await inner(*given, **options)
                held += len(found)
                most = max(most, held)
                await asyncio.sleep(0)  # all that are read together are read now
                held -= len(found)
                return found

            monkeypatch.setattr(store, "get_messages", get_messages)
            return await conversation_facts.FactsReader().facts_of(store, (await store.list_conversations()).items)

    found = asyncio.run(run())
    assert [each.tokens for each in found.values()] == [4] * 12
    assert most == 8


@pytest.mark.parametrize("view", ["", "?view=table"])
def test_a_row_has_a_menu_to_export_share_and_erase(site: Site, view: str) -> None:
    site.store.append("a/b", [Message("user", "hello")], user_id="ann", title="Greeting")
    tree = site.get(f"/conversations{view}").tree
    (menu,) = tree.all("span", "row-menu")
    assert (menu.one("a")["aria-label"], menu.one("a")["href"]) == ("More about Greeting", "./c/a%2Fb#about")
    actions = {node.words: node["data-to"] for node in tree.one("template", id="row-menu").all("a")}
    assert actions == {
        "Export": "/export",
        "Share": "/access",
        "Delete": "#about",
        "Erase the owner": "/access#erase-title",
    }
    for to in actions.values():
        assert site.get(f"/c/a%2Fb{to}").status == 200


def test_a_snippet_of_a_table_has_no_pipes(site: Site) -> None:
    site.store.append("c", [Message("user", "| step | when |\n|---|---|\n| customs | Thu |\n| home | Fri |")])
    (row,) = site.get("/conversations?q=customs").tree.all("span", "row-text")
    assert "|" not in row.words
    assert row.one("mark").words == "customs"
