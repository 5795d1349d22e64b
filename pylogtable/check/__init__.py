"""Checks: `verify` for a topic, `diagnose` for an installation."""
