"""Finding what was said: the scan for backends without an index, ranking, snippets."""

from __future__ import annotations

from hansard.search.hits import Hit, Hits, Snippet

__all__ = ["Hit", "Hits", "Snippet"]
