"""The contracts: what the Store calls (`backend`), what a storage provides (`storage`), and their `types`."""
