"""Text to terms: the forms of a word meet, different words do not, and nothing is an error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.analysis import GAP, Terms, analyse, parse_query, spans, terms


def words(text: str) -> list[str]:
    """The row of words, without the parts of `camelCase` behind it."""
    return text_of(analyse(text))


def text_of(terms: Terms) -> list[str]:
    row = terms.words
    return row[: row.index(GAP)] if GAP in row else row


def found(query: str, text: str) -> bool:
    return parse_query(query).matches(analyse(text))


@pytest.mark.parametrize(
    "forms",
    [
        ("order", "Orders", "ORDER", "order's", "ordered", "ordering"),
        ("ship", "shipping", "shipped", "ships"),
        ("change", "changes", "changing", "changed"),
        ("company", "companies"),
        ("box", "boxes"),
        ("call", "called", "calls"),
        ("use", "used", "using", "uses"),
        ("save", "saved", "saving"),
        ("code", "coding", "coded"),
        ("reply", "replies", "replied"),
        ("try", "tried", "trying"),
        ("cancel", "cancelled", "canceled", "cancelling"),
        ("install", "installed", "installing"),
        ("do", "doing"),
        ("Unterschied", "Unterschiede", "Unterschieden"),
        ("Mitglied", "Mitglieds"),
        ("embed", "embeds", "embedded", "embedding", "embeddings"),
        ("API", "APIs", "api"),
        ("APIs", "apis"),
        ("LLM", "LLMs", "llms"),
        ("ID", "IDs", "id"),
        ("книга", "книги", "книг", "книгой"),
        ("новый", "новые", "нового"),
        ("заказ", "заказы", "заказов"),
        ("сообщение", "сообщения", "сообщений"),
        ("كتاب", "الكتاب", "والكتاب", "للكتاب", "كِتَاب"),
        ("أحمد", "احمد"),
        ("किताब", "किताबें", "किताबों"),
        ("हिन्दी", "हिंदी"),
        ("١٢٣", "123", "१२३"),
        ("soft\u00adhyphen", "softhyphen"),
        ("Rechnung", "Rechnungen"),
        ("Kunde", "Kunden"),
        ("Haus", "Häuser", "Hauses"),
        ("Straße", "strasse", "STRASSE"),
        ("café", "cafe", "CAFÉ", "cafe\u0301"),
        ("Ёлка", "елка"),
        ("ＡＢＣ", "abc"),
        ("ｶﾞ", "ガ"),
        ("👍", "👍🏽"),
        ("❤️", "❤"),
        ("smørrebrød", "smorrebrod"),
    ],
    ids=lambda forms: forms[0],
)
def test_the_forms_of_a_word_meet(forms: tuple[str, ...]) -> None:
    for query in forms:
        for text in forms:
            assert found(query, text), (query, text)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("user", "use"),
        ("numb", "number"),
        ("ton", "tone"),
        ("bus", "bu"),
        ("news", "newton"),
        ("string", "str"),
        ("note", "not"),
        ("care", "car"),
        ("noted", "not"),
        ("us", "used"),
        ("say", "Saied"),
        ("la", "Laing"),
        ("co", "coed"),
        ("to", "toed"),
        ("мир", "мирный"),
        ("speed", "spe"),
        ("か", "が"),
        ("C#", "C"),
        ("C++", "C"),
        ("京東", "東京"),
        ("404", "4041"),
        ("1250", "250"),
        ("1.2.3", "123"),
        ('"hub git"', "GitHub getHub"),
        ('"user id"', "getUser idle"),
        ("id", "ids"),
        ("a", "As"),
    ],
)
def test_different_words_do_not(query: str, text: str) -> None:
    assert not found(query, text)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("Müller", "Mueller"),
        ("Mueller", "Müller"),
        ("Muller", "Müller"),
        ("Müller", "Muller"),
        ("GitHub", "github"),
        ("github", "GitHub"),
        ("git", "GitHub"),
        ('"GitHub Actions"', "github actions"),
        ('"github actions"', "GitHub Actions"),
        ('"the github repository"', "the GitHub repository"),
        ("github.com", "GitHub.com"),
        ("iphone15", "iPhone15"),
        ('"macos 14"', "macOS 14"),
        ("openai/gpt-4", "OpenAI/gpt-4"),
        ("utf8", "toUtf8String"),
        ("utf8_string", "toUtf8String"),
        ("getUserName(userId)", "get_user_name(user_id)"),
        ("runni*", "isRunning"),
        ("user_na*", "getUserName"),
        ("Bü*", "Buero"),
        ("bue*", "Büro"),
        ('"im Bü"*', "im Buero"),
        ('"frau mueller"', "Frau Müller"),
        ('"frau muller"', "Frau Müller"),
        ("mueller-luedenscheidt", "Müller-Lüdenscheidt"),
        ("1250", "1,250"),
        ("1,250", "1250"),
        ("1250", "1.250"),
        ("1234567", "1 234 567"),
        ("1.234.567", "1234567"),
        ("UserName", "getUserName"),
        ("user_id", "userIDs"),
        ("url", "getURLsFast"),
        ("user_name", "getUserName"),
        ("userId", "user_id"),
        ("getusername", "getUserName"),
        ("app.py", "src/hansard/app.py"),
        ("utf8", "UTF-8"),
        ("CONN_RESET", "ERR_CONN_RESET_42"),
        ("0x80070005", "failed with 0x80070005."),
        ("東京", "私は東京に住んでいます"),
        ("京", "東京"),
        ("학교", "학교에서"),
        ("ไทย", "ภาษาไทย"),
        ("don't", "dont"),
        ("50%", "it is 50% off"),
    ],
)
def test_written_another_way(query: str, text: str) -> None:
    assert found(query, text)


def test_terms() -> None:
    assert analyse("Orders of getUserName 東京!") == Terms(
        ["order", "of", "getusernam", "東", "京", GAP, "get", "user", "name"], ["orders", "getusername"]
    )
    assert analyse("iPad14 iPad14 GitHub") == Terms(
        ["ipad", "14", "ipad", "14", "github", GAP, "i", "pad", "14", GAP, "git", "hub"], []
    )
    assert words("") == words("… — _ \0") == []
    assert words("x" * 1000) == ["x" * 40]


def test_spans_name_the_places() -> None:
    text = "Is it in 東京, caf\u00e9 or ｶﾞ?"
    assert [text[start:end] for start, end, _ in spans(text)] == ["Is", "it", "in", "東", "京", "café", "or", "ｶﾞ"]


def test_places_are_exact_where_characters_are_normalized() -> None:
    text = "ｺｰﾋｰは売り切れ、ﬁle１２x² cafe\u0301s soft\u00adhyphen ㍿です"
    assert [text[start:end] for start, end, _ in spans(text)] == [
        *("ｺ", "ｰ", "ﾋ", "ｰ", "は", "売", "り", "切", "れ", "ﬁle", "１２", "x", "²"),
        *("cafe\u0301s", "soft\u00adhyphen", "㍿", "㍿", "㍿", "㍿", "で", "す"),
    ]


@given(st.text(st.characters(), max_size=200))
def test_any_text(text: str) -> None:
    """Terms never hold what a tokenizer or a query language could stumble over; spans and terms are the same words."""
    terms = analyse(text)
    for term in (*terms.words, *terms.more):
        assert term
        assert not set(term) & set(" \0\"'*()-:^{}")
        term.encode()
    assert text_of(terms) == [part for _, _, word in spans(text) for part in word.parts]
    assert all(0 <= start < end <= len(text) for start, end, _ in spans(text))


@given(st.text(st.characters(), min_size=1, max_size=60))
def test_a_text_finds_itself(text: str) -> None:
    query = parse_query('"' + text.replace('"', " ") + '"')
    assert not query or query.matches(analyse(text.replace('"', " ")))


@given(st.text(st.characters(max_codepoint=127), max_size=80))
def test_the_quick_way_through_ascii_gives_the_same(text: str) -> None:
    assert words(text) == [part for _, _, word in spans(text) for part in word.parts]


@pytest.mark.parametrize(
    "text", ["\u0301\u0302\u1062", "a \u0300\u0301\u1062b", "\u05b0\u05b1\u1062", "\u1062", "\u0301"]
)
def test_accents_without_a_letter_are_no_error(text: str) -> None:
    words_, more = analyse(f"one {text} two")
    assert words_[0] == "one"
    assert words_[-1] == "two"
    assert all((*words_, *more))
    assert words_[1:-1] == [part for _, _, word in spans(text) for part in word.parts]


def test_a_long_text_gives_what_its_pieces_give() -> None:
    kinds = ("running{}", "user_id{}", "getUserId{}", "Müller{}", "{}0f{}", "東京{}", "word" * 12 + "{}")
    pieces = [kind.format(*(chr(97 + n % 26) * (n % 5) + str(n),) * 2) for n in range(4000) for kind in kinds]
    whole = analyse(" ".join(pieces))
    each = [analyse(piece) for piece in pieces]
    assert text_of(whole) == [word for terms in each for word in text_of(terms)]
    behind = (word for terms in each for word in terms.words[len(text_of(terms)) :])
    assert list(dict.fromkeys(whole.words[len(text_of(whole)) :])) == list(dict.fromkeys(behind))
    assert list(dict.fromkeys(whole.more)) == list(dict.fromkeys(word for terms in each for word in terms.more))


def test_a_cache_that_was_replaced_meanwhile_loses_no_spelling(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = terms.columns("Running through the GitHubActions of Müller")
    monkeypatch.setattr(terms, "_CACHED", 20)
    monkeypatch.setattr(terms, "_AT_ONCE", 2)
    for _ in range(3):
        assert terms.columns("Running through the GitHubActions of Müller") == expected
        assert terms._known.size <= 20 + len("GitHubActions") + len("through")
    assert "run" in expected[0].split()
    assert {"running", "mueller"} <= set(expected[1].split())


def test_numbers_do_not_fill_the_cache() -> None:
    before = len(terms._known_chunks())
    assert terms.columns(" ".join(map(str, range(10**9, 10**9 + 100))))[0].split()[-1] == str(10**9 + 99)
    assert len(terms._known) == before
