"""Voice sessions. Its public names are in `hansard.realtime`."""
