"""The contract, on every backend, in both modes of the API. `tiers.py` says what of it runs where."""

from hansard.testing.contract import *  # noqa: F403
