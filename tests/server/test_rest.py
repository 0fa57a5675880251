"""Every route of the API does what the Store does, over a real socket."""

from __future__ import annotations

import base64
import inspect
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.kit import Served, serving

from hansard import sync
from hansard.server.app import ENDPOINTS
from hansard.server.key_file import KeyFile
from hansard.server.settings import Settings
from hansard.store import Store
from hansard.testing.contract.calls import public_methods

PICTURE = "data:image/png;base64," + base64.b64encode(bytes(range(256)) * 20).decode()


def ok(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()


def problem(answer: httpx.Response, status: int, code: str) -> Any:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert (body["status"], body["code"]) == (status, code)
    assert body["request_id"] == answer.headers["request-id"]
    return body


def say(api: Served, id: str, *texts: Any, **options: Any) -> Any:
    body = {"messages": [{"role": "user", "content": text} for text in texts], **options}
    return ok(api.post(f"/conversations/{id}/messages", json=body))


def texts(page: Any) -> list[Any]:
    return [message["content"] for message in page["items"]]


# Conversations


def test_a_conversation_is_created_updated_and_deleted(api: Served) -> None:
    began = "2020-01-31T12:00:00Z"
    given = {"id": "c", "title": "T", "metadata": {"a": 1}, "user_id": "u", "created_at": began}
    made = api.post("/conversations", json=given)
    assert (ok(made, 201)["title"], made.json()["created_at"]) == ("T", began)
    problem(api.post("/conversations", json={"id": "d", "created_at": "9999-01-01T00:00:00Z"}), 400, "invalid")
    assert made.headers["etag"] == '"0"'
    problem(api.post("/conversations", json={"id": "c"}), 409, "conflict")
    changed = api.patch("/conversations/c", json={"title": None, "metadata": {"a": None, "b": 2}, "archived": True})
    assert (ok(changed)["title"], changed.json()["metadata"]) == (None, {"b": 2})
    assert changed.json()["archived_at"] is not None
    assert ok(api.get("/conversations"))["items"] == []
    assert [each["id"] for each in ok(api.get("/conversations?archived=both"))["items"]] == ["c"]
    assert ok(api.delete("/conversations/c"))["conversations"] == 1
    assert ok(api.delete("/conversations/c"))["conversations"] == 0
    problem(api.get("/conversations/c"), 404, "conversation_not_found")


def test_conversations_are_listed_by_cursors_and_filters(api: Served) -> None:
    for number in range(5):
        say(api, f"c{number}", "x", user_id="u", agent_id=f"a{number % 2}", metadata={"even": number % 2 == 0})
    first = ok(api.get("/conversations?limit=2"))
    assert [each["id"] for each in first["items"]] == ["c4", "c3"]
    second = ok(api.get("/conversations", params={"limit": 2, "after": first["next_cursor"]}))
    assert [each["id"] for each in second["items"]] == ["c2", "c1"]
    back = ok(api.get("/conversations", params={"limit": 2, "before": second["previous_cursor"]}))
    assert back["items"] == first["items"]
    found = ok(api.get("/conversations", params={"metadata": '{"even":true}', "agent_id": "a0", "order": "asc"}))
    assert [each["id"] for each in found["items"]] == ["c0", "c2", "c4"]
    assert ok(api.get("/conversations?offset=4&sort=updated_at"))["items"][0]["id"] == "c0"
    problem(api.get("/conversations", params={"after": first["next_cursor"], "sort": "updated_at"}), 400, "invalid")


def test_versions_are_entity_tags(api: Served) -> None:
    say(api, "c", "x")
    found = api.get("/conversations/c")
    tag = found.headers["etag"]
    assert tag == f'"{found.json()["version"]}"'
    unchanged = api.get("/conversations/c", headers={"If-None-Match": tag})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert ok(api.patch("/conversations/c", json={"title": "a"}, headers={"If-Match": tag}))["title"] == "a"
    late = problem(api.patch("/conversations/c", json={"title": "b"}, headers={"If-Match": tag}), 412, "conflict")
    assert late["details"] == {"expected": 1, "actual": 2}
    body = {"messages": [{"role": "user", "content": "y"}]}
    problem(api.post("/conversations/c/messages", json=body, headers={"If-Match": tag}), 412, "conflict")
    appended = api.post("/conversations/c/messages", json=body, headers={"If-Match": '"2"'})
    assert appended.headers["etag"] == f'"{ok(appended)["version"]}"' == '"3"'
    for wrong in ("2", "*", 'W/"2"', '"x"', '""', '"' + "9" * 30 + '"'):
        problem(api.patch("/conversations/c", json={}, headers={"If-Match": wrong}), 400, "invalid")
    problem(api.delete("/conversations/c", headers={"If-Match": '"3"'}), 400, "invalid")


# Messages


def test_messages_are_stored_verbatim(api: Served) -> None:
    content = {"z": 1, "a": [1.0, -0.0, 10**30, None, "\u0000\U0001f600"], "": {}}
    stored = say(api, "c", content, PICTURE, "text")
    assert stored["stored"] == 3
    read = api.get("/conversations/c/messages")
    assert texts(ok(read)) == [content, PICTURE, "text"]
    assert json.dumps(content, ensure_ascii=False, separators=(",", ":")) in read.text.replace("\\u0000", "\\u0000")
    one = ok(api.get(f"/conversations/c/messages/{stored['messages'][1]['id']}?blobs=refs"))
    assert (one["content"], one["blobs"][0][1]) == ("", 5120)


def test_every_field_of_a_message_is_stored(api: Served) -> None:
    given = {
        "role": "assistant",
        "content": "x",
        "id": "m",
        "participant": {"kind": "agent", "id": "a", "display_name": "A"},
        "mentions": ["u"],
        "scope": "dm",
        "status": "in_progress",
        "pinned": True,
        "created_at": "2020-01-02T03:04:05.000006Z",
        "trace_id": "t",
        "sources": [{"document_id": "d", "score": 0.5}],
        "usage": {"input_tokens": 3, "model": "gpt"},
        "metadata": {"k": [1]},
    }
    ok(api.post("/conversations/c/messages", json={"messages": [given]}))
    stored = ok(api.get("/conversations/c/messages/m"))
    assert {name: stored[name] for name in given} == given
    assert ok(api.get("/usage"))["items"][0]["input_tokens"] == 3


def test_messages_are_paged_and_filtered(api: Served) -> None:
    say(api, "c", *range(5))
    page = ok(api.get("/conversations/c/messages?limit=2"))
    assert (texts(page), page["has_more"]) == ([0, 1], True)
    following = ok(api.get("/conversations/c/messages", params={"limit": 2, "after": page["last_cursor"]}))
    assert texts(following) == [2, 3]
    back = ok(api.get("/conversations/c/messages", params={"limit": 2, "before": following["first_cursor"]}))
    assert texts(back) == [0, 1]
    assert texts(ok(api.get("/conversations/c/messages?last=2"))) == [3, 4]
    assert texts(ok(api.get("/conversations/c/messages?turns=1"))) == [4]
    assert texts(ok(api.get("/conversations/c/messages?roles=assistant&roles=tool"))) == []
    assert texts(ok(api.get("/conversations/c/messages?order=desc&limit=1"))) == [4]
    assert texts(ok(api.get("/conversations/c/window?messages=2"))) == [3, 4]
    assert ok(api.get("/conversations/none/messages")) == {
        "items": [],
        "has_more": False,
        "first_cursor": None,
        "last_cursor": None,
    }
    foreign = say(api, "other", "x")["messages"][0]
    problem(api.get("/conversations/c/messages", params={"after": foreign["id"]}), 404, "message_not_found")
    cursor = ok(api.get("/conversations/other/messages"))["last_cursor"]
    problem(api.get("/conversations/c/messages", params={"after": cursor}), 400, "invalid")


def test_messages_are_updated_and_removed(api: Served) -> None:
    ids = [message["id"] for message in say(api, "c", "a", "b", "c", "d")["messages"]]
    assert ok(api.patch(f"/conversations/c/messages/{ids[0]}", json={"content": {"n": 1}, "pinned": True}))["pinned"]
    assert ok(api.delete(f"/conversations/c/messages/{ids[1]}"))["messages"] == 1
    problem(api.get(f"/conversations/c/messages/{ids[1]}"), 404, "message_not_found")
    popped = ok(api.post("/conversations/c/pop-message", json={}))
    assert popped["message"]["content"] == "d"
    assert ok(api.post("/conversations/c/delete-messages", json={"ids": [ids[2], "never"]}))["messages"] == 1
    assert texts(ok(api.get("/conversations/c/messages"))) == [{"n": 1}]
    snapshot = {"messages": [{"role": "user", "content": "new"}]}
    assert ok(api.put("/conversations/c/messages", json=snapshot))["stored"] == 1
    assert ok(api.delete("/conversations/c/messages"))["messages"] == 1
    assert ok(api.post("/conversations/c/pop-message", json={}))["message"] is None


def test_an_idempotency_key_makes_a_repeat_safe(api: Served) -> None:
    body = {"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]}
    key = {"Idempotency-Key": "k1"}
    first = ok(api.post("/conversations/c/messages", json=body, headers=key))
    again = ok(api.post("/conversations/c/messages", json=body, headers=key))
    assert (first["stored"], again["stored"], again["messages"]) == (2, 0, first["messages"])
    other = {"messages": [{"role": "user", "content": "other"}]}
    problem(api.post("/conversations/c/messages", json=other, headers=key), 409, "conflict")
    assert len(texts(ok(api.get("/conversations/c/messages")))) == 2
    made = [ok(api.post("/conversations", json={"title": "t"}, headers=key), 201) for _ in range(2)]
    assert made[0] == made[1]
    problem(api.post("/conversations", json={"title": "u"}, headers=key), 409, "conflict")
    for path in ("branches", "fork"):
        twice = [ok(api.post(f"/conversations/c/{path}", json={}, headers=key), 201) for _ in range(2)]
        assert twice[0]["id"] == twice[1]["id"]
        other = ok(api.post(f"/conversations/c/{path}", json={"at": first["messages"][0]["id"]}, headers=key), 201)
        assert (other["id"], other["message_count"]) != (twice[0]["id"], 2), "another body is another request"
    problem(api.post("/conversations/c/pop-message", json={}, headers=key), 400, "invalid")


def test_messages_are_read_and_appended_as_lines(api: Served) -> None:
    lines = b"".join(json.dumps({"role": "user", "content": n, "id": f"m{n}"}).encode() + b"\n" for n in range(1200))
    kind = {"Content-Type": "application/x-ndjson"}
    for stored in (1200, 0):
        answer = ok(api.post("/conversations/c/lines?user_id=u", content=iter([lines[:7], lines[7:]]), headers=kind))
        assert (answer["messages"], answer["stored"]) == (1200, stored)
    back = api.get("/conversations/c/lines")
    assert back.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line)["content"] for line in back.text.splitlines()] == list(range(1200))
    wrong = b'{"role":"user","content":1}\n{"role":"nobody","content":1}\n'
    assert (
        "line 2" in problem(api.post("/conversations/d/lines", content=wrong, headers=kind), 400, "invalid")["detail"]
    )


# Branches and summaries


def test_branches_forks_and_summaries_are_created(api: Served) -> None:
    messages = say(api, "c", "a", "b")["messages"]
    made = ok(api.post("/conversations/c/branches", json={"before": messages[1]["id"], "id": "side"}), 201)
    assert (made["message_count"], made["active"]) == (1, True)
    say(api, "c", "B")
    assert texts(ok(api.get("/conversations/c/messages"))) == ["a", "B"]
    assert texts(ok(api.get("/conversations/c/messages?branch=main"))) == ["a", "b"]
    problem(api.delete("/conversations/c/branches/side"), 409, "conflict")
    assert ok(api.put("/conversations/c/branch", json={"branch": "main"}))["branch"] == "main"
    problem(api.put("/conversations/c/branch", json={"branch": "never"}), 404, "not_found")
    assert [branch["id"] for branch in ok(api.get("/conversations/c/branches"))["items"]] == ["main", "side"]
    forked = ok(api.post("/conversations/c/fork", json={"at": messages[0]["id"], "new_id": "f"}), 201)
    assert (forked["id"], forked["message_count"]) == ("f", 1)
    assert ok(api.delete("/conversations/c/branches/side"))["branches"] == 1
    summary = {"text": "short", "from_seq": 1, "to_seq": 2}
    assert ok(api.post("/conversations/c/summaries", json=summary), 201)["branch"] == "main"
    beyond = api.post("/conversations/c/summaries", json=summary | {"to_seq": 1000})
    assert "the last seq of conversation 'c' is" in problem(beyond, 400, "invalid")["detail"]
    assert [each["text"] for each in ok(api.get("/conversations/c/summaries"))["items"]] == ["short"]


def test_prompts_and_summaries_by_a_summarizer_of_the_server(api: Served) -> None:
    say(api, "c", *(f"Note {number}." for number in range(30)))
    prompt = ok(api.post("/conversations/c/prompt", json={"token_budget": 100, "system": "Be kind.", "tools": []}))
    assert prompt["messages"][-1] == {"role": "user", "content": "Note 29."}
    assert prompt["tokens"] <= prompt["budget"] == 100
    assert prompt["has_older"] or any(not decision["kept"] for decision in prompt["decisions"])
    asked = {"compat": "toolpack", "agent_id": "a", "addressed_only": False, "summary_threshold": 7}
    assert len(ok(api.post("/conversations/c/prompt", json=asked))["messages"]) == 7
    problem(api.post("/conversations/c/prompt", json={"summary_threshold": -1}), 400, "invalid")
    made = ok(api.post("/conversations/c/summarize", json={"keep": 10}))["summary"]
    assert (made["from_seq"], made["to_seq"]) == (1, 20)
    assert "Note 19." in made["text"]
    assert ok(api.post("/conversations/c/summarize", json={"keep": 10}))["summary"] is None
    rebuilt = ok(api.post("/conversations/c/rebuild-summaries", json={"keep": 5}))["items"]
    assert rebuilt[-1]["to_seq"] == 25
    prompt = ok(api.post("/conversations/c/prompt", json={"format": "anthropic"}))
    assert prompt["summary"]["to_seq"] == 25
    # A summary also covers messages before a window of time.
    assert ok(api.post("/conversations/c/prompt", json={"time_window_seconds": 3600}))["summary"] is None
    assert texts(ok(api.get("/conversations/c/window?tokens=30&dangling=close")))[-1] == "Note 29."
    problem(api.post("/conversations/c/summarize", json={"summarizer": "nobody"}), 400, "invalid")
    problem(api.post("/conversations/none/summarize", json={}), 404, "conversation_not_found")
    problem(api.post("/conversations/c/prompt", json={"token_budget": 0}), 400, "invalid")


def test_a_member_reads_and_appends(api: Served) -> None:
    say(api, "together", "lamp", user_id="ada")
    bob = {"Hansard-User": "bob"}
    problem(api.get("/conversations/together", headers=bob), 404, "conversation_not_found")
    assert ok(api.put("/conversations/together/members/bob", headers={"Hansard-User": "ada"}))["items"] == ["bob"]
    assert texts(ok(api.get("/conversations/together/messages", headers=bob))) == ["lamp"]
    assert [each["id"] for each in ok(api.get("/conversations", headers=bob))["items"]] == ["together"]
    body = {"messages": [{"role": "user", "content": "mine"}]}
    (stored,) = ok(api.post("/conversations/together/messages", json=body, headers=bob))["messages"]
    assert stored["participant"]["id"] == "bob"
    problem(api.delete("/conversations/together", headers=bob), 403, "denied")
    problem(api.put("/conversations/together/members/eve", headers=bob), 403, "denied")
    assert ok(api.delete("/conversations/together/members/bob", headers=bob))["items"] == []
    problem(api.get("/conversations/together", headers=bob), 404, "conversation_not_found")


def test_messages_are_rated_and_labelled(api: Served) -> None:
    say(api, "rated", "lamp")
    id = ok(api.get("/conversations/rated/messages"))["items"][0]["id"]
    where = f"/conversations/rated/messages/{id}"
    rated = ok(api.put(f"{where}/rating", json={"value": -1, "by": "u_1", "comment": "no"}))
    assert [(each["value"], each["by"], each["comment"]) for each in rated["ratings"]] == [(-1, "u_1", "no")]
    assert ok(api.put(f"/conversations/rated/labels/to%20check?message_id={id}"))["items"] == ["to check"]
    assert ok(api.put("/conversations/rated/labels/a%2Fb"))["items"] == ["a/b"]
    assert ok(api.get("/labels"))["items"] == ["a/b"]
    for query in ("rating=-1", "label=a/b", "rating=-1&label=a/b"):
        assert [each["id"] for each in ok(api.get(f"/conversations?{query}"))["items"]] == ["rated"]
    assert ok(api.get("/conversations?rating=1"))["items"] == []
    hits = ok(api.post("/search", json={"query": "lamp", "label": "to check", "rating": -1}))["items"]
    assert [hit["message"]["id"] for hit in hits] == [id]
    assert ok(api.delete(f"{where}/rating?by=u_1"))["ratings"] == []
    assert ok(api.delete(f"/conversations/rated/labels/to%20check?message_id={id}"))["items"] == []
    assert ok(api.delete("/conversations/rated/labels/a%2Fb"))["items"] == []
    problem(api.put("/conversations/rated/messages/none/rating", json={"value": 1}), 404, "message_not_found")
    problem(api.put("/conversations/none/labels/x"), 404, "conversation_not_found")
    problem(api.put(f"{where}/rating", json={"value": "x"}), 400, "invalid")
    problem(api.get("/conversations?rating=nan"), 400, "invalid")


def test_search_finds_and_pages(api: Served) -> None:
    say(api, "c", "the red fox", "a blue bird", user_id="ada", title="Animals")
    say(api, "d", "red paint, red brush", user_id="bob")
    found = ok(api.post("/search", json={"query": "red"}))
    assert [hit["conversation"]["id"] for hit in found["items"]] == ["c", "d"]
    hit = found["items"][0]
    assert (hit["message"]["content"], hit["conversation"]["title"]) == ("the red fox", "Animals")
    start, end = hit["snippet"]["highlights"][0]
    assert hit["snippet"]["text"][start:end] == "red"
    assert (found["next_cursor"], found["complete"]) == (None, True)
    narrow = {"query": "red OR blue", "user_id": "ada", "order": "newest", "limit": 1}
    first = ok(api.post("/search", json=narrow))
    assert first["items"][0]["message"]["content"] == "a blue bird"
    following = ok(api.post("/search", json=narrow | {"cursor": first["next_cursor"]}))
    assert following["items"][0]["message"]["content"] == "the red fox"
    other = {"query": "other", "cursor": first["next_cursor"]}
    problem(api.post("/search", json=other), 400, "invalid")
    problem(api.post("/search", json={"query": "red", "branch": "main"}), 400, "invalid")
    assert ok(api.post("/search", json={"query": "red", "user_id": "nobody"}))["items"] == []
    piece = ok(api.post("/search", json={"query": "lue ird", "match": "part"}))
    assert piece["items"][0]["snippet"]["highlights"] == [[2, 6], [7, 11]]
    question = {"query": "which fox was red today", "match": "auto", "time": "auto", "around": 1}
    asked = ok(api.post("/search", json=question))
    assert asked["items"][0]["message"]["content"] == "the red fox"
    assert [message["content"] for message in asked["items"][0]["passages"][0]["messages"]] == [
        "the red fox",
        "a blue bird",
    ]
    assert asked["period"]["text"] == "today"
    grouped = ok(api.post("/search", json={"query": "red OR blue", "group_by": "conversation"}))
    assert sorted(hit["conversation"]["id"] for hit in grouped["items"]) == ["c", "d"]
    problem(api.post("/search", json={"query": "red", "around": 99}), 400, "invalid")


# Records and blobs


def test_records_are_written_with_messages(api: Served) -> None:
    record = {"namespace": ["a"], "key": "k", "data": "AP8=", "expected_revision": 0, "conversation_id": "c"}
    body = {"messages": [{"role": "user", "content": "x"}], "records": [record]}
    ok(api.post("/conversations/c/messages", json=body))
    assert ok(api.get("/records/k?namespace=a"))["data"] == "AP8="
    problem(api.post("/conversations/d/messages", json=body), 400, "invalid")
    problem(api.post("/conversations/c/messages", json=body), 409, "conflict")
    assert ok(api.get("/conversations/c"))["message_count"] == 1


def test_records_are_written_scanned_and_deleted(api: Served) -> None:
    place = "/records/k%2F1?namespace=a&namespace=b"
    made = api.put(place, json={"value": {"x": 1}}, headers={"If-None-Match": "*"})
    assert (ok(made)["key"], made.headers["etag"]) == ("k/1", '"1"')
    problem(api.put(place, json={"value": 2}, headers={"If-None-Match": "*"}), 409, "conflict")
    assert ok(api.put(place, json={"data": "AAE="}, headers={"If-Match": '"1"'}))["data"] == "AAE="
    problem(api.put(place, json={"value": 3}, headers={"If-Match": '"1"'}), 412, "conflict")
    assert ok(api.get(place))["data"] == "AAE="
    writes = [
        {"namespace": ["a"], "key": "l", "value": None},
        {"namespace": ["a", "b"], "key": "k/1", "delete": True},
    ]
    written = ok(api.post("/write-records", json={"writes": writes}))["items"]
    assert (written[0]["value"], written[1]["data"]) == (None, "AAE=")
    found = ok(
        api.post("/get-records", json={"keys": [{"namespace": ["a"], "key": "l"}, {"namespace": ["x"], "key": "y"}]})
    )
    assert [each and each["key"] for each in found["items"]] == ["l", None]
    assert [each["key"] for each in ok(api.get("/records?namespace=a&limit=1"))["items"]] == ["l"]
    assert ok(api.delete("/records/l?namespace=a")) == {"deleted": True}
    problem(api.get("/records/l?namespace=a"), 404, "not_found")
    problem(api.put(place, json={"value": 1, "data": "AAE="}), 400, "invalid")


def test_blobs_are_read_in_ranges(api: Served) -> None:
    data = bytes(range(100))
    sent = ok(api.post("/blobs", content=data, headers={"Content-Type": "application/octet-stream"}), 201)
    path = f"/blobs/{sent['sha256']}"
    whole = api.get(path)
    assert (whole.content, whole.headers["accept-ranges"]) == (data, "bytes")
    for text, part in {"0-9": data[:10], "90-": data[90:], "-5": data[-5:], "95-900": data[95:]}.items():
        answer = api.get(path, headers={"Range": f"bytes={text}"})
        assert (answer.status_code, answer.content) == (206, part)
        assert answer.headers["content-range"].endswith("/100")
    for text in ("bytes=5-2", "bytes=-", "lines=1-2", "bytes=0-1,5-6", "bytes=x-"):
        assert api.get(path, headers={"Range": text}).content == data
    beyond = api.get(path, headers={"Range": "bytes=100-"})
    problem(beyond, 416, "invalid")
    assert beyond.headers["content-range"] == "bytes */100"
    problem(api.get("/blobs/" + "a" * 64), 404, "not_found")


# Lifecycle


def test_an_export_is_imported_exactly(api: Served) -> None:
    say(api, "c", "a", PICTURE)
    say(api, "d", "x")
    exported = api.get("/export")
    kind = {"Content-Type": "application/x-ndjson"}
    with serving() as other:
        report = ok(other.post("/import?verify=true", content=exported.content, headers=kind))
        assert (report["conversations"], report["verified"]) == (2, True)
        assert texts(ok(other.get("/conversations/c/messages"))) == ["a", PICTURE]
        damaged = exported.content.replace(b'"x"', b'"y"')
        problem(other.post("/import", content=damaged, headers=kind), 422, "corrupt")
        problem(
            other.post("/import", content=b'{"hansard":"export","version":99}\n', headers=kind), 422, "format_mismatch"
        )
        problem(other.post("/import", content=b"", headers=kind), 422, "corrupt")
    one = api.get("/export?conversation_ids=d")
    assert b'"id":"c"' not in one.content
    problem(api.get("/export?conversation_ids=d&user_id=u"), 400, "invalid")


def test_an_export_has_other_formats(api: Served) -> None:
    say(api, "c", "<b>Hello</b>")
    page = api.get("/export", params={"format": "html"})
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert (page.headers["content-disposition"], page.headers["content-security-policy"][:8]) == (
        "attachment",
        "sandbox;",
    )
    assert "&lt;b&gt;Hello" in page.text
    assert api.get("/export", params={"format": "csv", "metadata": '{"a": 1}'}).text.count("\n") == 1
    problem(api.get("/export", params={"format": "csv", "metadata": "["}), 400, "invalid")
    problem(api.get("/export", params={"format": "word"}), 400, "invalid")
    assert '"conversations":0' in api.get("/export", params={"model": "x"}).text
    problem(api.get("/export", params={"format": "csv", "conversation_ids": "no"}), 404, "conversation_not_found")


def test_erasure_deletes_expired_data(tmp_path: Path) -> None:
    """By a tenant's key and by an operator's. Expired data is invisible, but still in the file."""
    url = f"sqlite:///{tmp_path}/chats.db"
    keys = KeyFile(tmp_path / "keys.json")
    with serving(url, Settings(keys=keys.path)) as api, sync.connect(url) as store:
        for number, tenant in enumerate(("acme", None)):
            word = f"canary{number}"
            acme = store.tenant("acme")
            acme.append_message(word, "user", f"said {word}", user_id="ann")
            acme.update_conversation(word, title=word, expires_at=datetime.now(UTC) - timedelta(days=1))
            assert acme.get_conversation(word) is None
            _, key = keys.create("test", ["read", "write", "admin"], tenant=tenant)
            as_tenant = {"Authorization": f"Bearer {key}", "Hansard-Tenant": "acme"}
            receipt = ok(api.post("/users/ann/erase", headers=as_tenant))
            assert (receipt["conversations"], receipt["messages"], receipt["physically_gone"]) == (1, 1, True)
            assert not [path for path in tmp_path.glob("chats.db*") if word.encode() in path.read_bytes()]


def test_statistics_erasure_and_purge_are_answered(api: Served) -> None:
    say(api, "c", "a", user_id="ada")
    say(api, "d", "b")
    assert ok(api.get("/stats"))["messages"] == 2
    assert ok(api.get("/check"))["items"] == []
    assert ok(api.post("/users/ada/erase"))["conversations"] == 1
    assert ok(api.post("/purge", json={"older_than_seconds": 0, "dry_run": True}))["conversations"] == 1
    assert ok(api.post("/purge", json={"older_than_seconds": 3600}))["conversations"] == 0
    old = {"role": "user", "content": "x", "created_at": "2020-01-01T00:00:00Z"}
    ok(api.post("/conversations/old/messages", json={"messages": [old]}))
    assert ok(api.post("/purge", json={"older_than_seconds": 3600, "by": "updated"}))["conversations"] == 0
    assert ok(api.post("/purge", json={"older_than_seconds": 3600}))["conversations"] == 1
    problem(api.post("/purge", json={"by": "size"}), 400, "invalid")
    problem(api.post("/purge", json={"older_than_seconds": 1, "before": "2020-01-01T00:00:00Z"}), 400, "invalid")
    about = ok(api.get("/about"))
    assert (about["tenant"], about["capabilities"]["name"]) == ("default", "memory")


def test_headers_choose_the_tenant_and_the_user(api: Served) -> None:
    ok(api.post("/conversations", json={"id": "c"}, headers={"Hansard-Tenant": "acme"}), 201)
    ok(
        api.post("/conversations", json={"id": "c"}, headers={"Hansard-Tenant": "m%C3%BCnchen", "Hansard-User": "u"}),
        201,
    )
    problem(api.get("/conversations/c"), 404, "conversation_not_found")
    assert ok(api.get("/admin/tenants"))["items"] == ["acme", "münchen"]
    assert ok(api.get("/admin/stats"))["conversations"] == 2
    assert ok(api.get("/admin/check"))["items"] == []
    assert ok(api.post("/admin/sweep"))["conversations"] == 0
    assert api.post("/admin/reindex").text == "", "a store in memory has no index"
    problem(api.post("/admin/reindex", params={"forget_others": "true"}), 400, "invalid")
    assert ok(api.delete("/admin/tenants/acme"))["conversations"] == 1
    problem(api.get("/stats", headers={"Hansard-User": "u"}), 403, "denied")


# The table itself

ELSEWHERE = {
    "Store.embed": "a server embeds behind the appends, and a search waits for it",
    "Store.search_tool": "a function for a model that runs beside the store",
    **{
        f"Store.{name}": "an object of a framework that runs beside the store"
        for name in (
            "openai_session",
            "langgraph_checkpointer",
            "langgraph_store",
            "claude_session_store",
            "claude_session_binding",
            "adk_session_service",
            "adk_memory_service",
            "pydantic_ai_store",
            "crewai_memory_storage",
            "crewai_flow_persistence",
        )
    },
    **{
        f"Store.to_{name}": "no storage is asked: a client converts what it reads"
        for name in ("anthropic_messages", "gemini_contents", "langchain_messages", "openai_input", "openai_responses")
    },
    "Store.append_message": "append_messages with one message",
    "Store.open_share": "GET /s/{token}, which needs no key and is no part of the API",
    "Store.backup": "a file on the server is for its operator: `hansard backup`",
    "Store.copy_to": "export and import",
    "Store.watch": "the live tail",
    "Store.iter_conversations": "list_conversations, by cursors",
    "Store.remote_id": "asked where the mirror is, not of its server",
    "Store.iter_messages": "stream_history",
    "Store.branch": "create_branch",
    "Store.fork": "fork_conversation",
    "Store.window": "get_window",
    "Store.append": "append_messages",
    "Store.import_": "import",
    "Records.get": "get_record",
    "Records.get_many": "get_records",
    "Records.put": "put_record",
    "Records.delete": "delete_record",
    "Records.write": "write_records",
    "Records.scan": "scan_records",
    "Records.iter": "scan_records",
    "Blobs.put": "put_blob",
    "Blobs.get": "get_blob",
    "Admin.tenants": "list_tenants",
    "Admin.stats": "whole_stats",
    "Admin.check": "whole_check",
    "Admin.copy_to": "export and import of each tenant",
    "Admin.vacuum": "writers wait for it, so it is for the operator beside the store: `hansard vacuum`",
}


def test_every_store_method_has_a_route() -> None:
    names = {endpoint.name for endpoint in ENDPOINTS}
    ignored = {"Store.tenant", "Store.user", "Store.close"}
    for method in set(public_methods()) - ignored - set(ELSEWHERE):
        assert method.partition(".")[2] in names, method


ROUTES_OF = {
    "append": "append_messages",
    "branch": "create_branch",
    "fork": "fork_conversation",
    "import_": "import",
    "iter_messages": "stream_history",
    "window": "get_window",
}
OTHERWISE = {
    "branch_id": "`id`",
    "conversation_id": "in the path, or `id` of a new one",
    "expected_version": "`If-Match`",
    "lines": "the body",
    "older_than": "`before` or `older_than_seconds`",
    "time_window": "`time_window_seconds`",
    "timeout": "`timeout_seconds`",
    "counter": "an object of Python",
    "redact": "a function of Python",
    "report": "an object of Python",
    "progress": "an object of Python",
    "summarizer": "by name, for `summarize`: a prompt only reads",
    "summary_timeout": "see `summarizer`",
    "in_background": "see `summarizer`",
}
"""Parameters of the Store that a route takes in another way, or not, and why."""


def test_every_route_accepts_the_parameters_of_the_store() -> None:
    named = {endpoint.name: endpoint for endpoint in ENDPOINTS if endpoint.is_public}
    for method in set(public_methods()) - set(ELSEWHERE) | {f"Store.{name}" for name in ROUTES_OF}:
        kind, _, name = method.partition(".")
        endpoint = named.get(ROUTES_OF.get(name, name))
        if kind == "Store" and endpoint is not None:
            taken = {*endpoint.parameters, *endpoint.query.__struct_fields__}
            taken |= set(endpoint.body.__struct_fields__) if endpoint.body is not None else set()
            wanted = set(inspect.signature(getattr(Store, name)).parameters) - {"self"}
            assert wanted - taken <= set(OTHERWISE), method


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.name)
def test_every_route_is_documented(endpoint: Any) -> None:
    assert endpoint.summary.endswith(".")
    assert sum(each.name == endpoint.name for each in ENDPOINTS) == 1
