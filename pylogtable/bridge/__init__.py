"""Bridges: the same records under the same offsets in another system."""
