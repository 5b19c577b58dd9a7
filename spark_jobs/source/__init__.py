"""The log as a Spark data source: `spark.read.format("rewind")` and `spark.readStream`.

Spark finds it through the module `pyspark_rewind`, without registration. Options and columns have
the names and meanings of Spark's Kafka connector, so a job migrates by changing the format.
"""
