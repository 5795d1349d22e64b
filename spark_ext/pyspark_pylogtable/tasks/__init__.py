"""What runs in Spark's tasks: reading parts and staging files, for batch and stream."""
