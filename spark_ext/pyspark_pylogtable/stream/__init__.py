"""Structured Streaming: the source, the sink, their offsets and limits."""
