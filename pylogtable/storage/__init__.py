"""The object store: its interface, and one module for each kind of store."""
