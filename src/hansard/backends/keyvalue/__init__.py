"""A custom store: four functions over any store with compare-and-swap make a complete Hansard backend."""

from __future__ import annotations

from hansard.backends.keyvalue.functions import KeyValue
from hansard.backends.keyvalue.storage import KeyValueStorage
from hansard.backends.stored import StoredBackend
from hansard.contract.backend import Durability

__all__ = ["KeyValue", "KeyValueBackend", "KeyValueStorage"]


class KeyValueBackend(StoredBackend[KeyValueStorage]):
    """`hansard.Store(KeyValueBackend(my_store, durability="machine"))`: see `KeyValueStorage`."""

    def __init__(
        self,
        store: KeyValue,
        *,
        durability: Durability,
        name: str = "keyvalue",
        shared: bool = True,
        in_threads: bool = False,
    ) -> None:
        super().__init__(KeyValueStorage(store, durability=durability, name=name, shared=shared, in_threads=in_threads))
