"""Programs around a store: recorded agents, a chat, voice sessions."""
