"""Records in Avro, whose schemas are in a registry: wire format, writer schemas, datums one by one and in columns."""
