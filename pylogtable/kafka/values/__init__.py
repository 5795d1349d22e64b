"""Values and keys of Kafka, between bytes and columns: Avro, JSON Schema, JSON and Protobuf.

`decoder` makes columns of bytes in batches, `encoder` bytes of columns.
"""
