"""Draws the report's page from measured numbers. Pure."""
