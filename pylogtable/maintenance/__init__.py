"""Maintenance: retention, compaction, merge and vacuum."""
