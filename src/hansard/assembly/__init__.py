"""From history to prompt. Works on messages alone, never on a store."""
