"""Appends: rows are shaped, staged and committed; the producer."""
