"""Reading: a topic at one version, lookups, counts, the newest record of each key."""
