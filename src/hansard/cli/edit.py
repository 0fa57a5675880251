"""Commands that change conversations: `append`, `delete`."""

from __future__ import annotations

import sys
from typing import Annotated, Any

from cyclopts import Parameter

from hansard import ids
from hansard.cli import output
from hansard.cli.context import Context, confirm
from hansard.cli.values import STDIN, json_value, pairs, read_stdin
from hansard.errors import ValidationError
from hansard.model import Message, Status
from hansard.rules import not_found


def append(
    id: Annotated[str, Parameter(help="The conversation. A missing one is created.")],
    role: Annotated[str, Parameter(help="user, assistant, system, developer, tool, agent, …")],
    text: Annotated[str | None, Parameter(help="The text; by default, or with '-', it is read from stdin.")] = None,
    /,
    *,
    content_json: Annotated[str | None, Parameter(help="The content as JSON instead of text; '-' reads stdin.")] = None,
    format: Annotated[str | None, Parameter(help="The vocabulary of the content, such as anthropic.")] = None,
    message_id: Annotated[str | None, Parameter(help="The message's id: repeating the command stores it once.")] = None,
    metadata: Annotated[
        list[str] | None,
        Parameter(negative="", show_default=False, help="key=value of the message's metadata; may be repeated."),
    ] = None,
    status: Annotated[Status, Parameter(help="Whether the message is complete.")] = "complete",
    branch: Annotated[str | None, Parameter(help="Another branch than the active one.")] = None,
    agent: Annotated[str | None, Parameter(help="The agent, if this creates the conversation.")] = None,
    title: Annotated[str | None, Parameter(help="The title, if this creates the conversation.")] = None,
    expected_version: Annotated[int | None, Parameter(help="Append only at this version.")] = None,
    create: Annotated[bool, Parameter(help="Create a missing conversation.")] = True,
    context: Context,
) -> None:
    """Append a message, and print its id.

    A missing conversation is created; --user is its owner. Put -- before a text that begins with a hyphen.
    """
    message = Message(
        role,
        _content(text, content_json),
        # With an id, a retry inside the store cannot store the message twice.
        id=ids.message_id() if message_id is None else message_id,
        format=format or "",
        metadata=pairs(metadata, "--metadata") or None,
        status=status,
    )
    with context.open(create=create) as store:
        appended = store.append(
            id,
            message,
            agent_id=agent,
            title=title,
            branch=branch,
            expected_version=expected_version,
            create=create,
        )
    stored = appended.messages[0]
    if context.json:
        output.print_json(
            {
                "conversation_id": stored.conversation_id,
                "id": stored.id,
                "seq": stored.seq,
                "branch": stored.branch,
                "version": appended.version,
                "stored": bool(appended.stored),
                "created": appended.created,
            }
        )
    else:
        output.print_line(stored.id)


def _content(text: str | None, content_json: str | None) -> Any:
    if content_json is not None:
        if text is not None:
            raise ValidationError("pass a text or --content-json, not both")
        return json_value(read_stdin() if content_json == STDIN else content_json, "--content-json")
    if text is not None and text != STDIN:
        return text
    if text is None and sys.stdin.isatty():
        raise ValidationError("there is nothing to append: pass a text, --content-json, or '-' to read stdin")
    found = read_stdin()
    if not found and text is None:
        raise ValidationError("stdin is empty: pass a text, or '' for an empty message")
    return found


def delete(
    id: Annotated[str, Parameter(help="The conversation.")],
    /,
    *,
    message: Annotated[
        list[str] | None, Parameter(negative="", show_default=False, help="Delete only this message; may be repeated.")
    ] = None,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative="", show_default=False, help="Do not ask.")] = False,
    context: Context,
) -> None:
    """Delete a conversation, or some of its messages, permanently.

    Everything derived from them is deleted, too. Asks for confirmation, unless --yes is given.
    """
    with context.open() as store:
        conversation = store.get_conversation(id)
        if conversation is None:
            raise not_found(id)
        if message:
            for each in message:
                store.get_message(id, each, blobs="refs")
            confirm(f"Delete {output.counted(len(message), 'message')} of {id!r}?", yes=yes)
            receipt = store.delete_messages(id, message)
        else:
            count = output.counted(conversation.message_count, "message")
            confirm(f"Delete conversation {id!r} with {count}?", yes=yes)
            receipt = store.delete_conversation(id)
        capabilities = store.capabilities
    if context.json:
        output.print_json(receipt)
    else:
        output.print_line(f"deleted: {output.receipt_text(receipt)}")
        output.print_physically_gone(receipt, capabilities)
