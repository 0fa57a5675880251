"""Google ADK's session and memory services on the Store. Begin with `sessions`."""
