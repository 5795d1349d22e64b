"""The command line. It stands outside of the library and uses only its public names."""
