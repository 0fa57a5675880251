"""The server: a store behind HTTP, guarded by keys. See docs/reference/server.md."""
