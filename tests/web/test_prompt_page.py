"""The page "Why": what the model was given for an answer, next to what it would be given now."""

from __future__ import annotations

import pytest
from tests.web.kit import Page, Site

from hansard import Message

HOSTILE = '"><script>alert(1)</script>'


@pytest.fixture
def answered(site: Site) -> Site:
    """A conversation of which one message was edited and another deleted after the answer."""
    talk = [Message("assistant" if at % 2 else "user", f"This is number {at}.", id=f"m{at}") for at in range(9)]
    site.store.append("c", talk)
    prompt = site.store.assemble_prompt("c", token_budget=70, agent_id="helper")
    site.store.append_message("c", "assistant", "Yes.", id="answer", prompt_id=prompt.prompt_id)
    site.store.update_message("c", "m8", content="This was number 8.")
    site.store.delete_message("c", "m7")
    return site


def rows(page: Page) -> dict[str, list[str]]:
    """The verdicts about each message, by its first words."""
    found = {}
    for row in page.tree.one("table", "decisions").all("tr")[1:]:
        first, *cells = row.all("td")
        if "unfold" not in row["class"].split():
            found[first.words] = [cell.words.split()[0] for cell in cells]
    return found


def test_an_answer_shows_what_was_given_then_and_now(answered: Site) -> None:
    link = answered.get("/c/c").messages()[-1].one("a", "why")
    assert link["href"].endswith("/why?answer=answer")
    page = answered.get("/c/c/why?answer=answer")
    found = rows(page)
    assert found["no longer stored deleted since"] == ["kept", "not"]
    assert found["User This was number 8. changed since"] == ["kept", "kept"]
    assert found["Assistant This is number 5."] == ["kept", "kept"]
    assert [each.words.split()[0] for each in page.tree.all("h2")][:2] == ["Then", "Now"]
    assert "1 changed since" in page
    assert "1 deleted since" in page
    assert "1 only then" in page


def test_the_budget_of_now_can_be_changed(answered: Site) -> None:
    page = answered.piece("/c/c/why?answer=answer&budget=5000")
    assert rows(page)["User This is number 0."] == ["not", "kept"]
    assert "only now" in page


def test_an_answer_without_a_prompt_says_so(answered: Site) -> None:
    page = answered.get("/c/c/why?answer=m3")
    assert "was not stored with it" in page
    assert rows(page) == {
        "User This is number 0.": ["kept", "9"],
        "Assistant This is number 1.": ["kept", "9"],
        "User This is number 2.": ["kept", "9"],
    }
    assert answered.get("/c/c/why?answer=nothing").status == 404


def test_two_budgets_agents_and_times_are_compared(answered: Site) -> None:
    page = answered.get("/c/c/why?budget=40&other_budget=4000")
    assert rows(page)["User This is number 0."] == ["dropped", "kept"]
    page = answered.get("/c/c/why?budget=4000&other_before=m2")
    assert rows(page)["User This is number 2."] == ["kept", "not"]
    assert answered.get("/c/c/why?other_agent=scout").status == 200
    assert answered.get("/c/c/why?other_before=nothing").status == 404


def test_the_tokens_are_a_bar_with_a_legend(answered: Site) -> None:
    page = answered.get("/c/c/why?budget=3000&system=Be%20kind.")
    parts = [each.words for each in page.tree.one("ul", "legend").all("li")]
    assert parts[0].startswith("system prompt and tools ")
    assert [each.rsplit(" ", 1)[0] for each in parts[1:]] == ["messages", "free"]
    assert len(page.tree.one("svg", "parts").all("rect")) == 3
    german = answered.get("/c/c/why?budget=3000", headers={"accept-language": "de"})
    assert german.tree.one("ul", "legend").all("li")[-1].words.startswith("frei 2.9")


def test_long_runs_of_dropped_messages_are_folded(site: Site) -> None:
    site.store.append("c", [Message("user", f"Number {at}.") for at in range(30)])
    page = site.get("/c/c/why?budget=30")
    (button,) = [each for each in page.tree.all("button") if "data-unfold" in each.attributes]
    assert button.words.endswith("messages dropped: no room left in the budget")
    assert len(page.tree.one("table", "decisions").all("tr")) == 32, "without a script, all rows are there"


def test_hostile_names_and_words_are_text(site: Site) -> None:
    site.store.append("c", [Message("user", HOSTILE, id="m"), Message("user", "x", metadata={"a": HOSTILE})])
    prompt = site.store.assemble_prompt("c", agent_id=HOSTILE, agent_name=HOSTILE)
    site.store.append_message("c", "assistant", "x", id=HOSTILE, prompt_id=prompt.prompt_id, usage={"model": HOSTILE})
    page = site.get("/c/c").follow("Why")
    assert page.status == 200
    assert page.tree.all("script", None)[1:] == []
    assert HOSTILE in page
