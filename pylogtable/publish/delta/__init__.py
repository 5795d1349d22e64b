"""Delta tables: `_delta_log/` over a topic's files."""
