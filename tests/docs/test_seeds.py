"""The pages for those who come from another store name every method and type of it."""

from __future__ import annotations

import re

import pytest
from tests.docs import pages

SEEDS = {
    "modernpath": """
        ConversationStore TraceStore ConversationFilter MessageQueryOptions
        Conversation ConversationMessage ConversationRole
        createConversation addMessage updateConversation getConversation getMessages listConversations
        deleteConversation
        schemaVersion conversationId userId auditingId agentName title createdAt updatedAt messageCount metadata
        messageId role content timestamp traceId sources documentId documentName chunk score limit offset before
    """,
    "toolpack": """
        ConversationStore append get search deleteMessages
        GetOptions scope sinceTimestamp limit participantIds SearchOptions tokenCap
        InMemoryConversationStore maxConversations maxMessagesPerConversation SQLiteConversationStore
        StoredMessage id conversationId participant content timestamp ConversationScope metadata
        channelType channelName channelId threadId messageId mentions isSummary
        Participant kind displayName user agent system channel dm thread
        assemblePrompt AssembledPrompt PromptMessage messages AssemblerOptions tokenBudget addressedOnlyMode
        rollingSummaryThreshold timeWindowMinutes maxTurnsToLoad agentAliases
        SummarizerAgent CaptureInterceptor BaseAgent conversationHistory assemblerOptions _resolveAssemblerOptions
        run conversation_search
    """,
    "ai-dev-kit": """
        ConversationStoreType None LocalFile ThreadsApi RealtimeApi ConversationsApi Custom
        IConversationStore StoreType PersistMode CreateAsync ListAsync LoadAsync UpdateAsync DeleteAsync
        UpdateItemsAsync LoadItemsAsync DeleteItemAsync LoadItemAsync CancellationToken
        ConversationPersistMode DeltaAppend FullSnapshot
        NoopConversationStore LocalFileStore ThreadsApiStore ConversationsApiStore RealtimeApiStore
        AgentConfig ConversationStore CustomConversationStore SetCustomStore ChatApi
        Conversation ConversationItem Id AgentId CreatedAt Title Summary Metadata Role GetText
        ListConversationsAsync LoadConversationAsync LoadConversationItemsAsync SendAsync MigrateConversations
    """,
    "edgeone-makers": """
        context store agent
        appendMessage getMessages updateMessage deleteMessage clearMessages getConversation listConversations
        updateConversation deleteConversation toAnthropicMessages toOpenAIInput
        append_message get_messages update_message delete_message clear_messages get_conversation list_conversations
        update_conversation delete_conversation to_anthropic_messages to_openai_input
        conversationId conversation_id messageId message_id role content metadata userId user_id
        limit order after before
        Message createdAt created_at updatedAt updated_at
        ConversationMeta lastMessageAt last_message_at messageCount message_count
        ListConversationsResult items nextCursor next_cursor previousCursor previous_cursor
        MemoryValidationError MemoryQuotaExceededError MemoryCorruptError
        claudeSessionStore claude_session_store append load listSessions delete listSubkeys claudeSessionBinding
        openaiSession openai_session maxItems getItems addItems popItem clearSession
        langgraphCheckpointer langgraph_checkpointer getTuple list put putWrites
        langgraphStore langgraph_store get search listNamespaces batch
        state set summary summarizedUntil
    """,
    "tpipe": """
        ConverseRole developer system user agent assistant tool_response pcp_response mcp_response
        ConverseData role content uuid setUUID getUUID equals MultimodalContent
        ConverseHistory history add truncateConverseHistory preserveTextMatches
    """,
}


@pytest.mark.parametrize("seed", SEEDS)
def test_every_name_has_its_counterpart(seed: str) -> None:
    assert set(SEEDS[seed].split()) <= pages.code_words(pages.read(f"docs/howto/coming-from/{seed}.md"))


@pytest.mark.parametrize("seed", SEEDS)
def test_every_row_says_something(seed: str) -> None:
    """No row of a table leaves its counterpart empty."""
    text = pages.prose(pages.read(f"docs/howto/coming-from/{seed}.md"))
    for row in re.findall(r"^\|(.+)\|$", text, re.MULTILINE):
        assert any(cell.strip() for cell in row.split("|")[1:]), row
