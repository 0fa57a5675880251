"""Modules that several storages share."""
