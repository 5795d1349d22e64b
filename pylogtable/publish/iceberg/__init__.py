"""Iceberg tables: `metadata/` over a topic's files, and entries in catalogs."""
