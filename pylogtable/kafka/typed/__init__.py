"""Typed imports: Kafka's values become columns, and what does not decode becomes a dead letter."""
