"""Creating, altering and deleting topics."""
