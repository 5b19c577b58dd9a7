"""The data pipeline: Spark jobs that read the log, and the tables that they maintain."""
