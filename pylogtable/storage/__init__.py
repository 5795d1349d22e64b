"""The object store: a few verbs, one module for each backend."""
