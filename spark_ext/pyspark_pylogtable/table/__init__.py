"""`LogTable`: a topic in a Spark session, with native reads, appends and maintenance jobs."""
