"""Published tables: a topic's files under the metadata of other table formats."""
