"""Messages of records: JSON, Avro and Protobuf, raw or with a schema registry, to the rows of a block."""
