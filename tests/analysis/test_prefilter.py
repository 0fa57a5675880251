"""The quick look before a text is analysed: it may let too much pass, never too little."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hansard.analysis import Sieve, analyse, parse_query

PIECES = (
    *(
        "reply",
        "replies",
        "Replied",
        "ship",
        "shipping",
        "shipped",
        "xes",
        "boxes",
        "classes",
        "don't",
        "it’s",
        "l'été",
    ),
    *("GitHub", "getUserIdFast", "HTTPServer", "user_id", "ERR_404", "src/app.py", "v2", "C++", "50%", "x" * 50),
    *(
        "東京",
        "タワー",
        "東京tower",
        "서울",
        "กรุงเทพ",
        "ﬁne",
        "Ｆｕｌｌ",
        "Straße",
        "Müller",
        "Häuser",
        "œuvre",
        "İstanbul",
    ),
    *("👍🏽", "👨‍👩‍👧", "❤️", "❶", "…", "—", "“quoted”", "1️⃣", "ς", "é", "é", "’s", "'", "y", "ies"),
)
GAPS = st.sampled_from((" ", "", "-", "_", "’", "'", ".", "\n", "—"))
TEXTS = st.lists(st.tuples(st.sampled_from(PIECES) | st.text(max_size=6), GAPS), max_size=8).map(
    lambda pairs: "".join(piece + gap for piece, gap in pairs)
)


@given(TEXTS, st.data())
@example("replies", None)
def test_what_matches_passes(text: str, data: st.DataObject | None) -> None:
    start = data.draw(st.integers(0, len(text))) if data else 0
    end = data.draw(st.integers(start, len(text))) if data else len(text)
    star = data.draw(st.sampled_from(("", "*"))) if data else ""
    word = data.draw(st.sampled_from(PIECES)) if data else "reply"
    for asked in (text[start:end] + star, word + star, f'"{text[start:end]}"', f"{word} OR {text[start:end]}"):
        query = parse_query(asked)
        if query.matches(analyse(text)):
            assert Sieve(query).passes(text), asked


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("The order left this morning.", "parcel"),
        ("The order left this morning.", "order parcel"),
        ("The order left this morning.", "東京"),
        ("It’s “done” — 👍", "undone"),
        ("東京タワーにも行きたい", "大阪"),
        ("東京タワーにも行きたい", "tower"),
    ],
)
def test_what_cannot_match_is_held_back(text: str, query: str) -> None:
    assert not Sieve(parse_query(query)).passes(text)


def test_either_of_two_words_is_enough() -> None:
    sieve = Sieve(parse_query("parcel OR order"))
    assert sieve.passes("The order left this morning.")
    assert not sieve.passes("It left this morning.")
