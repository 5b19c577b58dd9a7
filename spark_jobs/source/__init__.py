"""The log as a Spark data source: `spark.read.format("rewind")` and `spark.readStream`.

Spark finds it by the module `pyspark_rewind`, without being told. Options, columns and what they
mean are those of Spark's own Kafka connector, so that a program changes the word alone.
"""
