"""What a read or write asks for: options, then topics and versions, then ranges of offsets."""
