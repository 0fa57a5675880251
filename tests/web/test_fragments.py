"""Messages and hits as HTML by plain formatting: every field is shown as text, and rendering is fast."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from tests.web.kit import parse

from hansard import Message
from hansard.formats import read
from hansard.model import Conversation, Participant, Source, Usage
from hansard.search.hits import Hit, Passage
from hansard.server.web import content, fragments, search_hit

NASTY = "\"'><script>x</script>&lt;"
AT = datetime(2026, 11, 15, 9, 5, tzinfo=UTC)


def made(content: Any, **more: Any) -> Message:
    return Message("assistant", content, id=NASTY, conversation_id="c", seq=7, created_at=AT, **more)


def test_no_field_of_a_message_or_a_block_can_be_a_tag() -> None:
    message = made(
        "x",
        participant=Participant("agent", NASTY, display_name=NASTY),
        status="interrupted",
        metadata={"error": NASTY},
        sources=(Source(NASTY, None, NASTY, 1), Source(None, NASTY)),
        usage=Usage(1, 2, 3, 4, 0.5, NASTY),
    )
    kinds = ("reasoning", "refusal", "call", "result", "json", "image", "audio", "document", "elsewhere", "other")
    fields: dict[str, Any] = {
        "name": NASTY,
        "note": NASTY,
        "url": NASTY,
        "id": NASTY,
        "seq": 8,
        "to": 9,
        "is_cut": True,
    }
    blocks = [content.ContentBlock(kind=kind, **fields) for kind in kinds]
    blocks.append(content.ContentBlock(kind="call", inside=[blocks[3]], **fields))
    who = content.Speaker(NASTY, "agent", 1, NASTY)
    tree = parse(fragments.message(message, who, blocks, [NASTY], f"../t/{NASTY}/c/1"))
    names = {name for node in tree.walk() for name in node.attributes}
    assert not tree.all("script")
    assert names == {
        *(
            "class",
            "id",
            "data-seq",
            "data-role",
            "data-cursor",
            "tabindex",
            "aria-label",
            "aria-hidden",
            "dir",
            "href",
            "datetime",
        ),
        *(
            "data-style",
            "data-call",
            "data-to",
            "data-result",
            "src",
            "alt",
            "loading",
            "decoding",
            "controls",
            "preload",
        ),
        "download",
    }
    assert tree.one("article")["aria-label"] == NASTY
    assert tree.text.count(NASTY) >= 20

    found = msgspec.structs.replace(message, conversation_id=NASTY, content=NASTY)
    about = Conversation(NASTY, user_id=NASTY, agent_id=NASTY)
    passage = Passage((found, msgspec.structs.replace(found, id="other")), (found.id,))
    hit = parse(search_hit.render(Hit(about, found, query=NASTY, passages=(passage,)), NASTY, "./"))
    assert not hit.all("script")
    assert hit.one(cls="row-title").text == NASTY


def test_a_message_shows_its_status() -> None:
    who = content.Speaker("Ann", "user")

    def shown(**more: Any) -> str:
        return parse(fragments.message(made("x", **more), who, (), (), "c")).one("article").words

    assert shown() == "Ann2026-11-15 09:05 UTCWhy⋯ empty"
    assert "in progress" in shown(status="in_progress")
    assert "empty" not in shown(status="in_progress")
    assert "edited" in shown(edited_at=AT)
    assert "edited" not in shown(updated_at=AT)
    assert "blocked" in shown(status="blocked")
    assert "pinned" in shown(pinned=True)
    assert "thread" in shown(scope="thread")
    assert "1 source" in shown(sources=(Source("a"),))
    assert "2 sources" in shown(sources=(Source("a"), Source("b")))
    assert "1,200 in · 0 out · $0.003" in shown(usage=Usage(input_tokens=1200, cost=0.003))
    assert "e" * 199 + "…" in shown(status="interrupted", metadata={"error": "e" * 300})
    assert "5" not in shown(status="interrupted", metadata={"error": 5}).replace("09:05", "").replace("-15", "")


def test_the_content_of_a_message_is_in_its_fragment() -> None:
    message = made([{"type": "text", "text": "**hello**"}], format="parts")
    desk = content.RenderContext({}, "c", content.MOST)
    html = fragments.message(
        message, content.Speaker("A", "agent"), content.blocks_of(message, read(message), {}, desk), (), "c"
    )
    assert parse(html).one("strong").text == "hello"
