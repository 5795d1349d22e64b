"""The doctor for Spark: what works in this session, on the driver and on the workers, and the line
that mends what does not."""
