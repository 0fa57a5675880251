"""Google ADK's session and memory services on the Store. Start with `sessions`."""
