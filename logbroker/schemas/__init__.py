"""An Avro schema registry with Confluent's REST interface; schemas are stored in the log."""
