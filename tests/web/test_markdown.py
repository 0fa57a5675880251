"""Markdown and JSON as HTML, and the cache of it: all of it bounded."""

from __future__ import annotations

import re
import time
from html import unescape

import msgspec
import nh3
import pyromark
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.web.kit import parse
from tests.web.test_hostile import safe

from hansard.rendering import highlight, markdown
from hansard.rendering.grammars import BY_LANGUAGE, Grammar
from hansard.server.web import content, markup

_SIGNS = "ab c1.)-+:=|>#!_(\"'\n\n  é漢\u202e~*`[]<&\\\t\x0b\x1c\x85\xa0\u2028\u3000\ufdd0"


@given(st.text(st.sampled_from(_SIGNS), max_size=60))
def test_any_text_is_shown_and_harmless(text: str) -> None:
    tree = parse(markdown.render(text))
    safe(tree)
    words = re.compile(r"[abcé漢]")
    assert (
        words.findall(tree.text) == words.findall(text) or "](" in text or "]:" in text or "`" in text or "~~~" in text
    )


_PIECES = (
    *("# ", "- ", "1. ", "> ", "**", "_", "`", "~~", "\n", "\n\n", "    ", "  \n", "[x] ", "$x$"),
    *("|a|b|\n|-|:-:|\n|c|", "1", "word "),
    *("```python\n", "```\n", "print('x', \"y\")\n", "[l](", "javascript:x", ")", "![", "](", "http://a.b/"),
    *("<b>", "<div onclick='x'>", "<script>", "</pre>", "<pre>\n", "<!--", "-->", "<svg>", "&", "&nbsp;", "&#0;"),
    *('"', "'", "\\", "\x00", "\r", "\xa0", "\x85", "\u2028", "\ufdd0", "\ud800", "\ufffe", "é", "漢", ". ", "? "),
)


@given(st.lists(st.sampled_from(_PIECES), max_size=40).map("".join))
def test_the_sanitizer_would_change_nothing(text: str) -> None:
    html = markdown.render(text)
    assert nh3.clean(html, **markdown.SANITIZER) == html


_MARKUP = st.sampled_from(
    (
        *(
            "a",
            "b c",
            "é漢",
            " ",
            "\n",
            "\n\n",
            "  \n",
            "    ",
            "\t",
            "- ",
            "* ",
            "1. ",
            "7) ",
            "> ",
            "# ",
            "---",
            "===",
            "|",
        ),
        *(
            "*",
            "**",
            "_",
            "~~",
            "`",
            "```",
            "```py\n",
            "~~~",
            "\\",
            "&amp;",
            "&nbsp;",
            "&",
            '"',
            "'",
            "x = 1",
            "|a|b|\n|-|:-:|\n|1|2|\n",
        ),
        *("- a\n  - b\n", "> - c\n", "1. d\n\n   e\n", "**f**\n", "`g`\nh"),
    )
)


@given(st.lists(_MARKUP, max_size=14).map("".join))
def test_texts_without_links_are_rendered_as_all_texts_are(text: str) -> None:
    writer = markdown._HtmlWriter()
    fast = markdown._without_links(text)
    assert writer.write(pyromark.events(text, options=markdown._OPTIONS)) or fast is None
    # The parser begins some lines that the writer does not.
    assert fast is None or fast.replace("\n", "") == "".join(writer.pieces).replace("\n", "")


_PROSE = st.sampled_from(
    (
        *("a", "Wort ", "é漢 ", "x1 ", "1", "1.", "- ", "-", "=", "==", "\n", "\n", "\n\n", " ", "    ", "(b)", '"c"'),
        *("it's ", "“d” ", "‘e’", " – ", "—", "…", "%", "/", ": ", "; ", "?", "!", "www.b.de", "://", "_", "+ ", "#"),
        *("&", "*", "|", "~", ">", "\\", "\t", "\xa0", "\r", "\u2028", "\u3000", "²", "①", "\u0301", "\ufeff", "😀"),
    )
)


@given(st.lists(_PROSE, max_size=14).map(lambda pieces: "a" + "".join(pieces)))
def test_words_without_markup_are_rendered_as_the_parser_would(text: str) -> None:
    if markdown._WORDS.fullmatch(text) and "_" not in text and "://" not in text:
        assert markdown.render(text) == markdown._without_links(text)


def test_many_short_lines_are_shown_as_plain_text() -> None:
    text = "\n\n".join("a" * 6_000)
    assert markdown.render(text) == markdown.plain(text)


def test_a_list_of_words_within_the_limits_is_a_paragraph() -> None:
    for count in (2_000, 2_500, 3_500):
        lines = "<br>\n".join(["word"] * count)
        assert markdown.render("\n".join(["word"] * count)) == f"<p>{lines}</p>\n"


def test_a_line_of_words_is_one_paragraph() -> None:
    for text in ("Thanks! And the invoice (2)?", "Größe: 3/4, 漢字", 'It\'s "late"; a = b - c'):
        assert markdown.render(text) == f"<p>{text}</p>\n"
    assert markdown.render("Dear Ann,\nit’s “late”…\n\nYours – Bob") == (
        "<p>Dear Ann,<br>\nit’s “late”…</p>\n<p>Yours – Bob</p>\n"
    )
    for text in ("a _b_ c", "a <b>", "a ", "1. a", "a http://b.c/", "a & b", "a\xa0b"):
        assert markdown.render(text) != f"<p>{text}</p>\n"


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("Where is it?\nIt's late!", "<p>Where is it?<br>It's late!</p>"),
        ("*a* **b** ~~c~~ `d<e`", "<p><em>a</em> <strong>b</strong> <s>c</s> <code>d&lt;e</code></p>"),
        ("## A *b*", "<h2>A <em>b</em></h2>"),
        ("- a\n- b", '<ul dir="auto"><li>a</li><li>b</li></ul>'),
        ("3. a\n\n   b", '<ol dir="auto" start="3"><li><p>a</p><p>b</p></li></ol>'),
        ("- [x] a", '<ul dir="auto"><li><span class="task">☑</span> a</li></ul>'),
        ("> a", '<blockquote dir="auto"><p>a</p></blockquote>'),
        ("a\n\n---\n\nb", "<p>a</p><hr><p>b</p>"),
        ("    a < b", '<pre class="code"><code>a &lt; b</code></pre>'),
        (
            "```python\nx = '<b>'\n```",
            '<pre class="code"><code>x = <span class="k-s">\'&lt;b&gt;\'</span></code></pre>',
        ),
        ("```strange\n<x>\n```", '<pre class="code"><code>&lt;x&gt;</code></pre>'),
        ("3~5天，6~8天", "<p>3~5天，6~8天</p>"),
        ('A `td style="text-align: left"`', '<p>A <code>td style="text-align: left"</code></p>'),
        (
            '|a|\n|-|\n|b style\\="text-align: left"|',
            (
                '<table dir="auto"><thead><tr><th>a</th></tr></thead><tbody>'
                '<tr><td>b style="text-align: left"</td></tr></tbody></table>'
            ),
        ),
        (
            r"https:\/\/a.de\/b",
            '<p><a href="https://a.de/b" rel="noopener noreferrer nofollow">https://a.de/b</a></p>',
        ),
        # HTML is text, around which Markdown is still Markdown.
        (
            "<note>\n**a** &lt; b\n</note>",
            "<p>&lt;note&gt;<br><strong>a</strong> &lt; b<br>&lt;/note&gt;</p>",
        ),
        (r"\<b> `\<b>`", "<p>&lt;b&gt; <code>\\&lt;b&gt;</code></p>"),
        ("<soap:Body> vector<std::string>", "<p>&lt;soap:Body&gt; vector&lt;std::string&gt;</p>"),
        ("<javascript:alert(1)>", "<p>&lt;javascript:alert(1)&gt;</p>"),
        ("a \ufdd0b>", "<p>a \ufffdb&gt;</p>"),
        ("`&lt;` < `\ufdd0`", "<p><code>&amp;lt;</code> &lt; <code>\ufffd</code></p>"),
    ],
)
def test_markdown_is_rendered_as_html(text: str, html: str) -> None:
    assert re.sub(r"\n", "", markdown.render(text)) == html


def test_a_table_keeps_the_alignment_of_its_columns() -> None:
    tree = parse(markdown.render("| a | b | c |\n|:--|:-:|---|\n| 1 | 2 | |\n| 3 |"))
    assert [(cell["class"], cell.words) for cell in tree.all("th")] == [("to-left", "a"), ("to-center", "b"), ("", "c")]
    assert [cell.words for cell in tree.all("td")] == ["1", "2", "", "3", "", ""]


@pytest.mark.parametrize(
    ("text", "links"),
    [
        ("[a](https://x.example 'b')", [("https://x.example", "a")]),
        ("[a](<x y>) [b][c]\n\n[c]: /d", [("x y", "a"), ("/d", "b")]),
        ("[a]\n\n[a]: <x y>", [("x y", "a")]),
        ("[](https://x.example)", [("https://x.example", "link")]),
        ("<HTTPS://x.example>", [("HTTPS://x.example",) * 2]),
        ("<https://x.example>", [("https://x.example",) * 2]),
        ("<a@b.example>", [("mailto:a@b.example", "a@b.example")]),
        ("see https://x.example/a_(b)?c=1&d, please", [("https://x.example/a_(b)?c=1&d",) * 2]),
        ("(https://y.example).", [("https://y.example",) * 2]),
        ("見て、https://x.example/東京。次へ", [("https://x.example/東京",) * 2]),
        ("`https://x.example`", []),
        ("[see https://x.example](https://y.example)", [("https://y.example", "see https://x.example")]),
        # Pictures are not fetched.
        ("![a *b*](https://x.example/p.png) ![](q.png)", [("https://x.example/p.png", "a b"), ("q.png", "picture")]),
        ("[![a](p.png)](https://x.example)", [("https://x.example", "a")]),
        ("[a](javascript:alert(1)) [b](//x.example)", [("", "a"), ("//x.example", "b")]),
    ],
)
def test_only_safe_links_are_links(text: str, links: list[tuple[str, str]]) -> None:
    tree = parse(markdown.render(text))
    safe(tree)
    assert [(link["href"], link.words) for link in tree.all("a")] == links


@pytest.mark.parametrize(
    "text",
    [
        ">" * markdown.MOST,
        "*" * 9_000 + "a" + "*" * 9_000,
        "\n".join("  " * depth + "- x" for depth in range(100)),
        "|" + "a|" * 1_000 + "\n|" + "-|" * 1_000 + "\n" + "a\n" * 1_000,
        "![" * 5_000 + "](" * 5_000,
        "a" * (markdown.MOST + 1),
    ],
    ids=["quotes", "stars", "lists", "cells", "pictures", "characters"],
)
def test_text_that_is_too_complex_is_shown_as_plain_text(text: str) -> None:
    html = markdown.render(text)
    assert len(html) < 10 * len(text)
    assert text in parse(html).text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It is **held** in `Tromsø`.", "It is held in Tromsø."),
        ("# Title\n- one\n> two", "Title one two"),
        ("| step | when |\n|---|:-:|\n| ship | Mon |\ndone", "· step · when · ship · Mon · done"),
        ("1. open *Orders*, *then* go", "1. open Orders, then go"),
        ("a || b, 2 * 3 - 1 > snake_case", "a || b, 2 * 3 - 1 > snake_case"),
    ],
)
def test_a_preview_has_no_markdown_syntax(text: str, words: str) -> None:
    assert " ".join(markdown.bare(text).split()) == words


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)


@given(_json, st.integers(0, 400))
def test_highlighted_json_has_the_same_text(value: object, cut: int) -> None:
    text = content.pretty(value)[: cut or None]
    tree = parse(highlight.json(text))
    assert tree.text.replace("\r", "\n") == text.replace("\r", "\n")
    assert {node.tag for node in tree.walk()} <= {"#root", "#text", "span"}


def test_json_has_a_colour_for_names_texts_and_values() -> None:
    tree = parse(highlight.json(content.pretty({"a<b": ["c", 1, None, -2.5e3]})))
    assert [node.words for node in tree.all("span", "k-n")] == ['"a<b"']
    assert [node.words for node in tree.all("span", "k-s")] == ['"c"']
    assert [node.words for node in tree.all("span", "k-m")] == ["1", "null", "-2500.0"]


def test_a_long_unterminated_string_is_highlighted_in_linear_time() -> None:
    # Every quote could begin a text that does not end: a pattern that tried each would take for ever.
    text = msgspec.json.encode({"a": '"' * 30_000}).decode()[: content.MOST]
    assert highlight.json(text).count("<span") == 2


def test_rendered_messages_are_cached_up_to_a_number_of_bytes() -> None:
    written: list[int] = []

    def shown(number: int, text: str) -> str:
        def write() -> str:
            written.append(number)
            return text

        return markup.cached(number, write)

    markup.html_cache.clear()
    try:
        assert shown(0, "漢" * 500_000) == shown(0, "") == "漢" * 500_000
        for number in range(1, 40):  # two bytes a character, so 24 of them have room
            shown(number, "漢" * 500_000)
            assert markup.html_cache.weight <= 24_000_000
        shown(39, "")
        shown(1, "")
        assert written == [*range(40), 1]
        shown(100, "x" * 4_000_000)
        shown(100, "x" * 4_000_000)
        assert written[-2:] == [100, 100], "one that is huge is not remembered"
    finally:
        markup.html_cache.clear()


_PYTHON = """@cache
def area(width, height=2.5):
    '''Returns it.'''
    return print(f"{width}") or None  # <b>
"""


@pytest.mark.parametrize(
    ("language", "text", "spans"),
    [
        (
            "python",
            _PYTHON,
            "n:@cache k:def n:area m:2.5 s:'''Returns it.''' k:return n:print s:\"{width}\" k:or m:None c:# <b>",
        ),
        ("js", "const x = `a\n${b}`; // c", "k:const s:`a\n${b}` c:// c"),
        ("rust", "fn f<'a>(x: &'a str) { 'x' }", "k:fn s:'x'"),
        ("sql", "SELECT count(x) FROM t -- c", "k:SELECT n:count k:FROM c:-- c"),
        ("bash", "for i in $ALL; do echo it's#1; done # c", "k:for k:in n:$ALL k:do k:echo m:1 k:done c:# c"),
        ("yaml", "name: it's 5", "n:name m:5"),
        ("html", '<p id="a">it\'s<!-- c --></p>', 'n:<p n:id s:"a" c:<!-- c --> n:</p'),
        ("css", "a:hover { color: #fff }", "n:a n:color n:#fff"),
        ("diff", "@@ 1\n-x\n+y\n z", "n:@@ 1 e:-x s:+y"),
    ],
)
def test_code_has_colours_for_words_texts_and_comments(language: str, text: str, spans: str) -> None:
    tree = parse(highlight.code(text, language))
    assert tree.text == text
    shown = [f"{node['class'].removeprefix('k-')}:{node.text}" for node in tree.all("span")]
    assert " ".join(shown) == spans


def test_an_unknown_language_and_long_code_have_no_colours() -> None:
    assert highlight.code("x := '<a>'", "maple") == "x := '&lt;a&gt;'"
    assert "<span" not in highlight.code("x = 1\n" * 4_000, "python")


@given(st.sampled_from(sorted(BY_LANGUAGE)), st.text(max_size=200) | st.text("\"'`#/*-;%<>\\ \na1{(", max_size=200))
def test_highlighted_code_has_the_same_text(language: str, text: str) -> None:
    tree = parse(highlight.code(text, language))
    assert tree.text.replace("\r", "\n") == text.replace("\r", "\n")
    assert {node.tag for node in tree.walk()} <= {"#root", "#text", "span"}


_RUNS = (*"\"'`#/-;%<\\a1@$ .\n*({[=:!_+", '\\"', "\\'", "/*", "--", "a ", "$a", "<!--", "'\\", "a=", "//", "'''", "'a")


@pytest.mark.parametrize("grammar", {id(each): each for each in BY_LANGUAGE.values()}.values())
def test_no_code_takes_more_than_linear_time(grammar: Grammar) -> None:
    for run in _RUNS:
        text = (run * 20_000)[:20_000]
        begin = time.process_time()
        assert sum(1 for _ in grammar.pattern.finditer(text)) <= len(text)
        assert time.process_time() - begin < 1, run


def test_formulas_become_mathml() -> None:
    html = markdown.render(r"With $x_1^2 \le \alpha$, and $$\frac{a+1}{\sqrt{b}}$$ it costs $5 or $6.")
    assert "<msubsup><mi>x</mi><mn>1</mn><mn>2</mn></msubsup><mo>≤</mo><mi>α</mi>" in html
    assert 'display="block"' in html
    assert "<mn>1</mn></mrow><mrow><msqrt><mrow><mi>b</mi></mrow></msqrt></mrow></mfrac>" in html
    assert html.count("<math") == 2
    assert "costs $5 or $6" in html
    assert "<mroot><mrow><mi>x</mi></mrow><mrow><mn>3</mn></mrow></mroot>" in markdown.render(r"$\sqrt[3]{x}$")


@pytest.mark.parametrize(
    "formula",
    [
        *(r"\begin{matrix}a\end{matrix}", r"\href{javascript:x}{y}", r"a_", "a}b", r"\sqrt[3", r"\sqrt[3}{x}"),
        *("{" * 50 + "}" * 50, "x" * 3000, r"\sqrt" * 390 + "x", r"\frac" * 60 + "x" * 61),
    ],
)
def test_other_formulas_are_shown_as_written(formula: str) -> None:
    html = markdown.render(f"${formula}$")
    assert "<math" not in html
    assert unescape(html).count(formula) == 1


def test_hostile_formulas_are_text() -> None:
    html = markdown.render(r"$\text{<script>alert(1)</script>} < \mathrm{<img src=x onerror=alert(1)>}$")
    assert "<script" not in html
    assert "<img" not in html
