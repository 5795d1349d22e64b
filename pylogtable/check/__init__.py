"""Checks: `verify` a topic against the specification, `diagnose` a store before use."""
