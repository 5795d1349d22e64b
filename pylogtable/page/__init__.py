"""The report of a store as HTML: pure, from what was measured to text."""
