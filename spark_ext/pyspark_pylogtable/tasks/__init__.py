"""What batch and stream share: tasks read parts and stage files, the driver commits them."""
