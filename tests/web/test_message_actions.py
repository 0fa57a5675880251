"""Answer again, rate, label, members, shares, branches side by side, and the timeline of a turn."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from msgspec import structs
from tests.web.kit import Reader, Site, sited

from hansard import Message, Usage
from hansard.model import Rating
from hansard.server.key_file import KeyFile
from hansard.server.settings import Settings

HOSTILE = '"><script>alert(1)</script>'


@pytest.fixture
def talk(site: Site) -> Site:
    lines = [
        Message("user", "Where to?", id="q1"),
        Message("assistant", "Rome.", id="a1"),
        Message("user", "By train?", id="q2"),
        Message("assistant", "Yes.", id="a2"),
    ]
    site.store.append("trip", lines, user_id="ann", title="A trip")
    return site


def said(site: Site, branch: str | None = None) -> list[str]:
    return [message.text for message in site.store.get_messages("trip", branch=branch)]


def test_an_answer_is_generated_again_on_a_new_branch(talk: Site) -> None:
    page = talk.get("/c/trip/m/a1").send("/regenerate")
    assert page.status == 200
    assert said(talk) == ["Where to?", "You said:\n\n> Where to?\n"]
    assert said(talk, "main") == ["Where to?", "Rome.", "By train?", "Yes."]
    last = talk.store.get_messages("trip")[-1]
    assert talk.store.get_prompt("trip", last.id) is not None
    question = talk.get("/c/trip/m/q1")
    assert question.send("/regenerate").status == 400
    assert len(talk.store.list_branches("trip")) == 2


def test_an_answer_can_be_requested_later_and_once(talk: Site) -> None:
    page = talk.get("/c/trip/m/a1").send("/regenerate", later="yes")
    assert said(talk) == ["Where to?"]
    proof = page.tree.all("input", name="proof")[0]["value"]
    assert talk.reader.post("/c/trip/answer", {"proof": proof}).status == 200
    assert said(talk) == ["Where to?", "You said:\n\n> Where to?\n"]
    refused = talk.reader.post("/c/trip/answer", {"proof": proof})
    assert (refused.status, "nothing to answer" in refused) == (400, True)
    assert talk.reader.post("/c/none/answer", {"proof": proof}).status == 404


def test_a_message_is_rated_and_labelled(talk: Site) -> None:
    page = talk.get("/c/trip/m/a1").send("/rate", value="1", comment="Quick!")
    assert "rated good “Quick!”" in page
    ratings = talk.store.get_message("trip", "a1").ratings
    assert [(each.value, each.by, each.comment) for each in ratings] == [(1, None, "Quick!")]
    page = talk.get("/c/trip/m/a1").send("/rate", value="none")
    assert talk.store.get_message("trip", "a1").ratings == ()
    page = talk.get("/c/trip/m/a1").send("/label", add=" fun ")
    assert [each.words for each in page.messages()[1].all("span", "label")] == ["fun"]
    assert talk.get("/c/trip/m/a1").send("/label").status == 400
    proof = talk.get("/c/trip/m/a1").tree.all("input", name="proof")[0]["value"]
    assert talk.reader.post("/c/trip/m/a1/label", {"proof": proof, "remove": "fun"}).status == 200
    assert talk.store.get_message("trip", "a1").labels == ()


def test_a_conversation_is_labelled(talk: Site) -> None:
    page = talk.get("/c/trip").send("/label", add="late")
    assert page.tree.one("div", "titles").one("p", "labels").words == "late"
    assert talk.store.list_labels() == ["late"]
    page.send("/label", remove="late")
    conversation = talk.store.get_conversation("trip")
    assert conversation is not None
    assert conversation.labels == ()


def test_members_are_added_and_removed(talk: Site) -> None:
    page = talk.get("/c/trip").follow("Members and shares")
    page = page.send("/members/add", user="ben")
    assert [each.words for each in page.tree.one("ul", "tenants").all("li")] == ["ann owner", "benRemove"]
    assert page.send("/members/add", user="ann").status == 400
    page = talk.get("/c/trip/access").send("/members/remove")
    assert "ben" not in page.main.words


def test_a_share_is_created_shown_once_and_revoked(talk: Site) -> None:
    page = talk.get("/c/trip/access").send("/shares/add", expires="day")
    (link,) = page.tree.all("a", "secret")
    shared = talk.reader.client.get(urlsplit(link["href"]).path.lstrip("./"))
    assert shared.status_code == 200
    assert "By train?" in shared.text
    again = talk.get("/c/trip/access")
    assert again.tree.all("a", "secret") == []
    assert "4 messages of main" in again
    again.send("/shares/end")
    assert talk.reader.client.get(urlsplit(link["href"]).path.lstrip("./")).status_code == 404


def test_the_owner_is_erased_with_a_receipt(talk: Site) -> None:
    receipt = talk.get("/c/trip/access").send("admin/erase", sure="yes")
    assert "Deleted" in receipt
    assert talk.store.get_conversation("trip") is None


def test_readers_have_no_buttons_and_the_routes_refuse(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    _, everything = keys.create("all", ["read", "write", "admin"], tenant=None)
    _, reading = keys.create("reader", ["read"], tenant=None)
    with sited(f"sqlite:///{tmp_path}/c.db", Settings(keys=tmp_path / "keys.json")) as site:
        site.store.append("trip", [Message("user", "Hi", id="q"), Message("assistant", "Hello", id="a")], user_id="ann")
        reader = Reader(site.api.address)
        reader.sign_in(reading)
        for path in ("/c/trip", "/c/trip/m/a", "/c/trip/access"):
            page = reader.get(path)
            assert page.status == 200
            forms = {form["action"].rsplit("/", 1)[-1] for form in page.tree.all("form") if form["method"] == "post"}
            assert forms == {"sign-out"}, path
        proof = reader.get("/c/trip").tree.all("input", name="proof")[0]["value"]
        for path in ("m/a/rate", "m/a/regenerate", "label", "access/members/add", "access/shares/add"):
            answer = reader.post(f"/c/trip/{path}", {"proof": proof, "value": "1", "user": "x", "add": "x"})
            assert answer.status == 403, path
        reader.client.close()
        assert everything


def test_two_branches_are_shown_side_by_side(talk: Site) -> None:
    talk.store.branch("trip", at="q2", branch_id="side", activate=False)
    talk.store.append_message("trip", "assistant", "No.", branch="side")
    page = talk.get("/c/trip").follow("compare")
    left, right = (section.words for section in page.main.all("section"))
    assert left.startswith("main 1 message of its own")
    assert "Yes." in left
    assert "No." not in left
    assert "No." in right
    assert "share everything up to this message: By train?" in page
    assert talk.get("/c/trip/compare?left=main&right=nothing").status == 404
    assert talk.get("/c/trip/compare").status == 200


# Timelines


def call(id: str, name: str) -> Message:
    asked = {"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}}
    return Message("assistant", {"role": "assistant", "content": None, "tool_calls": [asked]}, format="openai.chat")


def result(id: str) -> Message:
    return Message("tool", {"role": "tool", "tool_call_id": id, "content": "17"}, format="openai.chat")


def test_a_turn_has_a_timeline_of_its_tools(site: Site) -> None:
    at = datetime(2026, 11, 16, 9, tzinfo=UTC)
    lines = [Message("user", "How many?"), call("c1", "count"), result("c1"), Message("assistant", "17.")]
    lines[3] = Message("assistant", "17.", usage=Usage(1000, 40, cost=0.25, model="m-1"))

    times = (0, 1.5, 4, 4.75)
    site.store.append(
        "c", [structs.replace(each, created_at=at + timedelta(seconds=s)) for each, s in zip(lines, times, strict=True)]
    )
    (turn,) = site.get("/c/c").tree.all("details", "turn")
    assert turn.one("summary").words == "Turn: 4.8 s · 1 tool call · 1,040 tokens · $0.25"
    steps = [each.words for each in turn.all("li")]
    assert steps == ["model1.5 s", "count2.5 s", "m-1750 ms1,040 tokens · $0.25"]


def test_a_turn_lasts_until_a_streamed_answer_is_complete(site: Site) -> None:
    at = datetime.now(UTC) - timedelta(seconds=100)
    answer = Message("assistant", "", id="a", status="in_progress", created_at=at, usage=Usage(3, 4))
    site.store.append("c", [Message("user", "And?", created_at=at), answer])
    site.store.update_message("c", "a", content="It is done.", status="complete")
    (turn,) = site.get("/c/c").tree.all("p", "turn")
    assert turn.words.startswith("took 1 min 4")
    site.store.update_message("c", "a", pinned=True)  # when it was complete is unknown from now on
    assert site.get("/c/c").tree.all("p", "turn") == []


def test_a_turn_whose_messages_have_one_time_shows_no_duration(site: Site) -> None:
    at = datetime(2023, 11, 16, 9, tzinfo=UTC)
    lines = [Message("user", "How many?"), call("c1", "count"), result("c1"), Message("assistant", "17.")]
    site.store.append("c", [structs.replace(each, created_at=at) for each in lines])
    (turn,) = site.get("/c/c").tree.all("details", "turn")
    assert turn.one("summary").words == "Turn: 1 tool call"
    assert [each.words for each in turn.all("li")] == ["model", "count", "model"]


def test_plain_turns_have_no_timeline(talk: Site) -> None:
    assert talk.get("/c/trip").tree.all("details", "turn") == []


def test_hostile_labels_ratings_members_and_branches_are_text(site: Site) -> None:
    rating = Rating(1, by=HOSTILE, comment=HOSTILE)
    lines = [
        Message("user", "x", id="q"),
        Message("assistant", "y", id="a", labels=(HOSTILE,), ratings=(rating,), usage=Usage(1, model=HOSTILE)),
    ]
    site.store.append("c", lines, user_id=HOSTILE)
    site.store.add_label("c", HOSTILE)
    site.store.add_member("c", HOSTILE + "2")
    site.store.branch("c", at="q", branch_id=HOSTILE, activate=False)
    for path in ("/c/c", "/c/c/access", "/c/c/m/a", "/c/c/compare"):
        page = site.get(path)
        assert page.status == 200
        assert all("alert" not in each.text for each in page.tree.all("script")), path
        assert HOSTILE in page, path
