"""From history to prompt: windows, assembly, summaries and providers' formats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from hansard import rules
from hansard.contract.types import MessageQuery
from hansard.errors import ValidationError
from hansard.model import SCOPES, Message, MessageScope, Summary
from hansard.store import checks
from hansard.store.core import StorePart

if TYPE_CHECKING:
    from hansard.assembly.explanation import AnswerPrompt, Prompt
    from hansard.assembly.projection import Names
    from hansard.assembly.summaries import Summarizer
    from hansard.assembly.tokens import TokenCounter
    from hansard.assembly.window import Closing
    from hansard.formats.dialogue import Dangling
    from hansard.formats.registry import Converted, Target
    from hansard.store.summaries import SummaryTask


class PromptMethods(StorePart):
    """Turns stored messages into a prompt. `prompt_builder` does the work and is imported with the first use."""

    async def window(
        self,
        conversation_id: str | int,
        *,
        messages: int | None = None,
        turns: int | None = None,
        tokens: int | None = None,
        branch: str | None = None,
        dangling: Closing = "drop",
        counter: TokenCounter | None = None,
    ) -> list[Message]:
        """Returns the newest messages that a model accepts: every tool call together with its results.

        Instructions and pinned messages are always included. A group that does not fit is left out as a whole.

        - `conversation_id`, `branch`: which branch; None for the active one.
        - `messages`, `turns`, `tokens`: the size, by one of them; without any, 20 messages.
        - `dangling`: for a tool call without a result: `"drop"` leaves it out, `"close"` adds a result that says so.
        - `counter`: counts tokens; None for an estimate from the length.
        """
        from hansard.assembly.tokens import remembering
        from hansard.store import prompt_builder

        checks.only_one(messages=messages, turns=turns, tokens=tokens)
        if messages is None and turns is None and tokens is None:
            messages = 20
        request = prompt_builder.WindowRequest(
            checks.optional_count(messages, "messages", least=1),
            checks.optional_count(turns, "turns", least=1),
            checks.optional_count(tokens, "tokens", least=1),
            checks.one_of(dangling, ("drop", "close"), "dangling"),
            remembering(counter),
        )
        id = checks.id_of(conversation_id, "conversation_id", self.limits)
        name = checks.optional_id(branch, "branch", self.limits)
        return await prompt_builder.in_window(self._view, id, name, request)

    async def assemble_prompt(
        self,
        conversation_id: str | int,
        *,
        agent_id: str | int | None = None,
        agent_name: str | None = None,
        agent_aliases: Sequence[str] = (),
        channels: Iterable[Any] = (),
        format: Target = "openai.chat",
        token_budget: int = 3000,
        max_turns: int = 100,
        time_window: timedelta | None = None,
        scope: MessageScope | None = None,
        branch: str | None = None,
        before: str | None = None,
        addressed_only: bool = True,
        names: Names = "prefix",
        dangling: Closing = "drop",
        system: str | None = None,
        tools: Sequence[Any] = (),
        counter: TokenCounter | None = None,
        summarizer: Summarizer | None = None,
        summary_threshold: int = 40,
        summary_timeout: float = 30.0,
        in_background: bool = False,
        compat: Literal["toolpack"] | None = None,
    ) -> Prompt:
        """Returns messages ready for a model, within a token budget, with the reason why each was taken or left out.

        - `conversation_id`, `branch`: which branch; None for the active one.
        - `agent_id`, `agent_name`: the agent that will answer: its messages become the assistant's, the others' the
          user's. Without `agent_id`, roles are as stored.
        - `agent_aliases`, `channels`: other ids by which the agent is mentioned; channel objects that have one
          (`bot_user_id`).
        - `format`: the provider's format, such as `"openai.chat"` or `"anthropic"`.
        - `token_budget`: the most tokens that the prompt may have.
        - `max_turns`: the most messages concerning the agent that are read.
        - `time_window`: only messages of this last period.
        - `scope`: only `"channel"`, `"dm"` or `"thread"`.
        - `before`: the id or cursor of a message: the prompt as it would be if the history ended before that message.
        - `addressed_only`: with several participants, include only messages that concern the agent.
        - `names`: how to show who wrote a message: `"prefix"`, `"field"` or `"none"`.
        - `dangling`: as in `window`.
        - `system`: a system prompt of your own, which comes first.
        - `tools`: the definitions of your tools, to count their tokens.
        - `counter`: counts tokens; None for an estimate from the length.
        - `summarizer`, `summary_threshold`: summarize older messages with it once there are more than this many.
        - `summary_timeout`, `in_background`: the seconds that a summary may take; True does not wait for it.
        - `compat`: `"toolpack"` for exactly the prompt that toolpack would make.
        """
        from hansard.assembly import projection, selection
        from hansard.assembly.tokens import remembering
        from hansard.formats import registry
        from hansard.store import prompt_builder

        checks.one_of(compat, (None, "toolpack"), "compat")
        registry.format_named(format)
        agent = checks.optional_id(agent_id, "agent_id", self.limits)
        aliases = [
            *checks.texts(agent_aliases, "agent_aliases"),
            *projection.aliases_of(checks.items(channels, "channels", "channels")),
        ]
        options = selection.PromptOptions(
            view=projection.viewpoint(agent, checks.optional_text(agent_name, "agent_name"), aliases),
            # toolpack accepts any budget: with 0 it returns the newest message alone.
            token_budget=checks.count(token_budget, "token_budget", least=1 if compat is None else -checks.MOST),
            addressed_only=checks.flag(addressed_only, "addressed_only"),
            names=checks.one_of(names, ("prefix", "field", "none"), "names"),
            dangling=checks.one_of(dangling, ("drop", "close"), "dangling"),
            format=format,
            counter=remembering(counter),
        )
        text = checks.optional_text(system, "system")
        request = prompt_builder.PromptRequest(
            conversation_id=checks.id_of(conversation_id, "conversation_id", self.limits),
            options=selection.with_reserved(options, text, _definitions(tools)),
            branch=checks.optional_id(branch, "branch", self.limits),
            scope=scope if scope is None else checks.one_of(scope, SCOPES, "scope"),
            since=self._since(time_window),
            max_turns=checks.count(max_turns, "max_turns"),
            summary_threshold=checks.count(summary_threshold, "summary_threshold", least=0),
            summarizer=None if summarizer is None else checks.summarizer(summarizer),
            summary_timeout=checks.seconds(summary_timeout, "summary_timeout"),
            in_background=checks.flag(in_background, "in_background"),
            system=text,
            agent_name=agent_name,
            aliases=aliases,
            before=checks.optional_text(before, "before"),
        )
        if compat is None:
            return await prompt_builder.assemble(self._view, request)
        if agent is None:
            raise ValidationError("compat='toolpack' needs agent_id: toolpack always assembles for an agent")
        from hansard.store import toolpack

        return await toolpack.assemble(self._view, request)

    async def get_prompt(self, conversation_id: str | int, message_id: str | int) -> AnswerPrompt | None:
        """Returns what the model was given for a stored answer, compared with what is stored now.

        None if the answer was stored without a `prompt_id`.

        - `conversation_id`, `message_id`: which answer; `MessageNotFound` if there is none.
        """
        from hansard.store import given_prompts

        id = checks.id_of(conversation_id, "conversation_id", self.limits)
        return await given_prompts.read(self._view, id, checks.message_id(message_id, self.limits))

    def _since(self, time_window: timedelta | None) -> Any:
        if time_window is None:
            return None
        if not isinstance(time_window, timedelta):
            raise ValidationError(f"time_window must be a timedelta, not a {type(time_window).__name__}")
        return checks.moment(time_window, self._view.clock(), "time_window")

    # Summaries

    async def summarize(
        self,
        conversation_id: str | int,
        summarizer: Summarizer,
        *,
        keep: int = 20,
        branch: str | None = None,
        max_tokens: int = 750,
        timeout: float = 30.0,
        counter: TokenCounter | None = None,
        in_metadata: bool = False,
    ) -> Summary | None:
        """Extends the rolling summary to all but the newest messages, and returns it. The messages stay.

        None if there was nothing to do or another process is doing it. If the summarizer fails or returns no usable
        text, raises `Unavailable` and changes nothing.

        - `conversation_id`, `branch`: which branch; None for the active one.
        - `summarizer`: writes the text.
        - `keep`: how many of the newest messages to leave out.
        - `max_tokens`: the most tokens that the summary may have.
        - `timeout`: the seconds that one call of the summarizer may take.
        - `counter`: counts tokens; None for an estimate from the length.
        - `in_metadata`: also set `summary` and `summarizedUntil` in the conversation's metadata.
        """
        from hansard.store import summaries

        task = await self._task(
            conversation_id,
            summarizer,
            keep=keep,
            branch=branch,
            max_tokens=max_tokens,
            timeout=timeout,
            counter=counter,
            in_metadata=in_metadata,
        )
        return await summaries.roll(self._view, task) if task.until_seq else None

    async def rebuild_summaries(
        self,
        conversation_id: str | int,
        summarizer: Summarizer,
        *,
        keep: int = 20,
        branch: str | None = None,
        max_tokens: int = 750,
        timeout: float = 30.0,
        counter: TokenCounter | None = None,
        in_metadata: bool = False,
    ) -> list[Summary]:
        """Writes the summaries of a branch again from its messages, all or nothing, and returns them.

        `conversation_id`, `summarizer`, `keep`, `branch`, `max_tokens`, `timeout`, `counter` and `in_metadata` mean
        what they mean in `summarize`.
        """
        from hansard.store import summaries

        task = await self._task(
            conversation_id,
            summarizer,
            keep=keep,
            branch=branch,
            max_tokens=max_tokens,
            timeout=timeout,
            counter=counter,
            in_metadata=in_metadata,
        )
        return await summaries.rebuild(self._view, task)

    async def _task(
        self,
        conversation_id: str | int,
        summarizer: Summarizer,
        *,
        keep: int,
        branch: str | None,
        max_tokens: int,
        timeout: float,
        counter: TokenCounter | None,
        in_metadata: bool,
    ) -> SummaryTask:
        from hansard.assembly.tokens import remembering
        from hansard.store.summaries import SummaryTask

        id = checks.id_of(conversation_id, "conversation_id", self.limits)
        context = self._view.context()
        conversation = await self._backend.get_conversation(context, id)
        if conversation is None:
            raise rules.not_found(id)
        name = checks.optional_id(branch, "branch", self.limits) or conversation.branch
        newest = MessageQuery(branch=name, newest_first=True, limit=checks.count(keep, "keep", least=0) + 1)
        taken = await self._backend.get_messages(context, id, newest)
        return SummaryTask(
            id,
            name,
            taken.messages[-1].seq if len(taken.messages) > keep else 0,
            checks.summarizer(summarizer),
            checks.count(max_tokens, "max_tokens"),
            checks.seconds(timeout, "timeout"),
            remembering(counter),
            checks.flag(in_metadata, "in_metadata"),
        )

    # Formats

    @staticmethod
    def to_openai_input(messages: Iterable[Message], *, dangling: Dangling = "drop") -> Converted:
        """Converts `messages` for OpenAI's Chat Completions.

        `dangling`: for a tool call without a result: `"drop"` leaves it out, `"close"` adds a result, `"keep"` keeps
        it.
        """
        from hansard import formats

        return formats.to_openai_input(messages, dangling=dangling)

    @staticmethod
    def to_openai_responses(messages: Iterable[Message], *, dangling: Dangling = "drop") -> Converted:
        """Converts `messages` to the `input` of OpenAI's Responses. `dangling` is as in `to_openai_input`."""
        from hansard import formats

        return formats.to_openai_responses(messages, dangling=dangling)

    @staticmethod
    def to_anthropic_messages(messages: Iterable[Message], *, dangling: Dangling = "drop") -> Converted:
        """Converts `messages` for Anthropic; pass the result's `system` as the argument of that name.

        `dangling` is as in `to_openai_input`.
        """
        from hansard import formats

        return formats.to_anthropic_messages(messages, dangling=dangling)

    @staticmethod
    def to_gemini_contents(messages: Iterable[Message], *, dangling: Dangling = "drop") -> Converted:
        """Converts `messages` to Gemini's `contents`; pass the result's `system` as `system_instruction`.

        `dangling` is as in `to_openai_input`.
        """
        from hansard import formats

        return formats.to_gemini_contents(messages, dangling=dangling)

    @staticmethod
    def to_langchain_messages(messages: Iterable[Message], *, dangling: Dangling = "drop") -> Converted:
        """Converts `messages` to dictionaries for LangChain's `messages_from_dict`.

        `dangling` is as in `to_openai_input`.
        """
        from hansard import formats

        return formats.to_langchain_messages(messages, dangling=dangling)


def _definitions(tools: object) -> list[Any]:
    """Returns the tool definitions, after checking that each can be written as JSON to be counted."""
    from hansard.formats.parts import as_text

    found = checks.items(tools, "tools", "definitions")
    for at, tool in enumerate(found):
        try:
            as_text(tool)
        except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
            raise ValidationError(f"tools[{at}] cannot be written as JSON: {error}") from error
    return found
