"""What a Spark query asks of the source: columns, filters and option values. Pure."""
