"""Addresses of this machine, and of the page's callback."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

CALLBACK = "/sign-in/callback"
"""The path that a provider of OpenID Connect redirects to, below the first page."""


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Whether an address or host name can only be this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
