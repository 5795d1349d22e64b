"""`LogTable`: native reads, clustered appends and maintenance as Spark jobs."""
