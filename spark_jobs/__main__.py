"""`python -m spark_jobs NAME`, also the program for `spark-submit`; same as `rewind-jobs NAME`."""

from spark_jobs.cli import main

if __name__ == "__main__":
    main()
