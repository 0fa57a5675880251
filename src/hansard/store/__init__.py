"""The Store: the one class that people use, over every backend."""

from hansard.store.records import Delete, Put
from hansard.store.store import Store

__all__ = ["Delete", "Put", "Store"]
