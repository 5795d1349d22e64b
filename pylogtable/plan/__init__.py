"""Plans: from a snapshot and a request to a change. Pure: no store, no clock, no randomness."""
