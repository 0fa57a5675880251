"""What several storages share."""
