"""The commit protocol: numbered objects, put if absent, in `_manifest/` and `_groups/`."""
