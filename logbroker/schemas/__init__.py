"""An Avro schema registry, kept in the log itself, with the REST interface of Confluent's."""
