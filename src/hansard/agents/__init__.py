"""Programs around a store: agents that are recorded, a chat, voice sessions."""
