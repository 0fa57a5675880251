"""HTML fragments that a page has many of, formatted without templates, which take several times as long.

Every value is escaped here, except the HTML of blocks, which `markdown` and `highlight` have made safe. Our own signs
are character references: a page of ASCII only is joined and encoded faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from markupsafe import Markup

from hansard import cursors
from hansard.exporters.people import is_shown
from hansard.model import Message, Rating, Source, Usage
from hansard.server.web.content import ContentBlock, Speaker
from hansard.server.web.links import query, quoted, segment
from hansard.server.web.quantities import DOT, money
from hansard.server.web.words import escape_html as escape
from hansard.server.web.words import number, say, say_count, say_html, scope_name

_MOST_ERROR, _MOST_CHUNK = 200, 500


def time(moment: datetime, style: str = "ago") -> Markup:
    """Renders a time in UTC, which the script converts to the reader's time zone."""
    return Markup(_time(moment, style))


def _time(moment: datetime, style: str) -> str:
    exact = (moment if moment.tzinfo is UTC else moment.astimezone(UTC)).isoformat()
    return f'<time datetime="{exact}" data-style="{style}">{exact[:10]} {exact[11:16]} UTC</time>'


# Messages


def message(message: Message, who: Speaker, blocks: Sequence[ContentBlock], left_at: Sequence[str], base: str) -> str:
    """Renders a message: author, time, content, sources and usage. `base` is the link to its conversation."""
    base = escape(base)
    id = quoted(message.id)  # percent-encoded, which leaves nothing to escape
    whole = f"{base}/m/{segment(message.id)}"
    name = escape(who.name)
    kind = f"{who.kind} growing" if message.status == "in_progress" else who.kind
    return (
        f'<article class="message {kind}" id="m{message.seq}" data-seq="{message.seq}"'
        f' data-role="{escape(message.role)}" data-cursor="{cursors.of_message(message)}"'
        f' tabindex="-1" aria-label="{name}">\n'
        f'<div class="avatar tone{who.tone}" aria-hidden="true">{escape(who.initial)}</div>\n'
        '<div class="body">\n'
        f'<header class="by"><span class="name" dir="auto">{name}</span>{_role(message, who)}'
        f'<a class="when" href="{base}?at={id}#m{message.seq}">{_time(message.created_at, "clock")}</a>'
        f"{_states(message)}{_why(message, base, id)}"
        f'<a class="open" href="{whole}" aria-label="{say_html("This message by itself")}">&#8943;</a></header>\n'
        f"{_error(message)}{_said(message, blocks, whole)}"
        f"{_sources(message.sources)}{_marks(message)}{_usage(message.usage)}{_left(left_at, base)}"
        "</div>\n</article>\n"
    )


def _role(message: Message, who: Speaker) -> str:
    role = message.role
    if role in ("user", "assistant") or role == who.name.lower():
        role = "agent" if who.kind == "agent" and message.participant else ""
    return f'<span class="role">{escape(role)}</span>' if role else ""


def _states(message: Message) -> str:
    states = ""
    if message.status != "complete":
        kind = "live" if message.status == "in_progress" else "bad"
        states = f'<span class="state {kind}">{_status(message.status)}</span>'
    if message.edited_at:
        states += f'<span class="state" title="{message.edited_at.isoformat()}">{say_html("edited")}</span>'
    if message.pinned:
        states += f'<span class="state">{say_html("pinned")}</span>'
    if message.scope:
        states += f'<span class="state">{escape(scope_name(message.scope))}</span>'
    return states


def _status(status: str) -> str:
    match status:
        case "in_progress":
            return say_html("in progress")
        case "interrupted":
            return say_html("interrupted")
    return say_html("blocked")


def _why(message: Message, base: str, id: str) -> str:
    """Renders a link to the prompt of an answer."""
    if message.role != "assistant" or message.status == "in_progress":
        return ""
    return f'<a class="why" href="{base}/why?answer={id}">{say_html("Why")}</a>'


def _error(message: Message) -> str:
    """Renders the reason why a message was interrupted, if it is stored."""
    reason = (message.metadata or {}).get("error") if message.status == "interrupted" else None
    if not isinstance(reason, str):
        return ""
    shown = reason if len(reason) <= _MOST_ERROR else reason[: _MOST_ERROR - 1] + "…"
    return f'<p class="dim" dir="auto">{escape(shown)}</p>\n'


def _said(message: Message, blocks: Sequence[ContentBlock], whole: str) -> str:
    if not blocks:
        if _error(message):  # says enough
            return ""
        return f'<p class="dim">{"…" if message.status == "in_progress" else say_html("empty")}</p>\n'
    html = "".join([_block(each, whole) for each in blocks])
    return html if is_shown(message) else _hidden(html)


def _hidden(html: str) -> str:
    """Folds what programs do not show to their users, such as instructions and context in an imported conversation."""
    return f'<details class="fold"><summary>{say_html("Hidden message")}</summary>{html}</details>\n'


def _sources(sources: Sequence[Source] | None) -> str:
    if not sources:
        return ""
    lines = []
    for each in sources:
        name = escape(each.document_name or each.document_id or say("document"))
        score = "" if each.score is None else f' <span class="dim">{number(each.score, 2)}</span>'
        chunk = f'<p class="dim" dir="auto">{escape(each.chunk[:_MOST_CHUNK])}</p>' if each.chunk else ""
        lines.append(f'<li><span dir="auto">{name}</span>{score}{chunk}</li>')
    head = say_count("{n} source", "{n} sources", len(sources))
    return f'<details class="fold sources"><summary>{head}</summary><ol>{"".join(lines)}</ol></details>\n'


def _marks(message: Message) -> str:
    """Renders ratings and labels."""
    if not message.ratings and not message.labels:
        return ""
    marks = [_rating(each) for each in message.ratings]
    marks += [f'<span class="label" dir="auto">{escape(each)}</span>' for each in message.labels]
    return f'<p class="marks">{" ".join(marks)}</p>\n'


def _rating(rating: Rating) -> str:
    words_of = {1.0: say_html("rated good"), -1.0: say_html("rated bad")}
    value = words_of.get(rating.value) or say_html("rated {value}").replace("{value}", f"{rating.value:g}")
    words = " ".join(
        each for each in (rating.by, f"“{rating.comment[:_MOST_CHUNK]}”" if rating.comment else "") if each
    )
    kind = "bad" if rating.value < 0 else "good"
    return f'<span class="rating" dir="auto"><span class="state {kind}">{value}</span> {escape(words)}</span>'


def _usage(usage: Usage | None) -> str:
    if usage is None:
        return ""
    facts = [escape(usage.model)] if usage.model else []
    if usage.input_tokens or usage.output_tokens:
        facts += [_tokens(say_html("{n} in"), usage.input_tokens), _tokens(say_html("{n} out"), usage.output_tokens)]
    if usage.reasoning_tokens:
        facts.append(_tokens(say_html("{n} reasoning"), usage.reasoning_tokens))
    if usage.cached_tokens:
        facts.append(_tokens(say_html("{n} cached"), usage.cached_tokens))
    if usage.cost:
        facts.append(money(usage.cost))
    return f'<p class="usage">{DOT.join(facts)}</p>\n' if facts else ""


def _tokens(text: str, count: int) -> str:
    return text.replace("{n}", number(count))


def _left(branches: Sequence[str], base: str) -> str:
    """Renders links to the branches that start after the message."""
    if not branches:
        return ""
    links = [f'<a href="{base}{query(branch=each)}">{escape(each)}</a>' for each in branches]
    words = say_count("{n} branch from here:", "{n} branches from here:", len(branches))
    return f'<p class="left">{words} {", ".join(links)}</p>\n'


# Content blocks


def _block(block: ContentBlock, whole: str) -> str:
    if block.kind == "text":
        html = f'<div class="said" dir="auto">{block.html}</div>\n'
    else:
        html = _SHOWN.get(block.kind, _other)(block, whole)
    return f'{html}<p class="cut"><a href="{whole}">{say_html("The whole message")}</a></p>\n' if block.is_cut else html


def _reasoning(block: ContentBlock, whole: str) -> str:
    inside = f'<div class="said" dir="auto">{block.html}</div>'
    return f'<details class="fold reasoning"><summary>{say_html("Reasoning")}</summary>{inside}</details>\n'


def _refusal(block: ContentBlock, whole: str) -> str:
    return (
        f'<div class="said refusal" dir="auto"><span class="state bad">{say_html("refused")}</span>{block.html}</div>\n'
    )


def _call(block: ContentBlock, whole: str) -> str:
    state = ""
    if block.is_open:
        state = f' <span class="state">{say_html("no result yet")}</span>'
    elif block.to:
        state = f' <span class="state">{say_html("result further on")}</span>'
    elif block.is_error:
        state = f' <span class="state bad">{say_html("failed")}</span>'
    failed = " failed" if block.is_error else ""
    result = (
        f'<p><a href="{escape(block.url)}" data-to="m{block.to}">{say_html("Its result")}</a></p>' if block.to else ""
    )
    return (
        f'<details class="fold call{failed}" data-call="{escape(block.id)}">'
        f'<summary><span class="tool-name">{escape(block.name)}</span>'
        f' <span class="args" dir="auto">{escape(block.note)}</span>{state}</summary>'
        f'<pre class="code"><code>{block.html}</code></pre>{_inside(block, whole)}{result}</details>\n'
    )


def _result(block: ContentBlock, whole: str) -> str:
    id = f' id="m{block.seq}"' if block.seq else ""
    name = say_html("Error") if block.is_error else say_html("Result")
    if block.to:
        call = f'<a href="{escape(block.url)}" data-to="m{block.to}">{escape(block.name)}</a>'
        name = (say_html("Error of {call}") if block.is_error else say_html("Result of {call}")).replace("{call}", call)
    inside = _inside(block, whole) or f'<p class="dim">{say_html("nothing")}</p>'
    return (
        f'<div class="result{" failed" if block.is_error else ""}" data-result="{escape(block.id)}"{id}>'
        f'<span class="result-name">{name}</span>{inside}</div>\n'
    )


def _inside(block: ContentBlock, whole: str) -> str:
    return "".join([_block(each, whole) for each in block.inside])


def _json(block: ContentBlock, whole: str) -> str:
    return f'<pre class="code"><code dir="auto">{block.html}</code></pre>\n'


def _image(block: ContentBlock, whole: str) -> str:
    url = escape(block.url)
    picture = f'<img src="{url}" alt="{escape(block.name)}" loading="lazy" decoding="async">'
    return f'<figure class="media"><a href="{url}">{picture}</a>{_caption(block)}</figure>\n'


def _audio(block: ContentBlock, whole: str) -> str:
    sound = f'<audio controls preload="none" src="{escape(block.url)}"></audio>'
    return f'<figure class="media">{sound}{_caption(block)}</figure>\n'


def _caption(block: ContentBlock) -> str:
    return f"<figcaption>{escape(block.note)}</figcaption>" if block.note else ""


def _document(block: ContentBlock, whole: str) -> str:
    note = f' <span class="dim">{escape(block.note)}</span>' if block.note else ""
    return f'<p class="file"><a href="{escape(block.url)}" download>{escape(block.name)}</a>{note}</p>\n'


def _elsewhere(block: ContentBlock, whole: str) -> str:
    where = f'<span class="dim">{say_html("kept elsewhere:")}</span> <code class="wrap">{escape(block.note)}</code>'
    return f'<p class="file">{escape(block.name)} {where}</p>\n'


def _other(block: ContentBlock, whole: str) -> str:
    inside = f'<pre class="code"><code>{block.html}</code></pre>'
    return f'<details class="fold"><summary>{escape(block.name)}</summary>{inside}</details>\n'


_SHOWN = {
    "reasoning": _reasoning,
    "refusal": _refusal,
    "call": _call,
    "result": _result,
    "json": _json,
    "image": _image,
    "audio": _audio,
    "document": _document,
    "elsewhere": _elsewhere,
}
