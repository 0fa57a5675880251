"""`chat`: a conversation with a model in the terminal, recorded in a store."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

from cyclopts import Parameter

from hansard.cli import output
from hansard.cli.answer import print_answer
from hansard.cli.context import Context
from hansard.cli.table import print_table
from hansard.cli.transcript import body_of
from hansard.cli.values import visible
from hansard.errors import HansardError, MessageNotFound, ValidationError

if TYPE_CHECKING:
    from hansard.chat import Chat, Model
    from hansard.model import Message
    from hansard.store import Store


T = TypeVar("T")

HELP = """\
/history [N]        show the newest N messages (20), with numbers
/search WORDS       search this conversation
/why                explain the last prompt
/edit NUMBER TEXT   replace a message, on a new branch
/again              get another answer, on a new branch
/branch [ID]        list the branches, or switch to one
/list               list your conversations
/switch ID          continue another conversation
/new [ID]           start a new conversation
/help               show this list
/quit               quit, like Ctrl-D"""


def chat(
    conversation: Annotated[
        str | None, Parameter(help="Continue this one, or create it. By default, a new one.")
    ] = None,
    /,
    *,
    model: Annotated[str, Parameter(help="echo, openai:NAME or anthropic:NAME.")] = "echo",
    base_url: Annotated[str | None, Parameter(help="Another server with the same API.")] = None,
    system: Annotated[str | None, Parameter(help="Instructions for the model.")] = None,
    agent: Annotated[str | None, Parameter(help="The agent's id, as the author of its answers.")] = None,
    budget: Annotated[int, Parameter(help="Token budget of a prompt.")] = 8000,
    last: Annotated[bool, Parameter(negative="", show_default=False, help="Continue the newest conversation.")] = False,
    context: Context,
) -> int:
    """Talk to a model, and store the conversation.

    Lines that begin with / are commands: /help lists them. Without a terminal, each line of stdin is a message. Ctrl-C
    stops an answer, which is stored as interrupted. A missing store is created.
    """
    if context.json:
        raise ValidationError("chat is interactive: leave --json out")
    if last and conversation is not None:
        raise ValidationError("--last takes the newest conversation: leave CONVERSATION out")
    from hansard.chat import Chat, model_named

    made = model_named(model, **({} if base_url is None else {"base_url": base_url}))
    with asyncio.Runner() as runner:
        root = runner.run(_open(context.url))
        try:
            talk = Chat(
                _view(root, context),
                made,
                conversation_id=conversation,
                user_id=context.user,
                agent_id=agent,
                system=system,
                token_budget=budget,
            )
            return Terminal(runner, talk, user=context.user, agent=agent).run(resume=last)
        finally:
            runner.run(_close(root, made))


async def _open(url: str) -> Store:
    from hansard.connection import connect

    return await connect(url)


def _view(root: Store, context: Context) -> Store:
    view = root if context.tenant is None else root.tenant(context.tenant)
    return view if context.user is None else view.user(context.user)


async def _close(root: Store, model: Model) -> None:
    from hansard.chat import AnthropicModel, OpenAIModel

    if isinstance(model, OpenAIModel | AnthropicModel):
        await model.close()
    await root.close()


class Terminal:
    """A chat in the terminal."""

    def __init__(self, runner: asyncio.Runner, chat: Chat, *, user: str | None, agent: str | None) -> None:
        self._runner = runner
        self._chat = chat
        self._is_person = sys.stdin.isatty()
        self._agent = f"{agent or 'assistant'} ({chat.model.name})"
        self._prompt = f"{visible(user or 'you')}> " if self._is_person else ""
        self._commands: dict[str, Callable[[str], Awaitable[None]]] = {
            "history": self._history,
            "search": self._search,
            "why": self._why,
            "edit": self._edit,
            "again": self._again,
            "branch": self._branch,
            "list": self._list,
            "switch": self._switch,
            "new": self._new,
            "help": self._help,
        }

    def run(self, *, resume: bool) -> int:
        if resume and self._runner.run(self._chat.resume()) is None:
            raise ValidationError("there is no conversation yet: leave --last out")
        output.print_note(f"conversation {self._chat.conversation_id}, model {self._chat.model.name}. /help, /quit")
        code = 0
        while (line := self._read()) is not None:
            if line in ("/quit", "/exit"):
                break
            if line.strip():
                code = self._run_line(line)
        return code

    def _read(self) -> str | None:
        """Returns the next line; None at the end of input."""
        try:
            return input(self._prompt)
        except EOFError:
            return None

    def _run_line(self, line: str) -> int:
        """Runs one line. Errors are printed; a script ends with their exit code, an interactive chat continues."""
        try:
            self._runner.run(self._execute(line))
        except KeyboardInterrupt:
            output.print_note("\n(interrupted)")
        except Exception as error:
            if not self._is_person:
                if isinstance(error, HansardError):
                    raise
                output.print_note(f"hansard: {type(error).__name__}: {error}")
                sys.exit(HansardError.exit_code)
            output.print_note(f"{type(error).__name__}: {error}")
            return HansardError.exit_code
        return 0

    async def _execute(self, line: str) -> None:
        if not line.startswith("/"):
            await self._print_answer(self._chat.stream(line))
            return
        word, _, rest = line[1:].partition(" ")
        command = self._commands.get(word)
        if command is None:
            raise ValidationError(f"unknown command /{word}: /help lists them")
        await command(rest.strip())

    async def _print_answer(self, pieces: AsyncIterator[str]) -> None:
        await print_answer(pieces, self._agent)

    # Commands

    async def _history(self, rest: str) -> None:
        for message in await self._chat.history(_number(rest) if rest else 20):
            marks = "" if message.status == "complete" else f" ({message.status})"
            print(f"{message.seq:>4} {message.role}{marks}: {visible(body_of(message))}")

    async def _search(self, rest: str) -> None:
        hits = await self._chat.search(rest)
        for hit in hits:
            print(f"{hit.message.seq:>4} {hit.message.role}: {visible(hit.snippet.text)}")
        if not hits:
            output.print_note("nothing found")

    async def _why(self, _: str) -> None:
        prompt = self._chat.prompt
        if prompt is None:
            output.print_note("no prompt was made yet")
            return
        rows: list[tuple[str | int, ...]] = [
            ("kept" if each.kept else "dropped", each.why.replace("_", " "), each.tokens, each.role, each.message_id)
            for each in prompt.decisions
        ]
        if prompt.reserved:
            rows.append(("kept", "reserved", prompt.reserved, "", "system prompt and tools"))
        columns = ("DECISION", "REASON", "TOKENS", "ROLE", "MESSAGE")
        print_table(columns, rows, numbers=["TOKENS"], leave_out=("ROLE", "MESSAGE"))
        counts = f"{len(prompt.kept)} kept, {len(prompt.dropped)} dropped"
        print(f"{counts}, {prompt.tokens:,} of {prompt.budget:,} tokens")

    async def _edit(self, rest: str) -> None:
        number, _, text = rest.partition(" ")
        if not text.strip():
            raise ValidationError("write /edit NUMBER TEXT, with a number that /history shows")
        await self._print_answer(
            self._chat.stream(text.strip(), edit=(await self._message_with_seq(_number(number))).id)
        )

    async def _message_with_seq(self, seq: int) -> Message:
        async for message in self._chat.store.iter_messages(self._chat.conversation_id, order="desc"):
            if message.seq == seq:
                return message
        raise MessageNotFound(f"there is no message {seq} on this branch: /history shows their numbers")

    async def _again(self, _: str) -> None:
        print(visible((await self._chat.regenerate()).text))

    async def _branch(self, rest: str) -> None:
        chat = self._chat
        if rest:
            await chat.store.switch_branch(chat.conversation_id, rest)
        for branch in await chat.store.list_branches(chat.conversation_id):
            size = output.counted(branch.message_count, "message")
            print(f"{'*' if branch.active else ' '} {visible(branch.id)}, {size}")

    async def _list(self, _: str) -> None:
        for each in (await self._chat.conversations()).items:
            here = "*" if each.id == self._chat.conversation_id else " "
            size = output.counted(each.message_count, "message")
            print(visible(f"{here} {each.id}, {size}" + (f", {each.title}" if each.title else "")))

    async def _switch(self, rest: str) -> None:
        await self._chat.switch(rest)

    async def _new(self, rest: str) -> None:
        output.print_note(f"conversation {self._chat.new(rest or None)}")

    async def _help(self, _: str) -> None:
        print(HELP)


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValidationError(f"{text!r} is not a number")
    return int(text)
