"""A whole chat over a store: load, assemble, call a model, run its tools, store. Begin with `agents.chat.chat`.

The models of `openai_model` and `anthropic_model` import their SDKs when they are made.
"""

from hansard.agents.chat.anthropic_model import AnthropicModel
from hansard.agents.chat.chat import Chat
from hansard.agents.chat.fallback_store import Synced
from hansard.agents.chat.models import Answer, Call, EchoModel, Model, model_named
from hansard.agents.chat.openai_model import OpenAIModel
from hansard.agents.chat.tools import Tool

__all__ = [
    "Answer",
    "AnthropicModel",
    "Call",
    "Chat",
    "EchoModel",
    "Model",
    "OpenAIModel",
    "Synced",
    "Tool",
    "model_named",
]
