"""Backends built on a backend: each adds one thing to any of them."""
