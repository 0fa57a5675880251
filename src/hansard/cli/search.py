"""The command `search`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from cyclopts import Parameter

from hansard.analysis import searchable
from hansard.cli import output
from hansard.cli.context import Context, EmbedderName, load_embedder
from hansard.cli.values import instant, pairs, visible
from hansard.search import Hit, Hits, Passage
from hansard.store.search_modes import Grouping, SearchMode, SearchOrder, WordMatch

_SHOWN = 160
"""Characters of a message around a hit."""


def search(
    query: Annotated[str, Parameter(help='Words, "phrases", prefix*, -not, a OR b.')],
    /,
    *,
    conversation: Annotated[
        str | None, Parameter(name=["--conversation", "-c"], help="Only in this conversation.")
    ] = None,
    agent: Annotated[str | None, Parameter(help="Only in conversations of this agent.")] = None,
    metadata: Annotated[
        list[str] | None,
        Parameter(negative="", show_default=False, help="key=value that the conversation must have; may be repeated."),
    ] = None,
    label: Annotated[str | None, Parameter(help="Only with this label, or in conversations with it.")] = None,
    rating: Annotated[
        float | None, Parameter(allow_leading_hyphen=True, help="Only messages rated with this value.")
    ] = None,
    role: Annotated[
        list[str] | None, Parameter(negative="", show_default=False, help="Only this role; may be repeated.")
    ] = None,
    since: Annotated[str | None, Parameter(help="Not older than this: 30d, 12h, or a date.")] = None,
    until: Annotated[str | None, Parameter(help="Older than this.")] = None,
    all_branches: Annotated[
        bool, Parameter(negative="", show_default=False, help="Search all branches, not only the active ones.")
    ] = False,
    mode: Annotated[
        SearchMode | None,
        Parameter(
            help="By words, by meaning, or by both: hybrid, the default with an embedder.",
            show_default=False,
        ),
    ] = None,
    embedder: EmbedderName = None,
    match: Annotated[
        WordMatch | None,
        Parameter(
            help="Match all words, any, auto for questions (the default for words), or part for pieces.",
            show_default=False,
        ),
    ] = None,
    order: Annotated[SearchOrder, Parameter(help="Best first, or newest first.")] = "relevance",
    time: Annotated[
        Literal["auto"] | None, Parameter(help='Read times in the query, such as "last week".', show_default=False)
    ] = None,
    around: Annotated[int, Parameter(help="Messages before and after each hit.")] = 0,
    group_by: Annotated[
        Grouping | None, Parameter(help="Show the best conversations, with their best passages.", show_default=False)
    ] = None,
    limit: Annotated[int, Parameter(help="How many, 1 to 100.")] = 10,
    cursor: Annotated[str | None, Parameter(help="Continue after this cursor of the previous page.")] = None,
    context: Context,
) -> None:
    """Search messages.

    --user searches one user's conversations. If there are more hits, the option for the next page is printed after
    "more:".
    """
    with context.open(embedder=load_embedder(embedder)) as store:
        hits = store.search(
            query,
            conversation_id=conversation,
            agent_id=agent,
            metadata=pairs(metadata, "--metadata"),
            label=label,
            rating=rating,
            roles=role,
            since=_time(since, "--since"),
            until=_time(until, "--until"),
            all_branches=all_branches,
            mode=mode,
            match=match or ("auto" if mode in (None, "words") else None),
            order=order,
            time=time,
            around=around,
            group_by=group_by,
            limit=limit,
            token_cap=None,
            cursor=cursor,
        )
    if context.json:
        page = {"items": [_plain(hit) for hit in hits], "next_cursor": hits.next_cursor, "complete": hits.complete}
        output.print_json(page | {"period": msgspec.to_builtins(hits.period)})
    else:
        _print(hits)


def _time(text: str | None, what: str) -> datetime | None:
    return None if text is None else instant(text, what)


def _plain(hit: Hit) -> dict[str, Any]:
    return {
        "conversation_id": hit.conversation.id,
        "message": msgspec.to_builtins(hit.message),
        "score": hit.score,
        "snippet": msgspec.to_builtins(hit.snippet),
        "passages": msgspec.to_builtins(hit.passages),
    }


def _print(hits: Hits) -> None:
    from rich.text import Text

    if not hits:
        output.print_note("nothing found")
        return
    screen = output.console()
    for hit in hits:
        message = hit.message
        head = Text(f"{visible(hit.conversation.id)} ", style="bold cyan")
        head.append(f"{output.local(message.created_at)}  {message.role}  {visible(message.id)}", style="dim")
        screen.print(head, soft_wrap=True)
        screen.print(_snippet(hit), soft_wrap=not screen.is_terminal)
        for passage in hit.passages:
            _print_around(screen, hit, passage)
    if hits.period is not None:
        output.print_note(f"only {hits.period.since:%Y-%m-%d} to {hits.period.until:%Y-%m-%d}: {hits.period.text}")
    if not hits.complete:
        output.print_note("not everything was searched: narrow the search, or use --order newest")
    if hits.next_cursor is not None:
        output.print_note(f"more: --cursor {hits.next_cursor}")


def _print_around(screen: Any, hit: Hit, passage: Passage) -> None:
    """Prints the other messages of a passage, each on one line."""
    from rich.text import Text

    for message in passage.messages:
        if message.id != hit.message.id:
            line = visible(" ".join(searchable(message).split()))[:_SHOWN]
            screen.print(
                Text(f"    {message.seq}  {message.role}  {line}", style="dim"), soft_wrap=not screen.is_terminal
            )


def _snippet(hit: Hit) -> Any:
    """Returns the snippet on one line, with its matches in colour. Replacements keep the length, so offsets stay."""
    from rich.text import Text

    snippet = hit.snippet
    line = Text("  " + visible(snippet.text).replace("\n", " ").replace("\t", " "))
    for start, end in snippet.highlights:
        line.stylize("bold yellow", start + 2, end + 2)
    return line
