"""The server: a store behind HTTP. So far it answers whether it is up, and shows what it serves."""
