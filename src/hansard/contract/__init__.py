"""What Hansard's parts agree on: what the Store calls (`backend`), what a storage brings (`storage`), and `types`."""
