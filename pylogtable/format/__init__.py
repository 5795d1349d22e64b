"""The specification as code: names, objects, encoding, schema, partitioner, replay. Pure."""
