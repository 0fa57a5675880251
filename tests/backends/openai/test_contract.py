"""The contract on mirrors of both APIs, in both modes, through the real SDK and our own server.

`tests/contract/tiers.py` says what of it runs where. What a mirror does not claim, the contract skips by name.
"""

from hansard.testing.contract import *  # noqa: F403
