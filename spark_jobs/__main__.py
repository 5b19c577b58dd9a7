"""`python -m spark_jobs NAME`, and what `spark-submit` is given: the same as `rewind-jobs NAME`."""

from spark_jobs.cli import main

if __name__ == "__main__":
    main()
