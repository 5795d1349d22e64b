"""Maintenance jobs: retention, compaction, merge, erase and vacuum."""
