# One image for every process of the house: `rewind ...` and `logbroker ...`.
FROM python:3.11-slim

# A user without rights; its home holds the data of a log, or of `rewind up`.
RUN useradd --create-home --uid 10001 rewind \
    && install --directory --owner rewind --group rewind /var/lib/rewind

WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY app app
COPY logbroker logbroker
COPY migrations migrations
RUN pip install --no-cache-dir --constraint constraints.txt . && rm -r /src/*

USER rewind
WORKDIR /var/lib/rewind
VOLUME /var/lib/rewind

# Containers are reached from without; on a laptop the default is loopback.
ENV REWIND_HOST=0.0.0.0 \
    PYTHONUNBUFFERED=1

EXPOSE 8000 9092
CMD ["rewind", "up"]
