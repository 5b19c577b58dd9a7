# Two images: `rewind` and `logbroker`, and the pipeline with Spark and a Java runtime:
#
#   docker build .                          docker build --target pipeline .
#
# The build context has no .git, so the version is `fallback_version` of pyproject.toml. A release names its own:
#
#   docker build --build-arg SETUPTOOLS_SCM_PRETEND_VERSION_FOR_REWIND=0.1.0 .
FROM python:3.11-slim AS source

# A user without rights; its home holds the data of a log, of `rewind up`, or of the pipeline.
RUN useradd --create-home --uid 10001 rewind \
    && install --directory --owner rewind --group rewind /var/lib/rewind /var/lib/rewind/tables

WORKDIR /src
COPY pyproject.toml setup.py constraints.txt README.md LICENSE pyspark_rewind.py ./
COPY app app
COPY logbroker logbroker
COPY migrations migrations
COPY spark_jobs spark_jobs

ENV PYTHONUNBUFFERED=1

FROM source AS pipeline
RUN apt-get update \
    && apt-get install --yes --no-install-recommends default-jre-headless procps \
    && rm -r /var/lib/apt/lists/*
ARG SETUPTOOLS_SCM_PRETEND_VERSION_FOR_REWIND
RUN pip install --no-cache-dir --constraint constraints.txt '.[spark,hdfs]' && rm -r /src/*

USER rewind
WORKDIR /var/lib/rewind
VOLUME /var/lib/rewind/tables
CMD ["rewind-jobs", "--help"]

FROM source AS service
ARG SETUPTOOLS_SCM_PRETEND_VERSION_FOR_REWIND
# The compiler of the broker's record validation does not stay in the image.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && REWIND_COMPILE=1 pip install --no-cache-dir --constraint constraints.txt '.[service]' \
    && apt-get purge --yes --auto-remove gcc libc6-dev \
    && rm -r /var/lib/apt/lists/* /src/*

USER rewind
WORKDIR /var/lib/rewind
VOLUME /var/lib/rewind

# Containers are reached from without; on a laptop the default is loopback.
ENV REWIND_HOST=0.0.0.0

EXPOSE 8000 9092
CMD ["rewind", "up"]
