"""The whole contract, on every backend, in both modes of the API."""

from hansard.testing.contract import *  # noqa: F403
