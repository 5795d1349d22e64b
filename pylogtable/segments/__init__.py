"""Parquet data files: the only readers and writers of records."""
