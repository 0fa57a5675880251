"""Recording agents. Its public names are in `hansard.capture`."""
