"""The Store in the shapes of agent frameworks. An adapter is imported when its accessor is first used."""
