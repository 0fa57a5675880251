"""Ratings of messages, and labels on conversations and messages."""

from __future__ import annotations

from msgspec import structs

from hansard import rules
from hansard.contract.types import ConversationChange, ConversationQuery, MessageChange
from hansard.errors import ValidationError
from hansard.model import Message, Rating
from hansard.store import checks, marks, read_query
from hansard.store.core import StorePart, outcome_unknown_on_failure

_LABELLED = 1000
"""How many of the newest conversations `list_labels` looks at."""


class RatingMethods(StorePart):
    async def rate(
        self,
        conversation_id: str | int,
        message_id: str | int,
        value: float,
        *,
        by: str | int | None = None,
        comment: str | None = None,
    ) -> Message:
        """Stores what a person thinks of a message, and returns the message with its `ratings`.

        - `conversation_id`, `message_id`: which message; `MessageNotFound` if there is none.
        - `value`: a number on a scale of your own: 1 and -1 for thumbs, or 1 to 5 for stars.
        - `by`: the user who rates; a later rating by the same user replaces it. Through a user's view it is that user.
        - `comment`: why, in words.
        """
        context = self._view.context()
        rating = Rating(
            marks.checked_value(value), self._rater(by), marks.checked_comment(comment), created_at=context.now
        )
        return await self._mark(conversation_id, message_id, MessageChange(rating=rating))

    async def remove_rating(
        self, conversation_id: str | int, message_id: str | int, *, by: str | int | None = None
    ) -> Message:
        """Removes the rating that a user gave, and returns the message.

        - `conversation_id`, `message_id`: which message; `MessageNotFound` if there is none.
        - `by`: whose rating; None for the one without a name. Through a user's view it is that user's.
        """
        return await self._mark(conversation_id, message_id, MessageChange(unrated_by=self._rater(by)))

    def _rater(self, by: str | int | None) -> str | None:
        given = checks.optional_id(by, "by", self.limits)
        if self._view.user is not None and given not in (None, self._view.user):
            raise ValidationError("a user's view rates only for that user: leave by out")
        return given if self._view.user is None else self._view.user

    async def add_label(
        self, conversation_id: str | int, label: str, *, message_id: str | int | None = None
    ) -> tuple[str, ...]:
        """Adds a label to a conversation or to one of its messages, and returns all its labels.

        - `conversation_id`: which conversation; `ConversationNotFound` if there is none.
        - `label`: a text of your own, at most 256 bytes.
        - `message_id`: the message to label; None for the conversation itself.
        """
        name = marks.checked_label(label, self.limits)
        if message_id is not None:
            return (await self._mark(conversation_id, message_id, MessageChange(added_labels=(name,)))).labels
        id = checks.id_of(conversation_id, "conversation_id", self.limits)
        context = self._view.context()
        if await self._backend.get_conversation(context, id) is None:
            raise rules.not_found(id)
        await marks.note_labels(self._backend, context, id, [name])
        with outcome_unknown_on_failure():
            change = ConversationChange(added_labels=(name,))
            return (await self._backend.update_conversation(context, id, change)).labels

    async def remove_label(
        self, conversation_id: str | int, label: str, *, message_id: str | int | None = None
    ) -> tuple[str, ...]:
        """Removes a label from a conversation or from one of its messages, and returns the labels that are left.

        - `conversation_id`: which conversation; `ConversationNotFound` if there is none.
        - `label`: which label. Nothing changes if it is not there.
        - `message_id`: the message; None for the conversation itself.
        """
        name = marks.checked_label(label, self.limits)
        if message_id is not None:
            return (await self._mark(conversation_id, message_id, MessageChange(removed_labels=(name,)))).labels
        id = checks.id_of(conversation_id, "conversation_id", self.limits)
        change = ConversationChange(removed_labels=(name,))
        return (await self._backend.update_conversation(self._view.context(), id, change)).labels

    async def list_labels(self) -> list[str]:
        """Returns the labels of the newest 1,000 conversations, archived ones included, in alphabetical order."""
        context = self._view.context()
        query = ConversationQuery(
            user_id=self._view.user, archived=None, limit=_LABELLED, memberships=self._view.user is not None
        )
        found, _ = await self._backend.list_conversations(context, query)
        return sorted({label for conversation in found for label in conversation.labels})

    async def _mark(self, conversation_id: str | int, message_id: str | int, change: MessageChange) -> Message:
        id = checks.id_of(conversation_id, "conversation_id", self.limits)
        wanted = checks.message_id(message_id, self.limits)
        context = self._view.context()
        # The index first: see `marks`. Where there is no message, the update raises the error.
        there = await self._backend.find_messages(context, id, [wanted]) if isinstance(change.rating, Rating) else []
        await marks.note_ratings(self._backend, context, id, [_rated(each, change) for each in there])
        message = await self._backend.update_message(context, id, wanted, change)
        if not there and isinstance(change.rating, Rating):
            await marks.note_ratings(self._backend, context, id, [message])  # it was appended in this moment
        if self._view.embeddings is not None:
            self._view.embeddings.note(context.tenant, id, ())
        with outcome_unknown_on_failure():
            whole = await read_query.with_blobs(self._view, context, [message], "inline")
        return whole[0] if whole else message


def _rated(message: Message, change: MessageChange) -> Message:
    assert isinstance(change.rating, Rating)
    return structs.replace(message, ratings=(change.rating,))
