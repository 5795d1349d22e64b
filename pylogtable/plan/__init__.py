"""Decisions: a snapshot and a request give a change. Pure: no store, no clock, no chance."""
