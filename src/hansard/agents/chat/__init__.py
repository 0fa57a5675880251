"""A complete chat over a store. Its public names are in `hansard.chat`."""
