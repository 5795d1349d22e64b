"""Writing: appends, staged files, and the producer."""
