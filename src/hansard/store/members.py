"""Members: the users who see a conversation and may append to it, beside its owner."""

from __future__ import annotations

from hansard import rules
from hansard.contract.types import ConversationChange
from hansard.errors import ValidationError
from hansard.store import checks, marks
from hansard.store.core import StorePart, outcome_unknown_on_failure


class MemberMethods(StorePart):
    async def add_member(self, conversation_id: str | int, user_id: str | int) -> tuple[str, ...]:
        """Lets a user see a conversation and append to it, and returns all its members.

        - `conversation_id`: which conversation; `ConversationNotFound` if there is none.
        - `user_id`: the new member. `Denied` through the view of a user who does not own the conversation.
        """
        id = checks.id_of(conversation_id, "conversation_id", self.limits)
        user = checks.id_of(user_id, "user_id", self.limits)
        self._view.require(marks.can_index(self._backend) or not self.capabilities.keeps, "records", "have members")
        context = self._view.context()
        conversation = await self._backend.get_conversation(context, id)
        if conversation is None:
            raise rules.not_found(id)
        rules.check_owner(conversation, context)
        if user == conversation.user_id:
            raise ValidationError(f"{user!r} owns conversation {id!r}, and need not be a member")
        await marks.note_members(self._backend, context, id, [user])
        with outcome_unknown_on_failure():
            change = ConversationChange(added_members=(user,))
            return (await self._backend.update_conversation(context, id, change)).members

    async def remove_member(self, conversation_id: str | int, user_id: str | int) -> tuple[str, ...]:
        """Ends a membership, and returns the members that are left. The member's messages stay.

        - `conversation_id`: which conversation; `ConversationNotFound` if there is none.
        - `user_id`: which member. Nothing changes if the user is none. A member may remove only itself.
        """
        id = checks.id_of(conversation_id, "conversation_id", self.limits)
        user = checks.id_of(user_id, "user_id", self.limits)
        change = ConversationChange(removed_members=(user,))
        return (await self._backend.update_conversation(self._view.context(), id, change)).members
