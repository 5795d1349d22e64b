"""What Spark calls for streams: source and sink, their offsets, limits and progress."""
