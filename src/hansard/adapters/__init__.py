"""Adapters of the Store for agent frameworks. An adapter is imported when its accessor is first used."""
