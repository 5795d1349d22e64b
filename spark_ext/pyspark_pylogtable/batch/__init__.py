"""What Spark calls for batch reads and writes."""
