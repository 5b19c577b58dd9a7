"""Avro: schemas, their compatibility, their canonical text, and the cost of decoding; no I/O."""
