"""Moving conversations: into a file, out of a file, from one store to another."""
