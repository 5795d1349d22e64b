"""The command line program. It uses only the public names of `pylogtable`."""
