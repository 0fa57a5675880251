"""The Store in the shapes of agent frameworks. Each adapter is one module, imported when its accessor is first used."""
