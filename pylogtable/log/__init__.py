"""The put-if-absent protocol over `_manifest/` and `_groups/`."""
